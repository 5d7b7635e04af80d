# SPDX-License-Identifier: BSD-3-Clause
"""Enqueued calls that are kernels, which wait for those of other ranks."""
import pytest

from conftest import BUILD, assert_passed, family
from helpers import RECOVERY, SURVIVING, assert_survived, count_calls, each_mpi, emulated_only

# Ranks that share a GPU need room for kernels that wait.
FUSED = {"CUEMU_DEVICES": "2", "CUEMU_SMS": "16", "GPUCOLL_STREAM_EXEC": "fused", "GPUCOLL_STATS": "1"}


def run(run_mpi, mpi, ranks, case, **env):
    result = run_mpi(mpi, ranks, "test_fused", case, env={**FUSED, **env})
    assert_passed(result)
    return result


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", ["graphs", "layouts", "out_of_reach"])
def test_cases(run_mpi, mpi, ranks, case):
    result = run(run_mpi, mpi, ranks, case)
    assert " WARN " not in result.output, result.output
    assert count_calls(result.output, "accel", "gpucoll_bcast_enqueue") > 0, result.output
    assert count_calls(result.output, "stage", "gpucoll_bcast_enqueue") == 0, result.output


# In device memory of others, of the host, on one GPU with few blocks, with short FIFOs, and by compiled kernels.
PLACES = {"p2p": {"CUEMU_DEVICES": "4"}, "shm": {"CUEMU_DEVICES": "4", "CUEMU_P2P": "0"}, "few blocks": {"CUEMU_DEVICES": "1", "CUEMU_SMS": "24"},
          "short FIFOs": {"CUEMU_DEVICES": "4", "GPUCOLL_SCRATCH": "2M"}, "ptx": {"CUEMU_DEVICES": "4", "CUEMU_KERNELS": "ptx"}}


@each_mpi
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_exchanges(run_mpi, mpi, ranks, place):
    """Collectives of which each rank knows its own sizes only."""
    result = run(run_mpi, mpi, ranks, "exchanges", **PLACES[place])
    for name in ("gatherv", "scatterv", "allgatherv", "alltoallv", "alltoallw"):
        assert count_calls(result.output, "accel", f"gpucoll_{name}_enqueue") > 0, result.output
    assert count_calls(result.output, "stage") == 0 and " WARN " not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("algo,proto", [("", ""), ("allreduce:ring;bcast:tree", "ll128"), ("allreduce:tree", "simple"), ("allreduce:halving", "ll")])
def test_one_behind_another(run_mpi, mpi, algo, proto):
    """Calls of several schedules, whose messages and scratch lie in each other's places, and nobody waits."""
    places = {"CUEMU_DEVICES": "1", "GPUCOLL_SCRATCH": "6M"} if proto == "ll128" else {"CUEMU_DEVICES": "4", "GPUCOLL_SCRATCH": "3M"}
    result = run(run_mpi, mpi, 3, "in_turn", GPUCOLL_ALGO=algo, GPUCOLL_PROTO=proto, **places)
    assert count_calls(result.output, "stage", "gpucoll_exscan_enqueue") == 0, result.output
    if proto == "ll128":
        assert "fused ll128" in result.output, result.output


@pytest.mark.quick
@each_mpi
def test_not_captured(run_mpi, mpi):
    result = run(run_mpi, mpi, 2, "not_captured")
    assert result.output.count("gpucoll_send_enqueue can't be captured in a graph") == 2, result.output


@each_mpi
def test_many_communicators(run_mpi, mpi):
    """The first ones have all the blocks, and the others go by the host; the order on each rank is its own."""
    result = run(run_mpi, mpi, 4, "many_comms", CUEMU_SMS="16", GPUCOLL_STREAM_EXEC="auto")
    for path in ("accel", "stage"):
        assert count_calls(result.output, path, "gpucoll_allreduce_enqueue") > 0, result.output


@pytest.mark.quick
@each_mpi
def test_no_threads(run_mpi, mpi):
    """No thread of the library calls MPI for them."""
    run(run_mpi, mpi, 2, "level")


@emulated_only
@each_mpi
def test_one_fails(run_mpi, mpi):
    """Kernels that wait for a rank that has failed give up, and their ranks are told."""
    for env in ({}, {"CUEMU_KERNELS": "ptx", "CUEMU_CHECK_SHARED": "1"}):  # also of the compiled ones: their blocks' threads leave together
        result = run(run_mpi, mpi, 3, "launch_fails", **env)
        assert "on which an enqueued call has failed" in result.output, result.output


@each_mpi
def test_killed(run_mpi, mpi):
    script = SURVIVING.format(environment="")
    result = run_mpi(mpi, 3, "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / "test_fused", "killed",
                     env=FUSED, options=RECOVERY[family(mpi)], timeout=60)
    assert_survived(result, 2)


@emulated_only
@each_mpi
def test_compiled_kernels(run_mpi, mpi):
    """Those that nvcc has made, interpreted."""
    for case in ("graphs", "layouts"):
        run(run_mpi, mpi, 2, case, CUEMU_KERNELS="ptx")
