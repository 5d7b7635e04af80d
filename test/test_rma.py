# SPDX-License-Identifier: BSD-3-Clause
"""One-sided calls."""
import pytest

from conftest import assert_passed, family
from helpers import count_calls, each_mpi, on_nodes


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_calls(run_mpi, mpi, ranks):
    result = run_mpi(mpi, ranks, "test_rma", "calls", env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    for call in ("Put", "Rget_accumulate", "Compare_and_swap"):
        assert count_calls(result.output, "stage", f"MPI_{call}") > 4, result.output
    assert " WARN " not in result.output, result.output


@each_mpi
def test_calls_without_pinned_memory(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 2, "test_rma", "calls", env={"GPUCOLL_STAGING_POOL": "0"}))


@each_mpi
@pytest.mark.parametrize("nodes", ["", "0011"], ids=["node", "nodes"])
def test_windows_on_device_memory_are_refused(run_mpi, mpi, nodes):
    run = (lambda *arguments: on_nodes(run_mpi, mpi, nodes, *arguments)) if nodes else (lambda *arguments: run_mpi(mpi, 3, *arguments))
    result = run("test_rma", "windows")
    assert_passed(result)
    assert "MPI_Win_create was given device memory" in result.output, result.output


@pytest.mark.quick
@each_mpi
def test_threads(run_mpi, mpi):
    """A thread's synchronisation completes calls of others, which are not to return before their data are there."""
    assert_passed(run_mpi(mpi, 2, "test_rma", "threads"))


@each_mpi
def test_flush_of_nobody(run_mpi, mpi):
    if family(mpi) != "mpich":
        pytest.skip("Open MPI crashes in it")
    assert_passed(run_mpi(mpi, 2, "test_rma", "nobody"))


@each_mpi
def test_collective_while_a_window_is_freed(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 2, "test_rma", "attribute", timeout=60))
