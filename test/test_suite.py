# SPDX-License-Identifier: BSD-3-Clause
"""All tests of the built tree: each runs a program, or a few, and looks at what came out."""
import concurrent.futures
import contextlib
import csv
import io
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import socket
import sys
import threading
import time
import zipfile
from xml.etree import ElementTree

import pytest

from conftest import (ASAN_OPTIONS, BUILD, CUDA, MPIS, ON_GPU, SANITIZED, SOURCE, assert_passed, environment, launcher,
                      run_command, run_on_hosts)

UNIT_TESTS = [p.name for p in sorted(BUILD.glob("test_*")) if os.access(p, os.X_OK) and p.is_file()]
RANKS = [1, 2, 3, 4, 5, 8]

each_mpi = pytest.mark.parametrize("mpi", MPIS)
emulated_only = pytest.mark.skipif(ON_GPU, reason="the emulated device makes the fault or the timing that is tested")


def compile_with(wrapper, *arguments):
    if shutil.which(wrapper) is None:
        pytest.skip(f"there is no {wrapper} on this machine to compile the test's program with")
    result = run_command([wrapper, *map(str, arguments)], os.environ.copy(), 120)
    assert result.status == 0, result.output


def test_there_is_something_to_test():
    assert MPIS, f"no library was built in {BUILD}"
    assert UNIT_TESTS, f"no unit tests were built in {BUILD}"


def run_unit_test(name):
    libraries = f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    env = dict(os.environ, LD_LIBRARY_PATH=libraries, CUEMU_DEVICES="2",
               ASAN_OPTIONS=ASAN_OPTIONS)
    arguments = sorted(map(str, MACHINES.glob("*.machine"))) if name == "test_choose" else []
    return run_command([str(BUILD / name), *arguments], env, 240)


@pytest.fixture(scope="session")
def one_core_tests(request):
    """What came of those, of the ones that are asked for, that use one core and take long: they run side by side, ahead of all."""
    names = [item.callspec.params["name"] for item in request.session.items if item.originalname == "test_unit"]
    names = [name for name in names if name in ("test_choose", "test_sched")]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(run_unit_test, names)))


@pytest.mark.parametrize("name", UNIT_TESTS)
def test_unit(name, one_core_tests):
    result = one_core_tests.get(name) or run_unit_test(name)
    assert result.status == 0, result.output


def test_layering():
    result = run_command([sys.executable, str(SOURCE / "test/check-layering.py"), str(SOURCE)], os.environ, 60)
    assert result.status == 0, result.output


def test_layering_is_checked(tmp_path):
    """The check fails on a tree that breaks the rules."""
    bad = {"algos/algo_bad.c": '#include <mpi.h>\n#include "gpu/gpu_driver.h"\n',
           "core/call/core_low.h": '#include "core/agree/core_high.h"\n',
           "core/agree/core_a.c": '#include "core/agree/core_b.h"\n', "core/agree/core_b.c": '#include "core/agree/core_a.h"\n'}
    for name, text in bad.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    result = run_command([sys.executable, str(SOURCE / "test/check-layering.py"), str(tmp_path)], os.environ, 60)
    for found in ("src/algos may not include mpi.h", "src/algos may not include gpu/gpu_driver.h",
                  "src/core/call may not include core/agree/core_high.h", "in a circle: core_a -> core_b -> core_a"):
        assert found in result.output, result.output
    assert result.status != 0


def test_docs_name_what_is_there(tmp_path):
    check = [sys.executable, str(SOURCE / "test/check-docs.py")]
    result = run_command([*check, str(SOURCE)], os.environ, 60)
    assert result.status == 0, result.output
    (tmp_path / "README.md").write_text("See `core_gone()` in `src/gone.c`, and `README.md`.\n")
    result = run_command([*check, str(tmp_path)], os.environ, 60)
    assert result.status != 0 and result.output.split("there is no ")[1:] == ["core_gone\nREADME.md:1: ", "src/gone.c\n"], result.output


def test_format():
    """As .clang-format has it: other versions break lines elsewhere."""
    tool = shutil.which("clang-format-14")
    if tool is None:
        pytest.skip("clang-format-14 is not there")
    sources = [str(path) for folder in ("src", "include", "test", "tools", "bench") for suffix in ("c", "h", "cu")
               for path in (SOURCE / folder).rglob(f"*.{suffix}")]
    result = run_command([tool, "--dry-run", "-Werror", f"--style=file:{SOURCE}/.clang-format", *sources], os.environ, 120)
    assert result.status == 0, result.output[:4000]


def count_calls(output, path, call=""):
    """The calls of a path in the table of GPUCOLL_STATS, of one collective or of all."""
    rows = re.findall(r"^  (MPI_\w+) +.* < +\d+ [KMGT]?i?B +(\w+) +(\d+) ", output, re.MULTILINE)
    return sum(int(calls) for name, its_path, calls in rows if its_path == path and call in ("", name))


PATHS = {"accel": {"GPUCOLL_STATS": "1", "GPUCOLL_CHECK": "1"}, "stage": {"GPUCOLL_STATS": "1", "GPUCOLL_ACCEL": "0"}}
by_path = pytest.mark.parametrize("path", PATHS)


# What is staged is each rank's own matter: large communicators are for the accelerated path.
def paths_of(*numbers):
    return pytest.mark.parametrize("ranks,path", [(ranks, path) for path in PATHS for ranks in numbers if path == "accel" or ranks < 5])


@each_mpi
@paths_of(*RANKS)
def test_collectives(run_mpi, mpi, ranks, path):
    # Many ranks take long: for them, only cases in which all buffers are on devices.
    result = run_mpi(mpi, ranks, "test_coll", 1 if ranks > 5 else 2, env={"CUEMU_DEVICES": "2", **PATHS[path]})
    assert_passed(result)
    # A communicator of one process has nothing to agree on.
    accelerated = count_calls(result.output, "accel")
    assert accelerated > 300 if path == "accel" and ranks > 1 else accelerated == 0, result.output
    assert (count_calls(result.output, "accel", "MPI_Exscan") > 10) == (path == "accel" and ranks > 1), result.output
    assert bool(re.search(r"MPI_Neighbor_alltoallv +halo +< .* accel ", result.output)) == (path == "accel" and ranks > 1), result.output
    for name in ("allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw"):
        assert (count_calls(result.output, "accel", f"MPI_Neighbor_{name}") > 0) == (path == "accel" and ranks > 1), (name, result.output)


@each_mpi
@paths_of(1, 2, 5)
def test_types_and_ops(run_mpi, mpi, ranks, path):
    result = run_mpi(mpi, ranks, "test_types", env=PATHS[path])
    assert_passed(result)
    if path == "accel" and ranks > 1:
        # All but long double and its pair.
        assert count_calls(result.output, "accel") > 20 * count_calls(result.output, "stage"), result.output


@each_mpi
@by_path
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_half_types(run_mpi, mpi, ranks, path):
    result = run_mpi(mpi, ranks, "test_half", env=PATHS[path])
    assert_passed(result)
    assert (count_calls(result.output, "accel") > 0) == (path == "accel" and ranks > 1), result.output


@emulated_only
@pytest.mark.parametrize("mpi,exec_mode", list(zip(MPIS, ["stepped", "auto"])))
def test_without_p2p(run_mpi, mpi, exec_mode):
    """Ranks 0 and 2 have one device, ranks 1 and 3 the other, and neither sees the other's memory: messages go through
    the host's. The first call on a communicator finds that out, and is staged."""
    result = run_mpi(mpi, 4, "test_coll", env={"CUEMU_DEVICES": "2", "CUEMU_P2P": "none", "CUEMU_SMS": "8",
                                               "GPUCOLL_EXEC": exec_mode, **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "accel") > 300, result.output
    assert (" fused ll" in result.output) == (exec_mode == "auto"), result.output
    assert (" stepped" in result.output) == (exec_mode == "stepped"), result.output
    assert "WARN" not in result.output, result.output


# A pair of devices that map each other's memory, and lose what is written there: kernels and copies, kernels only, in one direction only.
LIES = {"all": ("2", "lies"), "to_kernels": ("2", "03,10"), "one_way": ("3", "011,102,110")}


@emulated_only
@pytest.mark.parametrize("lies,ranks,mpi", [(lies, ranks, mpi) for i, (lies, ranks) in enumerate(itertools.product(LIES, [2, 4]))
                                            for mpi in MPIS if i % 2 == MPIS.index(mpi) or lies == "all"])
def test_peers_that_lie(run_mpi, mpi, lies, ranks):
    """Memory of other devices is not believed before it was tried; then it is staged once, and goes through the host's memory.
    One rank warns. Later communicators know it, also where two devices of three do reach each other."""
    devices, p2p = LIES[lies]
    env = {"CUEMU_DEVICES": devices, "CUEMU_P2P": p2p, "CUEMU_SMS": "8", "GPUCOLL_DEBUG": "info", **PATHS["accel"]}
    result = run_mpi(mpi, ranks, "test_coll", 2, env=env)
    assert_passed(result)
    # With two ranks the third device has nobody, and the second reaches it.
    found = lies != "one_way" or ranks > 2
    assert len(re.findall("WARN .*have mapped each other's memory.*ACS.*IOMMU.*Remedy", result.output)) == found, result.output[-4000:]
    assert "WARN" not in re.sub("WARN .*have mapped each other's.*", "", result.output), result.output[-4000:]
    assert count_calls(result.output, "accel") > 300, result.output
    how = {"all": "kernels wrong, by copies wrong", "to_kernels": "kernels wrong, by copies right", "one_way": "kernels wrong, by copies wrong"}[lies]
    assert (f"read by {how}" in result.output) == found, result.output
    assert (" twoshot" in result.output) != found, result.output


# ---- messages between ranks ----

WAYS = {"stepped": {"GPUCOLL_EXEC": "stepped"},
        "fused simple": {"GPUCOLL_EXEC": "fused", "GPUCOLL_PROTO": "simple"},
        "fused ll": {"GPUCOLL_EXEC": "fused", "GPUCOLL_PROTO": "ll"},
        "fused ll128": {"GPUCOLL_EXEC": "fused", "GPUCOLL_PROTO": "ll128"}}
TRANSPORTS = {"p2p": {}, "shm": {"CUEMU_DEVICES": "8", "CUEMU_P2P": "none"}}
# Two channels where the algorithm has them, and little room, so that larger calls take several rounds.
ROOMS = {"much": {}, "little": {"GPUCOLL_SCRATCH": "1", "GPUCOLL_CHANNELS": "2"}}
LINKED = {"ring": "allreduce,reduce_scatter,reduce,allgather,bcast", "tree": "allreduce,reduce,bcast", "doubling": "allreduce,allgather,scan,exscan",
          "halving": "allreduce,reduce_scatter", "pairwise": "alltoall", "bruck": "alltoall", "scatter-allgather": "bcast", "neighbor": "allgather",
          "linear": "gather,scatter", "chain": "scan,exscan"}
# The neighbour exchange needs pairs of ranks, LL is not for gathers and scatters (core_links.c, core_links_know_sizes), and lines
# that go through the host's memory may be cut. Halving sends many pieces at a time, for which there may be too little room with flags.
MEANINGLESS = [{"neighbor", 3}, {"linear", "fused ll"}, {"linear", "fused ll128"}, {"fused ll128", "shm"}, {"halving", "fused ll", "little"},
               {"halving", "fused ll128", "little"}]


def cover_pairs(*choices):
    """Few combinations in which each value of each choice meets each value of each other one that it can meet."""
    def pairs_of(row):
        return {(i, row[i], j, row[j]) for j in range(len(row)) for i in range(j)}

    rows = [row for row in itertools.product(*choices) if not any(some <= set(row) for some in MEANINGLESS)]
    missing = set().union(*map(pairs_of, rows))
    while missing:
        best = max(rows, key=lambda row: len(pairs_of(row) & missing))
        missing -= pairs_of(best)
        yield best


@pytest.mark.parametrize("algo,way,transport,room,mpi,ranks", list(cover_pairs(LINKED, WAYS, TRANSPORTS, ROOMS, MPIS, [2, 3])))
def test_algorithm(run_mpi, algo, way, transport, room, mpi, ranks):
    """Every algorithm with messages, every way of execution, and so on, in pairs."""
    env = {"CUEMU_SMS": "32", "GPUCOLL_ALGO": algo, **WAYS[way], **TRANSPORTS[transport], **ROOMS[room], **PATHS["accel"]}
    result = run_mpi(mpi, ranks, "test_coll", 2, LINKED[algo], env=env)
    assert_passed(result)
    used = sum(int(calls) for calls in re.findall(rf" accel +(\d+) .* {algo} {way} *$", result.output, re.MULTILINE))
    assert used > 10, result.output


@pytest.mark.parametrize("mpi,way,room,ranks", [("openmpi", "fused simple", "little", 6), ("mpich", "fused ll", "much", 4), ("openmpi", "stepped", "little", 4)])
def test_torus(run_mpi, mpi, way, room, ranks):
    """An algorithm with messages for numbers of ranks that are no primes."""
    if mpi not in MPIS:
        pytest.skip(f"the library was not built for {mpi}")
    env = {"CUEMU_SMS": "32", "GPUCOLL_ALGO": "allreduce:torus", **WAYS[way], **ROOMS[room], **PATHS["accel"]}
    result = run_mpi(mpi, ranks, "test_coll", 2, "allreduce", env=env)
    assert_passed(result)
    assert sum(int(calls) for calls in re.findall(rf" accel +(\d+) .* torus {way} *$", result.output, re.MULTILINE)) > 10, result.output


@pytest.mark.parametrize("mpi,algo,way,ranks", [("openmpi", "tree", "fused simple", 4), ("openmpi", "halving", "stepped", 3),
                                                ("mpich", "doubling", "fused ll", 2), ("mpich", "ring", "fused simple", 2),
                                                ("openmpi", "ring", "fused ll128", 3), ("mpich", "tree", "fused ll128", 2)])
def test_types_and_ops_in_messages(run_mpi, mpi, algo, way, ranks):
    if mpi not in MPIS:
        pytest.skip(f"the library was not built for {mpi}")
    env = {"CUEMU_SMS": "32", "GPUCOLL_ALGO": algo, **WAYS[way], **PATHS["accel"]}
    result = run_mpi(mpi, ranks, "test_types", "once", env=env)
    assert_passed(result)
    assert f"{algo} {way}" in result.output, result.output


FUZZ = [{}, {"GPUCOLL_EXEC": "stepped", "GPUCOLL_ALGO": "ring", **ROOMS["little"]}, {"GPUCOLL_ALGO": "tree", "GPUCOLL_CHANNELS": "2"},
        {"GPUCOLL_ALGO": "doubling", "GPUCOLL_PROTO": "ll"}, {"GPUCOLL_PROTO": "ll128", "GPUCOLL_CHANNELS": "2"}, {"GPUCOLL_ALGO": "halving", **TRANSPORTS["shm"]},
        {"CUEMU_DEVICES": "3", "CUEMU_P2P": "010,100,000"}, {"GPUCOLL_ALGO": "linear"}, {**ROOMS["little"], **TRANSPORTS["shm"]}]


@each_mpi
@pytest.mark.parametrize("which", range(len(FUZZ)))
def test_random_calls(run_mpi, mpi, which):
    """10,000 calls over random communicators in all; with FUZZ_SECONDS, other seeds until the time is over (make fuzz)."""
    # MPICH starts each rank in a session, and a kernel that waits gives way to others of its session only.
    blocks = {"CUEMU_SMS": "8" if mpi == "mpich" else "32"}
    until = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "0")) / len(FUZZ) / len(MPIS)
    seed = random.randrange(1, 2**31) if "FUZZ_SECONDS" in os.environ else which + 1
    while True:
        result = run_mpi(mpi, 4, "test_agree", "fuzz", 560, seed, env={**blocks, **FUZZ[which], **PATHS["accel"]})
        assert_passed(result)
        if time.monotonic() >= until:
            break
        seed += 1


@emulated_only
@pytest.mark.parametrize("mpi,exec_mode", list(zip(MPIS, ["auto", "fused"])))
def test_kernels_that_do_not_run_together(run_mpi, mpi, exec_mode):
    """A GPU on which contexts take turns: kernels that waited for each other would do so for ever."""
    result = run_mpi(mpi, 3, "test_agree", "mixed", 40, env={"GPUCOLL_ALGO": "ring", "GPUCOLL_EXEC": exec_mode, "CUEMU_SMS": "8",
                                                             "CUEMU_TIME_SLICED": "1", "CUEMU_SLOWNESS": "16", **PATHS["accel"],
                                                             "GPUCOLL_DEBUG": "info"})
    assert_passed(result)
    assert re.findall(r"\[(\d)\] INFO .*under NVIDIA's MPS", result.output).count("0") == 1, result.output
    assert "ring stepped" in result.output and "ring fused" not in result.output, result.output
    why = "the kernels of ranks that share a GPU do not run at the same time"
    assert ("GPUCOLL_EXEC=fused is not possible for" in result.output and why in result.output) == (exec_mode == "fused")


@emulated_only
@each_mpi
def test_slices_of_time(run_mpi, mpi):
    """A kernel that waits loses the device after a slice, and has it back a slice later: two meet, once in a slice. That is not together."""
    result = run_mpi(mpi, 2, "test_agree", "mixed", 40, env={"GPUCOLL_ALGO": "ring", "CUEMU_SMS": "8", "CUEMU_TIME_SLICED": "1",
                                                             "CUEMU_SLICE_US": "500", "CUEMU_SLOWNESS": "16", **PATHS["accel"]})
    assert_passed(result)
    assert "ring stepped" in result.output and "ring fused" not in result.output, result.output


@emulated_only
@each_mpi
def test_a_rank_is_late_for_the_probe(run_mpi, mpi, tmp_path):
    """Its first kernels begin when the other's have given up: of how kernels run that says nothing, and a later call tries again."""
    env = {"GPUCOLL_ALGO": "ring", "CUEMU_SMS": "2", "CUEMU_SLOWNESS": "16", **PATHS["accel"], "GPUCOLL_DEBUG": "info"}
    script = on_one_rank(tmp_path, {"CUEMU_FIRST_US": 400000})
    result = run_mpi(mpi, 2, script, BUILD / "mpi" / mpi / "test_agree", "mixed", 40, env=env)
    assert_passed(result)
    assert "ring stepped" in result.output and "ring fused" in result.output, result.output
    assert "take turns" not in result.output, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("way", WAYS)
def test_fault_among_messages(run_mpi, mpi, way, tmp_path):
    """A rank loses its device; the others, in kernels that wait for its messages or not, hear of it in the same call or the next."""
    env = {"CUEMU_SMS": "32", "GPUCOLL_ALGO": "ring", **WAYS[way]}
    script = on_one_rank(tmp_path, "kernel:20=719")
    result = run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "test_agree", "fault", env=env)
    call = re.search("first error in call ([0-9]+)", result.output)
    assert call and 0 < int(call[1]) < 29 and "1 checks passed, 0 failed" in result.output, result.output


@each_mpi
def test_opposite_order_of_kernels_that_wait(run_mpi, mpi):
    """Two threads, two communicators, in opposite order: only one kernel of a process at a time may wait in the device."""
    env = {"CUEMU_SMS": "4", "GPUCOLL_ALGO": "ring", "GPUCOLL_EXEC": "fused", **PATHS["accel"]}
    result = run_mpi(mpi, 2, "test_agree", "opposite", env=env)
    assert_passed(result)
    # Which of them, depends on who comes first.
    assert "ring fused" in result.output or "ring stepped" in result.output, result.output


