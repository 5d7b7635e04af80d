# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that end, hang or are missed."""
import os
import pathlib
import re

import pytest

from conftest import BUILD, CUDA, NEWER, SANITIZED, SOURCE, assert_passed, family, launcher
from helpers import (CUDART, HOSTID, RECOVERY, SURVIVING, UCX_WITH_CUDA, assert_survived, build_shim, compile_with, count_calls, each_mpi,
                     emulated_only, on_nodes, run_tool)


def kill(run_mpi, mpi, shape, victim, test=("killed", 5), **more):
    script = SURVIVING.format(environment=HOSTID.format(shape=shape))
    result = run_mpi(mpi, len(shape), "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / "test_agree", test[0], victim, test[1],
                     options=RECOVERY[family(mpi)], timeout=60, **more)
    assert_survived(result, len(shape) - 1)
    assert result.output.count("and the others: 0 wrong") == len(shape) - 1, result.output[-4000:]
    return result


@each_mpi
@pytest.mark.parametrize("shape,victim", [("000", 1), ("01", 1), ("0011", 3)])
def test_killed_rank(run_mpi, mpi, shape, victim):
    """A rank is killed, in or between calls: all others get an error, wherever they are."""
    kill(run_mpi, mpi, shape, victim, env={"CUEMU_SMS": "8", "GPUCOLL_EXEC": "fused" if victim == 3 else "auto"})


@each_mpi
@pytest.mark.parametrize("ms", [5, 40, 90])
@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
def test_killed_rank_with_calls_pending(run_mpi, mpi, ms, form):
    env = {"TEST_PERSISTENT": "1"} if form == "persistent" else {}
    shape = "001" if form == "persistent" and ms == 40 else "000"
    kill(run_mpi, mpi, shape, 1, ("killed", ms), env={"CUEMU_SMS": "8", "TEST_PENDING": "4", **env})


@each_mpi
@pytest.mark.parametrize("shape", ["00", "000"])
def test_killed_rank_that_was_behind(run_mpi, mpi, shape):
    """Of a rank that waits for it to be past older calls, and has not announced its own."""
    result = kill(run_mpi, mpi, shape, 1, ("behind", 0))
    assert "rank 1 of MPI_COMM_WORLD, is lost in call 8" in result.output, result.output[-4000:]


@pytest.mark.parametrize("mpi,child", [("openmpi", "program"), ("mpich", "fork")])
def test_killed_rank_with_a_child(run_mpi, mpi, child):
    """Which would have UCX's sockets, and so keep the connections, until it ends."""
    result = kill(run_mpi, mpi, "01", 1, ("killed", 500), env={"CUEMU_SMS": "8", "TEST_CHILD": child})
    assert "rank 0 survives" in result.output.partition("the child ends")[0], result.output[-4000:]


# What some kernels do: there are no descriptors of processes; allocating a file's memory is interrupted.
OLD_KERNEL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pidfd_open) {
		errno = ENOSYS;
		return -1;
	}
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
	static int times;
	int (*real)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
	return times++ % 2 ? real(fd, offset, bytes) : EINTR;
}
"""


@pytest.fixture(scope="module")
def old_kernel(tmp_path_factory):
    return build_shim(tmp_path_factory.mktemp("old_kernel"), "old", OLD_KERNEL)


# What becomes of descriptors that a rank sends to others: DESCRIPTORS=VICTIM:N:lose, its Nth is lost; ...:die, it ends instead;
# none: those that go to others' sockets don't get there, as in containers with a network each.
DESCRIPTORS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <signal.h>
#include <unistd.h>
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	static atomic_int sent;
	static ssize_t (*real)(int, const struct msghdr *, int);
	const struct sockaddr_un *to = message->msg_name;
	const char *rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
	int victim, at, ours = to && message->msg_controllen && !strncmp(to->sun_path + 1, "gpucoll-", 8);
	char what[8];
	if (!real)
		real = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	if (ours && !strcmp(getenv("DESCRIPTORS"), "none")) {
		errno = ECONNREFUSED;
		return -1;
	}
	if (ours && rank && sscanf(getenv("DESCRIPTORS"), "%d:%d:%7s", &victim, &at, what) == 3 && atoi(rank) == victim &&
	    atomic_fetch_add(&sent, 1) == at) {
		fprintf(stderr, "rank %d: descriptor %d is not sent\n", victim, at);
		if (!strcmp(what, "die"))
			kill(getpid(), SIGKILL);
		return (ssize_t)message->msg_iov->iov_len;
	}
	return real(fd, message, flags);
}
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory):
    return build_shim(tmp_path_factory.mktemp("descriptors"), "descriptors", DESCRIPTORS)


@each_mpi
def test_lost_descriptor(run_mpi, mpi, descriptors):
    """One that was sent and does not come ends the vote, after 5 seconds: that memory can't be mapped, and all goes on."""
    result = run_mpi(mpi, 2, "test_life", "vmm_memory", env={"DESCRIPTORS": "1:2:lose", "GPUCOLL_STATS": "1"}, before=[descriptors])
    assert_passed(result)
    assert result.output.count("has not come: it can't be mapped") == 1, result.output
    assert count_calls(result.output, "accel", "MPI_Allreduce") >= 20, result.output


