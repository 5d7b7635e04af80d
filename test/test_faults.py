# SPDX-License-Identifier: BSD-3-Clause
"""What fails, by fault injection, and what the library makes of it."""
import os
import re
import shutil

import pytest

from conftest import BUILD, SANITIZED, SOURCE, assert_passed, environment, family, launcher, run_work
from helpers import PATHS, compile_with, count_calls, each_mpi, emulated_only, on_nodes, on_one_rank


@emulated_only
@each_mpi
@pytest.mark.parametrize("fault", ["cuIpcOpenMemHandle", "cuIpcOpenMemHandle+", "cuIpcOpenMemHandle:2=208",
                                   "cuIpcGetMemHandle+", "cuMemGetAddressRange+", "cuMemAlloc:7+", "cuMemHostRegister+",
                                   "cuModuleLoadData+=209", "cuCtxGetId:9", "cuMemHostGetDevicePointer:3+"])
def test_fault_on_one_rank_is_survived(run_mpi, mpi, fault, tmp_path):
    """What one rank can't do is staged by all, rightly."""
    script = on_one_rank(tmp_path, fault)
    assert_passed(run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "test_agree", "mixed", 60))


@emulated_only
@each_mpi
@pytest.mark.parametrize("nth,heals", [("2", True), ("2+", False)])
def test_a_mapping_that_fails_now(run_mpi, mpi, nth, heals, tmp_path):
    """One failed attempt is no verdict: the call is staged, and the next one maps. If it goes on so, it is after some calls."""
    script = on_one_rank(tmp_path, f"cuIpcOpenMemHandle:{nth}=205")
    result = run_mpi(mpi, 2, script, BUILD / "mpi" / mpi / "gpucoll-bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "200", env=PATHS["accel"])
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output
    staged, shots = count_calls(result.output, "stage"), sum(map(int, re.findall(r" accel +(\d+) .* twoshot", result.output)))
    assert 0 < staged <= (2 if heals else 16) and (shots > 190) == heals and count_calls(result.output, "accel") > 190, result.output


@emulated_only
@each_mpi
def test_large_memory_is_kept_mapped(run_mpi, mpi):
    """20 GB of one peer's, and small buffers in turn: what is mapped stays so."""
    result = run_mpi(mpi, 2, "test_life", "large_memory", env={"CUEMU_MEMORY": "24G", "GPUCOLL_DEBUG": "trace", "GPUCOLL_DEBUG_SUBSYS": "gpu", **PATHS["accel"]})
    assert_passed(result)
    large = re.findall(r"\[0\] TRACE gpu: mapped (\d{11}) bytes", result.output)
    assert len(large) == 1 and count_calls(result.output, "accel") > 40, result.output[-4000:]


@emulated_only
@each_mpi
@pytest.mark.parametrize("fault", ["cuLaunchKernel:5", "cuLaunchKernel:5=719", "kernel:5=719", "kernel:5"])
def test_kernel_fault_is_an_error(run_mpi, mpi, fault, tmp_path):
    """A kernel that is not started, or does not do its work: an MPI error on every rank, in the same call."""
    # Of ranks that share a GPU the first does the work.
    script = on_one_rank(tmp_path, fault, rank=0)
    result = run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "test_agree", "fault")
    assert "first error in call 4, last 4" in result.output and "1 checks passed, 0 failed" in result.output, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("shape", ["000", "0011"])
@pytest.mark.parametrize("env", [{}, {"TEST_FIRST": "1"}], ids=["later", "first"])
def test_context_lost_before_the_call(run_mpi, mpi, shape, env):
    """By a kernel of the application's: errors that name the driver's, where the real MPI would die of device memory."""
    result = on_nodes(run_mpi, mpi, shape, "test_life", "lost_before", env=env)
    assert_passed(result)
    assert re.search(r"\[0\] WARN gpu: 0x\w+ is device memory, .* CUDA_ERROR_ILLEGAL_ADDRESS \(700\)", result.output), result.output
    assert re.search(r"\[1\] WARN core: MPI_Allreduce failed, .*another rank has failed in it, or is lost", result.output), result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("shape", ["000", "0011"])
@pytest.mark.parametrize("fault", ["cuStreamCreate=226", "cuStreamQuery:4=700"])
def test_context_lost_while_a_call_is_prepared(run_mpi, mpi, shape, fault):
    """As by earlier work that turns out to have failed: such a call is not staged, which this rank could not do, and the others would wait for."""
    result = on_nodes(run_mpi, mpi, shape, "test_agree", "fault", first=f"[ $r = 0 ] && export CUEMU_FAULT={fault};", timeout=60)
    assert re.search(r"first error in call (\d+), last \1\n", result.output) and "1 checks passed, 0 failed" in result.output, result.output


