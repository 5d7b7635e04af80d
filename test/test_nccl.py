# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's interface over MPI."""
import os
import re
import shutil
import sys

import pytest

from conftest import BUILD, MPIS, ON_GPU, SOURCE, environment, launcher, run_command
from helpers import count_calls, each_mpi, emulated_only, run_tool

ABSENT = set("ncclAllGatherConfig ncclAllReduceConfig ncclAlltoAllConfig ncclBroadcastConfig ncclReduceScatterConfig ncclCommQueryProperties "
             "ncclDevCommCreate ncclDevCommDestroy ncclGetLsaDevicePointer ncclGetLsaMultimemDevicePointer ncclGetPeerDevicePointer "
             "ncclPutSignal ncclSignal ncclWaitSignal pncclCommQueryProperties pncclPutSignal pncclSignal pncclWaitSignal".split())
CASES = ["collectives", "groups", "premultiplied", "refused", "split"]


def run_nccl(run_mpi, tmp_path, mpi, ranks, case, **more):
    """The program starts no MPI; that the library it is linked with needs is found beside it."""
    result = run_mpi(mpi, ranks, "test_nccl", tmp_path / "id", case, **more)
    assert result.status == 0, result.output[-4000:]
    assert result.output.count(" checks passed, 0 failed") == ranks, result.output[-4000:]
    return result


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", CASES)
def test_cases(run_mpi, tmp_path, mpi, case):
    run_nccl(run_mpi, tmp_path, mpi, 2, case, library=False, env={"CUEMU_DEVICES": "2"})


@each_mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_collectives(run_mpi, tmp_path, mpi, ranks):
    """Also with libgpucoll preloaded, and one GPU for all."""
    run_nccl(run_mpi, tmp_path, mpi, ranks, "collectives")


@each_mpi
@pytest.mark.parametrize("case", ["collectives", "groups"])
def test_pieces(run_mpi, tmp_path, mpi, case):
    """Calls of more elements than MPI counts: by a library for which that are more than 1000, in pieces of 3000 bytes."""
    results = []
    for name, before in (("whole", []), ("pieces", [str(BUILD / "mpi" / mpi / "pieces/libnccl.so.2")])):
        (tmp_path / name).mkdir()
        env = {"CUEMU_DEVICES": "2", "GPUCOLL_STATS": "1"}
        results.append(run_nccl(run_mpi, tmp_path / name, mpi, 3, case, before=before, env=env))
    calls = [sum(int(row[1]) for row in re.findall(r"^ *(MPI_|gpucoll_)\w+ .* (\d+) +\d+ +\d+\.\d+ ", result.output, re.M)) for result in results]
    assert calls[1] > 1.5 * calls[0] > 0, calls


@each_mpi
@pytest.mark.parametrize("way", ["fused", "staged"])
def test_sums_in_order(run_mpi, tmp_path, mpi, way):
    """All operations, types and averages, too, by which results are what they are in any order."""
    run_nccl(run_mpi, tmp_path, mpi, 3, "collectives", env={"GPUCOLL_REPRODUCIBLE": "1", "GPUCOLL_STREAM_EXEC": way, "CUEMU_SMS": "16"})


@each_mpi
def test_a_program_that_starts_mpi(run_mpi, tmp_path, mpi):
    """Its thread level is too low, or libgpucoll asks for more, of which the program is not told."""
    (tmp_path / "with").mkdir()
    run_nccl(run_mpi, tmp_path, mpi, 2, "own_mpi")
    run_nccl(run_mpi, tmp_path / "with", mpi, 2, "own_mpi", env={"GPUCOLL_THREADS": "multiple"})


# Where messages are kernels: in the host's memory, on one GPU with few blocks, with short FIFOs, and compiled kernels; and where not.
PLACES = {"p2p": {"CUEMU_DEVICES": "3", "CUEMU_SMS": "16"}, "shm": {"CUEMU_DEVICES": "3", "CUEMU_P2P": "0", "CUEMU_SMS": "16"},
          "few blocks": {"CUEMU_DEVICES": "1", "CUEMU_SMS": "24"}, "short FIFOs": {"CUEMU_DEVICES": "3", "GPUCOLL_SCRATCH": "4M", "CUEMU_SMS": "16"},
          "staged": {"CUEMU_DEVICES": "3", "GPUCOLL_STREAM_EXEC": "staged"}}


@each_mpi
@pytest.mark.parametrize("place", PLACES)
def test_messages(run_mpi, tmp_path, mpi, place):
    """Groups that are drawn, of two communicators, which each rank names in its own order."""
    result = run_nccl(run_mpi, tmp_path, mpi, 3, "messages", env={"GPUCOLL_STATS": "1", **PLACES[place]})
    assert (count_calls(result.output, "accel", "ncclGroupEnd") > 0) == (place != "staged"), result.output
    assert (count_calls(result.output, "stage", "gpucoll_recv_enqueue") > 0) == (place == "staged"), result.output


@pytest.mark.quick
@emulated_only
@each_mpi
def test_messages_by_compiled_kernels(run_mpi, tmp_path, mpi):
    run_nccl(run_mpi, tmp_path, mpi, 2, "groups", env={"CUEMU_DEVICES": "2", "CUEMU_KERNELS": "ptx"})


