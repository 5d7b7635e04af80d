/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded under MPICH by tests and benchmarks: its waiting ranks never give up the core, so that
 * more ranks than cores take milliseconds for each message. After some idle rounds of UCX's
 * progress the core is offered to others.
 *
 * Hydra starts each rank in a session, and where the kernel groups threads by sessions a yield
 * gives way to nobody else. With YIELD_SHIM_NAP=1, which tests set, ranks that wait for longer nap;
 * in benchmarks, with a core for each rank, that would be unfair to MPICH.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*next)(void *);
	static bool naps;
	static _Thread_local unsigned idle;
	const struct timespec nap = {0, 20000};

	if (!next) {
		naps = getenv("YIELD_SHIM_NAP") != NULL;
		*(void **)&next = dlsym(RTLD_NEXT, "ucp_worker_progress");
	}
	unsigned events = next(worker);
	idle = events ? 0 : idle + 1;
	if (idle > 50 && naps)
		nanosleep(&nap, NULL);
	else if (idle > 5)
		sched_yield();
	return events;
}