@each_mpi
def test_no_descriptor_gets_there(run_mpi, mpi, descriptors):
    """Each rank finds that out, after 5 seconds: from then on what would take one goes other ways."""
    result = run_mpi(mpi, 2, "test_life", "shared_pool", env={"DESCRIPTORS": "none", "GPUCOLL_STATS": "1"}, before=[descriptors])
    assert_passed(result)
    assert result.output.count("descriptors do not get to local rank") == 2, result.output
    assert count_calls(result.output, "stage", "MPI_Allreduce") <= 2 and "through windows" in result.output, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("at", [0, 1])
def test_killed_rank_in_a_vote(run_mpi, mpi, descriptors, at):
    """It has told what it brings, and ends as it passes on its first descriptor, or its second."""
    result = kill(run_mpi, mpi, "000", 1, env={"CUEMU_SMS": "8", "CUEMU_P2P": "none", "CUEMU_DEVICES": "3", "DESCRIPTORS": f"1:{at}:die"},
                  before=[descriptors])
    assert f"rank 1: descriptor {at} is not sent" in result.output, result.output


@each_mpi
def test_killed_rank_on_an_old_kernel(run_mpi, mpi, old_kernel):
    kill(run_mpi, mpi, "000", 1, env={"CUEMU_SMS": "8"}, after=[old_kernel])


@each_mpi
def test_interrupted_allocation(run_mpi, mpi, old_kernel):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"}, after=[old_kernel])
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output


@each_mpi
def test_names_in_shared_memory_that_are_taken(run_mpi, mpi):
    """Files of a job whose processes had the same numbers, or another user's: the board's name is no such one."""
    first = os.getpid()
    taken = [pathlib.Path(f"/dev/shm/gpucoll-{pid}-0") for pid in range(first, first + 2000)]
    for path in taken:
        path.touch()
    try:
        result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"})
    finally:
        for path in taken:
            path.unlink(missing_ok=True)  # the same test of another MPI may have taken it, too
    assert_passed(result)
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output


# The library's NOMEM_AT-th allocation finds no memory.
NO_MEMORY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
static int fails(void *caller)
{
	static atomic_int calls;
	static _Thread_local int inside;
	const char *at = getenv("NOMEM_AT");
	Dl_info info;
	int ours;
	if (!at || inside)
		return 0;
	inside = 1;
	ours = dladdr(caller, &info) && strstr(info.dli_fname, "libgpucoll");
	inside = 0;
	return ours && atomic_fetch_add(&calls, 1) == atoi(at);
}
void *malloc(size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t num, size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(num, bytes);
}
"""


@emulated_only
@each_mpi
@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has malloc")
def test_no_memory_between_nodes(run_mpi, mpi, tmp_path):
    """Those of the first calls' messages are among them. The call fails, or does without, and both ranks go on; or the job says so and ends."""
    no_memory = build_shim(tmp_path, "no_memory", NO_MEMORY)
    for number in [2, 9, *range(36, 48)]:
        # To a file: MPICH's launcher may drop what was said just before MPI_Abort.
        log = tmp_path / f"{number}.log"
        first = f"test $r = 1 && export NOMEM_AT={number};"
        result = on_nodes(run_mpi, mpi, "01", "test_agree", "shortage", first=first, after=[no_memory], timeout=60,
                          env={"GPUCOLL_DEBUG_FILE": str(log)})
        said = result.output[-4000:] + (log.read_text() if log.exists() else "")
        assert result.status != "timeout", f"allocation {number}: {said}"
        assert "1 checks passed, 0 failed" in result.output or "no memory for 2 ranks" in said, f"allocation {number}: {said}"


