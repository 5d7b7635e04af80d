/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that were freed while they were under way: kept, and tested now and then, until they are
 * done.
 */
#include "core/request/core_mpi_request.h"
#include "core/job/core_drive.h"
#include "core/request/core_mpi_table.h"
#include "util/util_time.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_pending *freed; /* under the lock */

/* The end of a persistent one gives back pinned memory: the driver may wait for kernels then. */
static void finish_freed(struct core_mpi_pending *pending, const MPI_Status *status)
{
	if (pending->persistent)
		core_drive_yield();
	core_mpi_pending_raise(pending->quiet, core_mpi_pending_settle(pending, status));
	if (pending->request != MPI_REQUEST_NULL)
		PMPI_Request_free(&pending->request);
	core_mpi_table_forget(pending);
}

void core_requests_look(void)
{
	struct core_mpi_pending *all, *pending, *rest = NULL;
	MPI_Status status;
	int done;

	if (!__atomic_load_n(&freed, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	all = freed;
	freed = NULL;
	pthread_mutex_unlock(&lock);
	while ((pending = all)) {
		all = pending->next;
		done = 0;
		if (PMPI_Test(&pending->request, &done, &status) == MPI_SUCCESS && done) {
			finish_freed(pending, &status);
			continue;
		}
		pending->next = rest;
		rest = pending;
	}
	pthread_mutex_lock(&lock);
	while ((pending = rest)) {
		rest = pending->next;
		pending->next = freed;
		freed = pending;
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Who frees a receive must see to it that something comes; what does not come is not waited for
 * without end.
 */
void core_requests_finish(void)
{
	static const uint64_t patience = UTIL_SECONDS(2); /* ns */
	uint64_t since = util_now();

	core_drive_yield(); /* the others may come to them later */
	while (freed && util_now() - since < patience)
		core_requests_look();
}

static void yield_before_end(MPI_Request request)
{
	struct core_mpi_pending *pending = core_mpi_table_find(request);
	bool ends;

	if (!pending)
		return;
	ends = pending->persistent && !pending->active;
	core_mpi_table_release(pending);
	if (ends)
		core_drive_yield();
}

int core_request_Request_free(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_pending *pending;
	int result;

	yield_before_end(*request);
	pending = core_mpi_table_take(*request);
	core_requests_look();
	if (!pending)
		return next(request);
	if (pending->persistent && !pending->active) {
		result = next(request);
		core_mpi_table_forget(pending);
		return result;
	}
	core_mpi_table_drop_taken(pending);
	pthread_mutex_lock(&lock);
	pending->next = freed;
	freed = pending;
	pthread_mutex_unlock(&lock);
	*request = MPI_REQUEST_NULL;
	return MPI_SUCCESS;
}
