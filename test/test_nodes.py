# SPDX-License-Identifier: BSD-3-Clause
"""Several nodes on one machine, by GPUCOLL_HOSTID."""
import re

import pytest

from conftest import assert_passed, run_over_tcp
from helpers import UCX_WITH_CUDA, count_calls, each_mpi, emulated_only, on_nodes

# The node of each rank: one rank each, blocks, in turn, uneven, 2 x 3 + 1.
SHAPES = {"2x1": "01", "2x2": "0011", "round-robin": "0101", "3+1": "0001", "uneven": "01022", "2x3+1": "0001112", "4x2": "00112233"}


@emulated_only
@each_mpi
def test_short_files(run_mpi, mpi):
    """By ulimit -f: the board of two nodes is too large; it is not to be SIGXFSZ that says so."""
    result = on_nodes(run_mpi, mpi, "0011", "test_agree", "mixed", 60, first="ulimit -f 100000;", env={"CUEMU_MEMORY": "64M"})
    assert_passed(result)
    assert "File too large" in result.output and "ulimit -f" in result.output and count_calls(result.output, "accel") == 0, result.output


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("shape", SHAPES)
def test_nodes(run_mpi, mpi, shape):
    """All collectives on ranks of several nodes. On one machine, as here, these may use the same GPU, so that hosts wait."""
    result = on_nodes(run_mpi, mpi, SHAPES[shape], "test_coll", 1)
    assert_passed(result)
    assert "stepped" in result.output and "eager" in result.output, result.output
    assert "fused" not in result.output and "WARN " not in result.output, result.output
    left = "short, better left to the real MPI"
    assert all(re.search(f"MPI_{name} .* stage .* {left}", result.output) for name in ("Bcast", "Reduce", "Gather", "Scatter", "Alltoall")), result.output
    assert not re.search(f"MPI_(All|Ex)?(reduce|gather|scan)v? .* {left}", result.output), result.output


@each_mpi
def test_nodes_by_sockets(run_mpi, mpi):
    """What the network is is known, for the choices. MPICH's UCX reads the same variable."""
    result = on_nodes(run_mpi, mpi, "01", "gpucoll-bench", "bcast", "-b", "64K", "-e", "64K", "-n", "2",
                      env={"GPUCOLL_DEBUG": "INFO", "UCX_TLS": "tcp,self"}, runner=run_over_tcp)
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
    assert f"rail-pairwise {exec_mode}" in result.output and "WARN " not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("shape", ["2x1", "2x2", "3+1"])
def test_nodes_fused(run_mpi, mpi, shape):
    result = on_nodes(run_mpi, mpi, SHAPES[shape], "test_coll", 1, env={"GPUCOLL_EXEC": "fused", "CUEMU_SMS": "16"})
    assert_passed(result)
    assert "fused simple" in result.output and "WARN " not in result.output, result.output


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
    assert f"{algo} stepped" in result.output and "WARN " not in result.output, result.output


@emulated_only
@pytest.mark.parametrize("coll", ["scatter", "gather", "alltoall", "allgather"])
def test_nodes_take_rails(run_mpi, coll):
    """Nobody needs to ask for rails; also ranks that have no input, or little, know what is worth it."""
    result = on_nodes(run_mpi, "openmpi", "0011", "gpucoll-bench", coll, "-b", "4M", "-e", "4M", "-n", "2", env={"CUEMU_DEVICES": "2"})
    assert result.status == 0 and "0 wrong values" in result.output and "rail-" in result.output, result.output


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


@pytest.mark.quick
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
                     r"rank's requests is pending, the oldest for \d s: MPI_Irecv from rank 1, tag 9\n", result.output), result.output


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