@pytest.mark.quick
@each_mpi
def test_messages_to_oneself(run_mpi, tmp_path, mpi):
    run_nccl(run_mpi, tmp_path, mpi, 2, "to_oneself", env={"CUEMU_DEVICES": "2", "CUEMU_SMS": "16"})


@pytest.mark.quick
@each_mpi
def test_mismatched_messages(run_mpi, tmp_path, mpi):
    """They come to their end, with a report."""
    result = run_nccl(run_mpi, tmp_path, mpi, 2, "mismatched", env={"CUEMU_DEVICES": "2", "CUEMU_SMS": "16"})
    assert "rank 0 has sent 1000 bytes in an enqueued call to rank 1, which receives 1001" in result.output, result.output


@pytest.mark.quick
@each_mpi
def test_aborted_messages(run_mpi, tmp_path, mpi):
    run_nccl(run_mpi, tmp_path, mpi, 2, "aborted", env={"CUEMU_DEVICES": "2", "CUEMU_SMS": "16"})


@pytest.mark.quick
@each_mpi
def test_aborted_graph(run_mpi, tmp_path, mpi):
    """Its kernels wait on a stream of which the library knows nothing."""
    run_nccl(run_mpi, tmp_path, mpi, 2, "aborted_graph", env={"CUEMU_DEVICES": "2", "CUEMU_SMS": "16"}, timeout=60)


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("way", ["fused", "staged"])
@pytest.mark.parametrize("case", ["aborted_when_idle", "aborted_sender"])
def test_abort_of_what_has_ended(run_mpi, tmp_path, mpi, case, way):
    """It takes nothing from those who have not come so far: PyTorch aborts what a program leaves at its exit."""
    env = {"CUEMU_DEVICES": "2", "CUEMU_SMS": "16", "GPUCOLL_STREAM_EXEC": way}
    run_nccl(run_mpi, tmp_path, mpi, 2, case, env=env, timeout=60)


@emulated_only
@each_mpi
def test_little_memory(run_mpi, tmp_path, mpi):
    """Sends of a group are more than the pool has, and do not wait for receives behind them; kernels wait in the stream."""
    run_nccl(run_mpi, tmp_path, mpi, 2, "groups", env={"GPUCOLL_STREAM_WAIT": "kernel", "GPUCOLL_STAGING_POOL": "64K"})


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("devices", ["2", "1"])
def test_graphs(run_mpi, tmp_path, mpi, devices):
    result = run_nccl(run_mpi, tmp_path, mpi, 2, "graphs", library=False, env={"CUEMU_DEVICES": devices, "CUEMU_SMS": "16"})
    assert result.output.count("can't be captured in a graph") == 4, result.output


@pytest.mark.quick
@pytest.mark.parametrize("mpi", MPIS)
def test_exec(tmp_path, mpi):
    """gpucoll-exec puts the library in NCCL's place, which the program has no path to."""
    program = shutil.copy(BUILD / "mpi" / mpi / "test_nccl", tmp_path)
    where = [] if ON_GPU else ["--emulate=2"]
    result = run_tool(BUILD / "gpucoll-exec", *where, "--nccl", *launcher(mpi, 2), program, tmp_path / "id", "groups",
                      env={"YIELD_SHIM_NAP": "1"})
    assert result.status == 0 and result.output.count(" checks passed, 0 failed") == 2, result.output


@pytest.mark.quick
def test_names():
    """All functions of the header are there, by profilers' names, too, and those that XLA looks up, with an error; and nothing else is
    shown."""
    path = SOURCE / "include/gpucoll/nccl.h"
    if not path.exists():
        pytest.skip("a bundle has no headers")
    header = path.read_text()
    wanted = set(re.findall(r"^(?:ncclResult_t|const char \*|void) ?\*?(nccl\w+)\(", header, re.MULTILINE))
    assert len(wanted) == 41, wanted
    for mpi in MPIS:
        result = run_command(["nm", "-D", "--defined-only", str(BUILD / "mpi" / mpi / "nccl/libnccl.so.2")], os.environ.copy(), 20)
        shown = set(re.findall(r" T (\w+)", result.output))
        assert shown == wanted | {f"p{name}" for name in wanted} | ABSENT, shown ^ (wanted | ABSENT)
        for name in ABSENT:
            call = ("import ctypes, sys; nccl = ctypes.CDLL(sys.argv[1]); nccl.ncclGetLastError.restype = ctypes.c_char_p\n"
                    "print(getattr(nccl, sys.argv[2])(), nccl.ncclGetLastError(None).decode())")
            result = run_command([sys.executable, "-c", call, str(BUILD / "mpi" / mpi / "nccl/libnccl.so.2"), name],
                                 os.environ | environment(mpi, []), 20)
            assert result.output == f"5 {name}: not in this library; see gpucoll-nccl(7)\n", result.output


@emulated_only
@each_mpi
def test_bench(run_mpi, mpi):
    """What measures NVIDIA's NCCL beside (bench/nccl.c), by ours: results are right."""
    result = run_mpi(mpi, 3, "nccl-bench", BUILD / "mpi" / mpi / "nccl/libnccl.so.2", "64K", env={"CUEMU_SMS": "8"})
    rows = re.findall(r"^(\d+) [\d.]+ (\d+)$", result.output, re.M)
    assert result.status == 0 and rows == [("8", "0"), ("256", "0"), ("8192", "0")], result.output
