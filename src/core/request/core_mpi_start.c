/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Start and MPI_Startall (core_mpi_request.h). */
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/request/core_mpi_request.h"
#include "core/request/core_mpi_several.h"
#include "core/request/core_mpi_table.h"
#include "util/util_time.h"

/*
 * Of one that is active, or not persistent, MPI knows the error. It may be prepared already:
 * through a tool below a call comes here twice.
 */
static enum util_status prepare_start(struct core_mpi_pending *pending)
{
	enum util_status status;

	if (!pending->persistent || pending->active || pending->prepared)
		return UTIL_OK;
	pending->arrived = false;
	pending->error = UTIL_OK;
	pending->since = util_now();
	status = pending->kind->prepare(pending);
	pending->prepared = status == UTIL_OK;
	return status;
}

/*
 * Open MPI may have made a new request. One that could be started though it was active was not: a
 * call that had seen it complete was left by a jump.
 */
static void note_start(struct core_mpi_pending *pending, MPI_Request request, int result)
{
	pending->request = request;
	if (!pending->persistent || result != MPI_SUCCESS)
		return;
	if (pending->active && pending->kind->stays) {
		pending->active = false;
		prepare_start(pending);
	}
	pending->active = true;
}

static void tell_started(struct core_mpi_pending *pending)
{
	if (pending->prepared && pending->kind->started)
		pending->kind->started(pending, pending->active);
	pending->prepared = false;
}

int core_request_Start(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_pending *pending = core_mpi_table_take(*request);
	enum util_status status;
	bool quiet;
	int result;

	core_requests_look();
	if (!pending)
		return next(request);
	status = prepare_start(pending);
	if (status != UTIL_OK) {
		quiet = pending->quiet;
		core_mpi_table_put_back(pending);
		return core_mpi_pending_raise(quiet, status);
	}
	result = next(request);
	if (!core_mpi_table_has_taken(pending))
		return result;
	note_start(pending, *request, result);
	core_mpi_table_put_back(pending);
	tell_started(pending);
	core_drive_begin();
	return result;
}

static void put_back_started(struct core_mpi_several *all)
{
	core_mpi_several_look(all);
	for (int k = 0; k < all->num; k++)
		core_mpi_table_put_back(all->ours[k].pending);
	for (int k = 0; k < all->num; k++)
		tell_started(all->ours[k].pending);
	core_mpi_several_close(all);
	core_drive_begin();
}

/* One after the other, so that it is known which have been started when one is refused. */
int core_request_Startall(int (*next)(int, MPI_Request[]), int count, MPI_Request requests[])
{
	enum util_status status = UTIL_OK;
	struct core_mpi_several all;
	bool quiet = false;
	int result = MPI_SUCCESS;

	if (!core_mpi_several_take(&all, count, requests, NULL))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	if (!all.num)
		return next(count, requests);
	for (int k = 0; k < all.num && status == UTIL_OK; k++) {
		quiet = all.ours[k].pending->quiet;
		status = prepare_start(all.ours[k].pending);
	}
	for (int i = 0, k = 0; i < count && status == UTIL_OK && result == MPI_SUCCESS; i++) {
		result = next(1, &requests[i]);
		if (k == all.num || all.ours[k].index != i)
			continue;
		if (core_mpi_table_has_taken(all.ours[k].pending))
			note_start(all.ours[k].pending, requests[i], result);
		k++;
	}
	put_back_started(&all);
	return status == UTIL_OK ? result : core_mpi_pending_raise(quiet, status);
}
