/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded by tests and benchmarks, for more ranks than cores.
 *
 * MPICH's waiting ranks never give up the core, so that each message takes milliseconds: after some
 * idle rounds of UCX's progress the core is offered to others. Hydra starts each rank in a session,
 * and where the kernel groups threads by sessions a yield gives way to nobody else: with
 * YIELD_SHIM_NAP=1, which tests set, ranks that wait for longer nap; in benchmarks, with a core for
 * each rank, that would be unfair to MPICH.
 *
 * Open MPI's yield, all the time. In some kernels (b3d99f43c72b, mended by 1319ea57529e; seen in
 * 6.18) the scheduler's account goes wrong by that, and others, even the kernel's own threads, have
 * been seen without a core for 15 s at a time. A sleep now and then sets it right. With
 * YIELD_SHIM_NAP=1 some of all yields are naps: of 3 jobs beside a busy loop, on two cores, each
 * then took less than half the time.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool naps;

__attribute__((constructor)) static void start(void)
{
	naps = getenv("YIELD_SHIM_NAP") != NULL;
}

int sched_yield(void)
{
	enum { NAP_EVERY = 8 };
	static _Thread_local unsigned num;
	const struct timespec nap = {0, 1000};

	if (naps && ++num % NAP_EVERY == 0)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL); /* which leaves errno alone */
	else
		syscall(SYS_sched_yield);
	return 0;
}

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*next)(void *);
	static _Thread_local unsigned idle;
	const struct timespec nap = {0, 20000};

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "ucp_worker_progress");
	unsigned events = next ? next(worker) : 0;
	idle = events ? 0 : idle + 1;
	if (idle > 50 && naps)
		nanosleep(&nap, NULL);
	else if (idle > 5)
		sched_yield();
	return events;
}
