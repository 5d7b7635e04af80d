# SPDX-License-Identifier: BSD-3-Clause
"""Calls that are enqueued on streams."""
import pytest

from conftest import assert_passed
from helpers import count_calls, each_mpi, emulated_only, on_nodes

THREADS = {"GPUCOLL_THREADS": "multiple", "GPUCOLL_STATS": "1"}
# By the host, and by kernels that wait for each other, for which ranks that share a GPU need room.
WAYS = {"staged": {"GPUCOLL_STREAM_EXEC": "staged"}, "fused": {"GPUCOLL_STREAM_EXEC": "fused", "CUEMU_SMS": "16"}}
each_way = pytest.mark.parametrize("way", WAYS)
CASES = ["default_streams", "destroyed", "freed", "host_goes_on", "left_behind", "sends_first", "short_message", "threads", "told_later"]


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks,way", [(1, "staged"), (2, "fused"), (3, "staged"), (4, "fused")])
def test_forms(run_mpi, mpi, ranks, way):
    """Every collective, beside the real MPI's blocking one."""
    result = run_mpi(mpi, ranks, "test_coll", 2, "all", "enqueued", env={"CUEMU_DEVICES": "2", **THREADS, **WAYS[way]})
    assert_passed(result)
    assert (count_calls(result.output, "accel", "gpucoll_allreduce_enqueue") > 0) == (way == "fused"), result.output
    for name in ("allreduce", "bcast", "alltoallw", "neighbor_alltoallv", "reduce_scatter_block"):
        assert f"gpucoll_{name}_enqueue" in result.output, result.output
    assert " WARN " not in result.output, result.output


@each_mpi
def test_forms_on_nodes(run_mpi, mpi):
    assert_passed(on_nodes(run_mpi, mpi, "0011", "test_coll", 1, "all", "enqueued", env=THREADS))


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", CASES)
@each_way
def test_cases(run_mpi, mpi, case, way):
    result = run_mpi(mpi, 3, "test_stream", case, env=WAYS[way])
    assert_passed(result)
    assert " WARN " not in result.output, result.output


@each_mpi
def test_many(run_mpi, mpi):
    """They wait for room among themselves, which is not much here."""
    assert_passed(run_mpi(mpi, 2, "test_stream", "many", env={"GPUCOLL_STAGING_POOL": "1M", **WAYS["staged"]}))


@pytest.mark.quick
@each_mpi
def test_refused(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_stream", "refused", env=WAYS["staged"])
    assert_passed(result)
    for text in ("which is for no stream", "which is not its communicator's", "can't be captured in a graph"):
        assert result.output.count(text) == 2, result.output


@pytest.mark.quick
@each_mpi
def test_threads_are_needed(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_stream", "no_threads", env=WAYS["staged"])
    assert_passed(result)
    assert result.output.count("GPUCOLL_THREADS=multiple asks it for that") == 2, result.output
    assert_passed(run_mpi(mpi, 2, "test_stream", "level", env={**THREADS, **WAYS["staged"]}))


@emulated_only
@each_mpi
def test_lost_device(run_mpi, mpi):
    """Later calls are refused, and the communicator can be freed."""
    result = run_mpi(mpi, 2, "test_stream", "lost", env={"GPUCOLL_STREAM_WAIT": "word", **WAYS["staged"]})
    assert_passed(result)
    assert result.output.count("on which an enqueued call has failed") == 2, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("case", ["one_refused", "result_refused"])
@pytest.mark.parametrize("waits", ["word", "kernel"])
def test_refused_by_the_driver(run_mpi, mpi, waits, case):
    """What the driver does not take leaves the calls before it alone, which the others have yet to come to, and holds up nobody."""
    assert_passed(run_mpi(mpi, 3, "test_stream", case, env={"GPUCOLL_STREAM_WAIT": waits, **WAYS["staged"]}, timeout=60))


@each_mpi
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("waits,way", [("word", "staged"), ("kernel", "staged"), ("word", "fused")])
def test_random_programs(run_mpi, mpi, ranks, waits, way):
    env = {"CUEMU_DEVICES": "2", "GPUCOLL_STATS": "1", "GPUCOLL_STREAM_WAIT": waits, **WAYS[way]}
    result = run_mpi(mpi, ranks, "test_stream", "random", 10 * len(waits) + ranks, 25, env=env)
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") > 0, result.output


@emulated_only
@each_mpi
@each_way
def test_one_hardware_queue(run_mpi, mpi, way):
    """Where streams share it, what is enqueued in one order on all ranks ends all the same."""
    assert_passed(run_mpi(mpi, 3, "test_coll", 1, "all", "enqueued", env={"CUEMU_CONNECTIONS": "1", **THREADS, **WAYS[way]}))


@emulated_only
@each_mpi
def test_slow_waits(run_mpi, mpi):
    """The driver's waits take long (milliseconds on an H200 that two processes share): kernels wait instead, however late the machine runs them."""
    env = {"CUEMU_WAIT_US": "400000", "GPUCOLL_DEBUG": "info", **THREADS, **WAYS["staged"]}
    result = run_mpi(mpi, 2, "test_stream", "host_goes_on", env=env)
    assert_passed(result)
    assert result.output.count("streams wait by kernels") == 2, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("waits", ["auto", "kernel"])
def test_blocking_launches(run_mpi, mpi, waits):
    """A launch that comes back when its kernel has ended must not be one that waits for what its own thread does next."""
    env = {"CUDA_LAUNCH_BLOCKING": "1", "CUEMU_WAIT_US": "2000", "GPUCOLL_STREAM_WAIT": waits, **THREADS}
    result = run_mpi(mpi, 2, "test_stream", "host_goes_on", env=env, timeout=60)
    assert_passed(result)
    assert result.output.count("GPUCOLL_STREAM_WAIT=kernel is not possible") == (2 if waits == "kernel" else 0), result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("waits", ["auto", "kernel"])
def test_device_with_a_display(run_mpi, mpi, waits):
    """Its driver ends kernels that take long, with their context: none waits for what another rank, or the host, may do late."""
    env = {"CUEMU_DISPLAY": "1", "CUEMU_WAIT_US": "2000", "GPUCOLL_STREAM_WAIT": waits, "GPUCOLL_DEBUG": "info", **THREADS}
    result = run_mpi(mpi, 2, "test_stream", "host_goes_on", env=env)
    assert_passed(result)
    assert "goes through the host's memory: the driver ends kernels that take long" in result.output, result.output
    assert result.output.count("GPUCOLL_STREAM_WAIT=kernel is not possible") == (2 if waits == "kernel" else 0), result.output
    assert "streams wait by kernels" not in result.output, result.output


@emulated_only
@each_mpi
def test_device_with_a_display_where_kernels_are_asked_for(run_mpi, mpi):
    env = {"CUEMU_DISPLAY": "1", "GPUCOLL_STREAM_EXEC": "fused", "GPUCOLL_DEBUG": "info", **THREADS}
    result = run_mpi(mpi, 2, "test_coll", 1, "allreduce", "enqueued", env=env)
    assert_passed(result)
    assert "goes through the host's memory" not in result.output, result.output


@emulated_only
@each_mpi
def test_compiled_kernels(run_mpi, mpi):
    """Types with many gaps are copied by kernels in the stream."""
    env = {"CUEMU_KERNELS": "ptx", "GPUCOLL_STREAM_WAIT": "kernel", **THREADS, **WAYS["staged"]}
    assert_passed(run_mpi(mpi, 2, "test_coll", 1, "allreduce,alltoallw,scan", "enqueued", env=env))
    assert_passed(run_mpi(mpi, 2, "test_stream", "freed", env=env))