@each_mpi
@pytest.mark.parametrize("shape,victim,late", [("000", 1, 2), ("0011", 3, 1)])
def test_missed_rank(run_mpi, mpi, shape, victim, late):
    """Who misses a rank gets an error though another one has not come to the call, which may have been told of the failure in
    the call before and then never comes. If it does come it gets one, too."""
    kill(run_mpi, mpi, shape, victim, ("missed", late), env={"CUEMU_SMS": "8"})


@each_mpi
def test_orphaned_node(run_mpi, mpi):
    """A process is killed that is no member of the communicator, but answers for a node of it."""
    result = kill(run_mpi, mpi, "0011", 2, ("orphaned", 3), env={"CUEMU_SMS": "8"})
    assert "rank 2 of MPI_COMM_WORLD, which answers for this node, has ended" in result.output, result.output


@emulated_only
@pytest.mark.parametrize("shape", ["012", "0123"])
def test_stuck_rank_by_gdr(run_mpi, shape):
    """A connection to who does not take what was sent from the application's memory is broken off, and no other one."""
    script = SURVIVING.format(environment=HOSTID.format(shape=shape))
    env = {"CUEMU_SMS": "8", "GPUCOLL_ALGO": "ring", "GPUCOLL_NET_GDR": "on"}
    result = run_mpi("mpich", len(shape), "/bin/sh", "-c", script, "sh", BUILD / "mpi/mpich/test_agree", "stuck", 1, env=env, after=[UCX_WITH_CUDA],
                     options=RECOVERY["mpich"], timeout=60)
    assert_survived(result, len(shape) - 2)
    assert result.output.count("and the others: 0 wrong") == len(shape) - 2, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("shape,victim", [("01", 0), ("0122", 1)])
def test_killed_rank_by_gdr(run_mpi, mpi, shape, victim):
    """The others' buffers, which UCX reads and writes, are theirs again, and freed."""
    kill(run_mpi, mpi, shape, victim, env={"CUEMU_SMS": "8", "GPUCOLL_NET_GDR": "on"}, after=[UCX_WITH_CUDA])


ulfm = pytest.mark.skipif("openmpi5" not in NEWER, reason="of the MPIs here only Open MPI 5 has ULFM that works: MPICH's calls end in its assertions")


def build_ulfm(tmp_path, name):
    program = tmp_path / name
    compile_with("mpicc.openmpi5", "-Wall", f"-I{SOURCE}/include", f"-I{CUDA}/include", SOURCE / f"test/door/{name}.c", "-o", program,
                 f"-L{BUILD}/emu", f"-l:{CUDART}", "-l:libcuda.so.1")
    return program


def run_ulfm(run_mpi, tmp_path, shape, *arguments, program="shrink", env=()):
    program = build_ulfm(tmp_path, program)
    script = f'{HOSTID.format(shape=shape)} exec "$@"'
    return run_mpi("openmpi5", len(shape), "/bin/sh", "-c", script, "sh", program, *arguments, env=env, options=["--with-ft", "ulfm"], timeout=60)


@emulated_only
@ulfm
@pytest.mark.parametrize("shape", ["000", "001"])
def test_revoked(run_mpi, tmp_path, shape):
    """What waits in the library ends, and all get the class that says why, then and later."""
    result = run_ulfm(run_mpi, tmp_path, shape, 0, "revoke")
    assert result.status == 0 and len(re.findall(r"^rank \d: (?:then )?class REVOKED$", result.output, re.M)) == 2 * len(shape), result.output


FUSED = {"GPUCOLL_STREAM_EXEC": "fused", "CUEMU_DEVICES": "3", "CUEMU_SMS": "16"}
WAYS_TO_WAIT = [("blocking", {"GPUCOLL_CHECK": "args"}), ("nonblocking", {}), ("nonblocking", {"GPUCOLL_CHECK": "args"}), ("persistent", {}),
                ("persistent", {"GPUCOLL_REPRODUCIBLE": "1"}), ("freed", {}), ("message", {}), ("enqueued", {"GPUCOLL_STREAM_EXEC": "staged"}),
                ("enqueued", FUSED)]


