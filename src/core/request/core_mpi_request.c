/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's completion calls of one request (of several: core_mpi_request_several.c), where some
 * requests are of calls with buffers in device memory. They are the real MPI's own; what is to be
 * done when they complete hangs in a table (core_mpi_table.h). Requests that are complete when they
 * are made, whose handles many may have, have no entry there.
 */
#include "core/request/core_mpi_request.h"
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/request/core_mpi_table.h"
#include "core/request/core_mpi_waiting.h"

#include <stdlib.h>

_Thread_local bool core_requests_pass;

int core_request_Wait(int (*next)(MPI_Request *, MPI_Status *), MPI_Request *request,
		      MPI_Status *status)
{
	struct core_mpi_pending *pending = core_mpi_table_take(*request);
	MPI_Status own;
	int result;

	core_requests_look();
	status = status == MPI_STATUS_IGNORE && pending ? &own : status;
	if (!core_mpi_waiting_drive(request, status, &result))
		result = next(request, status);
	return pending ? core_mpi_table_complete(pending, request, result, status) : result;
}

int core_request_Test(int (*next)(MPI_Request *, int *, MPI_Status *), MPI_Request *request,
		      int *flag, MPI_Status *status)
{
	struct core_mpi_pending *pending = core_mpi_table_take(*request);
	MPI_Status own;
	int result;

	core_requests_look();
	core_drive_step();
	if (!pending)
		return next(request, flag, status);
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(request, flag, status);
	if (result != MPI_SUCCESS || *flag)
		return core_mpi_table_complete(pending, request, result, status);
	if (core_mpi_table_has_taken(pending))
		core_mpi_table_put_back(pending);
	return result;
}

/* Nothing is completed, so the entry stays where it is, and several threads may ask at a time. */
static int tell_status(MPI_Request request, const MPI_Status *status)
{
	struct core_mpi_pending *pending = core_mpi_table_find(request);
	enum util_status copied;
	bool quiet;

	if (!pending)
		return MPI_SUCCESS;
	copied = core_mpi_pending_settle(pending, status);
	quiet = pending->quiet;
	core_mpi_table_release(pending);
	return core_mpi_pending_raise(quiet, copied);
}

int core_request_Request_get_status(int (*next)(MPI_Request, int *, MPI_Status *),
				    MPI_Request request, int *flag, MPI_Status *status)
{
	MPI_Status own;
	int result;

	core_drive_step();
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(request, flag, status);
	return result == MPI_SUCCESS && *flag ? tell_status(request, status) : result;
}

int core_request_Request_get_status_any(int (*next)(int, const MPI_Request[], int *, int *,
						    MPI_Status *),
					int count, const MPI_Request requests[], int *indx,
					int *flag, MPI_Status *status)
{
	MPI_Status own;
	int result;

	core_drive_step();
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(count, requests, indx, flag, status);
	if (result != MPI_SUCCESS || !*flag || *indx == MPI_UNDEFINED)
		return result;
	return tell_status(requests[*indx], status);
}

/* Of those that are complete; `indices`: NULL where those are all. Returns the first error. */
static int tell_several(const MPI_Request requests[], int num, const int *indices,
			const MPI_Status statuses[])
{
	int result = MPI_SUCCESS, told;

	for (int i = 0; i < num; i++) {
		told = tell_status(requests[indices ? indices[i] : i], &statuses[i]);
		result = result == MPI_SUCCESS ? told : result;
	}
	return result;
}

/* The program's statuses, or others in their place where it wants none. NULL: no memory. */
static MPI_Status *get_statuses(MPI_Status statuses[], int count)
{
	return statuses == MPI_STATUSES_IGNORE ? malloc(((size_t)count + 1) * sizeof(MPI_Status))
					       : statuses;
}

int core_request_Request_get_status_all(int (*next)(int, const MPI_Request[], int *, MPI_Status[]),
					int count, const MPI_Request requests[], int *flag,
					MPI_Status statuses[])
{
	MPI_Status *all = get_statuses(statuses, count);
	int result;

	if (!all)
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	core_drive_step();
	result = next(count, requests, flag, all);
	if (result == MPI_SUCCESS && *flag)
		result = tell_several(requests, count, NULL, all);
	if (all != statuses)
		free(all);
	return result;
}

int core_request_Request_get_status_some(int (*next)(int, const MPI_Request[], int *, int[],
						     MPI_Status[]),
					 int incount, const MPI_Request requests[], int *outcount,
					 int indices[], MPI_Status statuses[])
{
	MPI_Status *all = get_statuses(statuses, incount);
	int result;

	if (!all)
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	core_drive_step();
	result = next(incount, requests, outcount, indices, all);
	if (result == MPI_SUCCESS && *outcount != MPI_UNDEFINED)
		result = tell_several(requests, *outcount, indices, all);
	if (all != statuses)
		free(all);
	return result;
}
