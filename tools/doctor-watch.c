/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver that hangs does not return, and who is in a call of it may not even be killed. So what
 * asks the driver is a process of its own, and this one, which never does, waits for it as long as
 * it comes on.
 */
#include "doctor-watch.h"
#include "util/util_config.h"
#include "util/util_time.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Writers: the processes that ask; reader: this one. Relaxed: `steps` tells of nothing else. */
struct signs {
	atomic_uint steps; /* things that were begun, or found out */
	char what[64];     /* the last one, for a person to read; its last byte stays 0 */
};

static struct signs *signs;
static pid_t parent;

void doctor_watch_step(const char *what)
{
	if (!signs)
		return;
	strncpy(signs->what, what, sizeof(signs->what) - 1);
	atomic_fetch_add_explicit(&signs->steps, 1, memory_order_relaxed);
}

pid_t doctor_watch_parent(void)
{
	return parent;
}

pid_t doctor_watch_fork(void)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

/* Whether it has ended; `*status` is its exit status then. */
static bool has_ended(pid_t child, int *status)
{
	pid_t found;
	int how;

	found = waitpid(child, &how, WNOHANG);
	if (found == 0)
		return false;
	*status = found == child && WIFEXITED(how) ? WEXITSTATUS(how) : DOCTOR_WATCH_DIED;
	return true;
}

/* As long as it comes on. Its children end with it; who is in the driver for good is left. */
static int watch(pid_t child)
{
	static const struct timespec nap = {.tv_nsec = 10000000};
	uint64_t since = util_now(), limit = util_config.timeout * UTIL_SECONDS(1);
	unsigned seen = 0;
	int status = 0;

	while (!has_ended(child, &status)) {
		unsigned steps = atomic_load_explicit(&signs->steps, memory_order_relaxed);

		if (steps != seen)
			since = util_now();
		seen = steps;
		if (limit && util_now() - since > limit) {
			kill(child, SIGKILL);
			return DOCTOR_WATCH_HANGS;
		}
		nanosleep(&nap, NULL);
	}
	return status;
}

int doctor_watch(int (*look)(void *), void *argument, const char **what)
{
	pid_t child = -1;
	int status;

	parent = getppid();
	signal(SIGCHLD, SIG_DFL); /* ignored, it would have nobody's end told */
	signs = mmap(NULL, sizeof(*signs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (signs == MAP_FAILED)
		signs = NULL;
	else
		child = doctor_watch_fork();
	if (child < 0) /* better than nothing */
		return look(argument);
	if (child == 0) {
		status = look(argument);
		fflush(NULL);
		_exit(status);
	}
	status = watch(child);
	*what = signs->what;
	return status;
}
