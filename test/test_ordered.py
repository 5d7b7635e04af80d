# SPDX-License-Identifier: BSD-3-Clause
"""GPUCOLL_REPRODUCIBLE: results that depend on the inputs and the number of ranks only."""
import pytest

from conftest import BUILD, assert_passed
from helpers import count_calls, each_mpi, on_nodes, on_one_rank, run_tool

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
def test_alone(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 1, "test_ordered", "nonblocking", env=ORDERED))


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
