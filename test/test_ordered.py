# SPDX-License-Identifier: BSD-3-Clause
"""GPUCOLL_REPRODUCIBLE: results that depend on the inputs and the number of ranks only."""
import pytest

from conftest import BUILD, assert_passed, tool
from helpers import compile_with, count_calls, each_mpi, on_nodes, on_one_rank, run_tool

ORDERED = {"GPUCOLL_REPRODUCIBLE": "1", "GPUCOLL_STATS": "1", "GPUCOLL_CHECK": "schedules"}
FORMS = ["blocking", "nonblocking", "persistent", "enqueued"]
STAGED = {"GPUCOLL_ACCEL": "0", "GPUCOLL_STREAM_EXEC": "staged"}
WAYS = {"auto": {}, "exchange": {"GPUCOLL_ALGO": "exchange"}, "chain": {"GPUCOLL_ALGO": "chain", "GPUCOLL_CHANNELS": "2"},
        "ll": {"GPUCOLL_ALGO": "exchange,chain", "GPUCOLL_PROTO": "ll"}, "ll128": {"GPUCOLL_ALGO": "chain", "GPUCOLL_PROTO": "ll128"},
        "stepped": {"GPUCOLL_ALGO": "exchange,chain", "GPUCOLL_EXEC": "stepped"}, "little": {"GPUCOLL_ALGO": "exchange,chain", "GPUCOLL_SCRATCH": "1"},
        "shm": {"CUEMU_P2P": "none"}}


def with_threads(form):
    return {"GPUCOLL_THREADS": "multiple"} if form == "enqueued" else {}


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks,way", [(3, "accel"), (4, "stage")])
def test_forms(run_mpi, mpi, form, ranks, way):
    env = {**ORDERED, **with_threads(form), "CUEMU_DEVICES": "2", "CUEMU_SMS": "16", **(STAGED if way == "stage" else {})}
    result = run_mpi(mpi, ranks, "test_ordered", form, env=env)
    assert_passed(result)
    assert " WARN " not in result.output, result.output
    assert (count_calls(result.output, "accel") > 20) == (way == "accel"), result.output


@each_mpi
@pytest.mark.parametrize("way", WAYS)
def test_ways(run_mpi, mpi, way):
    """All that adds by messages, and what is chosen if nothing is said."""
    env = {**ORDERED, "CUEMU_DEVICES": "8", "CUEMU_SMS": "16", **WAYS[way]}
    result = run_mpi(mpi, 4, "test_ordered", "blocking", env=env)
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") > 10, result.output


@each_mpi
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["0011", "010"])
def test_nodes(run_mpi, mpi, form, shape):
    result = on_nodes(run_mpi, mpi, shape, "test_ordered", form, env={**ORDERED, **with_threads(form)})
    assert_passed(result)
    name = {"blocking": "MPI_Allreduce", "nonblocking": "MPI_Iallreduce"}.get(form)
    assert not name or count_calls(result.output, "accel", name) > 10, result.output


@each_mpi
@pytest.mark.parametrize("algo,shape", [("rail-fold", "0011"), ("rail-fold", "01122"), ("exchange", "010"), ("chain", "0112")])
def test_ways_on_nodes(run_mpi, mpi, algo, shape):
    result = on_nodes(run_mpi, mpi, shape, "test_ordered", "blocking", env={**ORDERED, "GPUCOLL_EAGER_MAX": "0", "GPUCOLL_ALGO": algo})
    assert_passed(result)
    assert result.output.count(f"  {algo} ") > 10, result.output


@each_mpi
def test_alone(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 1, "test_ordered", "nonblocking", env=ORDERED))


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("way", ["accel", "stage"])
def test_what_is_rare(run_mpi, mpi, way):
    """Long calls, elements that lie among others, handles that are freed early, persistent calls in any order, errors."""
    assert_passed(run_mpi(mpi, 3, "test_ordered", "more", env={**ORDERED, "CUEMU_DEVICES": "2", **(STAGED if way == "stage" else {})}))


@each_mpi
@pytest.mark.parametrize("program", [["test_async", "freed_handles"], ["test_async", "persistent"], ["test_queue", "persistent_orders"],
                                     ["test_queue", "before_host"], ["test_half"], ["test_types"]])
def test_other_programs(run_mpi, mpi, program):
    """What other tests ask of calls holds of these, too."""
    assert_passed(run_mpi(mpi, 3 if program[0] == "test_queue" else 2, *program, env=ORDERED))


