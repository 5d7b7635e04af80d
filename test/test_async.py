# SPDX-License-Identifier: BSD-3-Clause
"""Nonblocking and persistent collectives."""
import os
import random
import re

import pytest

from conftest import SOURCE, assert_passed
from helpers import PATHS, PERSISTENT, compile_with, count_calls, each_mpi, emulated_only, name_of, on_nodes


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_forms(run_mpi, mpi, form, ranks):
    colls = "all" if form == "nonblocking" else PERSISTENT.get(mpi, "all")
    result = run_mpi(mpi, ranks, "test_coll", 2, colls, form, env={"CUEMU_DEVICES": "2", **PATHS["accel"]})
    assert_passed(result)
    name = name_of("allreduce", form, mpi)
    assert count_calls(result.output, "stage", name) > 10, result.output
    if ranks > 1:
        assert count_calls(result.output, "accel", name) >= 4, result.output
    assert " WARN " not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
def test_forms_on_nodes(run_mpi, mpi, form):
    """Over several nodes, too."""
    result = on_nodes(run_mpi, mpi, "0011", "test_coll", 1, "all" if form == "nonblocking" else PERSISTENT.get(mpi, "all"), form)
    assert_passed(result)
    assert count_calls(result.output, "accel", name_of("allreduce", form, mpi)) >= 10, result.output
    exchange = "alltoallv" if form == "nonblocking" or mpi not in PERSISTENT else "alltoall"
    assert count_calls(result.output, "accel", name_of(exchange, form, mpi)) > 0, result.output


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", ["before_blocking", "freed_handles", "refused", "beside_work", "persistent", "large_forms"])
def test_cases(run_mpi, mpi, case):
    if case == "large_forms" and mpi.startswith("openmpi"):
        pytest.skip("Open MPI has no large counts up to version 5")
    if case == "refused" and mpi == "mpich5":
        pytest.skip("MPICH 5.0 ends a nonblocking call without a datatype by an assertion, on host buffers too")
    assert_passed(run_mpi(mpi, 2, "test_async", case, env=PATHS["accel"]))


QUEUE_CASES = ["ahead", "alone", "before_host", "before_message", "before_staged", "file", "freed_comm", "gone_arguments", "in_blocking", "late_comm",
               "later_work", "many", "opposite", "set_info", "switched_off", "truncated"]
# A rank goes on to a call of the real MPI: all is staged if the others do not come within a moment.
MAY_BE_STAGED = ["before_host", "before_staged", "file", "freed_comm", "set_info", "switched_off"]


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", QUEUE_CASES)
def test_queue(run_mpi, mpi, case):
    """What is queued is in nobody's way, whatever a rank does next."""
    if case == "truncated" and mpi == "openmpi":
        pytest.skip("Open MPI 4.1 aborts where a nonblocking broadcast brings too much, on host buffers too")
    result = run_mpi(mpi, 3, "test_queue", case, env=PATHS["accel"])
    assert_passed(result)
    name = {"freed_comm": "MPI_Ibcast", "gone_arguments": "MPI_Ialltoall"}.get(case, "MPI_Iallreduce")
    assert case != "alone" or count_calls(result.output, "accel", name) == 48, result.output
    # The first broadcast on each of three communicators gives two of them their identities, and is accelerated itself.
    assert case != "late_comm" or count_calls(result.output, "accel", "MPI_Bcast") >= 9 and not count_calls(result.output, "stage", "MPI_Bcast"), result.output
    assert case != "ahead" or count_calls(result.output, "accel", name) == 12, result.output
    assert case != "before_staged" or count_calls(result.output, "stage", "MPI_Allreduce") == 12, result.output
    assert case in MAY_BE_STAGED or count_calls(result.output, "accel", name) > 0, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("case", ["many", "persistent_orders"])