@each_mpi
def test_wishes_that_can_not_be_met(run_mpi, mpi):
    """They are reported once, with the reason, and the call is done in another way."""
    result = run_mpi(mpi, 3, "test_agree", "mixed", 30, env={"GPUCOLL_ALGO": "neighbor", **PATHS["accel"]})
    assert_passed(result)
    assert result.output.count("GPUCOLL_ALGO=neighbor is not possible for MPI_Allgather: it needs an even number of ranks") >= 1
    result = run_mpi(mpi, 2, "test_agree", "mixed", 30, env={"GPUCOLL_ALGO": "tree", "GPUCOLL_EXEC": "stepped",
                                                             "GPUCOLL_PROTO": "ll", **PATHS["accel"]})
    assert_passed(result)
    assert "GPUCOLL_PROTO=ll is not possible for" in result.output and "the execution is not fused" in result.output
    result = run_mpi(mpi, 2, "test_agree", "mixed", 30, env={"GPUCOLL_ALGO": "ring", "GPUCOLL_EXEC": "stepped", "GPUCOLL_PROTO": "^simple",
                                                             **PATHS["accel"]})
    assert_passed(result)
    assert "GPUCOLL_PROTO=ll,ll128 is not possible for" in result.output, result.output
    for algo, why in (("oneshot", "it can't work in place, as some rank does"), ("twoshot", "receive buffers are not offered to others")):
        result = run_mpi(mpi, 3, "test_agree", "mixed", 30, env={"GPUCOLL_ALGO": algo, "GPUCOLL_CHANNELS": "0", **PATHS["accel"]})
        assert_passed(result)
        assert f"GPUCOLL_ALGO={algo} is not possible for" in result.output and why in result.output, result.output


@emulated_only
@each_mpi
def test_operations_in_the_caller(run_mpi, mpi):
    """As the benchmarks run the emulated driver: a launch where nothing comes before it needs no other thread."""
    result = run_mpi(mpi, 3, "test_coll", env={"CUEMU_IN_CALLER": "1", **PATHS["accel"]})
    assert_passed(result)
    assert_passed(run_mpi(mpi, 2, "test_life", "late_work", env={"CUEMU_IN_CALLER": "1"}))


# ---- the agreement on paths ----

def spin(tmp_path, name, *defines):
    """Check the model exhaustively. Returns what the checker printed."""
    model = SOURCE / "test/model" / f"{name}.pml"
    for command in (["spin", *[f"-D{d}" for d in defines], "-a", str(model)],
                    ["gcc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"], ["./pan", "-m200000"]):
        result = run_command(["/bin/sh", "-c", f"cd {tmp_path} && {' '.join(command)}"], os.environ.copy(), 300)
        assert result.status == 0, result.output
    assert "errors:" in result.output, result.output
    return result.output


def assert_no_error(output):
    assert "errors: 0" in output and "max search depth too small" not in output, output


def need_spin():
    if shutil.which("spin") is None:
        pytest.skip("there is no spin on this machine to check the model with")


@pytest.mark.parametrize("bounds", [("RANKS=2", "CALLS=4", "SLOTS=2"), ("RANKS=3", "CALLS=1", "SLOTS=1"),
                                    ("RANKS=3", "CALLS=2", "SLOTS=1")], ids=lambda bounds: "-".join(bounds))
def test_agreement_model(tmp_path, bounds):
    need_spin()
    if bounds[:2] == ("RANKS=3", "CALLS=2") and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("90 million states take minutes: GPUTEST_LONG=1 checks them")
    assert_no_error(spin(tmp_path, "agreement", *bounds))


@pytest.mark.parametrize("weakness", ["BREAK_REUSE", "BREAK_HOST", "BREAK_VOTE"])
def test_agreement_model_finds_errors(tmp_path, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "agreement", "RANKS=3", "CALLS=2", "SLOTS=1", weakness)


@pytest.mark.parametrize("bounds", [("THREADS=2", "RECEIVES=3"), ("THREADS=3", "RECEIVES=1")], ids=lambda bounds: "-".join(bounds))
def test_requests_model(tmp_path, bounds):
    need_spin()
    assert_no_error(spin(tmp_path, "requests", *bounds))


@pytest.mark.parametrize("weakness", ["BREAK_BIRTH", "BREAK_ONCE", "BREAK_TAKE"])
def test_requests_model_finds_errors(tmp_path, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "requests", weakness)


@pytest.mark.parametrize("bounds", [("NODES=2", "CALLS=4"), ("NODES=2", "MEMBERS=2", "CALLS=1"), ("NODES=3", "CALLS=1")],
                         ids=lambda bounds: "-".join(bounds))
def test_nodes_model(tmp_path, bounds):
    need_spin()
    assert_no_error(spin(tmp_path, "nodes", *bounds))


@pytest.mark.parametrize("weakness,nodes", [("HISTORY", 2), ("ASK", 2), ("RETRACT", 2), ("ROUNDS", 3)])
def test_nodes_model_finds_errors(tmp_path, weakness, nodes):
    need_spin()
    bounds = ("CALLS=4", "SLOTS=1") if nodes == 2 else ("CALLS=1",)
    assert "errors: 1" in spin(tmp_path, "nodes", f"NODES={nodes}", *bounds, f"BREAK_{weakness}")


@pytest.mark.parametrize("bounds", [("CALLS=1",), ("MEMBERS=1", "CALLS=3"), ("NODES=1", "CALLS=3"), ("CALLS=2",)],
                         ids=lambda bounds: "-".join(bounds))
def test_lost_model(tmp_path, bounds):
    need_spin()
    if bounds == ("CALLS=2",) and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("28 million states take minutes: GPUTEST_LONG=1 checks them")
    assert_no_error(spin(tmp_path, "lost", *bounds))


@pytest.mark.parametrize("weakness,nodes", [("REFUSE", 2), ("ANSWER", 2), ("TELL", 2), ("ORDER", 1)])
def test_lost_model_finds_errors(tmp_path, weakness, nodes):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "lost", f"NODES={nodes}", f"BREAK_{weakness}")