HOST_ONLY = r"""
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	float in[3], out[3] = {0};
	MPI_Comm parent, comm = MPI_COMM_WORLD;
	MPI_Request request;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_get_parent(&parent);
	if (argc > 1 || parent != MPI_COMM_NULL) {
		if (parent == MPI_COMM_NULL)
			MPI_Comm_spawn(argv[1], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &parent, MPI_ERRCODES_IGNORE);
		MPI_Intercomm_merge(parent, argc == 1, &comm);
	}
	MPI_Comm_rank(comm, &rank);
	for (int i = 0; i < 3; i++)
		in[i] = 0.5f * (float)rank;
	MPI_Iallreduce(in, out, 3, MPI_FLOAT, MPI_SUM, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Allreduce(out, in, 3, MPI_FLOAT, MPI_MAX, comm);
	if (rank == 0)
		printf("%g %g checks passed, 0 failed\n", out[0], in[2]);
	MPI_Finalize();
	return 0;
}
"""


@each_mpi
def test_host_memory_only(run_mpi, mpi, tmp_path):
    """A program that knows no CUDA, on a machine that has it."""
    (tmp_path / "host.c").write_text(HOST_ONLY)
    compile_with(tool(mpi, "mpicc"), "-o", tmp_path / "host", tmp_path / "host.c")
    result = run_mpi(mpi, 3, tmp_path / "host", env=ORDERED)
    assert_passed(result)
    assert "1.5 1.5 checks" in result.output, result.output


def test_processes_of_another_job(run_mpi, tmp_path):
    """They may not have the library: the real MPI's, which is said."""
    (tmp_path / "host.c").write_text(HOST_ONLY)
    compile_with("mpicc.openmpi", "-o", tmp_path / "host", tmp_path / "host.c")
    result = run_mpi("openmpi", 2, tmp_path / "host", tmp_path / "host", env=ORDERED)
    assert "3 3 checks passed" in result.output and "MPI_Iallreduce with processes of another job" in result.output, result.output


@each_mpi
def test_groups(run_mpi, mpi):
    """Intercommunicators, which are always staged."""
    assert_passed(run_mpi(mpi, 5, "test_ordered", "inter", env=ORDERED))


@each_mpi
@pytest.mark.parametrize("way", ["accel", "stage", "nodes"])
def test_order_is_not_kept_unasked(run_mpi, mpi, way):
    """The other tests would not pass without the option."""
    env = {"GPUCOLL_STATS": "1", "CUEMU_DEVICES": "8", "GPUCOLL_ALGO": "ring", **(STAGED if way == "stage" else {})}
    run = on_nodes if way == "nodes" else lambda run, mpi, shape, *rest, **more: run(mpi, len(shape), *rest, **more)
    assert_passed(run(run_mpi, mpi, "0011", "test_ordered", "blocking", "unasked", env=env))


@pytest.mark.quick
@each_mpi
def test_one_asks_for_all(run_mpi, mpi, tmp_path):
    script = on_one_rank(tmp_path, {"GPUCOLL_REPRODUCIBLE": "1"})
    assert_passed(run_mpi(mpi, 3, script, str(BUILD / "mpi" / mpi / "test_ordered"), "nonblocking", env={"GPUCOLL_ALGO": "ring", "CUEMU_DEVICES": "8"}))


@pytest.mark.quick
def test_plans():
    """What there is, and what there is not."""
    result = run_tool(BUILD / "gpucoll-info", "-p", "allreduce", "-n", "8", "-s", "1M", "--ordered")
    times = result.output.partition("Predicted")[2]
    assert "exchange simple" in times and "chain ll" in times and "twoshot" in times and "ring " not in times, result.output
    result = run_tool(BUILD / "gpucoll-info", "-p", "allreduce", "-n", "8", "--algo", "ring", "--ordered")
    assert result.status == 2 and "it does not add in the order of ranks" in result.output, result.output
    result = run_tool(BUILD / "gpucoll-info", "-p", "allreduce", "-n", "8", "--algo", "chain")
    assert result.status == 2 and "it is for sums in the order of ranks" in result.output, result.output
    result = run_tool(BUILD / "gpucoll-info", "-p", "bcast", "--ordered")
    assert result.status == 2 and "bcast adds nothing" in result.output, result.output
