/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded under MPICH in the tests only: its waiting ranks never give up the core, so that more
 * ranks than cores take milliseconds for each message. After some idle rounds of UCX's progress the
 * core is offered to others.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*next)(void *);
	static _Thread_local unsigned idle;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "ucp_worker_progress");
	unsigned events = next(worker);
	idle = events ? 0 : idle + 1;
	if (idle > 5)
		sched_yield();
	return events;
}
