# SPDX-License-Identifier: BSD-3-Clause
"""Calls that are enqueued on streams."""
import pytest

from conftest import assert_passed
from helpers import count_calls, each_mpi, emulated_only, on_nodes

THREADS = {"GPUCOLL_THREADS": "multiple", "GPUCOLL_STATS": "1"}
CASES = ["default_streams", "destroyed", "freed", "host_goes_on", "left_behind", "sends_first", "short_message", "threads", "told_later"]


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_forms(run_mpi, mpi, ranks):
    """Every collective, beside the real MPI's blocking one."""
    result = run_mpi(mpi, ranks, "test_coll", 2, "all", "enqueued", env={"CUEMU_DEVICES": "2", **THREADS})
    assert_passed(result)
    for name in ("allreduce", "bcast", "alltoallw", "neighbor_alltoallv", "reduce_scatter_block"):
        assert f"gpucoll_{name}_enqueue" in result.output, result.output
    assert " WARN " not in result.output, result.output


@each_mpi
def test_forms_on_nodes(run_mpi, mpi):
    assert_passed(on_nodes(run_mpi, mpi, "0011", "test_coll", 1, "all", "enqueued", env=THREADS))


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", CASES)
def test_cases(run_mpi, mpi, case):
    result = run_mpi(mpi, 3, "test_stream", case)
    assert_passed(result)
    assert " WARN " not in result.output, result.output


@each_mpi
def test_many(run_mpi, mpi):
    """They wait for room among themselves, which is not much here."""
    assert_passed(run_mpi(mpi, 2, "test_stream", "many", env={"GPUCOLL_STAGING_POOL": "1M"}))


@pytest.mark.quick
@each_mpi
def test_refused(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_stream", "refused")
    assert_passed(result)
    for text in ("which is for no stream", "which is not its communicator's", "can't be captured in a graph"):
        assert result.output.count(text) == 2, result.output


@pytest.mark.quick
@each_mpi
def test_threads_are_needed(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_stream", "no_threads")
    assert_passed(result)
    assert result.output.count("GPUCOLL_THREADS=multiple asks it for that") == 2, result.output
    assert_passed(run_mpi(mpi, 2, "test_stream", "level", env=THREADS))


@emulated_only
@each_mpi
def test_lost_device(run_mpi, mpi):
    """Later calls are refused, and the communicator can be freed."""
    result = run_mpi(mpi, 2, "test_stream", "lost")
    assert_passed(result)
    assert result.output.count("on which an enqueued call has failed") == 2, result.output


@each_mpi
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("waits", ["word", "kernel"])
def test_random_programs(run_mpi, mpi, ranks, waits):
    env = {"CUEMU_DEVICES": "2", "GPUCOLL_STATS": "1", "GPUCOLL_STREAM_WAIT": waits}
    result = run_mpi(mpi, ranks, "test_stream", "random", 10 * len(waits) + ranks, 25, env=env)
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") > 0, result.output


@emulated_only
@each_mpi
def test_one_hardware_queue(run_mpi, mpi):
    """Where streams share it, what is enqueued in one order on all ranks ends all the same."""
    assert_passed(run_mpi(mpi, 3, "test_coll", 1, "all", "enqueued", env={"CUEMU_CONNECTIONS": "1", **THREADS}))


@emulated_only
@each_mpi
def test_slow_waits(run_mpi, mpi):
    """The driver's waits take long (milliseconds on an H200 that two processes share): kernels wait instead, however late the machine runs them."""
    env = {"CUEMU_WAIT_US": "400000", "GPUCOLL_DEBUG": "info", **THREADS}
    result = run_mpi(mpi, 2, "test_stream", "host_goes_on", env=env)
    assert_passed(result)
    assert result.output.count("streams wait by kernels") == 2, result.output


@emulated_only
@each_mpi
def test_compiled_kernels(run_mpi, mpi):
    """Types with many gaps are copied by kernels in the stream."""
    env = {"CUEMU_KERNELS": "ptx", "GPUCOLL_STREAM_WAIT": "kernel", **THREADS}
    assert_passed(run_mpi(mpi, 2, "test_coll", 1, "allreduce,alltoallw,scan", "enqueued", env=env))
    assert_passed(run_mpi(mpi, 2, "test_stream", "freed", env=env))
