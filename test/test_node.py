# SPDX-License-Identifier: BSD-3-Clause
"""Collectives among ranks of one node, in all their ways."""
import itertools
import re

import pytest

from conftest import BUILD, MPIS, ON_GPU, WITHOUT_FABRICS, assert_passed, family
from helpers import PATHS, ROOMS, TRANSPORTS, count_calls, each_mpi, emulated_only, on_one_rank

RANKS = [1, 2, 3, 4, 5, 8]
by_path = pytest.mark.parametrize("path", PATHS)


# What is staged is each rank's own matter: large communicators are for the accelerated path.
def paths_of(*numbers):
    return pytest.mark.parametrize("ranks,path", [(ranks, path) for path in PATHS for ranks in numbers if path == "accel" or ranks < 5])


@pytest.mark.quick
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
def test_by_the_mpis_own_choices(run_mpi, mpi, monkeypatch):
    """Of what moves its messages: all other tests leave libfabric out."""
    for name in WITHOUT_FABRICS:
        monkeypatch.delenv(name)
    assert_passed(run_mpi(mpi, 2, "test_coll", 1, env=PATHS["accel"]))


@pytest.mark.quick
@each_mpi
@paths_of(1, 2, 5)
def test_types_and_ops(run_mpi, mpi, ranks, path):
    result = run_mpi(mpi, ranks, "test_types", env=PATHS[path])
    assert_passed(result)
    if path == "accel" and ranks > 1:
        # All but long double and its pair.
        for name in ("MPI_Allreduce", "MPI_Reduce_scatter_block"):
            assert count_calls(result.output, "accel", name) > 20 * count_calls(result.output, "stage", name), result.output
        # Of the pairs that move long double's are staged, of all lengths but 0, and under MPICH the longest.
        for name in ("MPI_Bcast", "MPI_Gather", "MPI_Scatter", "MPI_Allgather"):
            assert count_calls(result.output, "stage", name) == (4 if family(mpi) == "mpich" else 5), result.output


@each_mpi
def test_types_and_ops_through_windows(run_mpi, mpi):
    result = run_mpi(mpi, 3, "test_types", "once", "managed", env={"GPUCOLL_WINDOW": "64K", **PATHS["accel"]})
    assert_passed(result)
    assert "through windows" in result.output, result.output


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


WAYS = {"stepped": {"GPUCOLL_EXEC": "stepped"},
        "fused simple": {"GPUCOLL_EXEC": "fused", "GPUCOLL_PROTO": "simple"},
        "fused ll": {"GPUCOLL_EXEC": "fused", "GPUCOLL_PROTO": "ll"},
        "fused ll128": {"GPUCOLL_EXEC": "fused", "GPUCOLL_PROTO": "ll128"}}
LINKED = {"ring": "allreduce,reduce_scatter,reduce,allgather,bcast", "tree": "allreduce,reduce,bcast", "doubling": "allreduce,allgather,scan,exscan",
          "halving": "allreduce,reduce_scatter", "pairwise": "alltoall", "bruck": "alltoall", "scatter-allgather": "bcast", "neighbor": "allgather",
          "linear": "gather,scatter", "chain": "scan,exscan"}
# The neighbour exchange needs pairs of ranks, LL is not for gathers and scatters (core_vote.c, know_sizes), and lines
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


BENCHED = ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter"]


@emulated_only
@pytest.mark.parametrize("coll,mpi", list(zip(BENCHED, itertools.cycle(MPIS))))
def test_one_rank_works_for_its_gpu(run_mpi, coll, mpi, tmp_path):
    """In place and not. In the first calls not all buffers are offered yet, so each rank may have its own kernel."""
    script = on_one_rank(tmp_path, "kernel:3+=719")
    result = run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "gpucoll-bench", coll, "-b", "8", "-e", "1M", "-f", "512", "-n", "3",
                     env={"CUEMU_DEVICES": "1", **PATHS["accel"]})
    assert result.status == 0 and "# 0 wrong values" in result.output and "WARN" not in result.output, result.output
    assert count_calls(result.output, "accel") > 15 and count_calls(result.output, "stage") == 0, result.output


@emulated_only
@pytest.mark.parametrize("mpi,exec_mode", list(zip(MPIS, ["auto", "fused"])))
def test_kernels_that_do_not_run_together(run_mpi, mpi, exec_mode):
    """A GPU on which contexts take turns: kernels that waited for each other would do so for ever."""
    result = run_mpi(mpi, 3, "test_agree", "mixed", 40, env={"GPUCOLL_ALGO": "ring", "GPUCOLL_EXEC": exec_mode, "CUEMU_SMS": "8",
                                                             "CUEMU_TIME_SLICED": "1", "CUEMU_SLOWNESS": "4", **PATHS["accel"],
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
    # Ranks that share a GPU offer all of their buffers.
    cases = [("oneshot", "it can't work in place, as some rank does"), ("twoshot", "buffers that others need not touch are not offered to them")]
    for algo, why in cases[:1] if ON_GPU else cases:
        result = run_mpi(mpi, 3, "test_agree", "mixed", 30, env={"CUEMU_DEVICES": "3", "GPUCOLL_ALGO": algo, "GPUCOLL_CHANNELS": "0", **PATHS["accel"]})
        assert_passed(result)
        assert f"GPUCOLL_ALGO={algo} is not possible for" in result.output and why in result.output, result.output


@emulated_only
@each_mpi
def test_operations_in_the_caller(run_mpi, mpi):
    """As the benchmarks run the emulated driver: a launch where nothing comes before it needs no other thread."""
    result = run_mpi(mpi, 3, "test_coll", env={"CUEMU_IN_CALLER": "1", **PATHS["accel"]})
    assert_passed(result)
    assert_passed(run_mpi(mpi, 2, "test_life", "late_work", env={"CUEMU_IN_CALLER": "1"}))