@emulated_only
@each_mpi
def test_fault_after_a_call(run_mpi, mpi):
    """Of those who are done with a call and those who still copy what came for them, all return it right."""
    result = run_mpi(mpi, 3, "test_agree", "fault_after", timeout=60,
                     env={"CUEMU_DEVICES": "3", "CUEMU_P2P": "0", "GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert re.search(r"Reduce_scatter_block .* accel +1 .* ring", result.output), result.output


@each_mpi
def test_without_the_library_it_fails(run_mpi, mpi):
    """What the tests test is the library: without it the MPI touches device memory and dies."""
    result = run_mpi(mpi, 2, "test_coll", library=False)
    assert result.status != 0 and "checks passed, 0 failed" not in result.output


@each_mpi
def test_errors(run_mpi, mpi):
    if family(mpi) == "mpich":
        pytest.skip("Debian's MPICH is built without argument checks, and MPICH 5.0 lacks some: wrong ones crash it on host buffers too")
    assert_passed(run_mpi(mpi, 2, "test_life", "errors"))


@emulated_only
@each_mpi
def test_without_kernels(run_mpi, mpi):
    """Where the kernels can't be loaded, or nothing can be pinned, the driver's copies do their work."""
    for fault in ("cuModuleLoadData+=209", "cuMemHostRegister+"):
        assert_passed(run_mpi(mpi, 2, "test_coll", 1, env={"CUEMU_FAULT": fault}))


FAULTS = {"cuMemHostRegister": "survived", "cuStreamCreate": "error", "cuMemcpyAsync:1": "error",
          "cuMemcpyAsync:2": "error", "cuStreamQuery:2": "error", "cuPointerSetAttribute": "survived",
          "cuCtxPushCurrent": "survived", "cuCtxPushCurrent:5": "error", "cuMemcpyAsync=719": "error"}


@emulated_only
@each_mpi
@pytest.mark.parametrize("fault", FAULTS)
def test_fault(run_mpi, mpi, fault):
    result = run_mpi(mpi, 1, "test_life", "fault", env={"CUEMU_FAULT": fault})
    if fault.endswith("=719"):
        # The device is lost: the test itself can't read its buffer any more. The error must have come.
        assert "cuMemcpyAsync failed" in result.output and result.status != "timeout", result.output
        return
    assert_passed(result)
    assert f"fault: {FAULTS[fault]}" in result.output


def under_valgrind(mpi, tmp_path, ranks, program, *arguments, tools=(), env=None):
    """What valgrind says of all ranks of a program that passes."""
    if shutil.which("valgrind") is None or SANITIZED:
        pytest.skip("valgrind is not there, or the build has sanitizers that it can't run with")
    env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0"), *tools],
                      {"CUEMU_ARENA": "4G", "CUEMU_DELAY_US": "0", "CUEMU_THREADS": "1", **(env or {})})
    command = [*launcher(mpi, ranks), "env", *[f"{k}={v}" for k, v in env.items()], "valgrind", "--fair-sched=yes", "--leak-check=full",
               "--undef-value-errors=no", "--num-callers=30", f"--log-file={tmp_path}/{program}.%p.log", str(BUILD / "mpi" / mpi / program), *arguments]
    assert_passed(run_work(command, os.environ.copy(), 120))
    text = "".join(log.read_text() for log in tmp_path.glob(f"{program}.*.log"))
    assert text.count("LEAK SUMMARY") + text.count("no leaks are possible") >= ranks
    return text


@each_mpi
@emulated_only
def test_freed_in_blocking(mpi, tmp_path):
    """Calls that the real MPI refuses, and whose error handler frees the communicator: none of ours uses it afterwards."""
    tool = tmp_path / "refuses.so"
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-o", tool, SOURCE / "test/door/refuses.c")
    text = under_valgrind(mpi, tmp_path, 2, "test_queue", "freed_in_blocking", tools=[str(tool)], env={"GPUCOLL_STATS": "1"})
    ours = re.findall(r"Invalid (?:read|write) .*\n.*at .*: (?:core|gpu|pmpi|util)_\w+ .*", text)
    assert not ours, "\n".join(ours)


@each_mpi
@emulated_only
def test_no_leaks(mpi, tmp_path):
    """1,200 communicators, some derived types, some hundred messages and requests, files and windows under valgrind: no block that was lost came from the library.
    MPICH 4.0 alone does not come back from MPI_Probe for a message to oneself in a job of one."""
    for ranks, *program in ((1, "test_life", "communicators"), (1, "test_coll", "1"), (2, "test_message", "stress", "60"),
                            (2, "test_async", "random", "1", "300"), (1, "test_io", str(tmp_path / "file")), (2, "test_rma", "calls")):
        text = under_valgrind(mpi, tmp_path, ranks, *program)
        # A function of ours that called the allocator itself; what the MPI allocates under our calls is the MPI's.
        ours = re.findall(r"at .*: (?:malloc|calloc|realloc|memalign) \(.*\n.*by .*: (?:core|gpu|pmpi|util)_\w+ \(.*", text)
        assert not ours, "\n".join(ours)
