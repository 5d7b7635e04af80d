/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's completion calls on several requests (core_mpi_request.h). */
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/request/core_mpi_request.h"
#include "core/request/core_mpi_several.h"
#include "core/request/core_mpi_waiting.h"
#include "core/request/core_requests.h"

/* The first one has failed, and nothing is known of the others. */
static int tell_first(int count, MPI_Status statuses[], int error)
{
	for (int i = 0; statuses != MPI_STATUSES_IGNORE && i < count; i++)
		statuses[i].MPI_ERROR = i ? MPI_ERR_PENDING : error;
	return MPI_ERR_IN_STATUS;
}

static bool has_null(int count, const MPI_Request requests[])
{
	for (int i = 0; i < count; i++) {
		if (requests[i] == MPI_REQUEST_NULL)
			return true;
	}
	return false;
}

/*
 * MPI_Waitall, one request after the other, as MPICH 4.0 can't do MPI_Testall with persistent
 * collectives; those behind one that has failed are said to be pending. `alone`: also when there is
 * nothing to be driven any more.
 */
static int wait_for_all(int (*next)(int, MPI_Request[], MPI_Status[]), bool alone, int count,
			MPI_Request requests[], MPI_Status statuses[])
{
	bool ignores = statuses == MPI_STATUSES_IGNORE, well = true;
	int done = 0, result = MPI_SUCCESS;

	while (done < count && well) {
		MPI_Status *status = ignores ? MPI_STATUS_IGNORE : &statuses[done];

		if (!core_mpi_waiting_drive(&requests[done], status, &result)) {
			if (!alone)
				break;
			core_requests_pass = true;
			result = PMPI_Wait(&requests[done], status);
		}
		well = result == MPI_SUCCESS;
		done += well;
	}
	if (well && done < count)
		result = next(count - done, requests + done, ignores ? statuses : statuses + done);
	if (result == MPI_SUCCESS || !done)
		return well ? result : tell_first(count, statuses, result);
	if (result != MPI_ERR_IN_STATUS)
		tell_first(count - done, ignores ? statuses : statuses + done, result);
	for (int i = 0; !ignores && i < done; i++)
		statuses[i].MPI_ERROR = MPI_SUCCESS;
	return MPI_ERR_IN_STATUS;
}

int core_request_Waitall(int (*next)(int, MPI_Request[], MPI_Status[]), int count,
			 MPI_Request requests[], MPI_Status statuses[])
{
	struct core_mpi_several all;
	int result;

	if (!core_mpi_several_take(&all, count, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	/*
	 * MPICH 4.0 ends in an assertion where a generalized request, as ours may be, has yet to
	 * end, which another thread sees to, and there is a MPI_REQUEST_NULL beside it.
	 */
	result =
		wait_for_all(next, all.num && has_null(count, requests), count, requests, statuses);
	return core_mpi_several_complete(&all, requests, statuses, count, NULL, result);
}

int core_request_Testall(int (*next)(int, MPI_Request[], int *, MPI_Status[]), int count,
			 MPI_Request requests[], int *flag, MPI_Status statuses[])
{
	struct core_mpi_several all;
	int result;

	if (!core_mpi_several_take(&all, count, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	core_drive_step();
	result = next(count, requests, flag, statuses);
	if (result != MPI_SUCCESS || *flag)
		return core_mpi_several_complete(&all, requests, statuses, count, NULL, result);
	core_mpi_several_put_back(&all);
	return result;
}

/* As MPI_Waitany, while something has to be driven. False: nothing has come of it. */
static bool drive_until_any(int count, MPI_Request requests[], int *indx, MPI_Status *status,
			    int *result)
{
	struct core_mpi_waiting waiting = {0};
	int flag = 0;

	while (core_drive_is_pending()) {
		core_requests_pass = true;
		*result = PMPI_Testany(count, requests, indx, &flag, status);
		if (*result != MPI_SUCCESS || flag)
			return true;
		core_mpi_waiting_go_on(&waiting);
	}
	return false;
}

int core_request_Waitany(int (*next)(int, MPI_Request[], int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, MPI_Status *status)
{
	struct core_mpi_several all;
	MPI_Status own;
	int result;

	if (!core_mpi_several_take(&all, count, requests, NULL))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*indx = MPI_UNDEFINED;
	status = status == MPI_STATUS_IGNORE ? &own : status;
	if (!drive_until_any(count, requests, indx, status, &result))
		result = next(count, requests, indx, status);
	return core_mpi_several_complete_any(&all, requests, *indx, result, status);
}

int core_request_Testany(int (*next)(int, MPI_Request[], int *, int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, int *flag, MPI_Status *status)
{
	struct core_mpi_several all;
	MPI_Status own;
	int result;

	if (!core_mpi_several_take(&all, count, requests, NULL))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*indx = MPI_UNDEFINED;
	status = status == MPI_STATUS_IGNORE ? &own : status;
	core_drive_step();
	result = next(count, requests, indx, flag, status);
	return core_mpi_several_complete_any(&all, requests,
					     *flag || result != MPI_SUCCESS ? *indx : MPI_UNDEFINED,
					     result, status);
}

/* As MPI_Waitsome, while something has to be driven. */
static bool drive_until_some(int incount, MPI_Request requests[], int *outcount, int indices[],
			     MPI_Status statuses[], int *result)
{
	struct core_mpi_waiting waiting = {0};

	while (core_drive_is_pending()) {
		core_requests_pass = true;
		*result = PMPI_Testsome(incount, requests, outcount, indices, statuses);
		if (*result != MPI_SUCCESS || *outcount)
			return true;
		core_mpi_waiting_go_on(&waiting);
	}
	return false;
}

static int some(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), bool waits,
		int incount, MPI_Request requests[], int *outcount, int indices[],
		MPI_Status statuses[])
{
	struct core_mpi_several all;
	int result;

	if (!core_mpi_several_take(&all, incount, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*outcount = 0;
	core_drive_step();
	if (!waits || !drive_until_some(incount, requests, outcount, indices, statuses, &result))
		result = next(incount, requests, outcount, indices, statuses);
	return core_mpi_several_complete_some(&all, requests, *outcount, indices, statuses, result);
}

int core_request_Waitsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[])
{
	return some(next, true, incount, requests, outcount, indices, statuses);
}

int core_request_Testsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[])
{
	return some(next, false, incount, requests, outcount, indices, statuses);
}
