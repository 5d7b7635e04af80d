/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/request/core_mpi_pending.h"
#include "core/job/core_mpi_drive.h"
#include "util/util_time.h"

void core_mpi_pending_open(struct core_mpi_pending *pending,
			   const struct core_mpi_pending_kind *kind, const char *name,
			   bool persistent)
{
	pending->kind = kind;
	pending->name = name;
	pending->persistent = persistent;
	pending->since = util_now();
	pending->settling = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

void core_mpi_pending_settle_begin(struct core_mpi_pending *pending, const MPI_Status *status)
{
	pthread_mutex_lock(&pending->settling);
	/* Of a persistent request that is not started the status is empty. */
	if (pending->arrived || (pending->persistent && !pending->active))
		return;
	pending->arrived = true;
	pending->kind->arrive(pending, status);
}

enum util_status core_mpi_pending_settle_end(struct core_mpi_pending *pending)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = pending->kind->progress(pending)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	pthread_mutex_unlock(&pending->settling);
	return status;
}

enum util_status core_mpi_pending_settle(struct core_mpi_pending *pending, const MPI_Status *status)
{
	core_mpi_pending_settle_begin(pending, status);
	return core_mpi_pending_settle_end(pending);
}