@emulated_only
@ulfm
@pytest.mark.parametrize("shape", ["000", "001", "011", "012"])
@pytest.mark.parametrize("way,env", WAYS_TO_WAIT)
def test_what_waits_is_revoked(run_mpi, tmp_path, shape, way, env):
    """It ends, also where who revokes does nothing more."""
    result = run_ulfm(run_mpi, tmp_path, shape, way, program="revoked", env=env)
    assert result.status == 0 and result.output.count("class REVOKED") == len(shape) - 1, result.output


@emulated_only
@ulfm
def test_revoked_streams_give_their_blocks_back(run_mpi, tmp_path):
    result = run_ulfm(run_mpi, tmp_path, "000", "again", program="revoked", env=FUSED)
    assert result.status == 0 and result.output.count("class REVOKED") == 3, result.output


@emulated_only
@ulfm
def test_an_agreement_beside_a_call(run_mpi, tmp_path):
    """The call that is under way goes on, also where it comes to be staged while this rank is in MPIX_Comm_agree."""
    result = run_ulfm(run_mpi, tmp_path, "000", "agree", program="agree")
    assert result.status == 0 and len(re.findall(r"^rank \d: flag 1, right$", result.output, re.M)) == 3, result.output


@emulated_only
@ulfm
@pytest.mark.parametrize("way", ["anybody", "anybody-again"])
def test_what_a_death_leaves_pending(run_mpi, tmp_path, way):
    """A receive from anybody is still that when its first completion has failed, for one that is persistent, too."""
    result = run_ulfm(run_mpi, tmp_path, "000", way, program="agree")
    assert "rank 0: PENDING, then SUCCESS, right" in result.output, result.output


@emulated_only
@ulfm
@pytest.mark.parametrize("shape,how", [("0000", []), ("00000000", []), ("000111", []), ("0000", ["handler"])])
def test_going_on_without_the_dead(run_mpi, tmp_path, shape, how):
    """Rank after rank dies; the others revoke, shrink, and go on, until two are left."""
    result = run_ulfm(run_mpi, tmp_path, shape, 10, *how)
    ends = re.findall(r"^rank \d: through with 2 ranks, 0 wrong, the last (\d+) steps accelerated$", result.output, re.MULTILINE)
    assert result.status != "timeout" and len(ends) == 2 and " class other" not in result.output, result.output
    assert result.output.count("class PROC_FAILED") >= len(shape) - 2, result.output
    if "1" not in shape:  # else a node may have lost the process that answers for it
        assert ends == ["10", "10"], result.output


@emulated_only
@ulfm
def test_error_of_those_who_live(run_mpi, tmp_path):
    """The class of a call's error is that of its own reason, not of a death on the node that is none of its members'."""
    result = run_ulfm(run_mpi, tmp_path, "000", 10, "fault")
    assert len(re.findall(r"^rank \d: 2 ranks, step 6: class other, 0 wrong$", result.output, re.M)) == 2, result.output
    assert len(re.findall(r"^rank \d: through with 2 ranks, 0 wrong, the last 10 steps accelerated$", result.output, re.M)) == 2, result.output


@emulated_only
@ulfm
@pytest.mark.parametrize("way", ["freed", "kept"])
def test_memory_after_the_dead(run_mpi, tmp_path, way):
    """A communicator that lost a member gives its memory for messages back when it is freed."""
    result = run_ulfm(run_mpi, tmp_path, "00000", 10, way, env={"GPUCOLL_ALGO": "ring"})
    gone = [int(kib) for kib in re.findall(r"^rank \d: (\d+) KiB gone$", result.output, re.MULTILINE)]
    assert len(gone) == 2 and result.output.count("2 ranks, 0 wrong, the last 10 steps accelerated") == 2, result.output
    assert all(kib < 64 if way == "freed" else kib > 1024 for kib in gone), result.output


@emulated_only
@ulfm
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_process_in_the_place_of_the_dead(tmp_path, rounds):
    """A rank dies; the others shrink, spawn a process, which gets the library, too, and go on with it. That a process does not come to
    MPI_Finalize, in which Open MPI 5.0 may stay after a death, the launcher takes for an error."""
    program = build_ulfm(tmp_path, "respawn")
    result = run_tool(BUILD / "gpucoll-exec", "--emulate=2", *launcher("openmpi5", 4), "--with-ft", "ulfm", program, rounds,
                      env={"GPUCOLL_DUMP": f"{tmp_path}/%h-%p.json"})
    assert result.status != "timeout" and result.output.count("of 4: through, 0 wrong") == 4, result.output