def test_managed_memory_alone(run_mpi, mpi, case):
    """On devices that have managed memory for themselves while a kernel runs, none runs behind the program's back."""
    result = run_mpi(mpi, 3, "test_queue", case, env={"CUEMU_MANAGED": "alone", **PATHS["accel"]})
    assert_passed(result)
    coll = name_of("allreduce", "persistent", mpi) if case == "persistent_orders" else "MPI_Iallreduce"
    assert count_calls(result.output, "stage", coll) > 0 and count_calls(result.output, "accel", coll) == 0, result.output
    assert "managed memory that is the host's or the kernels'" in result.output, result.output
    result = run_mpi(mpi, 3, "test_coll", 1, "allreduce", env={"CUEMU_MANAGED": "alone", **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "accel") > 0, result.output


@each_mpi
@pytest.mark.parametrize("case,shape", [("many", "001"), ("persistent_orders", "0012"), ("many_comms", "01"), ("many_comms", "011")])
def test_carried_kernels(run_mpi, mpi, case, shape):
    """Kernels that wait for messages which the host carries, so that it must not wait for them: several calls at a time."""
    env = {"GPUCOLL_EXEC": "fused", "CUEMU_SMS": "16", "GPUCOLL_EAGER_MAX": "0", "GPUCOLL_SCRATCH": "1M" if case == "many_comms" else None}
    assert_passed(on_nodes(run_mpi, mpi, shape, "test_queue", case, env={name: value for name, value in env.items() if value}))


@each_mpi
@pytest.mark.parametrize("case,shape", [("alone", "01"), ("before_host", "011"), ("before_message", "0120"), ("file", "001"), ("freed_comm", "011"),
                                        ("in_blocking", "01234"), ("many", "001"), ("opposite", "01234")])
def test_queue_on_nodes(run_mpi, mpi, case, shape):
    """The same over several nodes, on any of which a rank may have to take back that it is ready."""
    result = on_nodes(run_mpi, mpi, shape, "test_queue", case)
    assert_passed(result)
    assert case in MAY_BE_STAGED or count_calls(result.output, "accel", "MPI_Iallreduce") > 0, result.output
    assert case != "file" or "a call that came after it" in result.output, result.output


@each_mpi
def test_freed_in_handler(run_mpi, mpi, tmp_path):
    """A call in the queue that is refused when the real MPI gets it, and whose error handler frees the communicator."""
    tool = tmp_path / "refuses.so"
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-o", tool, SOURCE / "test/door/refuses.c")
    assert_passed(run_mpi(mpi, 3, "test_queue", "freed_in_handler", after=[str(tool)]))


# How many of a rank's calls are accelerated, at least, and of what.
PERSISTENT_CASES = {"orders": ("allreduce", 90), "before": ("allreduce", 5), "alone": ("allreduce", 48), "arguments": ("alltoallw", 12),
                    "refused": ("allreduce", 4)}


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", PERSISTENT_CASES)
def test_persistent(run_mpi, mpi, case):
    """Persistent ones start in any order, and what is under way is in nobody's way."""
    coll, least = PERSISTENT_CASES[case]
    result = run_mpi(mpi, 3, "test_queue", f"persistent_{case}", env=PATHS["accel"])
    assert_passed(result)
    assert count_calls(result.output, "accel", name_of(coll, "persistent", mpi)) >= least, result.output
    assert " WARN " not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("case,shape", [("orders", "00112"), ("before", "0120"), ("alone", "01"), ("arguments", "001"), ("refused", "011")])
def test_persistent_on_nodes(run_mpi, mpi, case, shape):
    coll, least = PERSISTENT_CASES[case]
    result = on_nodes(run_mpi, mpi, shape, "test_queue", f"persistent_{case}")
    assert_passed(result)
    assert count_calls(result.output, "accel", name_of(coll, "persistent", mpi)) >= least, result.output


@each_mpi
def test_many_persistent(run_mpi, mpi):
    """Those for which a node's board has no room are staged; when they are freed the next ones have it."""
    result = run_mpi(mpi, 3, "test_queue", "persistent_many", env=PATHS["accel"])
    assert_passed(result)
    assert result.output.count("has no room on a node's board") == 1, result.output
    assert count_calls(result.output, "stage", name_of("bcast", "persistent", mpi)) > 0, result.output
    assert count_calls(result.output, "accel", name_of("bcast", "persistent", mpi)) == 12, result.output


@each_mpi
def test_long_waits_are_reported(run_mpi, mpi):
    result = run_mpi(mpi, 3, "test_queue", "late", env={"GPUCOLL_TIMEOUT": "1"})
    assert_passed(result)
    assert re.search(r"has waited 1 s .*1 of this rank's requests is pending.* MPI_Iallreduce call 0 on a communicator of 3 ranks, "
                     r"for rank 0 of 3 to come to call 0", result.output), result.output


@each_mpi
@pytest.mark.parametrize("exec_mode", ["auto", "stepped"])
def test_before_blocking(run_mpi, mpi, exec_mode):
    """What accelerated calls wait for, others can't give before a nonblocking one has gone on."""
    result = run_mpi(mpi, 3, "test_async", "before_blocking", env={"GPUCOLL_EXEC": exec_mode, **PATHS["accel"]})
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 6, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("nth", [*range(1, 15), "9+"])
def test_fault(run_mpi, mpi, nth):
    """A copy in or out that fails is an error of its call, and of no other, in each way to complete a request."""
    result = run_mpi(mpi, 1, "test_async", "fault", env={"CUEMU_FAULT": f"cuMemcpyAsync:{nth}=209"})
    errors = 3 if nth == "9+" else 1
    assert result.status == 0 and f"rank 0: {errors} errors, 0 wrong" in result.output, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 7])
def test_lost_device(run_mpi, mpi, nth):
    """From some call of the driver on the device is lost: errors, and no crash."""
    result = run_mpi(mpi, 1, "test_async", "fault", env={"CUEMU_FAULT": f"cuStreamQuery:{nth}+=700"})
    assert re.search(r"rank 0: [1-9]\d* errors, 0 wrong", result.output), result.output


@each_mpi
@pytest.mark.parametrize("threads", [1, 3])
def test_random_programs(run_mpi, mpi, threads):
    seed = int(os.environ.get("TEST_SEED", "0")) or random.randrange(1, 1 << 30)
    operations = int(os.environ.get("TEST_OPERATIONS", "0")) or 10000 // threads
    result = run_mpi(mpi, 3, "test_async", "random", seed, operations, threads, env=PATHS["accel"], timeout=300 + operations / 50)
    assert_passed(result)
    assert re.search(rf"random {seed} {operations} {threads}: rank 0 has looked at \d+ results", result.output), result.output
    assert count_calls(result.output, "accel") > operations // 50, result.output
    assert "calls of further kinds" not in result.output, "the table has a row for each of many communicators"
    assert sum(count_calls(result.output, "accel", f"MPI_I{coll}") for coll in ("allreduce", "bcast", "alltoall")) > 0, result.output
    assert " WARN " not in result.output, result.output


@each_mpi
def test_random_programs_on_nodes(run_mpi, mpi):
    result = on_nodes(run_mpi, mpi, "001", "test_async", "random", random.randrange(1, 1 << 30), 1500)
    assert_passed(result)
    assert sum(count_calls(result.output, "accel", f"MPI_I{coll}") for coll in ("allreduce", "bcast", "alltoall")) > 0, result.output