# What fused kernels rest on: bounds to check within, and the weakened forms, each of which must be found wrong.
HANDSHAKES = {
    "fifo": ([[], ["SLOTS=1"], ["SLOTS=3", "MESSAGES=7"]],
             ["HEAD_ACQUIRE", "HEAD_RELEASE", "TAIL_ACQUIRE", "TAIL_RELEASE", "BARRIER_AFTER_HEAD", "BARRIER_BEFORE_TAIL"]),
    "ll": ([[], ["SLOTS=1"]], ["FLAG", "HEAD_WAIT", "HEAD_RELEASE", "TORN"]),
    "barrier": ([[], ["RANKS=3", "EPOCHS=1"]], ["EQUAL", "ACQUIRE", "RELEASE", "SECOND"]),
    "abort": ([[]], ["POLL", "FREE"]),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_handshake_model(tmp_path, name):
    need_spin()
    for bounds in HANDSHAKES[name][0]:
        assert_no_error(spin(tmp_path, name, *bounds))


@pytest.mark.parametrize("name,weakness", [(name, weakness) for name in HANDSHAKES for weakness in HANDSHAKES[name][1]])
def test_handshake_model_finds_errors(tmp_path, name, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, name, f"BREAK_{weakness}")


@each_mpi
@pytest.mark.parametrize("case", ["mixed", "ahead", "threads", "fresh"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_agreement(run_mpi, mpi, case, ranks):
    calls = 80 if case == "threads" else 300
    result = run_mpi(mpi, ranks, "test_agree", case, calls, env={"CUEMU_DEVICES": "2", **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "accel") > 0, result.output
    # The table is rank 0's, which runs ahead on host buffers in one case.
    assert count_calls(result.output, "pass" if case == "ahead" else "stage") > 0, result.output


@emulated_only
@each_mpi
def test_warm_calls_need_nothing_new(run_mpi, mpi):
    result = run_mpi(mpi, 3, "test_agree", "warm", env={"CUEMU_DEVICES": "2", **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "stage") == 0 and count_calls(result.output, "accel") > 80, result.output


@each_mpi
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_windows(run_mpi, mpi, ranks):
    """Memory that can't be exported goes through windows, in many rounds."""
    result = run_mpi(mpi, ranks, "test_agree", "windows", 60, env={"GPUCOLL_WINDOW": "64K", **PATHS["accel"]})
    assert_passed(result)
    assert "through windows" in result.output and count_calls(result.output, "stage") == 0, result.output


@each_mpi
@pytest.mark.parametrize("legacy", ["blocking", "alone"])
@pytest.mark.parametrize("case", ["other_device_writes", "per_thread_writes"])
def test_synchronous_calls_that_return_early(run_mpi, mpi, case, legacy):
    """Also from elsewhere than the legacy stream of the buffer's context, whatever that stream's query tells of."""
    result = run_mpi(mpi, 2, "test_life", case, env={"CUEMU_DEVICES": "2", "CUEMU_DELAY_US": "200", "CUEMU_LEGACY": legacy, **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "accel") >= 8, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("path,env", [("accel", {}), ("stage", {}), ("accel", {"CUEMU_P2P": "none", "CUEMU_DEVICES": "2"}), ("accel", {"GPUCOLL_ALGO": "ring"})])
@pytest.mark.parametrize("case", ["reset", "other_context", "two_contexts"])
def test_contexts_that_have_ended(run_mpi, mpi, case, path, env):
    """They are left alone, which CUDA does not say what happens to otherwise, also in MPI_Finalize."""
    assert_passed(run_mpi(mpi, 2, "test_life", case, env={"CUEMU_STALE": "die", **env, **PATHS[path]}))


@emulated_only
@each_mpi
def test_windows_of_what_memory_there_is(run_mpi, mpi):
    """Long calls have long windows, and few kernels, of which there may be no more than so many here; on a full GPU short ones."""
    for limits in ({"CUEMU_FAULT": "kernel:8+=719"}, {"CUEMU_MEMORY": "32M"}):
        result = run_mpi(mpi, 2, "test_life", "pool_windows", env={"CUEMU_DEVICES": "2", "GPUCOLL_STATS": "1", **limits})
        assert_passed(result)
        assert count_calls(result.output, "stage") == 0 and "through windows" in result.output, result.output


@emulated_only
@each_mpi
def test_fault_beside_a_kernel(run_mpi, mpi):
    """Rank 1's device is slow; what is under way there when a copy fails is waited for."""
    env = {"GPUCOLL_WINDOW": "64K", **PATHS["accel"]}
    assert_passed(run_mpi(mpi, 2, "test_agree", "window_fault", env=env))


@each_mpi
@pytest.mark.parametrize("case,windows", [("pool_memory", True), ("vmm_private", True), ("vmm_host", True), ("vmm_memory", False), ("vmm_pieces", True),
                                          ("shared_pool", False)])
def test_memory_without_handles(run_mpi, mpi, case, windows):
    """Pools have no handle, and memory of the virtual memory API a descriptor where it was made to be shared."""
    result = run_mpi(mpi, 3, "test_life", case, env={"CUEMU_DEVICES": "2", **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "stage") == 0, result.output
    assert ("through windows" in result.output) == windows, result.output


@emulated_only
@each_mpi
def test_oneshot_where_each_rank_has_a_device(run_mpi, mpi):
    result = run_mpi(mpi, 4, "test_agree", "mixed", 100, env={"CUEMU_DEVICES": "4", **PATHS["accel"]})
    assert_passed(result)
    assert "oneshot" in result.output and "twoshot" in result.output, result.output
    never = run_mpi(mpi, 4, "test_agree", "mixed", 100,
                    env={"CUEMU_DEVICES": "4", "GPUCOLL_ALGO": "^oneshot", **PATHS["accel"]})
    assert_passed(never)
    assert "oneshot" not in never.output, never.output


@each_mpi
def test_opposite_order(run_mpi, mpi):
    """Two threads use two communicators in opposite order on two ranks."""
    assert_passed(run_mpi(mpi, 2, "test_agree", "opposite"))


@each_mpi
def test_small_ipc_cache(run_mpi, mpi):
    """Fewer bytes of mappings than a call needs, and mappings that come and go between threads."""
    for cache in ("0", "3M", "20M"):
        for case in ("fresh", "threads"):
            assert_passed(run_mpi(mpi, 3, "test_agree", case, 40, env={"GPUCOLL_IPC_CACHE": cache}))


def on_one_rank(tmp_path, env):
    """A shell script that runs its arguments, with the environment, or the fault, in rank 1."""
    script = tmp_path / "one_rank"
    env = {"CUEMU_FAULT": env} if isinstance(env, str) else env
    words = " ".join(f"{name}={value}" for name, value in env.items())
    script.write_text(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ] && export {words}\n'
                      'exec "$@"\n')
    script.chmod(0o755)
    return script


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
    script = on_one_rank(tmp_path, fault)
    result = run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "test_agree", "fault")
    assert "first error in call 4, last 4" in result.output and "1 checks passed, 0 failed" in result.output, result.output


@each_mpi
def test_without_the_library_it_fails(run_mpi, mpi):
    """What the tests test is the library: without it the MPI touches device memory and dies."""
    result = run_mpi(mpi, 2, "test_coll", library=False)
    assert result.status != 0 and "checks passed, 0 failed" not in result.output


@each_mpi
@pytest.mark.parametrize("case", ["late_work", "capture", "reallocation", "pool_memory", "other_context", "reset", "threads",
                                  "rendezvous", "communicators", "idup", "fork", "huge"])
def test_life(run_mpi, mpi, case):
    assert_passed(run_mpi(mpi, 2, "test_life", case))


@each_mpi
def test_late_at_the_end(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 3, "test_life", "late_at_the_end", env={"GPUCOLL_ALGO": "ring"}, timeout=60))


@emulated_only
@each_mpi
@pytest.mark.parametrize("env", [{"CUEMU_P2P": "none"}, {"GPUCOLL_ALGO": "ring"}], ids=["shm", "p2p"])
def test_freed_communicators(run_mpi, mpi, env):
    """Also in MPI_Comm_free by who is ahead of others in the last call, the arena's memory is not lost."""
    result = run_mpi(mpi, 2, "test_life", "freed_communicators", env={"GPUCOLL_STATS": "1", "CUEMU_DEVICES": "2", **env})
    assert_passed(result)
    # What the program says, on another stream, may come in the middle of a row of so long a table.
    table = result.output.replace("2 checks passed, 0 failed\n", "")
    # Without P2P the first call of a communicator finds that it needs memory for messages, which its Bcast then has.
    assert count_calls(table, "accel", "MPI_Bcast") == 300, result.output


@each_mpi
@pytest.mark.parametrize("case", ["outside", "host_structure", "two_allocations", "default_stream", "insignificant",
                                  "no_neighbours", "new_type_in_threads", "finalize_callback", "permuted_type",
                                  "pair_in_disguise", "refused_call", "jumping_handler", "full_board", "late_member",
                                  "scattered_blocks", "no_data_and_a_busy_stream"])
def test_edges(run_mpi, mpi, case):
    result = run_mpi(mpi, 3 if case == "late_member" else 2, "test_edges", case, env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    if case == "finalize_callback":
        assert "in MPI_Finalize: right" in result.output, result.output
    if case == "late_member" and mpi == "openmpi":  # MPICH's broadcast of one number waits for the root's neighbours
        assert "rank 2 was let go: yes" in result.output, result.output


@each_mpi
def test_init_in_a_constructor(run_mpi, mpi, tmp_path):
    """A library of the application calls MPI_Init before main, and before our own constructor."""
    source, program, library = tmp_path / "early.c", tmp_path / "early", tmp_path / "libearly.so"
    source.write_text("""#include <mpi.h>
#ifdef LIBRARY
__attribute__((constructor)) static void begin(void) { MPI_Init(0, 0); }
int early(void) { return 0; }
#else
#include <stdio.h>
int early(void);
int main(void) { early(); printf("began early\\n"); return MPI_Finalize(); }
#endif
""")
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-DLIBRARY", "-o", library, source)
    compile_with(f"mpicc.{mpi}", "-o", program, source, f"-L{tmp_path}", "-learly", f"-Wl,-rpath,{tmp_path}")
    result = run_mpi(mpi, 1, program)
    assert result.status == 0 and "began early" in result.output, result.output


@pytest.mark.parametrize("case", ["large_count", "large_types"])
def test_large_counts(run_mpi, case):
    if "mpich" not in MPIS:
        pytest.skip("only MPICH has the large-count calls of MPI 4")
    assert_passed(run_mpi("mpich", 2, "test_life", case))


@each_mpi
def test_a_killed_job_leaves_nothing(run_mpi, mpi):
    """A rank is killed while the others are in a collective: no file of ours or of the emulated driver is left."""
    def left():
        names = os.listdir("/dev/shm") + os.listdir("/tmp")
        return {name for name in names if re.search("gpucoll-[0-9]|cuemu", name)}

    before = left()
    result = run_mpi(mpi, 3, "test_life", "killed")
    assert "in the middle" in result.output and result.status not in (0, "timeout"), result.output
    assert left() <= before


@each_mpi
def test_errors(run_mpi, mpi):
    if mpi == "mpich":
        pytest.skip("Debian's MPICH is built without argument checks: wrong ones crash it on host buffers too")
    assert_passed(run_mpi(mpi, 2, "test_life", "errors"))


@emulated_only
@each_mpi
def test_without_kernels(run_mpi, mpi):
    """Where the kernels can't be loaded, or nothing can be pinned, the driver's copies do their work."""
    for fault in ("cuModuleLoadData+=209", "cuMemHostRegister+"):
        assert_passed(run_mpi(mpi, 2, "test_coll", 1, env={"CUEMU_FAULT": fault}))


FAULTS = {"cuMemHostRegister": "survived", "cuStreamCreate": "error", "cuMemcpyAsync:1": "error",
          "cuMemcpyAsync:2": "error", "cuStreamQuery:2": "error", "cuPointerSetAttribute": "survived",
          "cuCtxPushCurrent": "error", "cuMemcpyAsync=719": "error"}


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


@each_mpi
@emulated_only
def test_no_leaks(mpi, tmp_path):
    """1,200 communicators, some derived types and some hundred messages under valgrind: no block that was lost came from the library.
    MPICH 4.0 alone does not come back from MPI_Probe for a message to oneself in a job of one."""
    if shutil.which("valgrind") is None or SANITIZED:
        pytest.skip("valgrind is not there, or the build has sanitizers that it can't run with")
    for ranks, *program in ((1, "test_life", "communicators"), (1, "test_coll", "1"), (2, "test_message", "stress", "60")):
        env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")],
                          {"CUEMU_ARENA": "4G", "CUEMU_DELAY_US": "0", "CUEMU_THREADS": "1"})
        command = [*launcher(mpi, ranks), "env", *[f"{k}={v}" for k, v in env.items()], "valgrind", "--leak-check=full",
                   "--num-callers=30", f"--log-file={tmp_path}/{program[0]}.%p.log", str(BUILD / "mpi" / mpi / program[0]), *program[1:]]
        assert_passed(run_command(command, os.environ.copy(), 300))
        text = "".join(log.read_text() for log in tmp_path.glob(f"{program[0]}.*.log"))
        assert text.count("LEAK SUMMARY") + text.count("no leaks are possible") >= ranks
        # A function of ours that called the allocator itself; what the MPI allocates under our calls is the MPI's.
        ours = re.findall(r"at .*: (?:malloc|calloc|realloc|memalign) \(.*\n.*by .*: (?:core|gpu|pmpi|util)_\w+ \(.*", text)
        assert not ours, "\n".join(ours)


# What a message's data go by: kernels, the driver's copies where these don't load or the memory is not pinned, or several devices.
MESSAGE_WAYS = {"usual": {}, "unpinned": {"GPUCOLL_STAGING_POOL": "0"}, "no kernels": {"CUEMU_FAULT": "cuModuleLoadData+=209"},
                "devices": {"CUEMU_DEVICES": "3"}, "no peers": {"CUEMU_DEVICES": "2", "CUEMU_P2P": "none"}}


@each_mpi
@pytest.mark.parametrize("ranks,rounds,way", [(2, 400, "usual"), (3, 300, "devices"), (4, 200, "usual"), (5, 200, "no peers"), (3, 200, "unpinned"),
                                              (2, 200, "no kernels")])
def test_messages(run_mpi, mpi, ranks, rounds, way):
    """Random messages among all, in all forms; some five in a round."""
    if "CUEMU_FAULT" in MESSAGE_WAYS[way] and ON_GPU:
        pytest.skip("a GPU's faults are not for the asking")
    seed = random.randrange(1, 1 << 30)
    result = run_mpi(mpi, ranks, "test_message", "stress", rounds, seed, env=MESSAGE_WAYS[way])
    assert result.status == 0 and "1 checks passed, 0 failed" in result.output, f"seed {seed}: {result.output[-4000:]}"


@each_mpi
@pytest.mark.parametrize("case", [("edges",), ("threads", 150), ("watchers", 60)], ids=lambda case: case[0])
def test_messages_seldom(run_mpi, mpi, case):
    """Pairs, MPI_BOTTOM, what is too long, nobody, freed and persistent requests, packing; several threads;
    threads that ask about one request."""
    assert_passed(run_mpi(mpi, 3, "test_message", *case))


@each_mpi
def test_messages_are_counted(run_mpi, mpi):
    result = run_mpi(mpi, 3, "test_message", "edges", env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert re.search(r"MPI_Isend +MPI_COMM_WORLD +\S+ \d+ \S+ +stage +1 +100004 .*point to point", result.output), result.output


CLAIMS = "int MPIX_Query_cuda_support(void) { return 1; }"


@emulated_only
@each_mpi
def test_an_mpi_that_says_it_is_cuda_aware(run_mpi, mpi, tmp_path):
    """A message to oneself shows that it is not: all are staged."""
    (tmp_path / "claims.c").write_text(CLAIMS)
    compile_with("gcc", "-shared", "-fPIC", "-o", tmp_path / "claims.so", tmp_path / "claims.c")
    result = run_mpi(mpi, 2, "test_message", "stress", 20, 1, after=[str(tmp_path / "claims.so")])
    assert_passed(result)
    assert result.output.count("says that it is CUDA-aware, but a message to oneself from device memory fails") == 2, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("env,first,answer", [({}, "", 1), ({"GPUCOLL_QUERY": "mpi"}, "", 0), ({"GPUCOLL_P2P": "mpi"}, "", 0),
                                              ({}, "test $r = 1 && export GPUCOLL_DISABLE=1;", 0)], ids=["usual", "query", "p2p", "one is off"])
def test_query(run_mpi, mpi, env, first, answer):
    """All ranks say the same."""
    assert_passed(on_nodes(run_mpi, mpi, "00", "test_message", "query", answer, env=env, first=first))


@each_mpi
def test_bounded_staging_pool(run_mpi, mpi):
    """Buffers larger than the pool go through ordinary memory."""
    assert_passed(run_mpi(mpi, 2, "test_life", "late_work", env={"GPUCOLL_STAGING_POOL": "64K"}))


@emulated_only
@each_mpi
def test_room_grows(run_mpi, mpi):
    """Ranks 2 and 3 show which GPUs are theirs between the announcements of ranks 0 and 1."""
    result = run_mpi(mpi, 4, "test_edges", "room_grows",
                     env={"CUEMU_DEVICES": "4", "CUEMU_SMS": "8", "GPUCOLL_ALGO": "ring", "GPUCOLL_CHANNELS": "1", "GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert "ring fused simple" in result.output and "ring fused ll" in result.output, result.output


@emulated_only
@each_mpi
def test_each_rank_has_a_gpu(run_mpi, mpi):
    """When it is known that no two ranks share a GPU, each may fill its own with blocks that wait."""
    result = run_mpi(mpi, 2, "gpucoll-bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "10",
                     env={"CUEMU_DEVICES": "2", "CUEMU_SMS": "4", "GPUCOLL_ALGO": "ring", "GPUCOLL_CHANNELS": "4", "GPUCOLL_STATS": "1"})
    assert result.status == 0 and "0 wrong values" in result.output, result.output
    fused, stepped = (sum(int(n) for n in re.findall(rf"accel +(\d+) .*ring {how}", result.output)) for how in ("fused", "stepped"))
    assert fused > 10 * stepped, result.output


# ---- several nodes ----

# The node of each rank: one rank each, blocks, in turn, uneven, 2 x 3 + 1.
SHAPES = {"2x1": "01", "2x2": "0011", "round-robin": "0101", "3+1": "0001", "uneven": "01022", "2x3+1": "0001112", "4x2": "00112233"}


# Preloaded, it makes an installed UCX take device memory, on the emulated driver, or what else EMU_UCP says.
UCX_WITH_CUDA = str(BUILD / "emu/emu_ucp.so")


# What a shell does for a rank's node to be its digit of the shape.
HOSTID = 's={shape}; r=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; export GPUCOLL_HOSTID="node $(echo $s | cut -c$((r + 1)))";'


def on_nodes(run_mpi, mpi, shape, program, *arguments, first="", env=(), timeout=150, **more):
    """Run a test program on ranks whose nodes are the shape's digits, by GPUCOLL_HOSTID. `first`: what the shell is to do in
    each, $r being the rank."""
    script = f'{HOSTID.format(shape=shape)} {first} exec "$@"'
    return run_mpi(mpi, len(shape), "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / program, *arguments,
                   env={"CUEMU_SMS": "8", "GPUCOLL_STATS": "1", **dict(env)}, timeout=timeout, **more)


@emulated_only
@each_mpi
def test_short_files(run_mpi, mpi):
    """By ulimit -f: the board of two nodes is too large; it is not to be SIGXFSZ that says so."""
    result = on_nodes(run_mpi, mpi, "0011", "test_agree", "mixed", 60, first="ulimit -f 100000;", env={"CUEMU_MEMORY": "64M"})
    assert_passed(result)
    assert "File too large" in result.output and "ulimit -f" in result.output and count_calls(result.output, "accel") == 0, result.output


@each_mpi
@pytest.mark.parametrize("shape", SHAPES)
def test_nodes(run_mpi, mpi, shape):
    """All collectives on ranks of several nodes. On one machine, as here, these may use the same GPU, so that hosts wait."""
    result = on_nodes(run_mpi, mpi, SHAPES[shape], "test_coll", 1)
    assert_passed(result)
    assert "stepped" in result.output and "eager" in result.output, result.output
    assert "fused" not in result.output and "WARN" not in result.output, result.output
    left = "short, better left to the real MPI"
    assert all(re.search(f"MPI_{name} .* stage .* {left}", result.output) for name in ("Bcast", "Reduce", "Gather", "Scatter", "Alltoall")), result.output
    assert not re.search(f"MPI_(All|Ex)?(reduce|gather|scan)v? .* {left}", result.output), result.output


@each_mpi
def test_nodes_by_sockets(run_mpi, mpi):
    """What the network is is known, for the choices."""
    result = on_nodes(run_mpi, mpi, "01", "gpucoll-bench", "bcast", "-b", "64K", "-e", "64K", "-n", "2", env={"GPUCOLL_DEBUG": "INFO", "UCX_TLS": "tcp,self"})
    assert result.status == 0 and result.output.count("messages between nodes go by sockets") == 1, result.output


@each_mpi
@pytest.mark.parametrize("exec_mode", ["fused simple", "stepped"])
def test_nodes_neighbours(run_mpi, mpi, exec_mode):
    """Who has nothing for another sends it no message; short exchanges go with the agreement."""
    result = on_nodes(run_mpi, mpi, SHAPES["uneven"], "test_edges", "any_graph",
                      env={"GPUCOLL_EXEC": exec_mode.split()[0], "GPUCOLL_CHECK": "1", "CUEMU_SMS": "16"})
    assert_passed(result)
    calls = {path: count_calls(result.output, path, "MPI_Neighbor_alltoallv") for path in ("accel", "stage", "pass")}
    assert calls == {"accel": 24, "stage": 0, "pass": 12} and f"pairwise {exec_mode}" in result.output, result.output


@pytest.mark.parametrize("exec_mode", ["fused simple", "stepped"])
def test_many_ranks(run_mpi, exec_mode):
    result = on_nodes(run_mpi, "openmpi", "0123456789abcdefghijkl" * 3, "test_edges", "many_ranks",
                      env={"GPUCOLL_EAGER_MAX": "0", "GPUCOLL_EXEC": exec_mode.split()[0], "CUEMU_SMS": "16"})
    assert_passed(result)
    assert f"rail-pairwise {exec_mode}" in result.output and "WARN" not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("shape", ["2x1", "2x2", "3+1"])
def test_nodes_fused(run_mpi, mpi, shape):
    result = on_nodes(run_mpi, mpi, SHAPES[shape], "test_coll", 1, env={"GPUCOLL_EXEC": "fused", "CUEMU_SMS": "16"})
    assert_passed(result)
    assert "fused simple" in result.output and "WARN" not in result.output, result.output


@each_mpi
def test_nodes_and_blocking_launches(run_mpi, mpi):
    """A launch that comes back when its kernel has ended must not wait for messages that its own process carries."""
    result = on_nodes(run_mpi, mpi, "01", "gpucoll-bench", "allreduce", "-b", "1M", "-e", "1M", "-n", "2",
                      env={"GPUCOLL_EXEC": "fused", "CUDA_LAUNCH_BLOCKING": "1"})
    assert result.status == 0 and "0 wrong values" in result.output and "stepped" in result.output, result.output
    assert "GPUCOLL_EXEC=fused is not possible for MPI_Allreduce" in result.output, result.output


@pytest.mark.parametrize("algo,exec_mode,mpi", [("hier-ring", "fused simple", "openmpi"), ("hier-tree", "stepped", "openmpi"), ("hier-halving", "stepped", "mpich"),
                                                ("node-aware", "fused simple", "openmpi"), ("node-aware", "stepped", "mpich"),
                                                ("hier-ring", "fused ll", "mpich"), ("hier-tree", "fused ll", "openmpi"), ("hier-halving", "fused ll", "openmpi"),
                                                ("node-aware", "fused ll", "mpich"),
                                                ("rail-ring", "fused simple", "mpich"), ("rail-ring", "stepped", "openmpi"),
                                                ("rail-tree", "fused simple", "openmpi"), ("rail-halving", "stepped", "mpich"),
                                                ("hier-torus", "stepped", "openmpi"), ("rail-torus", "fused simple", "mpich"),
                                                ("rail-pairwise", "fused simple", "openmpi"), ("rail-pairwise", "stepped", "mpich"),
                                                ("rail-linear", "fused simple", "mpich"), ("rail-linear", "stepped", "openmpi"),
                                                ("rail-chain", "fused simple", "openmpi"), ("rail-doubling", "stepped", "mpich")])
def test_nodes_algorithms(run_mpi, algo, exec_mode, mpi):
    """Each hierarchical algorithm, whoever waits for messages."""
    colls = {"halving": ["allreduce"], "torus": ["allreduce"], "tree": ["allreduce", "bcast", "reduce"],
             "ring": ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter"], "pairwise": ["alltoall"],
             "aware": ["allreduce"], "linear": ["gather", "scatter"], "chain": ["scan", "exscan"], "doubling": ["scan", "exscan"]}[algo.split("-")[1]]
    env = {"GPUCOLL_ALGO": ";".join(f"{coll}:{algo}" for coll in colls), "GPUCOLL_EXEC": exec_mode.split()[0], "GPUCOLL_EAGER_MAX": "0", "CUEMU_SMS": "16",
           "GPUCOLL_PROTO": exec_mode.split()[1] if "fused" in exec_mode else ""}
    # Some are for ranks of a node that follow each other, or for a grid of nodes.
    shape = "00122" if algo in ("rail-chain", "rail-doubling") else "01023" if "torus" in algo else SHAPES["uneven"]
    result = on_nodes(run_mpi, mpi, shape, "test_coll", 1, ",".join(colls), env=env)
    assert_passed(result)
    assert f"{algo} {exec_mode}" in result.output, result.output


@emulated_only
@pytest.mark.parametrize("algo,mpi", [("hier-ring", "mpich"), ("node-aware", "openmpi")])
def test_nodes_of_two_minds(run_mpi, mpi, algo):
    """On the second node kernels do not run together, which only that node sees in the first call: its hosts wait for messages
    that are cut as the first node's kernels cut them, whose own have flags."""
    env = {"GPUCOLL_ALGO": algo, "GPUCOLL_PROTO": "ll", "GPUCOLL_EXEC": "fused", "GPUCOLL_EAGER_MAX": "0", "CUEMU_SMS": "16", "GPUCOLL_DEBUG": "TRACE"}
    result = on_nodes(run_mpi, mpi, "0011", "test_edges", "first_call", env=env,
                      first="test $r -lt 2 || export CUEMU_TIME_SLICED=1 CUEMU_SLOWNESS=16;")
    assert_passed(result)
    ways = dict(re.findall(rf"gpucoll.(\d). TRACE core: MPI_Allreduce: {algo} (fused ll|stepped), 600000 bytes", result.output))
    assert ways == {"0": "fused ll", "1": "fused ll", "2": "stepped", "3": "stepped"}, result.output


@each_mpi
def test_nodes_sizes_that_differ(run_mpi, mpi):
    result = on_nodes(run_mpi, mpi, "0011", "test_edges", "half_alltoall",
                      env={"GPUCOLL_PROTO": "ll", "GPUCOLL_EXEC": "fused", "GPUCOLL_EAGER_MAX": "0", "CUEMU_SMS": "16"})
    assert_passed(result)
    assert count_calls(result.output, "stage", "MPI_Alltoall") == 1, result.output


@pytest.mark.parametrize("shape,algo", [("2x1", "hier-ring"), ("2x2", "rail-ring")])
def test_nodes_without_flags(run_mpi, shape, algo):
    """Between nodes there are none, and who asked for them is told."""
    result = on_nodes(run_mpi, "mpich", SHAPES[shape], "test_edges", "first_call",
                      env={"GPUCOLL_ALGO": algo, "GPUCOLL_PROTO": "ll", "GPUCOLL_EXEC": "fused", "GPUCOLL_EAGER_MAX": "0", "CUEMU_SMS": "16"})
    assert_passed(result)
    assert "GPUCOLL_PROTO=ll is not possible for MPI_Allreduce: no message stays within a node" in result.output, result.output
    assert f"{algo} fused simple" in result.output, result.output


@each_mpi
def test_nodes_without_eager(run_mpi, mpi):
    """Short calls in messages, too, and those of ranks without data; without a pool that has room for their arenas."""
    result = on_nodes(run_mpi, mpi, SHAPES["uneven"], "test_coll", 1, env={"GPUCOLL_EAGER_MAX": "0", "GPUCOLL_STAGING_POOL": "1M"})
    assert_passed(result)
    assert "stepped" in result.output, result.output
    for absent in ("eager", "it can't work in place", "a rank has no data", "no data"):
        assert absent not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("case", ["two_allocations", "default_stream", "scattered_blocks", "no_data_and_a_busy_stream",
                                  "no_data_elsewhere", "too_long_for_nobody"])
def test_nodes_edges(run_mpi, mpi, case):
    result = on_nodes(run_mpi, mpi, "01", "test_edges", case, env={"CUEMU_DEVICES": "2"})
    assert_passed(result)
    assert "WARN" not in result.output or case == "too_long_for_nobody", result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("hard", [True, False])
def test_nodes_with_few_descriptors(run_mpi, mpi, hard):
    """What UCX could not open would be a lost rank. A soft limit is raised, by a hard one all is staged."""
    limits = "ulimit -n 64;" if hard else "ulimit -Sn 64;"
    result = on_nodes(run_mpi, mpi, "0011", "gpucoll-bench", "allreduce", "-b", "1K", "-e", "64K", "-f", "8", "-n", "5", first=limits)
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output
    assert ("would need" in result.output) == hard and (count_calls(result.output, "accel") > 0) != hard, result.output


@emulated_only
@each_mpi
def test_nodes_without_p2p(run_mpi, mpi):
    """After short calls, which need no links between the ranks of a node, long ones have them."""
    result = on_nodes(run_mpi, mpi, "0011", "gpucoll-bench", "allreduce", "-b", "64", "-e", "1M", "-f", "128", "-n", "2",
                      env={"CUEMU_P2P": "none", "CUEMU_DEVICES": "4"})
    assert result.status == 0 and "0 wrong values" in result.output, result.output
    assert count_calls(result.output, "accel", "MPI_Allreduce") > 3 * count_calls(result.output, "stage", "MPI_Allreduce"), result.output
    assert "eager" in result.output and "stepped" in result.output and "rail-" not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("forced", [False, True])
def test_nodes_without_export(run_mpi, mpi, forced):
    """Memory that others of the node can't have goes in messages, also if the user insists; other memory later does not."""
    env = {"CUEMU_DEVICES": "1", "GPUCOLL_ALGO": "rail-ring" if forced else "node-aware,rail-ring"}
    result = on_nodes(run_mpi, mpi, "0011", "test_edges", "managed_then_not", env=env)
    assert_passed(result)
    assert "rail-ring stepped" in result.output and (("hier-" if forced else "node-aware stepped") in result.output), result.output
    assert forced == ("GPUCOLL_ALGO=rail-ring is not possible for MPI_Allreduce: memory that can't be mapped" in result.output), result.output


@each_mpi
@pytest.mark.parametrize("case,algo", [("gather_too_long", "rail-linear"), ("allgather_layouts", "rail-ring")])
def test_nodes_carriers(run_mpi, mpi, case, algo):
    """What carriers do for others is as if these had done it."""
    result = on_nodes(run_mpi, mpi, "00111", "test_edges", case, env={"GPUCOLL_ALGO": algo, "CUEMU_DEVICES": "2"})
    assert_passed(result)
    assert f"{algo} stepped" in result.output and "WARN" not in result.output, result.output


@emulated_only
@pytest.mark.parametrize("coll", ["scatter", "gather", "alltoall", "allgather"])
def test_nodes_take_rails(run_mpi, coll):
    """Nobody needs to ask for rails; also ranks that have no input, or little, know what is worth it."""
    result = on_nodes(run_mpi, "openmpi", "0011", "gpucoll-bench", coll, "-b", "4M", "-e", "4M", "-n", "2", env={"CUEMU_DEVICES": "2"})
    assert result.status == 0 and "0 wrong values" in result.output and "rail-" in result.output, result.output


def is_up(interface):
    try:
        return (pathlib.Path("/sys/class/net") / interface / "operstate").read_text().strip() != "down"
    except OSError:
        return False


@each_mpi
def test_network_devices(run_mpi, mpi, tmp_path):
    """Ranks use the NICs of their GPUs, if all are there, and if the user has not chosen."""
    nic = next((name for _, name in socket.if_nameindex() if name != "lo" and is_up(name)), "lo")
    machine = tmp_path / "machine"
    machine.write_text("gpucoll-machine 1\nname three NICs\nnuma numa0\n  bridge pci0\n    gpu gpu0\n    nic gone0 net=25\n"
                       f"numa numa1\n  bridge pci1\n    gpu gpu1\n    nic {nic} net=25\n    nic slow0 net=1\n")
    env = {"GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "CUEMU_DEVICES": "2"}
    # Where one has no NIC that is there, all have all.
    for first, chosen in (("", 0), ("export CUDA_VISIBLE_DEVICES=1;", 4), (f"export CUDA_VISIBLE_DEVICES=1 UCX_NET_DEVICES={nic};", 0)):
        result = on_nodes(run_mpi, mpi, "0011", "gpucoll-bench", "allreduce", "-b", "8", "-e", "1M", "-f", "1024", "-n", "2", first=first, env=env)
        assert result.status == 0 and "0 wrong values" in result.output, result.output
        assert result.output.count(f"of the network's devices UCX uses {nic}") == chosen, result.output


def messages_of_device_memory(output):
    """How many each rank's UCX sent from there, and received into it."""
    return [(int(sent), int(received)) for sent, received in re.findall(r"emu_ucp: (\d+) messages from device memory, (\d+) into it", output)]


@emulated_only
@each_mpi
@pytest.mark.parametrize("off", ["", "1"])
def test_nodes_with_device_memory(run_mpi, mpi, off):
    """UCX is given device memory, where it takes that; one rank does not."""
    first = f'test $r = "{off}" && export GPUCOLL_NET_GDR=off || export GPUCOLL_NET_GDR=on;'
    result = on_nodes(run_mpi, mpi, "001", "test_coll", 1, first=first, after=[UCX_WITH_CUDA])
    assert_passed(result)
    used = messages_of_device_memory(result.output)
    assert len(used) == (2 if off else 3) and all(n > 0 for pair in used for n in pair), used
    assert "stepped gdr" in result.output, result.output


@emulated_only
@pytest.mark.parametrize("mpi,algos", [
    ("mpich", "allreduce:ring;bcast:ring;reduce:ring;allgather:ring;reduce_scatter:ring;alltoall:pairwise;gather:linear;scatter:linear"),
    ("openmpi", "allreduce:tree;bcast:tree;reduce:tree;allgather:doubling;alltoall:bruck;scan:doubling;exscan:doubling"),
    ("mpich", "allreduce:hier-ring;bcast:hier-tree;reduce:hier-ring;allgather:hier-ring;reduce_scatter:hier-ring"),
    ("openmpi", "allreduce:rail-halving;bcast:rail-ring;allgather:rail-ring;alltoall:rail-pairwise;gather:rail-linear;scatter:rail-linear")])
def test_nodes_gdr_algorithms(run_mpi, mpi, algos):
    """Steps that the network does alone, in many rounds."""
    env = {"GPUCOLL_NET_GDR": "on", "GPUCOLL_ALGO": algos, "GPUCOLL_EAGER_MAX": "0", "GPUCOLL_SCRATCH": "1M"}
    colls = ",".join(entry.split(":")[0] for entry in algos.split(";"))
    result = on_nodes(run_mpi, mpi, "01022", "test_coll", 1, colls, env=env, after=[UCX_WITH_CUDA])
    assert_passed(result)
    assert "stepped gdr" in result.output, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("shape,execution", [("round-robin", "stepped"), ("uneven", "fused")])
def test_nodes_with_hardware(run_mpi, mpi, shape, execution):
    """What goes otherwise where UCX has more than sockets: long messages through pinned memory are fetched."""
    env = {"EMU_UCP": "rdma", "GPUCOLL_EXEC": execution, "GPUCOLL_EAGER_MAX": "0"}
    result = on_nodes(run_mpi, mpi, SHAPES[shape], "test_coll", 1, env={**env, "GPUCOLL_DEBUG": "info"}, after=[UCX_WITH_CUDA])
    assert_passed(result)
    assert execution in result.output and "go by sockets" not in result.output, result.output
    assert_passed(on_nodes(run_mpi, mpi, SHAPES[shape], "test_agree", "fuzz", 200, 5, env={**env, "GPUCOLL_SCRATCH": "1M"}, after=[UCX_WITH_CUDA]))


@emulated_only
@each_mpi
def test_nodes_gdr_random_calls(run_mpi, mpi):
    env = {"GPUCOLL_NET_GDR": "on", "GPUCOLL_EAGER_MAX": "0", "GPUCOLL_SCRATCH": "1M"}
    assert_passed(on_nodes(run_mpi, mpi, SHAPES["3+1"], "test_agree", "fuzz", 300, 4, env=env, after=[UCX_WITH_CUDA]))


@emulated_only
@pytest.mark.parametrize("mpi,collective", [("mpich", "bcast"), ("openmpi", "alltoall")])
def test_nodes_gdr_sizes(run_mpi, mpi, collective):
    result = on_nodes(run_mpi, mpi, "0011", "gpucoll-bench", collective, "-b", "1", "-e", "16M", "-f", "4", "-n", "2", env={"GPUCOLL_NET_GDR": "on"},
                      after=[UCX_WITH_CUDA])
    assert result.status == 0 and "0 wrong values" in result.output and "stepped gdr" in result.output, result.output


@emulated_only
@each_mpi
def test_nodes_gdr_is_a_choice(run_mpi, mpi):
    """Where messages cost a launch either way it is the model that chooses; kernels that are to wait do. By sockets there is nothing
    to be gained."""
    call = ["gpucoll-bench", "alltoall", "-b", "64K", "-e", "4M", "-f", "8", "-n", "2"]
    rdma = {"EMU_UCP": "cuda,rdma"}
    for env, gdr in ((rdma, True), ({**rdma, "GPUCOLL_EXEC": "fused"}, False), ({**rdma, "GPUCOLL_NET_GDR": "off"}, False), ({}, False)):
        result = on_nodes(run_mpi, mpi, "01", *call, env=env, after=[UCX_WITH_CUDA])
        assert result.status == 0 and "0 wrong values" in result.output, result.output
        assert ("stepped gdr" in result.output) == gdr, result.output
        assert bool(messages_of_device_memory(result.output)) == gdr, result.output


@each_mpi
@pytest.mark.parametrize("case", ["mixed", "fresh", "ahead", "threads", "opposite"])
def test_nodes_agreement(run_mpi, mpi, case):
    """Mixed device, host and no buffers; also the case in which a node runs ahead that nobody asks."""
    result = on_nodes(run_mpi, mpi, SHAPES["2x2"], "test_agree", case, 80)
    assert_passed(result)


@each_mpi
def test_nodes_that_are_not_woken(run_mpi, mpi):
    """The service answers though UCX does not tell it that there is a question."""
    result = on_nodes(run_mpi, mpi, SHAPES["2x2"], "test_agree", "mixed", 20, env={"EMU_UCP": "deaf"}, after=[UCX_WITH_CUDA])
    assert_passed(result)


@each_mpi
@pytest.mark.parametrize("shape,seed", [("2x1", 1), ("2x2", 2), ("uneven", 3)])
def test_nodes_random_calls(run_mpi, mpi, shape, seed):
    """Random calls over random communicators of ranks of several nodes, also by a tree, and with little room for messages."""
    env = {1: {"GPUCOLL_ALGO": "hier-tree", "GPUCOLL_EXEC": "fused"}, 2: {"GPUCOLL_SCRATCH": "1M", "GPUCOLL_EXEC": "fused"},
           3: {"GPUCOLL_CHANNELS": "2", "GPUCOLL_EAGER_MAX": "0", "GPUCOLL_ALGO": "rail-ring,rail-pairwise,rail-linear,rail-chain"}}[seed]
    assert_passed(on_nodes(run_mpi, mpi, SHAPES[shape], "test_agree", "fuzz", 300, seed, env=env))


@each_mpi
def test_nodes_types_and_ops(run_mpi, mpi):
    assert_passed(on_nodes(run_mpi, mpi, "01", "test_types"))


@pytest.mark.parametrize("mpi,algo", [("mpich", "hier-ring"), ("openmpi", "node-aware")])
def test_nodes_types_and_ops_with_flags(run_mpi, mpi, algo):
    """Messages with flags and without in one step."""
    env = {"GPUCOLL_ALGO": f"allreduce:{algo}", "GPUCOLL_PROTO": "ll", "GPUCOLL_EXEC": "fused", "GPUCOLL_EAGER_MAX": "0", "CUEMU_SMS": "16"}
    result = on_nodes(run_mpi, mpi, "0011", "test_types", "once", env=env)
    assert_passed(result)
    assert f"{algo} fused ll" in result.output, result.output


@each_mpi
def test_nodes_communicators(run_mpi, mpi):
    assert_passed(on_nodes(run_mpi, mpi, "001", "test_life", "communicators"))


@emulated_only
@each_mpi
def test_nodes_short_calls(run_mpi, mpi):
    result = on_nodes(run_mpi, mpi, "001", "test_life", "short_calls")
    assert_passed(result)
    assert "eager" in result.output and count_calls(result.output, "stage") == 0, result.output


@each_mpi
def test_nodes_differ_in_what_is_short(run_mpi, mpi):
    """Who takes a call for short has no memory for messages, and gives it to the real MPI or finds others want that."""
    result = on_nodes(run_mpi, mpi, "001", "test_coll", 1, first="test $r = 0 && export GPUCOLL_EAGER_MAX=0;")
    assert_passed(result)
    assert "eager" not in result.output and count_calls(result.output, "accel", "MPI_Allreduce") > 10, result.output


# Launchers are told to leave the survivors alone. Hydra's proxy still ends them when its own child is killed, which is
# therefore a shell; it tells of the death by SIGUSR1.
RECOVERY = {"mpich": ["-disable-auto-cleanup"], "openmpi": ["--enable-recovery"]}
SURVIVING = 'trap "" USR1; {environment} "$@"; sleep 1'


def assert_survived(result, survivors):
    said = set(re.findall(r"rank (\d+) survives: .*rror", result.output))
    assert result.status != "timeout" and len(said) == survivors, result.output[-4000:]


def kill(run_mpi, mpi, shape, victim, test=("killed", 5), **more):
    script = SURVIVING.format(environment=HOSTID.format(shape=shape))
    result = run_mpi(mpi, len(shape), "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / "test_agree", test[0], victim, test[1],
                     options=RECOVERY[mpi], timeout=60, **more)
    assert_survived(result, len(shape) - 1)
    assert result.output.count("and the others: 0 wrong") == len(shape) - 1, result.output[-4000:]
    return result


@each_mpi
@pytest.mark.parametrize("shape,victim", [("000", 1), ("01", 1), ("0011", 3)])
def test_killed_rank(run_mpi, mpi, shape, victim):
    """A rank is killed, in or between calls: all others get an error, wherever they are."""
    kill(run_mpi, mpi, shape, victim, env={"CUEMU_SMS": "8", "GPUCOLL_EXEC": "fused" if victim == 3 else "auto"})


@pytest.mark.parametrize("mpi,child", [("openmpi", "program"), ("mpich", "fork")])
def test_killed_rank_with_a_child(run_mpi, mpi, child):
    """Which would have UCX's sockets, and so keep the connections, until it ends."""
    result = kill(run_mpi, mpi, "01", 1, ("killed", 500), env={"CUEMU_SMS": "8", "TEST_CHILD": child})
    assert "rank 0 survives" in result.output.partition("the child ends")[0], result.output[-4000:]


# What some kernels do: there are no descriptors of processes; allocating a file's memory is interrupted.
OLD_KERNEL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pidfd_open) {
		errno = ENOSYS;
		return -1;
	}
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
	static int times;
	int (*real)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
	return times++ % 2 ? real(fd, offset, bytes) : EINTR;
}
"""


@pytest.fixture(scope="module")
def old_kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old_kernel")
    (folder / "old.c").write_text(OLD_KERNEL)
    compile_with("gcc", "-shared", "-fPIC", "-o", folder / "old.so", folder / "old.c", "-ldl")
    return str(folder / "old.so")


@each_mpi
def test_killed_rank_on_an_old_kernel(run_mpi, mpi, old_kernel):
    kill(run_mpi, mpi, "000", 1, env={"CUEMU_SMS": "8"}, after=[old_kernel])


@each_mpi
def test_interrupted_allocation(run_mpi, mpi, old_kernel):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"}, after=[old_kernel])
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output


@each_mpi
def test_names_in_shared_memory_that_are_taken(run_mpi, mpi):
    """Files of a job whose processes had the same numbers, or another user's: the board's name is no such one."""
    first = os.getpid()
    taken = [pathlib.Path(f"/dev/shm/gpucoll-{pid}-0") for pid in range(first, first + 2000)]
    for path in taken:
        path.touch()
    try:
        result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"})
    finally:
        for path in taken:
            path.unlink()
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output


# The library's NOMEM_AT-th allocation finds no memory.
NO_MEMORY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
static int fails(void *caller)
{
	static atomic_int calls;
	static _Thread_local int inside;
	const char *at = getenv("NOMEM_AT");
	Dl_info info;
	int ours;
	if (!at || inside)
		return 0;
	inside = 1;
	ours = dladdr(caller, &info) && strstr(info.dli_fname, "libgpucoll");
	inside = 0;
	return ours && atomic_fetch_add(&calls, 1) == atoi(at);
}
void *malloc(size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t num, size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(num, bytes);
}
"""


@emulated_only
@each_mpi
@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has malloc")
def test_no_memory_between_nodes(run_mpi, mpi, tmp_path):
    """Those of the first calls' messages are among them. The call fails, or does without, and both ranks go on; or the job says so and ends."""
    (tmp_path / "no_memory.c").write_text(NO_MEMORY)
    compile_with("gcc", "-shared", "-fPIC", "-o", tmp_path / "no_memory.so", tmp_path / "no_memory.c", "-ldl")
    for number in [2, 9, *range(36, 48)]:
        # To a file: MPICH's launcher may drop what was said just before MPI_Abort.
        log = tmp_path / f"{number}.log"
        first = f"test $r = 1 && export NOMEM_AT={number};"
        result = on_nodes(run_mpi, mpi, "01", "test_agree", "shortage", first=first, after=[str(tmp_path / "no_memory.so")], timeout=60,
                          env={"GPUCOLL_DEBUG_FILE": str(log)})
        said = result.output[-4000:] + (log.read_text() if log.exists() else "")
        assert result.status != "timeout", f"allocation {number}: {said}"
        assert "1 checks passed, 0 failed" in result.output or "no memory for 2 ranks" in said, f"allocation {number}: {said}"


@each_mpi
@pytest.mark.parametrize("shape,victim,late", [("000", 1, 2), ("0011", 3, 1)])
def test_missed_rank(run_mpi, mpi, shape, victim, late):
    """Who misses a rank gets an error though another one has not come to the call, which may have been told of the failure in
    the call before and then never comes. If it does come it gets one, too."""
    kill(run_mpi, mpi, shape, victim, ("missed", late), env={"CUEMU_SMS": "8"})


@each_mpi
def test_orphaned_node(run_mpi, mpi):
    """A process is killed that is no member of the communicator, but answers for a node of it."""
    result = kill(run_mpi, mpi, "0011", 2, ("orphaned", 3), env={"CUEMU_SMS": "8"})
    assert "rank 2 of MPI_COMM_WORLD, which answers for this node, has ended" in result.output, result.output


@emulated_only
def test_stuck_rank_by_gdr(run_mpi):
    """A connection to who does not take what was sent from the application's memory is broken off."""
    script = SURVIVING.format(environment=HOSTID.format(shape="012"))
    env = {"CUEMU_SMS": "8", "GPUCOLL_ALGO": "ring", "GPUCOLL_NET_GDR": "on"}
    result = run_mpi("mpich", 3, "/bin/sh", "-c", script, "sh", BUILD / "mpi/mpich/test_agree", "stuck", 1, env=env, after=[UCX_WITH_CUDA],
                     options=RECOVERY["mpich"], timeout=60)
    assert_survived(result, 1)


@emulated_only
@each_mpi
@pytest.mark.parametrize("shape,victim", [("01", 0), ("0122", 1)])
def test_killed_rank_by_gdr(run_mpi, mpi, shape, victim):
    """The others' buffers, which UCX reads and writes, are theirs again, and freed."""
    kill(run_mpi, mpi, shape, victim, env={"CUEMU_SMS": "8", "GPUCOLL_NET_GDR": "on"}, after=[UCX_WITH_CUDA])


def on_hosts(cluster, mpi, ranks, program, *arguments, env=(), options=(), timeout=150, when=None):
    """Run a test program on hosts of a cluster with so many ranks each."""
    rank_env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")],
                           {"CUEMU_SMS": "8", "GPUCOLL_STATS": "1", "UCX_NET_DEVICES": "eth0", **dict(env)})
    command = [*cluster.command(mpi, ranks, options), "env", *[f"{k}={v}" for k, v in rank_env.items() if v is not None],
               str(BUILD / "mpi" / mpi / program), *map(str, arguments)]
    return run_on_hosts(command, os.environ.copy(), timeout, when)


@each_mpi
def test_cluster(make_cluster, mpi):
    """All collectives between hosts that share no memory, over TCP."""
    result = on_hosts(make_cluster(2), mpi, [2, 1], "test_coll", 1)
    assert_passed(result)
    assert "stepped" in result.output and "WARN" not in result.output, result.output


@each_mpi
def test_cluster_of_four(make_cluster, mpi):
    assert_passed(on_hosts(make_cluster(4), mpi, [1, 1, 1, 1], "test_agree", "fuzz", 50, 12))


@each_mpi
def test_cluster_random_calls(make_cluster, mpi):
    assert_passed(on_hosts(make_cluster(2), mpi, [2, 1], "test_agree", "fuzz", 150, 11, env={"GPUCOLL_EXEC": "fused"}))


@each_mpi
def test_cluster_mixed(make_cluster, mpi):
    assert_passed(on_hosts(make_cluster(2), mpi, [2, 1], "test_agree", "mixed", 60))


def listening_ports(ports):
    """Those of the range on which some process of this machine listens."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {port for line in lines if line.split()[3] == "0A" and (port := int(line.split()[1].split(":")[1], 16)) in ports}


def disturb(ports, ended, taken):
    """
    Connect to all who have listened for a second, say something, and stay or go; over and over. (Who connects while UCX 1.13
    makes a worker, ours or MPICH's, has it end the process.) `taken` gets the ports of those who took it.
    """
    source, connections, since = random.Random(1), [], {}
    while not ended.wait(0.02):
        for port in listening_ports(ports):
            if time.monotonic() - since.setdefault(port, time.monotonic()) < 1:
                continue
            try:
                connections.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                connections[-1].sendall(source.randbytes(source.choice([1, 7, 8, 100, 5000])))
                taken.append(port)
            except OSError:
                pass
        while len(connections) > 20:
            connections.pop(source.randrange(len(connections))).close()


@each_mpi
def test_strangers_on_the_port(run_mpi, mpi):
    """Others connect to UCX's ports and send what is no message: nothing happens, in as many jobs as it takes until they
    have done so often enough."""
    ports, ended, taken, jobs = range(27100, 27400), threading.Event(), [], 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        stranger = pool.submit(disturb, ports, ended, taken)
        try:
            while len(taken) <= 20 and jobs < 20:
                jobs += 1
                assert_passed(on_nodes(run_mpi, mpi, "001", "test_agree", "mixed", 2000, env={"UCX_TCP_PORT_RANGE": "27100-27399"}))
        finally:
            ended.set()
    stranger.result()
    assert len(taken) > 20


def listening(pid):
    """The IPv4 addresses, in words of /proc/net/tcp, at which a process listens."""
    owned = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            owned.add(os.readlink(fd))
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in owned]


@pytest.mark.parametrize("devices,only", [({}, {"0100007F"}), ({"UCX_NET_DEVICES": "all"}, None)], ids=["default", "all"])
def test_ports_on_one_interface(run_mpi, devices, only, tmp_path):
    """Anybody who reaches UCX's ports can send to them: in a job on one machine nobody else does. Open MPI's own ones are on all addresses."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        job = pool.submit(on_nodes, run_mpi, "openmpi", "01", "test_agree", "late", 4, first=f"echo $$ > {tmp_path}/$r;",
                          env={"GPUCOLL_DEBUG": "info", "GPUCOLL_TIMEOUT": "1", **devices})
        found = set()
        while not job.done():
            for path in tmp_path.iterdir():
                with contextlib.suppress(OSError):
                    found.update(listening(path.read_text().strip()))
            time.sleep(0.2)
    assert_passed(job.result())
    assert found - {"00000000"} and (only is None or found - {"00000000"} == only), found
    assert ("of the network's devices UCX uses lo" in job.result().output) == (not devices), job.result().output


@pytest.mark.parametrize("misled", [False, True])
def test_cluster_guesses_the_interface(make_cluster, misled):
    """One of them, on hosts that have several; and where on one host that does not lead to the others, all."""
    hosts = make_cluster(2)
    if misled:
        hosts.on_host(1, "ip", "link", "add", "away0", "type", "veth", "peer", "name", "away1")
        hosts.on_host(1, "ip", "addr", "add", "10.213.7.1/24", "dev", "away0")
        for end in ("away0", "away1"):
            hosts.on_host(1, "ip", "link", "set", end, "up")
        hosts.on_host(1, "ip", "route", "add", "default", "dev", "away0")
    try:
        result = on_hosts(hosts, "openmpi", [2, 1], "test_coll", 1, env={"GPUCOLL_DEBUG": "info", "UCX_NET_DEVICES": None})
    finally:
        if misled:
            hosts.on_host(1, "ip", "link", "del", "away0")
    assert_passed(result)
    assert result.output.count("devices UCX uses eth") + result.output.count("devices UCX uses away0") == 3, result.output
    assert ("not by away0 alone: now UCX chooses" in result.output) == misled, result.output
    assert count_calls(result.output, "accel", "MPI_Allreduce") > 0, result.output


@each_mpi
@pytest.mark.parametrize("transport", ["rc", "ud"])
def test_nodes_over_verbs(run_mpi, mpi, transport, verbs_device):
    """Nodes on one machine, whose device sends to itself."""
    env = {"UCX_TLS": f"{transport},self", "UCX_NET_DEVICES": f"{verbs_device}:1"}
    result = on_nodes(run_mpi, mpi, "001", "test_coll", 1, env=env)
    assert_passed(result)
    assert "stepped" in result.output, result.output


@each_mpi
@pytest.mark.parametrize("shape", ["00", "01"])
def test_long_wait_is_reported(run_mpi, mpi, shape):
    result = on_nodes(run_mpi, mpi, shape, "test_agree", "late", 2, env={"GPUCOLL_TIMEOUT": "1"})
    assert_passed(result)
    assert re.search(r"\[0\] WARN .*MPI_Allreduce has waited 1 s for rank 1 of 2 to come to call \d+ of communicator 0x.* goes on waiting; 1 of this "
                     r"rank's messages is pending, the oldest for \d s: MPI_Irecv from rank 1, tag 9\n", result.output), result.output


@each_mpi
def test_cluster_over_a_bad_link(make_cluster, mpi):
    """Packets are late, lost and out of order."""
    hosts = make_cluster(2, "netem delay 1ms 1ms loss 1% reorder 10%")
    assert_passed(on_hosts(hosts, mpi, [2, 1], "test_agree", "fuzz", 50, 13))


SOON = {"UCX_TCP_KEEPIDLE": "1s", "UCX_TCP_KEEPINTVL": "1s", "UCX_TCP_KEEPCNT": "3"}


@pytest.mark.parametrize("mpi,keepalive", [("mpich", SOON), ("openmpi", SOON), ("openmpi", {})], ids=["mpich", "openmpi", "openmpi-default"])
def test_link_goes_down(make_cluster, mpi, keepalive):
    """The network between nodes is cut in mid-call, not the launcher's: all ranks get an error, within some seconds of each
    other, before the launcher misses the first one, and half a minute unless the user says otherwise. Before that they report
    what they wait for."""
    hosts = make_cluster(2)
    script = SURVIVING.format(environment="").replace("sleep 1", "sleep 6")
    try:
        result = on_hosts(hosts, mpi, [2, 1], "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / "test_agree", "cut",
                          env={"UCX_NET_DEVICES": "eth1", "GPUCOLL_TIMEOUT": "1", "GPUCOLL_EXEC": "fused" if mpi == "mpich" else "auto",
                               **keepalive}, timeout=60 if keepalive else 150,
                          when=("calls are under way", lambda: hosts.set_link(1, 1, "down")))
    finally:
        hosts.set_link(1, 1, "up")
    assert_survived(result, 3)
    awaited = r"(message \d+ of rank \d|room for message \d+ to rank \d|rank \d of 3 to|copies, or messages to other nodes)"
    assert re.search(rf"WARN .*MPI_Allreduce has waited 1 s for {awaited}", result.output), result.output


@each_mpi
def test_leaving_with_messages_in_the_process(make_cluster, mpi):
    """Over a slow link and with little room in sockets, a root's last message is still in its process when it leaves the call."""
    hosts = make_cluster(2, "tbf rate 50mbit burst 32k latency 400ms")
    env = {"GPUCOLL_CHANNELS": "4", "UCX_TCP_SNDBUF": "4K", "UCX_TCP_TX_SEG_SIZE": "64K", "UCX_TCP_RX_SEG_SIZE": "64K"}
    assert_passed(on_hosts(hosts, mpi, [1, 1], "test_agree", "leave", 20, env=env, timeout=60))


@each_mpi
def test_nodes_without_network(run_mpi, mpi):
    """GPUCOLL_NET=off on one rank leaves the calls to the real MPI, on all."""
    result = on_nodes(run_mpi, mpi, "01", "test_coll", 1, first="test $r = 0 || export GPUCOLL_NET=off;")
    assert_passed(result)
    assert "several nodes, without a network" in result.output and "hier" not in result.output, result.output


@each_mpi
def test_nodes_without_a_way(run_mpi, mpi):
    """What UCX may use does not lead to other nodes, though it has addresses: the calls are left to the real MPI."""
    result = on_nodes(run_mpi, mpi, "0011", "test_coll", 1, env={"UCX_TLS": "self,sm"})
    assert_passed(result)
    assert "UCX finds no way to rank 2 of MPI_COMM_WORLD" in result.output and count_calls(result.output, "accel", "MPI_Allreduce") == 0, result.output


def test_cluster_without_a_way(make_cluster):
    """Each host has but an address of its own."""
    result = on_hosts(make_cluster(2), "openmpi", [2, 1], "test_coll", 1, env={"UCX_NET_DEVICES": "lo"})
    assert_passed(result)
    assert "UCX finds no way to rank" in result.output and count_calls(result.output, "accel", "MPI_Allreduce") == 0, result.output


@each_mpi
def test_disabled(run_mpi, mpi):
    """GPUCOLL_DISABLE=1 hands device buffers to the real MPI, which dies of them."""
    assert run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_DISABLE": "1"}).status != 0


@each_mpi
def test_asleep_without_driver(mpi, tmp_path):
    """Where no process has a driver the library maps nothing, starts no thread and loads no libcuda."""
    source = tmp_path / "quiet.c"
    source.write_text(r"""
#include <mpi.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	int one = 1, sum, rank, found = 0;
	char line[4096];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "libcuda") || strstr(line, "/gpucoll-");
	fclose(maps);
	if (rank == 0)
		printf("sum %d, traces %d\n", sum, found);
	MPI_Finalize();
	return 0;
}
""")
    program = tmp_path / "quiet"
    compile_with(f"mpicc.{mpi}", "-o", program, source)
    env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")], {"GPUCOLL_DEBUG": "info"})
    if not ON_GPU:
        env.pop("LD_LIBRARY_PATH")
    result = run_command([*launcher(mpi, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(program)],
                         os.environ.copy(), 60)
    assert result.status == 0 and "sum 2, traces 0" in result.output, result.output
    assert ON_GPU or "asleep" in result.output, result.output


@each_mpi
def test_statistics(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    # Fifty calls of the case; each check makes one more, on host buffers.
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output
    assert count_calls(result.output, "pass", "MPI_Allreduce") == 50, result.output
    assert "twoshot" in result.output, result.output
    staged = run_mpi(mpi, 2, "test_life", "reallocation", env=PATHS["stage"])
    assert_passed(staged)
    assert count_calls(staged.output, "stage", "MPI_Allreduce") == 50, staged.output
    assert "GPUCOLL_ACCEL=0" in staged.output, staged.output


@each_mpi
def test_bad_options_are_named(run_mpi, mpi):
    result = run_mpi(mpi, 1, "test_life", "idup",
                     env={"GPUCOLL_DEBUGG": "1", "GPUCOLL_STAGING_POOL": "many", "GPUCOLL_DEBUG": "warn"})
    assert_passed(result)
    assert "GPUCOLL_DEBUGG is no option" in result.output
    assert "GPUCOLL_STAGING_POOL=many is not understood" in result.output


@each_mpi
@pytest.mark.parametrize("name,why", [("/dev/zero", "not supported"), ("/", "directory"), ("/nowhere", "No such file")],
                         ids=["device", "directory", "nothing"])
def test_what_is_no_tuning_file(run_mpi, mpi, name, why):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_TUNING_FILE": name}, timeout=60)
    assert_passed(result)
    assert re.search(f"WARN .*GPUCOLL_TUNING_FILE: {name}: .*{why}", result.output), result.output


@each_mpi
def test_log_file(run_mpi, mpi, tmp_path):
    result = run_mpi(mpi, 1, "test_life", "idup",
                     env={"GPUCOLL_DEBUG": "trace", "GPUCOLL_DEBUG_FILE": f"{tmp_path}/%h.%p.log"})
    assert_passed(result)
    logs = list(tmp_path.glob("*.log"))
    assert len(logs) == 1 and re.search("MPI_Allreduce on .*: stage, communicator without identity", logs[0].read_text())


# ---- the door: other languages, other tools ----

CUDART = sorted(p.name for p in BUILD.glob("emu/libcudart.so.*"))[0] if MPIS else None


@each_mpi
@pytest.mark.parametrize("binding", ["mpif.h", "use mpi", "use mpi_f08"])
def test_fortran(run_mpi, mpi, binding, tmp_path):
    number = ["mpif.h", "use mpi", "use mpi_f08"].index(binding) + 1
    program = tmp_path / "fortran"
    compile_with(f"mpif90.{mpi}", f"-DBINDING={number}", "-fallow-argument-mismatch", "-o", program,
                 SOURCE / "test/door/fortran.F90", f"-L{BUILD}/emu", f"-l:{CUDART}", "-l:libcuda.so.1")
    assert_passed(run_mpi(mpi, 3, program))
    without = run_mpi(mpi, 2, program, library=False, timeout=60)
    assert "checks passed, 0 failed" not in without.output


@emulated_only
@each_mpi
def test_functions_taken_past_the_library(run_mpi, mpi, tmp_path):
    """Who dlsyms MPI_Init is told at the end; who opens the library in the MPI's place is not, and has it."""
    program, name = tmp_path / "taken", {"mpich": "libmpich.so.12", "openmpi": "libmpi.so.40"}[mpi]
    compile_with("gcc", f"-I{CUDA}/include", "-o", program, SOURCE / "test/door/taken.c", f"-L{BUILD}/emu", "-l:libcuda.so.1", "-ldl")
    for library, told in ((name, True), (BUILD / "mpi" / mpi / "libgpucoll.so.0", False)):
        result = run_mpi(mpi, 2, program, library, env={"GPUCOLL_STATS": "1"})
        assert result.status == 0 and result.output.count("started") == 2, result.output
        assert ("has taken MPI_Init from the MPI's own library" in result.output) == told, result.output
        assert ("calls of this rank" in result.output) != told, result.output


@each_mpi
@pytest.mark.parametrize("order", ["above", "below"])
def test_another_tool_stacks(run_mpi, mpi, order, tmp_path):
    tool = tmp_path / "tool.so"
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-o", tool, SOURCE / "test/door/tool.c")
    place = {"before": [str(tool)]} if order == "above" else {"after": [str(tool)]}
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"}, **place)
    assert_passed(result)
    # Fifty on device buffers and fifty on host buffers, each seen once by the library, and by the tool above it. Below,
    # only what the real MPI is asked to do is seen.
    assert f"tool saw {100 if order == 'above' else 50} calls" in result.output, result.output
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output


def need_mpi4py():
    if "openmpi" not in MPIS:
        pytest.skip("no library for Open MPI, which Debian's mpi4py is linked with")
    if run_command(["/usr/bin/python3", "-c", "import mpi4py"], os.environ.copy(), 60).status != 0:
        pytest.skip("no mpi4py for /usr/bin/python3 on this machine")


def test_mpi4py(run_mpi):
    """Debian's mpi4py is linked with Open MPI."""
    need_mpi4py()
    assert_passed(run_mpi("openmpi", 2, "/usr/bin/python3", SOURCE / "test/door/python_door.py", CUDART))


@each_mpi
def test_other_calls_are_handed_through_and_told(run_mpi, mpi, tmp_path):
    """Nonblocking collectives on device buffers are not ours yet: one warning for each function, and the MPI's own failure. Partitioned
    messages on them are an error."""
    source = tmp_path / "handed.c"
    source.write_text(r"""
#include <mpi.h>
#include <cuda_runtime_api.h>
#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#define MPIX_EXTENSION
#endif
int main(int argc, char **argv)
{
	void *buffer, *managed;
	MPI_Request request;
	MPI_Init(&argc, &argv);
	cudaMalloc(&buffer, 100);
	cudaMallocManaged(&managed, 100, cudaMemAttachGlobal);
	for (int i = 0; i < 3; i++) {
		MPI_Ibcast(buffer, 100, MPI_BYTE, 0, MPI_COMM_SELF, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Iallreduce(MPI_IN_PLACE, managed, 100, MPI_BYTE, MPI_BOR, MPI_COMM_SELF, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
#ifdef MPIX_EXTENSION
	MPIX_Barrier_init(MPI_COMM_SELF, MPI_INFO_NULL, &request);
	MPI_Request_free(&request);
	MPIX_Bcast_init(buffer, 100, MPI_BYTE, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request);
#else
	MPI_Bcast_init(buffer, 100, MPI_BYTE, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request);
#endif
	MPI_Request_free(&request);
#if MPI_VERSION >= 4
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	if (MPI_Psend_init(buffer, 1, 100, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request) != MPI_ERR_BUFFER ||
	    MPI_Precv_init(managed, 1, 100, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request) != MPI_SUCCESS)
		return 1;
#endif
	MPI_Finalize();
	return 0;
}
""")
    program = tmp_path / "handed"
    compile_with(f"mpicc.{mpi}", f"-I{CUDA}/include", "-o", program, source, f"-L{BUILD}/emu",
                 f"-l:{CUDART}", "-l:libcuda.so.1")
    result = run_mpi(mpi, 1, program)
    assert result.status == 0, result.output
    told = re.findall(r"(\w+) was given a device buffer", result.output)
    assert told == ["MPI_Ibcast", *(["MPI_Bcast_init", "MPI_Psend_init"] if mpi == "mpich" else ["MPIX_Bcast_init"])], result.output
    quiet = run_mpi(mpi, 1, program, env={"GPUCOLL_DEBUG": "none"})
    assert "device buffer" not in quiet.output


# ---- the tools ----

def run_tool(*command, env=()):
    return run_command([str(c) for c in command], {**os.environ, "ASAN_OPTIONS": ASAN_OPTIONS, **dict(env)}, 120)


EXEC = BUILD / "gpucoll-exec"


@pytest.mark.parametrize("options", [["--mca", "btl_base_verbose", "0"], ["-x", "yes"], ["--unknown", "yes", "--"], ["-genv", "ANSWER", "yes"]])
def test_exec_finds_the_program(tmp_path, options):
    """Behind values of a launcher's options that are names of programs, too (yes); -- says it where they are not known."""
    said = tmp_path / "mpirun"
    said.write_text('#!/bin/sh\necho "launched: $*"\n')
    said.chmod(0o755)
    result = run_tool(EXEC, str(said), "-n", "2", *options, "python3", "x.py")
    kept = [option for option in options if option != "--"]
    assert result.status == 0 and f"launched: -n 2 {' '.join(kept)} {EXEC} python3 x.py" in result.output, result.output


SPAWNING = r"""
#include <mpi.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	char *args[] = {"a child", NULL}, *commands[2], **argvs[] = {args, args};
	int most[] = {1, 1}, *buffer;
	MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
	MPI_Comm parent, inter;
	MPI_Init(&argc, &argv);
	MPI_Comm_get_parent(&parent);
	commands[0] = commands[1] = argv[0];
	if (parent == MPI_COMM_NULL && !strcmp(argv[1], "many"))
		MPI_Comm_spawn_multiple(2, commands, argvs, most, infos, 1, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
	else if (parent == MPI_COMM_NULL)
		MPI_Comm_spawn(argv[0], args, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
	cudaMalloc((void **)&buffer, 8);
	MPI_Allreduce(buffer, buffer + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (parent != MPI_COMM_NULL)
		printf("%s has made its call\n", argv[1]);
	fflush(stdout);
	MPI_Barrier(parent == MPI_COMM_NULL ? inter : parent);
	MPI_Comm_disconnect(parent == MPI_COMM_NULL ? &inter : &parent);
	MPI_Finalize();
	return 0;
}
"""


@emulated_only
@pytest.mark.parametrize("way", ["one", "many"])
def test_exec_reaches_spawned_processes(tmp_path, way):
    """Their calls on device memory, with which the MPI alone would crash. Debian's MPICH can't spawn, also without the library."""
    (tmp_path / "spawning.c").write_text(SPAWNING)
    compile_with("mpicc.openmpi", f"-I{CUDA}/include", "-o", tmp_path / "spawning", tmp_path / "spawning.c", f"-L{BUILD}/emu", f"-l:{CUDART}",
                 "-l:libcuda.so.1")
    result = run_tool(EXEC, "--emulate=2", *launcher("openmpi", 2), str(tmp_path / "spawning"), way)
    assert result.status == 0 and result.output.count("a child has made its call") == 2, result.output


@emulated_only
@each_mpi
def test_tools_above(tmp_path, mpi):
    """A preloaded tool sees all of the program's calls, and the library accelerates them."""
    tool = tmp_path / "tool.so"
    compile_with({"mpich": "mpicc.mpich", "openmpi": "mpicc.openmpi"}[mpi], "-shared", "-fPIC", "-o", tool, SOURCE / "test/door/tool.c")
    env = {**environment(mpi, []), "GPUCOLL_STATS": "1"}
    env["LD_PRELOAD"] = f"{env['LD_PRELOAD']}:{tool}".strip(":")
    command = [*launcher(mpi, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(EXEC), str(BUILD / "mpi" / mpi / "gpucoll-bench"),
               "allreduce", "-b", "1K", "-e", "1K", "-n", "50"]
    result = run_command(command, os.environ.copy(), 60)
    seen = re.search(r"tool saw (\d+) calls", result.output)
    assert result.status == 0 and seen and int(seen[1]) > 100 and count_calls(result.output, "accel") > 90, result.output




@each_mpi
@pytest.mark.parametrize("place", ["before the launcher", "after the launcher"])
def test_exec(mpi, place):
    program = [BUILD / "mpi" / mpi / "test_life", "reallocation"]
    wrapped = [EXEC, "--emulate=2", "--no-accel"] if not ON_GPU else [EXEC]
    command = [*launcher(mpi, 2), *program]
    command = [*wrapped, *command] if place.startswith("before") else [*launcher(mpi, 2), *wrapped, *program]
    assert_passed(run_tool(*command))


def test_exec_several_programs():
    """mpirun -n 1 ./a : -n 1 ./b: each program gets the library, or they would wait for each other for ever."""
    mpi = MPIS[-1]
    bench = [str(BUILD / "mpi" / mpi / "gpucoll-bench"), "bcast", "-b", "64", "-e", "64", "-n", "2", "-w", "1"]
    where = [] if ON_GPU else ["--emulate"]
    result = run_tool(BUILD / "gpucoll-exec", *where, *launcher(mpi, 1), *bench, ":", "-n", "1", *bench)
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output


def test_exec_python():
    need_mpi4py()
    assert_passed(run_tool(EXEC, "--emulate", *launcher("openmpi", 2), "/usr/bin/python3",
                           SOURCE / "test/door/python_door.py", CUDART))


def test_exec_refuses(tmp_path):
    def refused(*command, because):
        result = run_tool(EXEC, *command)
        assert result.status == 2 and because in result.output, result.output

    refused(because="no command given")
    refused("--emulat", "x", because="unknown option '--emulat'")
    refused("--emulate=0", "x", because="--emulate=0: a number of devices")
    refused("/no/such/program", because="/no/such/program: no such program")
    refused("/bin/true", because="is linked with no MPI")
    refused("--mpi=nonsense", "/bin/true", because="needs the library for the MPI 'nonsense'")
    suid = tmp_path / "suid"
    suid.write_bytes(open("/bin/true", "rb").read())
    suid.chmod(0o4755)
    refused(suid, because="set-user-id")
    static = tmp_path / "static"
    source = tmp_path / "static.c"
    source.write_text("int MPI_Init(void *a, void *b) { return a == b; }\nint main(void) { return MPI_Init(0, 0); }\n")
    compile_with("gcc", "-o", static, source)
    refused(static, because="linked in statically")


def test_info():
    info = run_tool(BUILD / "gpucoll-info")
    assert info.status == 0 and info.output.startswith("libgpucoll ")
    config = run_tool(BUILD / "gpucoll-info", "-c", env={"GPUCOLL_STATS": "1"})
    assert "GPUCOLL_STATS=1" in config.output and "Source: environment" in config.output
    assert run_tool(BUILD / "gpucoll-info", "--nonsense").status == 2
    assert run_tool(BUILD / "gpucoll-info", "extra").status == 2


def test_info_plan():
    info = BUILD / "gpucoll-info"
    table = run_tool(info, "-p", "allreduce", "-n", "6", "-s", "4M")
    assert table.status == 0 and re.search(r"^ring +10 +0 +6995968 ", table.output, re.M), table.output
    double = run_tool(info, "-p", "allreduce", "-n", "6", "-s", "4M", "--proto", "ll")
    assert re.search(r"^ring +10 +0 +13991936 ", double.output, re.M) and re.search(r"^twoshot +0 +1 +0 ", double.output, re.M)
    # The ring in text: a rank of three sends its piece, passes one on, makes one whole, and so on.
    text = run_tool(info, "-p", "allreduce", "-n", "3", "--algo", "ring").output
    assert text.count("recvReduceCopySend") == 3 and "2  recvReduceCopySend   piece 1    from 2 + IN -> OUT, to 1" in text
    # Two nodes of two ranks: the carrier adds what its node's other gives it, and gives it the result.
    text = run_tool(info, "-p", "allreduce", "--nodes", "2,2", "--algo", "hier-ring").output
    assert "IN + from 1 -> to 2" in text and "from 2 + IN + from 1 -> OUT, to 1, to 2" in text, text
    # It reads the other's input, and writes its output.
    text = run_tool(info, "-p", "allreduce", "--nodes", "2,2", "--algo", "rail-ring").output
    assert "IN + IN@1 -> to 2" in text and "from 2 -> OUT, OUT@1" in text, text
    picture = ElementTree.fromstring(run_tool(info, "-p", "bcast", "-n", "7", "--root", "3", "--algo", "tree", "--svg").output)
    assert len([line for line in picture.iter() if line.tag.endswith("}line")]) == 2 * 6  # each rank hears from two trees
    graph = run_tool(info, "-p", "alltoall", "-n", "4", "--in-place", "--algo", "direct", "--dot").output
    assert graph.startswith("digraph") and graph.count("{") == graph.count("}") and graph.count("swap") == 4 * 3


def choices(*options):
    """What gpucoll-info -p shows as the best for each size, and its time in us."""
    result = run_tool(BUILD / "gpucoll-info", "-p", *options)
    assert result.status == 0, result.output
    rows = re.findall(r"^ *(\d+) ([a-z-]+(?: \w+ x\d+)?) +([\d.]+) ", result.output, re.M)
    assert [int(row[0]) for row in rows] == [8 << i for i in range(28)], result.output
    return {int(size): (way, float(time)) for size, way, time in rows}


def test_info_choices():
    """What the machines are known for: their links carry what they can, by the algorithm that is made for them."""
    def machine(name):
        return ["--machine", MACHINES / f"{name}.machine"]

    def share(time, bytes, rate):
        return bytes / (time * 1e3) / (0.8 * rate)  # of what a link of so many GB/s carries

    switched = choices("allreduce", *machine("dgx-h100"), "-n", "8")
    assert switched[8][0] in ("oneshot", "twoshot") and switched[1 << 30][0] == "twoshot"
    assert 0.9 < share(switched[1 << 30][1], 2 * 7 / 8 * (1 << 30), 450) <= 1
    # Six NVLinks of 25 GB/s at each GPU of the hybrid cube mesh, of which no algorithm but rings along them uses all.
    mesh = choices("allreduce", *machine("dgx-1-v100"), "-n", "8")
    assert mesh[1 << 30][0].startswith("ring simple") and 0.7 < share(mesh[1 << 30][1], 2 * 7 / 8 * (1 << 30), 150) <= 1
    tree = choices("bcast", *machine("pcie-8gpu"), "-n", "8")
    assert tree[1 << 30][0].startswith("ring simple") and 0.9 < share(tree[1 << 30][1], 1 << 30, 12) <= 1
    nodes = choices("allreduce", *machine("dgx-a100"), "--nodes", "8,8")
    assert nodes[8][0].startswith("node-aware") and nodes[1 << 20][0].startswith("rail-") and nodes[8][1] > switched[8][1]
    # The wire would take 6.7 ms, as each of the eight GPUs has a NIC of 25 GB/s to itself, though two are as near to two of them;
    # NVLinks of 300 GB/s take longer: what others read of a GPU's input goes out of it, and what it writes to their outputs.
    assert 0.97 < share(nodes[1 << 30][1], 2 * 7 / 8 * (1 << 30), 300) <= 1, nodes[1 << 30]
    said = "no rank's input has more than 4096 bytes"
    for options, says in ((["--nodes", "8,8"], True), (["-n", "16"], False)):
        assert (said in run_tool(BUILD / "gpucoll-info", "-p", "bcast", *machine("dgx-a100"), *options).output) == says
    # Sockets take processors' time for each message, so there are fewer of them, and for each byte.
    by_sockets = choices("bcast", *machine("two-5090"), "--nodes", "1,1", "--sockets")
    by_hardware = choices("bcast", *machine("two-5090"), "--nodes", "1,1")
    channels = [int(way[1 << 15][0].split(" x")[1]) for way in (by_sockets, by_hardware)]
    assert channels[0] < channels[1] and 0.5 < (1 << 30) / (by_sockets[1 << 30][1] * 1e3) / 3 <= 1, (channels, by_sockets)
    apart = choices("allreduce", *machine("two-5090"), "-n", "2")  # without mapped memory
    assert all(" x" in way for way, _ in apart.values()), apart
    # Ranks that share a GPU: nothing is faster than its memory.
    shared = choices("allgather", *machine("cloud-g5"), "-n", "8")
    assert all(shared[size][1] <= shared[4 * size][1] for size in (8 << i for i in range(0, 26, 2)))
    listed = run_tool(BUILD / "gpucoll-info", "-p", "alltoall", "-s", "1M", *machine("dgx-2"), "-n", "16").output
    times = [float(time) for time in re.findall(r"^ [a-z].* ([\d.]+)$", listed, re.M)]
    assert len(times) > 5 and times == sorted(times), listed


@pytest.mark.parametrize("options,said", [
    (["-p", "alltoal"], "there is no collective 'alltoal'; there are: allreduce"),
    (["-p", "bcast", "--algo", "oneshot"], "there is no algorithm 'oneshot' for bcast; there are: hier-ring hier-tree rail-ring rail-tree ring tree"),
    (["-p", "allgather", "-n", "5", "--algo", "neighbor"], "it needs an even number of ranks"),
    (["-p", "bcast", "--nodes", "2,0"], "--nodes 0: a number from 1"), (["-p", "bcast", "--algo", "hier-ring"], "several nodes"),
    (["-p", "bcast", "-n", "0"], "-n 0: a number from 1 to 1024"), (["-p", "bcast", "-s", "1T"], "-s 1T: a number"),
    (["-p", "bcast", "--root", "4"], "there is no rank 4 among 4"), (["-p", "scan", "--root", "1"], "scan has no root"),
    (["-p", "bcast", "--in-place"], "bcast has one buffer"), (["--algo", "ring"], "need -p"), (["-p", "bcast", "--proto", "tcp"], "--proto tcp: simple, ll or ll128"),
    (["-p", "bcast", "--exec", "gpu"], "--exec gpu: fused, stepped or gdr"), (["-p", "scan", "--svg"], "need --algo")])
def test_info_plan_refuses(options, said):
    result = run_tool(BUILD / "gpucoll-info", *options)
    assert result.status == 2 and said in result.output, result.output


def simulated(*options):
    """Rows of gpucoll-sim, as dictionaries."""
    result = run_tool(BUILD / "gpucoll-sim", *options)
    assert result.status == 0 and result.output.startswith("collective,"), result.output
    return [{name: value if name in ("collective", "network", "algorithm", "protocol", "how") else float(value) for name, value in row.items()}
            for row in csv.DictReader(io.StringIO(result.output))]


with_simgrid = pytest.mark.skipif(not (BUILD / "gpucoll-sim").exists(), reason="SimGrid was not there when this was built")


@with_simgrid
@pytest.mark.parametrize("shape", ["rails", "fat-tree", "dragonfly"])
def test_simulation(shape):
    """Nothing is faster than the bound, and what knows of nodes is faster than what does not."""
    rows = simulated("--machine", MACHINES / "dgx-a100.machine", "-s", shape, "-c", "allreduce,alltoall", "-b", "8,1M", "-n", "8,40,64")
    assert len(rows) >= 12 and all(row["ratio"] >= 1 and row["network"] == shape for row in rows), rows
    best = {}
    for row in rows:
        best.setdefault((row["collective"], row["bytes"], row["ranks"]), row)
        assert best[row["collective"], row["bytes"], row["ranks"]]["us"] <= row["us"], rows
    assert len(best) == 12 and best["allreduce", 1 << 20, 64]["algorithm"].startswith("rail-"), rows
    assert shape == "dragonfly" or best["alltoall", 1 << 20, 64]["ratio"] < 1.3, rows


@with_simgrid
def test_simulation_of_short_calls():
    """Near the bound, and not under it where ranks have several messages under way."""
    rows = simulated("--machine", MACHINES / "dgx-a100.machine", "-b", "8", "-n", "16,128,512")
    ratios = [row["ratio"] for row in rows if row["algorithm"] == "node-aware"]
    assert len(ratios) == 3 and all(1 <= ratio <= 1.3 for ratio in ratios), rows


@with_simgrid
@pytest.mark.skipif(not shutil.which("gnuplot"), reason="there is no gnuplot")
def test_simulation_is_extrapolated(tmp_path):
    """A ring of more ranks than can be simulated takes as much longer as it is longer, and is no simulation."""
    few, more, most = rows = simulated("--machine", MACHINES / "dgx-a100.machine", "--best", "-a", "ring", "-C", "1", "-b", "8", "-n", "64,256,8192")
    assert [row["how"] for row in rows] == ["simulated", "simulated", "extrapolated"], rows
    expected = more["us"] + (8192 - 256) * (more["us"] - few["us"]) / (256 - 64)
    assert abs(most["us"] / expected - 1) < 0.15 and most["ratio"] == pytest.approx(most["us"] / most["bound_us"], abs=0.01), rows
    table = tmp_path / "rows.csv"
    table.write_text(",".join(few) + "\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    svg = run_tool("gnuplot", "-c", SOURCE / "tools/gpucoll-sim.gp", table)
    assert svg.status == 0 and "extrapolated" in svg.output, svg.output


@with_simgrid
@pytest.mark.skipif(not shutil.which("gnuplot"), reason="there is no gnuplot")
def test_simulation_is_drawn(tmp_path):
    """What is wished for, in a picture with a curve for each algorithm and for the bound."""
    rows = tmp_path / "rows.csv"
    result = run_tool(BUILD / "gpucoll-sim", "--machine", MACHINES / "dgx-a100.machine", "-b", "8,1K", "-n", "16,64", "-a", "^node-aware", "-o", rows)
    assert result.status == 0 and "doubling" in rows.read_text() and "node-aware" not in rows.read_text(), rows.read_text()
    svg = run_tool("gnuplot", "-c", SOURCE / "tools/gpucoll-sim.gp", rows)
    assert svg.status == 0 and "</svg>" in svg.output and "extrapolated" not in svg.output, svg.output
    for title, times in (("doubling", 2), ("tree", 2), ("ring", 2), ("bound", 2), ("allreduce/8 bytes", 1), ("allreduce/1024 bytes", 1)):
        assert len(re.findall(rf"<text>(?:<tspan[^>]*>)?{title}<", svg.output)) == times, (title, svg.output)


@with_simgrid
@pytest.mark.parametrize("options,said", [
    ([], "--machine FILE is needed"), (["--machine", "/nowhere"], "--machine /nowhere: No such file"),
    (["--machine", "dgx-a100", "-s", "dragonfly", "-n", "64,16384"], "-n 16384: a dragonfly of these nodes has 8192 GPUs at most"),
    (["--machine", "dgx-a100", "-s", "torus"], "-s torus: rails, fat-tree or dragonfly"), (["--machine", "dgx-a100", "-c", "sum"], "-c sum: there is no"),
    (["--machine", "dgx-a100", "-n", "65537"], "-n 65537: not a number"), (["--machine", "dgx-a100", "-n", "8,12"], "-n 12: not a multiple"), (["--machine", "dgx-a100", "-b", "8,x"], "-b x: not a number")])
def test_simulation_refuses(options, said):
    result = run_tool(BUILD / "gpucoll-sim", *[MACHINES / f"{word}.machine" if word.startswith("dgx") else word for word in options])
    assert result.status == 2 and said in result.output, result.output


@emulated_only
def test_info_devices():
    devices = run_tool(BUILD / "gpucoll-info", "-d", env={"LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "3"})
    assert devices.status == 0 and devices.output.count("Emulated CUDA device") == 3 and devices.output.count("2 copy engines") == 3
    machine = run_tool(BUILD / "gpucoll-info", "-t", env={"LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "3"})
    assert machine.output.count(" copies=2\n") == 3, machine.output
    none = run_tool(BUILD / "gpucoll-info", "-d")
    assert none.status == 1 and "no CUDA driver" in none.output


MACHINES = SOURCE / "test/topo"
# Rows of what nvidia-smi shows of each machine, from the sources that the files name, of GPUs and then NICs.
PUBLISHED = {
    "dgx-1-v100": ["gpu0 X NV1 NV1 NV2 NV2 SYS SYS SYS PIX", "gpu1 NV1 X NV2 NV1 SYS NV2 SYS SYS PIX"],
    "dgx-2": ["gpu0 X" + " NV6" * 15 + " PIX PXB NODE NODE SYS SYS SYS SYS", "gpu1 NV6 X" + " NV6" * 14 + " PIX PXB NODE NODE SYS SYS SYS SYS",
              "gpu2 NV6 NV6 X" + " NV6" * 13 + " PXB PIX NODE NODE SYS SYS SYS SYS", "gpu4" + " NV6" * 4 + " X" + " NV6" * 11 + " NODE NODE PIX PXB SYS"],
    "dgx-a100": ["gpu0 X" + " NV12" * 7 + " PXB PXB" + " SYS" * 10, "gpu1 NV12 X" + " NV12" * 6 + " PXB PXB" + " SYS" * 10,
                 "gpu2 NV12 NV12 X" + " NV12" * 5 + " SYS SYS PXB PXB" + " SYS" * 8,
                 "gpu4" + " NV12" * 4 + " X NV12 NV12 NV12" + " SYS" * 6 + " PXB PXB" + " SYS" * 4],
    "dgx-h100": ["gpu0 X" + " NV18" * 7 + " PXB NODE NODE NODE NODE NODE" + " SYS" * 6,
                 "gpu1 NV18 X" + " NV18" * 6 + " NODE NODE NODE PXB NODE NODE" + " SYS" * 6,
                 "gpu7" + " NV18" * 7 + " X" + " SYS" * 6 + " NODE NODE NODE NODE NODE PXB"],
    "pcie-8gpu": ["gpu0 X PIX PHB PHB SYS SYS SYS SYS PHB", "gpu2 PHB PHB X PIX SYS SYS SYS SYS PHB", "gpu4 SYS SYS SYS SYS X PIX PHB PHB SYS"],
    "cloud-g5": ["gpu0 X PHB PHB PHB", "gpu3 PHB PHB PHB X"],
    "workstation-3090": ["gpu0 X NODE NODE NODE", "gpu3 NODE NODE NODE X"],  # by lspci's tree
    "two-5090": ["gpu0 X PHB", "gpu1 PHB X"], "two-sockets-l4": ["gpu0 X SYS", "gpu1 SYS X"],
}


def rows_of(output, start):
    """The rows of a matrix that gpucoll-info prints, by name."""
    lines = output.split(start)[1].split("#\n")[0].splitlines()[2:]
    return {line.split()[1]: line.split()[2:] for line in lines}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recorded_machine(name):
    result = run_tool(BUILD / "gpucoll-info", "--machine", MACHINES / f"{name}.machine")
    assert result.status == 0, result.output
    classes, rates = rows_of(result.output, "# Paths"), rows_of(result.output, "# GB/s")
    for row in PUBLISHED[name]:
        gpu, *published = row.split()
        expected = [re.sub(r"NV\d+", "NVL", cell).replace("NODE", "PHB") for cell in published]
        assert classes[gpu][:len(expected)] == expected
        # Of each NVLink 25 GB/s in these machines.
        for cell, rate in zip(published, rates[gpu]):
            if cell.startswith("NV"):
                assert float(rate) == 25 * int(cell[2:])


# The NIC of each GPU: of those that are as near GPUs take one each, and with fewer they share it.
NICS = {"dgx-a100": [0, 1, 2, 3, 6, 7, 8, 9], "dgx-1-v100": [0, 0, 1, 1, 2, 2, 3, 3]}


@pytest.mark.parametrize("name", NICS)
def test_nics_of_gpus(name):
    output = run_tool(BUILD / "gpucoll-info", "--machine", MACHINES / f"{name}.machine").output
    assert [int(nic) for nic in re.findall(r"^# gpu\d+ mlx5_(\d+)$", output, re.M)] == NICS[name], output


# How many, and their rate: with NVSwitches all that a GPU has; in the hybrid cube mesh all six links in both directions, as NCCL finds.
RINGS = {"dgx-1-v100": (6, 25), "dgx-2": (1, 150), "dgx-a100": (1, 300), "dgx-h100": (1, 450), "pcie-8gpu": (1, 12), "cloud-g5": (1, 12),
         "workstation-3090": (1, 12), "two-5090": (1, 12), "two-sockets-l4": (1, 12)}


@pytest.mark.parametrize("name", RINGS)
def test_rings(name):
    """Of each machine, and that no link carries more than it can."""
    text = run_tool(BUILD / "gpucoll-info", "--machine", MACHINES / f"{name}.machine").output
    rate, lines = re.search(r"# Rings of ([\d.]+) GB/s each.*\n((?:#.*\n)+)", text).groups()
    rings = [line[2:].split() for line in lines.splitlines()]
    assert (len(rings), float(rate)) == RINGS[name]
    gpus = re.findall(r"^ *gpu (\S+)", text, re.M)
    assert all(sorted(ring) == sorted(gpus) for ring in rings)
    left = {ends: float(capacity) for a, b, capacity in re.findall(r"^link (\S+) (\S+) rate=(\S+)", text, re.M)
            for ends in ((a, b), (b, a)) if "nvswitch" not in b}
    for ring in rings:
        for hop in zip(ring, ring[1:] + ring[:1]):
            if name == "dgx-1-v100":
                left[hop] -= float(rate)
    assert all(rest >= 0 for rest in left.values())


def test_rings_of_bridged_pairs(tmp_path):
    """NVLinks join pairs only: rings go over PCI between the pairs, where these are on one switch."""
    gpus = [f"      gpu gpu{i} rate=16\n" for i in range(4)]
    (tmp_path / "a.machine").write_text(
        "gpucoll-machine 1\nnuma numa0 rate=64\n  bridge b rate=64\n    switch s0 rate=16\n" + gpus[0] + gpus[2] + "    switch s1 rate=16\n" +
        gpus[1] + gpus[3] + "link gpu0 gpu1 rate=50\nlink gpu2 gpu3 rate=50\n")
    text = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine").output
    assert "# Rings of 16 GB/s each" in text
    rings = text.split("listed:\n")[1].splitlines()
    assert rings == ["# gpu0 gpu2 gpu3 gpu1", "# gpu0 gpu1 gpu3 gpu2"], text


@pytest.mark.parametrize("weak,pci,least", [(5, 16, 32), (16, 0.5, 32), (50, 50, 100)])
def test_rings_with_weak_links(tmp_path, weak, pci, least):
    """Four GPUs in a square of NVLinks, of which two are weak, on one switch: rings over PCI, too, where that brings more."""
    (tmp_path / "a.machine").write_text(
        "gpucoll-machine 1\nnuma numa0\n  bridge b\n    switch s\n" + "".join(f"      gpu gpu{i} rate={pci}\n" for i in range(4)) +
        f"link gpu0 gpu1 rate=50\nlink gpu1 gpu2 rate={weak}\nlink gpu2 gpu3 rate=50\nlink gpu3 gpu0 rate={weak}\n")
    text = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine").output
    rate = float(re.search(r"# Rings of ([\d.]+) GB/s", text).group(1))
    rings = [line[2:].split() for line in text.split("listed:\n")[1].splitlines()]
    left = {(a, b): capacity for i, capacity in enumerate((50, weak, 50, weak))
            for a, b in ((f"gpu{i}", f"gpu{(i + 1) % 4}"), (f"gpu{(i + 1) % 4}", f"gpu{i}"))}
    left |= {(f"gpu{i}", way): pci for i in range(4) for way in ("up", "down")}
    for ring in rings:
        assert sorted(ring) == ["gpu0", "gpu1", "gpu2", "gpu3"]
        for a, b in zip(ring, ring[1:] + ring[:1]):
            for way in [(a, b)] if (a, b) in left else [(a, "up"), (b, "down")]:
                left[way] -= rate
    assert all(rest >= -1e-9 for rest in left.values()) and len(rings) * rate >= least, text


def test_machine_picture(tmp_path):
    """Boxes for all that PCI has; an arc for each hop of a ring, each link between GPUs, and each GPU's NIC."""
    for path in MACHINES.glob("*.machine"):
        drawn = run_tool(BUILD / "gpucoll-info", "--machine", path, "--svg").output
        picture, text = ElementTree.fromstring(drawn), path.read_text()
        tags = [element.tag.split("}")[1] for element in picture.iter()]
        rings, gpus = RINGS[path.stem][0], len(re.findall(r"^ *gpu ", text, re.M))
        direct = len(re.findall(r"^link gpu\d+ gpu\d+ ", text, re.M))
        nics = gpus if re.search(r"^ *nic ", text, re.M) else 0
        assert tags.count("path") == rings * gpus + direct + nics, path
        assert tags.count("g") == len(re.findall(r"^ *(?:numa|bridge|switch|gpu|nic) ", text, re.M)), path
    (tmp_path / "a.machine").write_text("gpucoll-machine 1\nname A & B <x>\nnuma numa0\n")
    drawn = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine", "--svg").output
    assert "A & B <x>" in "".join(ElementTree.fromstring(drawn).itertext())


def test_recorded_machines_are_all_tested():
    assert {path.stem for path in MACHINES.glob("*.machine")} == set(PUBLISHED)


def test_machine_text_reads_as_itself(tmp_path):
    for path in MACHINES.glob("*.machine"):
        first = run_tool(BUILD / "gpucoll-info", "--machine", path).output
        (tmp_path / path.name).write_text(first)
        assert run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / path.name).output == first


@pytest.mark.parametrize("text,said", [
    ("", "it is empty"),
    ("gpucoll-machine 2\n", "2: the first line must be 'gpucoll-machine 1', not 'gpucoll-machine 2'"),
    ("gpucoll-machine 1\ngpu gpu0 rate=fast\n", "2: a rate in GB/s is needed, not 'fast'"),
    ("gpucoll-machine 1\ngpu gpu0 rate=nan\n", "a rate in GB/s is needed, not 'nan'"),
    ("gpucoll-machine 1\ngpu gpu0 rate=-1\n", "a rate in GB/s is needed, not '-1'"),
    ("gpucoll-machine 1\ngpu gpu0 cc=eight\n", "a compute capability such as 8.0 is needed, not 'eight'"),
    ("gpucoll-machine 1\ngpu gpu0 copies=some\n", "a number of copy engines is needed, not 'some'"),
    ("gpucoll-machine 1\ngpu gpu0 color=red\n", "an unknown or too long field 'color'"),
    ("gpucoll-machine 1\ngpu gpu0\ngpu gpu0\n", "3: a new, short name is needed, not 'gpu0'"),
    ("gpucoll-machine 1\ngpu gpu0\n  nic nic0\n", "3: it can't be below what it is below: 'nic0'"),
    ("gpucoll-machine 1\nnuma numa0\n    gpu gpu0\n", "3: indentation is two spaces for each level: 'gpu'"),
    ("gpucoll-machine 1\nnuma numa0\nlink numa0 numa1 rate=1\n", "3: there is no object 'numa1'"),
    ("gpucoll-machine 1\nnuma numa0\nlink numa0 numa0 rate=1\n", "3: two ends are needed, not twice 'numa0'"),
    ("gpucoll-machine 1\ngpu gpu0\nnic nic0\napart gpu0 nic0\n", "4: GPUs are apart, and not 'nic0'"),
    ("gpucoll-machine 1\ngpu gpu0\ngpu gpu1\napart gpu0 gpu1 gpu0\n", "4: two GPUs are apart, and no 'gpu0'"),
    ("gpucoll-machine 1\ngpu gpu0\napart gpu0\n", "3: there is no object ''"),
    ("gpucoll-machine 1\ntpu tpu0\n", "2: unknown: 'tpu'"),
    ("gpucoll-machine 1\ngpu " + "x" * 600 + "\n", "a line that is too long"),
])
def test_machine_text_refuses(tmp_path, text, said):
    (tmp_path / "a.machine").write_text(text)
    result = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine")
    assert result.status == 1 and said.removeprefix("2: the") in result.output, result.output


def test_machine_with_few_links(tmp_path):
    """Through an NVSwitch goes what the narrower end takes; who has no link to it goes over PCI."""
    (tmp_path / "a.machine").write_text(
        "gpucoll-machine 1\nnuma numa0\n" + "".join(f"  gpu gpu{i} rate=10\n" for i in range(3)) + "nvswitch s\n"
        "link gpu0 s rate=50\nlink gpu1 s rate=20\nlink gpu1 gpu0 rate=5\n")
    result = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine")
    assert rows_of(result.output, "# Paths") == {"gpu0": ["X", "NVL", "PHB"], "gpu1": ["NVL", "X", "PHB"], "gpu2": ["PHB", "PHB", "X"]}
    assert rows_of(result.output, "# GB/s") == {"gpu0": ["X", "25", "10"], "gpu1": ["25", "X", "10"], "gpu2": ["10", "10", "X"]}


def hwloc_machine():
    """Two NUMA nodes; below the first, a switch with GPUs 01:00.0 and 02:00.0 and a NIC; below the second, GPU 03:00.0 at a port."""
    number = itertools.count(1)

    def obj(kind, attributes, *children):
        return f'<object type="{kind}" gp_index="{next(number)}" {attributes}>{"".join(children)}</object>'

    def sets(mask):
        node = mask
        return " ".join(f'{prefix}{kind}set="{value:#x}"' for kind, value in (("cpu", mask), ("node", node))
                        for prefix in ("", "complete_"))

    def bridge(depth, address, first, last, speed, *children):
        return obj("Bridge", f'bridge_type="1-1" depth="{depth}" bridge_pci="0000:[{first:02x}-{last:02x}]" pci_busid="0000:{address}" '
                             f'pci_type="0604 [8086:0001] [0000:0000] 00" pci_link_speed="{speed}"', *children)

    def device(address, kind, speed, *children):
        return obj("PCIDev", f'pci_busid="0000:{address}" pci_type="{kind} [0000:0000] 00" pci_link_speed="{speed}"', *children)

    def package(i, *devices):
        core = obj("Core", f'os_index="{i}" {sets(1 << i)}', obj("PU", f'os_index="{i}" {sets(1 << i)}'))
        memory = obj("NUMANode", f'os_index="{i}" {sets(1 << i)} local_memory="1048576"')
        host = obj("Bridge", f'bridge_type="0-1" depth="0" bridge_pci="0000:[{16 * i:02x}-{16 * i + 15:02x}]"', *devices)
        return obj("Package", f'os_index="{i}" {sets(1 << i)}', memory, core, host)

    gpus = [bridge(3, f"0b:0{i}.0", i, i, 15.75, device(f"0{i}:00.0", "0302 [10de:20b0]", 15.75)) for i in (1, 2)]
    nic = bridge(3, "0b:03.0", 12, 12, 7.88, device("0c:00.0", "0207 [15b3:101b]", 7.88, obj("OSDev", 'name="ib0" osdev_type="2"'),
                                                     obj("OSDev", 'name="mlx5_0" osdev_type="3"')))
    switch = bridge(1, "00:01.0", 1, 12, 15.75, bridge(2, "0a:00.0", 1, 12, 15.75, *gpus, nic))
    port = bridge(1, "10:01.0", 3, 3, 31.5, device("03:00.0", "0302 [10de:20b0]", 31.5))
    machine = obj("Machine", f'os_index="0" {sets(3)} allowed_cpuset="0x3" allowed_nodeset="0x3"', package(0, switch), package(1, port))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">{machine}</topology>\n'


@pytest.fixture(scope="session")
def older_cuda():
    """The headers of CUDA 12.2, of NVIDIA's wheel."""
    folder, wheel = BUILD / "cuda-12.2", "nvidia-cuda-runtime-cu12==12.2.140"
    if not list(folder.glob("*/*/include/cuda.h")):
        pip = shutil.which("pip3") or shutil.which("pip")
        got = pip and run_command([pip, "download", "-q", "--no-deps", "--dest", str(folder), wheel], os.environ, 120)
        if not got or got.status != 0:
            pytest.skip(f"no {wheel}: {got.output[-200:] if got else 'there is no pip'}")
        for file in folder.glob("*.whl"):
            zipfile.ZipFile(file).extractall(folder)
    return next(folder.glob("*/*/include/cuda.h")).parent


def test_headers_of_cuda_12(older_cuda):
    """Everything that includes CUDA's headers, but the kernels and a stand-in for UCX, compiles with those of 12.2, too."""
    wrapper = f"mpicc.{MPIS[0]}"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{older_cuda}", f"-I{SOURCE / 'src'}", f"-I{SOURCE / 'include'}",
             f"-I{BUILD}", f"-I{SOURCE / 'test/threads'}", '-DGPUCOLL_VERSION_STRING="0"']
    knows = re.compile(r'#include ["<](cuda|gpu/|emu|core/core_accel|core/core_agree|test\.h|doctor)')
    files = [path for folder in ("src/gpu", "src/core", "tools", "test/emu", "test/mpi", "test/unit", "test/threads", "bench")
             for path in sorted((SOURCE / folder).glob("*.c")) if path.name != "emu_ucp.c" and knows.search(path.read_text())]
    assert len(files) > 60
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda path: run_command([wrapper, *flags, str(path)], os.environ, 60), files))
    failed = [result.output for result in results if result.status != 0]
    assert not failed, "\n".join(failed)[:4000]


def doctor(env=(), before=()):
    """What --doctor says, by JSON: the exit status, its level and words by topic, and all of it."""
    env = {"LD_LIBRARY_PATH": f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}", **dict(env)}
    result = run_command([*before, str(BUILD / "gpucoll-info"), "--doctor", "--json"], {**os.environ, **env}, 60)
    report = json.loads(result.output[result.output.index("{"):])
    return result.status, {line["topic"]: line for line in report["lines"]}, report


@emulated_only
def test_doctor_on_a_healthy_machine():
    status, lines, report = doctor({"CUEMU_DEVICES": "2"})
    assert status == 0 and report["bad"] == 0 and not [line for line in report["lines"] if line["level"] == "bad"], report
    assert lines["P2P"]["level"] == "ok" and lines["shared GPU"]["level"] == "ok", report
    assert "run together" in lines["shared GPU"]["found"] and lines["cudaMalloc"]["effect"].startswith("direct")
    assert lines["cudaMallocAsync"]["effect"].startswith("through windows") and lines["reset"]["level"] == "ok"
    assert {"driver", "device 0", "legacy stream", "costs", "copies", "shared memory", "open files", "UCX", "MPI"} <= set(lines), report


@emulated_only
@pytest.mark.parametrize("env,before,topic,level,words", [
    ({"CUEMU_DEVICES": "2", "CUEMU_P2P": "lies"}, [], "P2P", "warn", "bytes get lost: read by kernels wrong"),
    ({"CUEMU_DEVICES": "2", "CUEMU_P2P": "none"}, [], "P2P", "note", "do not reach"),
    ({"CUEMU_TIME_SLICED": "1", "CUEMU_SLICE_US": "500", "CUEMU_SLOWNESS": "16"}, [], "shared GPU", "warn", "take turns, in slices"),
    ({"CUEMU_TIME_SLICED": "1", "CUEMU_SLOWNESS": "2"}, [], "shared GPU", "warn", "take turns"),
    ({"CUEMU_FAULT": "cuModuleLoadData+=209"}, [], "device", "bad", "kernels do not load"),
    ({"CUEMU_DEVICES": "0"}, [], "device", "bad", "no device"),
    ({"CUEMU_LEGACY": "alone"}, [], "legacy stream", "note", "CUDA_SUCCESS beside a busy blocking stream"),
    ({"CUEMU_FAULT": "cuIpcGetMemHandle+=101"}, [], "IPC", "warn", "do not reach"),
    ({}, ["bash", "-c", 'ulimit -n 100; exec "$@"', "bash"], "open files", "warn", "at most 100"),
    ({}, ["bash", "-c", 'ulimit -f 1000000; exec "$@"', "bash"], "size of files", "warn", "at most"),
])
def test_doctor_finds(env, before, topic, level, words):
    status, lines, report = doctor(env, before)
    assert lines[topic]["level"] == level and words in lines[topic]["found"], report
    assert (status != 0) == (level == "bad") and report["bad"] == sum(line["level"] == "bad" for line in report["lines"]), report
    assert "remedy" in lines[topic] or level == "note", report


@emulated_only
@each_mpi
def test_doctor_under_a_launcher(mpi):
    """The ranks of a node try each other; the first one says what came of it."""
    env = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}", "CUEMU_DEVICES": "3", "CUEMU_P2P": "lies"}
    result = run_command([*launcher(mpi, 3), str(BUILD / "gpucoll-info"), "--doctor"], env, 60)
    assert result.status == 0 and "3 ranks of this node were tried" in result.output and result.output.count("verdict:") == 1, result.output
    assert result.output.count("bytes get lost") == 3, result.output
    assert not list(pathlib.Path("/dev/shm").glob("gpucoll-doctor-*")), result.output


def test_doctor_is_asked_rightly():
    result = run_tool(BUILD / "gpucoll-info", "--json")
    assert result.status == 2 and "--json goes with --doctor" in result.output, result.output


def first_day(output, *options):
    env = {**os.environ, "GPUTEST_GPU": "0", "GPUTEST_MAXBYTES": "64K", "PYTEST": f"{sys.executable} -m pytest"}
    result = run_command([sys.executable, str(SOURCE / "bench/gpu-day.py"), str(BUILD), str(SOURCE / "test"), str(output), *options], env, 240)
    report = json.loads((output / "gpu-day.json").read_text())
    assert result.status == 0 and result.output == (output / "gpu-day.txt").read_text(), result.output
    return report, {step["name"]: step["result"] for step in report["steps"]}


@emulated_only
def test_first_day_on_hardware(tmp_path):
    """As a rehearsal, the first steps: the doctor, first figures, first tests, as a page and as JSON."""
    _, steps = first_day(tmp_path, "--steps", "3")
    assert steps["doctor"]["bad"] == 0, steps
    first = steps["first call: allreduce, 2 ranks"]
    assert first["wrong"] == 0 and first["us"]["8"] > 0 and first["ways"], steps
    assert " passed" in steps["tests: results are right"]["said"] and " 0 failed" in steps["tests: results are right"]["said"], steps


@emulated_only
def test_first_day_with_little_time(tmp_path):
    """What does not fit is left out, and said to be, from some step on."""
    report, steps = first_day(tmp_path, "--seconds", "15")
    assert steps["doctor"]["bad"] == 0 and report["ended_after"] < 35, steps
    without = [name for name, result in steps.items() if result == "left out: no time"]
    assert len(without) > len(steps) / 2 and "accelerated: alltoall, 8 ranks" in without, steps


@emulated_only
def test_machine_that_hwloc_finds(tmp_path):
    """A machine from HWLOC_XMLFILE, of whose five GPUs PCI shows three."""
    (tmp_path / "machine.xml").write_text(hwloc_machine())
    env = {"HWLOC_XMLFILE": str(tmp_path / "machine.xml"), "LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "5"}
    result = run_tool(BUILD / "gpucoll-info", "-t", env=env)
    assert result.status == 0, result.output
    classes, rates = rows_of(result.output, "# Paths"), rows_of(result.output, "# GB/s")
    assert classes["gpu0"] == ["X", "PIX", "SYS", "SYS", "SYS", "PIX"], result.output
    assert classes["gpu2"] == ["SYS", "SYS", "X", "SYS", "SYS", "SYS"]
    assert rates["gpu0"] == ["X", "15.75", "15.75", "15.75", "15.75", "7.88"] and rates["gpu4"][3] == "?"
    assert "# gpu0 mlx5_0\n" in result.output, result.output


@emulated_only
@pytest.mark.parametrize("links,expected", [
    # Directly; also a link that is down, and one to a GPU that is not to be seen.
    ("11x;002;15", {"gpu0": ["X", "50", "?"], "gpu1": ["50", "X", "25"], "gpu2": ["?", "25", "X"]}),
    ("sss;sss;", {"gpu0": ["X", "75", "?"], "gpu1": ["75", "X", "?"], "gpu2": ["?", "?", "X"]}),
    ("hh;hh;hh", {"gpu0": ["X", "50", "50"], "gpu1": ["50", "X", "50"], "gpu2": ["50", "50", "X"]}),
])
def test_nvlinks(tmp_path, links, expected):
    compile_with("cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", SOURCE / "test/emu/emu_nvml.c")
    env = {"LD_LIBRARY_PATH": f"{tmp_path}:{BUILD / 'emu'}", "CUEMU_DEVICES": "3", "EMU_NVML": links, "HWLOC_COMPONENTS": "-pci"}
    result = run_tool(BUILD / "gpucoll-info", "-t", env=env)
    rates, classes = rows_of(result.output, "# GB/s"), rows_of(result.output, "# Paths")
    gpus = list(expected)
    assert {gpu: rates[gpu][:3] for gpu in gpus} == expected, result.output
    assert all((classes[gpu][i] == "NVL") == (rate not in "X?") for gpu in gpus for i, rate in enumerate(expected[gpu]))


@emulated_only
def test_gpus_without_peer_access():
    env = {"LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "3", "CUEMU_P2P": "010,100,000"}
    text = run_tool(BUILD / "gpucoll-info", "-t", env=env).output
    assert re.findall(r"^apart (.*)", text, re.M) == ["gpu0 gpu2", "gpu1 gpu2"], text


@emulated_only
def test_peer_access_by_nvml(tmp_path):
    """What NVML says of it, which also knows of what a driver was told to leave alone; once, whoever says it."""
    compile_with("cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", SOURCE / "test/emu/emu_nvml.c")
    env = {"LD_LIBRARY_PATH": f"{tmp_path}:{BUILD / 'emu'}", "CUEMU_DEVICES": "3", "EMU_NVML": ";;", "EMU_NVML_APART": "02,21",
           "HWLOC_COMPONENTS": "-pci"}
    for p2p in ("all", "010,100,000"):
        text = run_tool(BUILD / "gpucoll-info", "-t", env={**env, "CUEMU_P2P": p2p}).output
        assert re.findall(r"^apart (.*)", text, re.M) == ["gpu0 gpu2", "gpu1 gpu2"], text


# What the machine says of two GPUs, what the user says, of rank 1 something else; and whether one uses the other's memory.
REACHES = {"no_limit_is_known": ("", {}, {}, True), "host_bridges": ("numa", {}, {}, False), "two_on_amd": ("amd numa", {}, {}, True),
           "many_on_amd": ("amd numa more", {}, {}, False), "asked_for": ("numa", {"GPUCOLL_P2P_LEVEL": "phb"}, {}, True),
           "not_by_all": ("numa", {"GPUCOLL_P2P_LEVEL": "SYS"}, {"GPUCOLL_P2P_LEVEL": "PIX"}, False),
           "asked_for_and_not_known": ("", {"GPUCOLL_P2P_LEVEL": "PHB"}, {}, False),
           "nvlinks": ("numa link", {"GPUCOLL_P2P_LEVEL": "NVL"}, {}, True), "not_at_all": ("numa link", {"GPUCOLL_P2P_LEVEL": "LOC"}, {}, False),
           "apart": ("numa link apart", {}, {}, False)}


@emulated_only
@pytest.mark.parametrize("case,mpi", list(zip(REACHES, itertools.cycle(MPIS))))
def test_how_far_gpus_reach(run_mpi, tmp_path, mpi, case):
    machine, env, other, reaches = REACHES[case]
    text = "gpucoll-machine 1\n" + ("cpu AuthenticAMD\n" if "amd" in machine else "cpu GenuineIntel\n") + ("numa numa0\n" if "numa" in machine else "")
    text += "".join(f"{'  ' * ('numa' in machine)}gpu gpu{i} bus=0000:0{i + 1}:00.0\n" for i in range(4 if "more" in machine else 2))
    text += "link gpu0 gpu1 rate=50\n" * ("link" in machine) + "apart gpu0 gpu1\n" * ("apart" in machine)
    (tmp_path / "a.machine").write_text(text)
    script = tmp_path / "rank.sh"
    mine = "".join(f"export {name}={value}; " for name, value in other.items())
    script.write_text(f'#!/bin/sh\nif [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ]; then {mine} :; fi\nexec "$@"\n')
    script.chmod(0o755)
    result = run_mpi(mpi, 2, script, BUILD / "mpi" / mpi / "gpucoll-bench", "allreduce", "-b", "1K", "-e", "1M", "-f", "32", "-n", "5",
                     env={"CUEMU_DEVICES": "2", "GPUCOLL_TOPO_FILE": str(tmp_path / "a.machine"), "GPUCOLL_DEBUG": "info", **env, **PATHS["accel"]})
    assert result.status == 0 and "# 0 wrong values" in result.output and "WARN" not in result.output, result.output
    assert (" twoshot" in result.output) == reaches and ("farther apart than GPUCOLL_P2P_LEVEL" in result.output) != reaches, result.output


def test_machine_without_gpus():
    result = run_tool(BUILD / "gpucoll-info", "-t", env={"LD_LIBRARY_PATH": "", "HWLOC_COMPONENTS": "-pci"})
    assert result.status == 0 and ("# no GPUs" in result.output or "gpu0" in result.output), result.output


LINKS = "numa numa0\n" + "".join(f"  gpu gpu{i} bus=0000:0{i + 1}:00.0 rate=16 cc=9.0\n" for i in range(4))


@emulated_only
@each_mpi
def test_instances_of_a_gpu(run_mpi, mpi):
    """MIG: one PCI address, and kernels that do not take each other's place, so that they may wait for each other."""
    env = {"CUEMU_DEVICES": "3", "CUEMU_MIG": "1", "CUEMU_P2P": "none", "CUEMU_SMS": "16", **PATHS["accel"]}
    result = run_mpi(mpi, 3, "gpucoll-bench", "allreduce", "-b", "1K", "-e", "64K", "-f", "8", "-n", "5", env=env)
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output
    assert re.search(r" accel +\d+ .* fused ", result.output) and " stepped" not in result.output, result.output


@emulated_only
def test_lines_need_nvlinks(run_mpi, tmp_path):
    """LL128 along the machine's ring of NVLinks, not where messages go another way."""
    machine = tmp_path / "a.machine"
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_PROTO": "ll128", "GPUCOLL_EXEC": "fused", "CUEMU_SMS": "32",
           **PATHS["accel"]}
    links = "".join(f"link gpu{a} gpu{b} rate=50\n" for a, b in ((0, 2), (2, 1), (1, 3), (3, 0)))
    why = "GPUCOLL_PROTO=ll128 is not possible for MPI_Allreduce: between some ranks lines of 128 bytes may be cut"
    for algo, there, works in (("ring", links, True), ("doubling", links, False), ("ring", "", False)):
        machine.write_text("gpucoll-machine 1\n" + LINKS + there)
        result = run_mpi(MPIS[-1], 4, "gpucoll-bench", "allreduce", "-b", "1K", "-e", "256K", "-f", "16", "-n", "3", env={**env, "GPUCOLL_ALGO": algo})
        assert result.status == 0, result.output
        assert (f"{algo} fused ll128" in result.output) == works and (why in result.output) == (not works), result.output
    # Neither inside a GPU nor where only a file tells of NVLinks without being asked for alone.
    machine.write_text("gpucoll-machine 1\n" + LINKS + links)
    for where in ({"CUEMU_DEVICES": "1", "GPUCOLL_TOPO_FILE": ""}, {}):
        result = run_mpi(MPIS[-1], 4, "gpucoll-bench", "allreduce", "-b", "1K", "-e", "256K", "-f", "16", "-n", "3",
                         env={**env, "GPUCOLL_PROTO": "ll,ll128", "GPUCOLL_ALGO": "ring", **where})
        assert result.status == 0 and "ring fused ll " in result.output and "fused ll128" not in result.output, result.output


@emulated_only
@each_mpi
def test_rings_of_the_machine(run_mpi, mpi, tmp_path):
    """Ranks follow each other along the NVLinks that GPUCOLL_TOPO_FILE shows; a file that is none is reported."""
    machine = tmp_path / "a.machine"
    machine.write_text("gpucoll-machine 1\n" + LINKS + "".join(f"link gpu{a} gpu{b} rate=50\n" for a, b in ((0, 2), (2, 1), (1, 3), (3, 0))))
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "GPUCOLL_ALGO": "ring,tree",
           "GPUCOLL_CHECK": "1", "CUEMU_SMS": "32", **PATHS["accel"]}
    result = run_mpi(mpi, 4, "test_coll", env=env)
    assert_passed(result)
    assert "4 ranks on 1 nodes with 4 GPUs, ring 0 2 1 3, ring 0 3 1 2\n" in result.output, result.output
    assert re.search(r"accel, ring (fused|stepped)", result.output) and re.search(r"accel, tree (fused|stepped)", result.output)
    machine.write_text("gpucoll-machine 1\nnuma numa0\n  gpu gpu0 rate=fast\n")
    result = run_mpi(mpi, 2, "test_agree", "mixed", 10, env=env)
    assert_passed(result)
    assert f"GPUCOLL_TOPO_FILE is ignored: {machine}:3: " in result.output, result.output


@emulated_only
@each_mpi
def test_ways_after_a_call_without_data(run_mpi, mpi, tmp_path):
    """Where GPUs are is learned from calls in which all have data: then ranks go along the links."""
    machine = tmp_path / "a.machine"
    machine.write_text("gpucoll-machine 1\n" + LINKS + "".join(f"link gpu{a} gpu{b} rate=100\n" for a, b in ((0, 2), (2, 1), (1, 3), (3, 0))))
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "CUEMU_SMS": "32"}
    result = run_mpi(mpi, 4, "test_edges", "ways", env=env)
    assert_passed(result)
    assert "4 ranks on 1 nodes with 4 GPUs, ring 0 2 1 3" in result.output and " ranks=4 nodes=1 gpus=4 allreduce 262144 " in result.output, result.output


@emulated_only
def test_pictures_that_differ(run_mpi, tmp_path):
    """A process that has understood another picture than the others has all of them go without."""
    compile_with("cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", tmp_path / "liar.so", SOURCE / "test/emu/emu_liar.c")
    machine = tmp_path / "a.machine"
    machine.write_text("gpucoll-machine 1\n" + LINKS)
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "CUEMU_SMS": "32"}
    assert ", ring 0 1 2 3" in run_mpi(MPIS[0], 4, "test_edges", "ways", env=env).output
    result = run_mpi(MPIS[0], 4, "test_edges", "ways", env=env, before=[str(tmp_path / "liar.so")])
    assert_passed(result)
    assert "ring 0" not in result.output and "4 ranks on 1 nodes with 4 GPUs\n" in result.output, result.output


def times(path):
    """What a tuning file says: us by all that comes before it."""
    head, *lines = path.read_text().splitlines()
    assert head == "gpucoll-tuning 1"
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


@emulated_only
@each_mpi
def test_tuning(run_mpi, mpi, tmp_path):
    """What gpucoll-tune measures is what the library goes by, and nothing else then."""
    tuned = tmp_path / "folder/tuning"
    result = run_mpi(mpi, 3, "gpucoll-tune", "-c", "allreduce,bcast", "-b", "64K", "-e", "256K", "-o", tuned, env={"CUEMU_SMS": "8"})
    assert result.status == 0 and f"# the times are in {tuned}" in result.output and "GPUCOLL_" not in result.output, result.output
    measured = times(tuned)
    names = {tuple(line.split()[5:8]) for line in measured}
    assert {("allreduce", "65536", "twoshot"), ("allreduce", "262144", "ring"), ("bcast", "65536", "direct")} <= names, names
    assert all(time > 0 for time in measured.values())
    machine = next(iter(measured)).split()[1]

    def taken(lines, head="gpucoll-tuning 1\n", **env):
        tuned.write_text(head + "".join(f"time {machine} ranks=3 nodes=1 gpus=1 {line}\n" for line in lines))
        result = run_mpi(mpi, 3, "gpucoll-bench", "allreduce", "-b", "4K", "-e", "1M", "-f", "16", "-n", 2, "-w", 4,
                         env={"CUEMU_SMS": "8", "GPUCOLL_STATS": "1", "GPUCOLL_TUNING_FILE": str(tuned), **env})
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
        rows = re.findall(r"(< \d+ [KM]iB) +accel +(\d+) +\d+ +[\d.]+  ([a-z-]+)", result.output)
        # The first call of a communicator may yet lack memory for messages.
        return result.output, {size: max((int(calls), name) for row, calls, name in rows if row == size)[1] for size, _, _ in rows}

    # Ring up to where the lines cross, below 64 KiB, and then two-shot. The table counts both buffers.
    lines = ["allreduce 4096 ring simple 2 10", "allreduce 1048576 ring simple 2 900", "allreduce 4096 twoshot simple 1 50",
             "allreduce 65536 twoshot simple 1 60", "allreduce 1048576 twoshot simple 1 500"]
    output, algorithms = taken(lines)
    assert algorithms == {"< 16 KiB": "ring", "< 256 KiB": "twoshot", "< 4 MiB": "twoshot"}, output
    # Another machine's times, or another number of ranks', are not taken.
    others = (f"time {machine} ranks=4 nodes=1 gpus=1", f"time {machine} ranks=3 nodes=1 gpus=2", "time 123 ranks=3 nodes=1 gpus=1")
    assert taken(lines, head="gpucoll-tuning 1\n" + "".join(f"{key} allreduce 4096 halving simple 1 1\n" for key in others))[1] == algorithms
    # What the user wants counts first.
    assert set(taken(lines, GPUCOLL_ALGO="allreduce:halving")[1].values()) == {"halving"}
    for bad, why in (["allreduce 4096 circle simple 2 10", "5: the collective has no such algorithm"],
                     ["allreduce 4096 ring simple 99 10", "5: there is no such number of channels"],
                     ["allreduce 4096 ring simple 2 ten", "5: it is no line of such a file"],
                     ["allreduce 4096 ring simple 2 -1", "5: there is no such time"],
                     ["allreduce 4096 ring simple 2 1 1", "5: it is no line of such a file"]):
        output, algorithms = taken(lines[:3] + [bad])
        assert f"times that were measured are ignored: {tuned}:{why}" in output, output
        assert algorithms["< 16 KiB"] == "twoshot", output
    assert f"{tuned}:1: it does not begin with gpucoll-tuning 1" in taken(lines, head="gpucoll-tuning 2\n")[0]
    assert run_mpi(mpi, 2, "gpucoll-tune", "-c", "bcast", "-e", "8", "-o", tuned).status != 0 and "gpucoll-tuning 2" in tuned.read_text()
    # Comments before the head, and other ends of lines.
    assert taken(lines, head="# mine\r\n\n gpucoll-tuning 1\r\n".replace(" gpu", "gpu"))[1] == {"< 16 KiB": "ring", "< 256 KiB": "twoshot", "< 4 MiB": "twoshot"}
    # What is far larger than all that was measured is chosen by the model, as is what nothing was measured of.
    assert taken(["allreduce 64 ring simple 1 1"])[1]["< 4 MiB"] != "ring"
    assert set(taken(lines, GPUCOLL_ALGO="tree")[1].values()) == {"tree"}
    # A second run takes the place of what it measures again, and keeps the rest.
    tuned.write_text("gpucoll-tuning 1\n# a note\ntime 0 ranks=3 nodes=1 gpus=1 allreduce 65536 ring simple 1 7\n"
                     f"time {machine} ranks=3 nodes=1 gpus=1 allreduce 65536 ring simple 1 7\n"
                     f"time {machine} ranks=3 nodes=1 gpus=1 allreduce 32 ring simple 1 7\n"
                     f"time {machine} ranks=3 nodes=1 gpus=1 bcast 65536 ring simple 1 7")  # without an end
    result = run_mpi(mpi, 3, "gpucoll-tune", "-c", "allreduce", "-b", "64K", "-e", "64K", "-o", tuned, env={"CUEMU_SMS": "8"})
    text = tuned.read_text()
    assert "# a note" in text and "time 0 ranks" in text and "bcast 65536 ring simple 1 7\n" in text
    assert "allreduce 32 ring simple 1 7\n" in text and "allreduce 65536 twoshot" in text and text.count("gpucoll-tuning") == 1
    assert f"{machine} ranks=3 nodes=1 gpus=1 allreduce 65536 ring simple 1 7\n" not in text


def test_tune_refuses(run_mpi):
    for arguments, message in ((["-c", "nonsense"], "there is no collective 'nonsense'"), (["x"], "unexpected argument 'x'"),
                               (["-b", "1x"], "'1x' is no size"), (["-t", "-1"], "'-1' is no number of seconds")):
        result = run_mpi(MPIS[0], 1, "gpucoll-tune", *arguments)
        assert result.status != 0 and message in result.output, result.output


@emulated_only
@each_mpi
def test_wishes_for_some_collectives(run_mpi, mpi):
    env = {"GPUCOLL_ALGO": "^twoshot;broadcast:ring", "GPUCOLL_PROTO": "simple", "GPUCOLL_CHANNELS": "1;bcast:2", "CUEMU_SMS": "8",
           "GPUCOLL_STATS": "1"}
    for collective, allowed in (("bcast", {"ring"}), ("allreduce", {"oneshot", "ring", "tree", "doubling", "halving"})):
        result = run_mpi(mpi, 3, "gpucoll-bench", collective, "-b", "64", "-e", "1M", "-f", "128", "-n", 2, "-w", 2, env=env)
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
        rows = re.findall(r" accel +\d+ +\d+ +[\d.]+  ([a-z-]+)( \w+ \w+)?", result.output)
        assert rows and {name for name, _ in rows} <= allowed, result.output
        assert not [way for _, way in rows if way.endswith("ll")], result.output
    for option, value, why in (("ALGO", "ring,rung", "there is no algorithm 'rung'"), ("ALGO", "allreduces:ring", "there is no collective 'allreduces'; valid: allreduce, "),
                               ("PROTO", "ll;bcast:ll129", "there is no protocol 'll129'; valid: simple, ll, ll128"),
                               ("CHANNELS", "17", "there is no number of channels '17'; valid: 1 to 16"), ("CHANNELS", "^4", "'^4'"),
                               ("CHANNELS", "1,2", "one number of channels for a collective")):
        result = run_mpi(mpi, 2, "test_agree", "mixed", 4, env={f"GPUCOLL_{option}": value, **PATHS["accel"]})
        assert_passed(result)
        assert f"GPUCOLL_{option}={value} is not understood and ignored: " in result.output and why in result.output, result.output


BENCHED = ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter"]


@each_mpi
@pytest.mark.parametrize("collective", BENCHED)
def test_bench(run_mpi, mpi, collective, tmp_path):
    import json
    out = tmp_path / "bench.json"
    for memory in ("device", "managed", "host"):
        result = run_mpi(mpi, 3, "gpucoll-bench", collective, "-b", 12, "-e", "16K", "-f", 8, "-n", 2, "-w", 1,
                         "-m", memory, "-J", out, "-d", "int32", "-r", 1 if collective != "reduce" else 0)
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
        assert [row["bytes"] for row in json.loads(out.read_text())["results"]][0] == 12


def test_bench_refuses(run_mpi):
    mpi = MPIS[0]
    for arguments, message in ((["nonsense"], "unknown collective 'nonsense'"), ([], "name one collective"),
                               (["allreduce", "-d", "float128"], "unknown datatype 'float128'"),
                               (["allreduce", "-b", "x"], "'x' is no size"),
                               (["bcast", "-r", "7"], "root 7 is no rank")):
        result = run_mpi(mpi, 1, "gpucoll-bench", *arguments)
        assert result.status != 0 and message in result.output, result.output


@emulated_only
@each_mpi
def test_a_rank_with_another_version(run_mpi, tmp_path, mpi):
    """What they would write on the board are other structures: everything is staged, which each rank says."""
    other = tmp_path / "libgpucoll.so.0"
    ours = (BUILD / "mpi" / mpi / "libgpucoll.so.0").read_bytes()
    version = re.search(rb"libgpucoll (\d+\.\d+\.\d+),", ours)[1]
    other.write_bytes(ours.replace(version + b"\0", version[:-1] + b"9\0"))
    script = tmp_path / "rank.sh"
    script.write_text('#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && '
                      f'export LD_PRELOAD=$(echo $LD_PRELOAD | sed "s|[^:]*libgpucoll[^:]*|{other}|")\nexec "$@"\n')
    script.chmod(0o755)
    result = run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "test_agree", "mixed", 60, env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert result.output.count("another version of the library") == 3 and count_calls(result.output, "accel") == 0, result.output


@emulated_only
@each_mpi
def test_more_communicators_than_the_board_has(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_life", "many_communicators", env=PATHS["accel"])
    assert_passed(result)
    assert result.output.count("has no room on a node's board") == 1 and count_calls(result.output, "stage") > 0, result.output


@emulated_only
@each_mpi
def test_stopped_rank_does_not_complain(run_mpi, mpi):
    """A rank that was stopped for longer than GPUCOLL_TIMEOUT, in a call, has not waited."""
    result = run_mpi(mpi, 2, "test_life", "stopped", env={"GPUCOLL_TIMEOUT": "4", **PATHS["accel"]})
    assert_passed(result)
    assert "gpucoll[0] WARN" not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("partial", ["abort", "sleep"])
def test_a_rank_without_the_library(run_mpi, mpi, tmp_path, partial):
    """Rank 1 has no LD_PRELOAD, as where a launcher does not pass it on: the others say so, and end the job or let it be."""
    source, program = tmp_path / "hello.c", tmp_path / "hello"
    source.write_text(r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	int one = 1, sum, rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("sum %d\n", sum);
	MPI_Finalize();
	return 0;
}
""")
    compile_with(f"mpicc.{mpi}", "-o", program, source)
    script = 'r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; test $r = 1 && LD_PRELOAD=$(echo $LD_PRELOAD | sed "s/[^:]*libgpucoll[^:]*//"); exec "$@"'
    result = run_mpi(mpi, 3, "/bin/sh", "-c", script, "sh", program, timeout=60,
                     env={"GPUCOLL_TIMEOUT": "2", "GPUCOLL_PARTIAL": partial})
    assert result.status != "timeout" and "MPI_Init has waited 2 s for " in result.output, result.output
    assert (result.status == 0 and "sum 3" in result.output) == (partial == "sleep"), result.output
    assert partial == "sleep" or "for rank 1 of 3" in result.output, result.output


def test_install_and_link(tmp_path):
    """What `make install` puts where: linking with -lgpucoll is enough, and gpucoll-exec finds the rest."""
    if not (BUILD / "Makefile").exists():
        pytest.skip("no build tree to install from")
    assert run_command(["make", "-s", "-C", str(BUILD), "install", f"DESTDIR={tmp_path}"], os.environ.copy(),
                       300).status == 0
    lib = next(tmp_path.glob("**/libgpucoll.so")).parent
    root = lib.parent
    program = tmp_path / "linked"
    compile_with("mpicc", f"-I{CUDA}/include", "-o", program, SOURCE / "test/mpi/test_life.c", f"-L{lib}",
                 "-Wl,--no-as-needed", "-lgpucoll", f"-L{BUILD}/emu", f"-l:{CUDART}", "-l:libcuda.so.1")
    default = os.readlink(lib / "libgpucoll.so.0").split("/")[1]
    env = environment(default, [])
    env["LD_LIBRARY_PATH"] = f"{lib}:{env.get('LD_LIBRARY_PATH', '')}"
    command = [*launcher(default, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(program), "reallocation"]
    assert_passed(run_command(command, os.environ.copy(), 60))
    # A program of one's own, by the package's flags; and of another MPI than the library's.
    source, ours = tmp_path / "ours.c", tmp_path / "ours"
    source.write_text(r"""
#include <mpi.h>
#include <gpucoll/gpucoll.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	printf("version %s\n", gpucoll_version());
	return MPI_Finalize();
}
""")
    package = dict(os.environ, PKG_CONFIG_PATH=str(lib / "pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(tmp_path))
    flags = run_command(["pkg-config", "--cflags", "--libs", "gpucoll"], package, 10)
    assert flags.status == 0, flags.output
    for mpi in MPIS:
        compile_with(f"mpicc.{mpi}", "-o", ours, source, *flags.output.split())
        env["LD_LIBRARY_PATH"] = str(lib)
        result = run_command([*launcher(mpi, 1), "env", *[f"{k}={v}" for k, v in env.items() if k != "LD_PRELOAD"], str(ours)],
                             os.environ.copy(), 60)
        assert (result.status == 0 and "version " in result.output) == (mpi == default), result.output
        assert mpi == default or "but runs under the libgpucoll.so for" in result.output, result.output
    for mpi in MPIS:
        installed = lib / "gpucoll" / mpi / "gpucoll-bench"
        where = [] if ON_GPU else ["--emulate"]
        result = run_tool(root / "bin/gpucoll-exec", *where, *launcher(mpi, 2), installed, "bcast", "-b", 64, "-e", 64)
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
    for page in ("man1/gpucoll-exec.1", "man7/gpucoll-env.7"):
        assert (root / "share/man" / page).stat().st_size > 500
    assert "GPUCOLL_STAGING_POOL" in (root / "share/man/man7/gpucoll-env.7").read_text()
