# SPDX-License-Identifier: BSD-3-Clause
"""The agreement of ranks on the path of each call, and the memory that it is about."""
import os
import random
import re
import time

import pytest

from conftest import MPIS, assert_passed
from helpers import NUM_GPUS, PATHS, ROOMS, TRANSPORTS, count_calls, each_mpi, emulated_only, on_nodes

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


@pytest.mark.quick
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


@pytest.mark.quick
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
    if case == "other_device_writes" and NUM_GPUS < 2:
        pytest.skip("there are no two GPUs")
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
                                          ("vmm_remapped", False), ("shared_pool", False)])
def test_memory_without_handles(run_mpi, mpi, case, windows):
    """Pools have no handle, and memory of the virtual memory API a descriptor where it was made to be shared."""
    result = run_mpi(mpi, 3, "test_life", case, env={"CUEMU_DEVICES": "2", **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "stage") == count_calls(result.output, "stage", "MPI_Reduce_local"), result.output
    assert ("through windows" in result.output) == windows, result.output


# What drivers without any IPC (WSL's, Tegra's) do.
NO_IPC = "cuIpcGetMemHandle+=801,cuMemExportToShareableHandle+=801,cuMemPoolExportToShareableHandle+=801"


@emulated_only
@each_mpi
@pytest.mark.parametrize("program", [("test_coll", 2), ("test_agree", "windows", 120), ("test_agree", "mixed", 300)], ids=lambda p: p[-2])
def test_nothing_can_be_exported(run_mpi, mpi, program):
    """Not even windows: messages go through the host's memory, once a vote has found that out, which is once a communicator."""
    result = run_mpi(mpi, 3, *program, env={"CUEMU_FAULT": NO_IPC, "CUEMU_SMS": "8", **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "accel") > 100, result.output
    assert not re.search("(?m)^(?!.* < 1 B ).* (twoshot|oneshot|direct)", result.output), result.output
    assert "can't be exported" not in result.output, result.output
    assert "WARN" not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("shape,kinds", [("000", "several"), ("000", "one"), ("001", "several")])
def test_habit(run_mpi, mpi, shape, kinds):
    """Who was not followed again and again asks seldom; when others follow, calls are accelerated again, also those of an early root."""
    calls = 400
    result = on_nodes(run_mpi, mpi, shape, "test_agree", "habit", calls, kinds, env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    # Over nodes broadcasts are too short to be accelerated. Of 16 calls one asks, in each kind, sooner or later.
    most = calls if shape == "000" else calls // 3
    assert most - 70 <= count_calls(result.output, "accel") < most, result.output


@each_mpi
def test_early_root_without_habit(run_mpi, mpi):
    """It has staged calls by its own choice, and so has no habit, and does not wait for those who have one."""
    calls = 60
    result = run_mpi(mpi, 3, "test_agree", "habit", calls, "root", env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert count_calls(result.output, "accel") > 0, result.output


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
