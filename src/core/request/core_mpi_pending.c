/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/request/core_mpi_pending.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi_raise.h"
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

void core_mpi_pending_heed(struct core_mpi_pending *pending, MPI_Errhandler handler)
{
	pending->quiet = handler == MPI_ERRORS_RETURN;
	if (handler != MPI_ERRHANDLER_NULL)
		PMPI_Errhandler_free(&handler);
}

void core_mpi_pending_heed_comm(struct core_mpi_pending *pending, core_handle comm)
{
	MPI_Errhandler handler = MPI_ERRHANDLER_NULL;

	pending->quiet = comm == core_mpi_world() && !core_mpi_has_world();
	if (pending->quiet)
		return;
	PMPI_Comm_get_errhandler(core_mpi_as_comm(comm), &handler);
	core_mpi_pending_heed(pending, handler);
}

int core_mpi_pending_raise(bool quiet, enum util_status status)
{
	if (status == UTIL_OK)
		return MPI_SUCCESS;
	return quiet ? core_mpi_error_of(status) : core_mpi_raise_on(core_mpi_world(), status);
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

enum util_status core_mpi_pending_progress(struct core_mpi_pending *pending)
{
	enum util_status status = UTIL_OK;

	if (pending->error == UTIL_OK)
		status = pending->kind->progress(pending);
	if (status == UTIL_IN_PROGRESS)
		return status;
	if (status != UTIL_OK)
		pending->error = status;
	return pending->error;
}

enum util_status core_mpi_pending_settle_end(struct core_mpi_pending *pending)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = core_mpi_pending_progress(pending)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	/* The error of its last round was told. */
	if (pending->persistent && !pending->active)
		status = UTIL_OK;
	pthread_mutex_unlock(&pending->settling);
	return status;
}

enum util_status core_mpi_pending_settle(struct core_mpi_pending *pending, const MPI_Status *status)
{
	core_mpi_pending_settle_begin(pending, status);
	return core_mpi_pending_settle_end(pending);
}
