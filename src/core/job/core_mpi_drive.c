/* SPDX-License-Identifier: BSD-3-Clause */
/* What every wait of ours does over and over. */
#include "core/job/core_mpi_drive.h"
#include "core/call/core_mpi_handle.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_job.h"
#include "util/util_time.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/*
 * Where processes outnumber cores, who waits long takes the core from who works, even by yielding.
 */
static uint64_t patience(void)
{
	static const uint64_t ample = 5000000, crowded = 500000; /* ns */
	static _Atomic int is_crowded = -1; /* every thread would write the same */
	int known = atomic_load_explicit(&is_crowded, memory_order_relaxed);

	if (known < 0) {
		known = core_mpi_job.local_size > sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&is_crowded, known, memory_order_relaxed);
	}
	return known ? crowded : ample;
}

/*
 * Waiting must not stop the application's own pending communication, which only this MPI can move;
 * a probe for a message that no one sends is the portable way to make it progress. What is waited
 * for mostly comes within a microsecond or two, so first this returns at once; then it gives up the
 * core each time, since the process that is to do it may have none; in the end it sleeps, for as
 * short as the kernel allows.
 */
void core_mpi_drive(struct core_wait *wait)
{
	static const uint64_t interval = 10000, spin = 2000; /* ns */
	static const struct timespec nap = {0, 1000};
	uint64_t now = util_now();
	int flag;

	if (!wait->start)
		wait->start = now;
	if (!wait->last_probe)
		wait->last_probe = now;
	if (now - wait->last_probe >= interval) {
		wait->last_probe = now;
		if (core_mpi_private_comm != MPI_COMM_NULL)
			PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, core_mpi_private_comm, &flag,
				    MPI_STATUS_IGNORE);
	}
	core_drive_step();
	if (now - wait->start > patience())
		nanosleep(&nap, NULL);
	else if (now - wait->start > spin)
		sched_yield();
}
