/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's completion calls, where some requests are of calls with buffers in device memory. They are
 * the real MPI's own; what is to be done when they complete hangs in a table (core_mpi_table.h).
 * Requests that are complete when they are made, whose handles many may have, have no entry there.
 */
#include "core/request/core_mpi_request.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_dump.h"
#include "core/request/core_mpi_table.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>
#include <string.h>

enum { FEW = 64, MOST_COPIES = 8 };

_Thread_local bool core_requests_pass;

/*
 * The request is complete, or was refused: done with it, unless it is persistent, which
 * begins anew.
 */
static void end(struct core_mpi_pending *pending, const MPI_Request *request)
{
	if (*request == MPI_REQUEST_NULL) {
		core_mpi_table_forget(pending);
		return;
	}
	pending->active = false;
	core_mpi_table_put_back(pending);
}

/* A wait of the application's, which is reported when it takes long. */
struct waiting {
	struct core_wait wait;
	uint64_t since; /* util_now */
	bool reported;
};

static void go_on_waiting(struct waiting *waiting)
{
	uint64_t now = util_now();
	char requests[320];

	core_mpi_drive(&waiting->wait);
	if (!waiting->since)
		waiting->since = now;
	if (waiting->reported || !util_config.timeout ||
	    now - waiting->since < UTIL_SECONDS((uint64_t)util_config.timeout))
		return;
	waiting->reported = true;
	core_requests_describe(requests, sizeof(requests));
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "a call that waits for requests has waited %.0f s and goes on waiting%s",
		 1e-9 * (double)(now - waiting->since), requests);
	core_dump("a call has waited long");
}

/*
 * The real MPI waits without driving what is ours. As long as there is such a thing, its waits are
 * tests over and over: not MPI_Request_get_status, by which some requests make no progress
 * (MPICH's of files), and some errors are raised that come again. False: nothing has to be driven
 * any more, and the request is as it was.
 */
static bool drive_until(MPI_Request *request, MPI_Status *status, int *result)
{
	struct waiting waiting = {0};
	int flag;

	while (core_drive_is_pending()) {
		core_requests_pass = true;
		*result = PMPI_Test(request, &flag, status);
		if (*result != MPI_SUCCESS || flag)
			return true;
		go_on_waiting(&waiting);
	}
	return false;
}

/* The first one has failed, and nothing is known of the others. */
static int tell_first(int count, MPI_Status statuses[], int error)
{
	for (int i = 0; statuses != MPI_STATUSES_IGNORE && i < count; i++)
		statuses[i].MPI_ERROR = i ? MPI_ERR_PENDING : error;
	return MPI_ERR_IN_STATUS;
}

/*
 * MPI_Waitall, one request after the other, as MPICH 4.0 can't do MPI_Testall with persistent
 * collectives; those behind one that has failed are said to be pending.
 */
static int wait_for_all(int (*next)(int, MPI_Request[], MPI_Status[]), int count,
			MPI_Request requests[], MPI_Status statuses[])
{
	bool ignores = statuses == MPI_STATUSES_IGNORE, well = true;
	int done = 0, result = MPI_SUCCESS;

	while (done < count && well &&
	       drive_until(&requests[done], ignores ? MPI_STATUS_IGNORE : &statuses[done],
			   &result)) {
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

/* ---- one request ---- */

/* The call has ended with the request complete, or with an error. Returns MPI's result. */
static int complete(struct core_mpi_pending *pending, const MPI_Request *request, int result,
		    const MPI_Status *status)
{
	enum util_status copied = UTIL_OK;
	bool quiet;

	if (!core_mpi_table_has_taken(pending))
		return result;
	if (result == MPI_SUCCESS) {
		copied = core_mpi_pending_settle(pending, status);
	} else if (!pending->persistent && *request != MPI_REQUEST_NULL) {
		core_mpi_table_put_back(pending);
		return result;
	}
	quiet = pending->quiet;
	end(pending, request);
	return copied == UTIL_OK ? result : core_mpi_pending_raise(quiet, copied);
}

int core_request_Wait(int (*next)(MPI_Request *, MPI_Status *), MPI_Request *request,
		      MPI_Status *status)
{
	struct core_mpi_pending *pending = core_mpi_table_take(*request);
	MPI_Status own;
	int result;

	core_requests_look();
	status = status == MPI_STATUS_IGNORE && pending ? &own : status;
	if (!drive_until(request, status, &result))
		result = next(request, status);
	return pending ? complete(pending, request, result, status) : result;
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
		return complete(pending, request, result, status);
	if (core_mpi_table_has_taken(pending))
		core_mpi_table_put_back(pending);
	return result;
}

/* Nothing is completed, so the entry stays where it is, and several threads may ask at a time. */
static int tell(MPI_Request request, const MPI_Status *status)
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
	return result == MPI_SUCCESS && *flag ? tell(request, status) : result;
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
	return tell(requests[*indx], status);
}

/* Of those that are complete; `indices`: NULL where those are all. Returns the first error. */
static int tell_several(const MPI_Request requests[], int num, const int *indices,
			const MPI_Status statuses[])
{
	int result = MPI_SUCCESS, told;

	for (int i = 0; i < num; i++) {
		told = tell(requests[indices ? indices[i] : i], &statuses[i]);
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

/* ---- several ---- */

/*
 * Those of ours among the requests of a call, and where they are among them; and room for statuses
 * of all.
 */
struct ours {
	int index;
	struct core_mpi_pending *pending; /* NULL: done with */
	bool settles;
	enum util_status copied;
};

struct several {
	int count, num;
	unsigned taken_over; /* when they were taken */
	struct ours *ours, few[FEW];
	MPI_Status *statuses, few_statuses[FEW];
};

static void close_several(struct several *all)
{
	if (all->ours != all->few)
		free(all->ours);
	if (all->statuses != all->few_statuses)
		free(all->statuses);
}

static bool add_ours(struct several *all, int index, struct core_mpi_pending *pending)
{
	struct ours *larger;

	if (all->num == FEW) {
		larger = malloc((size_t)all->count * sizeof(*larger));
		if (!larger)
			return false;
		memcpy(larger, all->few, sizeof(all->few));
		all->ours = larger;
	}
	all->ours[all->num++] = (struct ours){index, pending, false, UTIL_OK};
	return true;
}

/* Those that a call inside the real MPI's has done with are not ours any more. */
static void leave_taken_over(struct several *all)
{
	if (all->taken_over == core_mpi_table_taken_over)
		return;
	for (int k = 0; k < all->num; k++) {
		if (all->ours[k].pending && !core_mpi_table_has_taken(all->ours[k].pending))
			all->ours[k] = all->ours[--all->num], k--;
	}
	all->taken_over = core_mpi_table_taken_over;
}

/* What is left of them was not completed. */
static void put_back_several(struct several *all)
{
	leave_taken_over(all);
	for (int k = all->num - 1; k >= 0; k--) { /* the last one taken first */
		if (all->ours[k].pending)
			core_mpi_table_put_back(all->ours[k].pending);
	}
	close_several(all);
}

/* `statuses`: the application's, or to be replaced if it wants none. False: no memory. */
static bool take_several(struct several *all, int count, const MPI_Request requests[],
			 MPI_Status **statuses)
{
	bool inside = core_mpi_table_is_inside(), well = true;
	struct core_mpi_pending *pending = NULL;

	core_requests_look();
	all->count = count;
	all->num = 0;
	all->ours = all->few;
	all->statuses = all->few_statuses;
	for (int i = 0; well && (pending = core_mpi_table_take_next(requests, count, &i, inside));
	     i++)
		well = add_ours(all, i, pending);
	if (!well)
		core_mpi_table_put_back(pending);
	all->taken_over = core_mpi_table_taken_over;
	if (well && all->num && statuses && *statuses == MPI_STATUSES_IGNORE) {
		if (count > FEW)
			all->statuses = malloc((size_t)count * sizeof(MPI_Status));
		*statuses = all->statuses;
		well = all->statuses != NULL;
	}
	if (!well)
		put_back_several(all);
	return well;
}

/* Have what has come copied, some at a time. */
static void settle_several(struct several *all)
{
	for (int first = 0, last; first < all->num; first = last) {
		last = first + MOST_COPIES < all->num ? first + MOST_COPIES : all->num;
		for (int k = first; k < last; k++) {
			if (all->ours[k].settles)
				core_mpi_pending_progress(all->ours[k].pending);
		}
		for (int k = first; k < last; k++) {
			if (all->ours[k].settles)
				all->ours[k].copied =
					core_mpi_pending_settle_end(all->ours[k].pending);
		}
	}
}

/*
 * Which of the `num` requests that are complete have failed, in their statuses, as MPI has it of
 * calls on several. `quiet`: none of them wants a handler to be called. Returns MPI's result.
 */
static int tell_failures(const struct several *all, MPI_Status *statuses, int num,
			 const int *status_of, int result)
{
	bool failed = false, quiet = true;

	for (int k = 0; k < all->num; k++) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		if (!all->ours[k].settles || all->ours[k].copied == UTIL_OK)
			continue;
		for (int i = 0; !failed && result == MPI_SUCCESS && i < num; i++)
			statuses[i].MPI_ERROR = MPI_SUCCESS;
		statuses[at].MPI_ERROR = core_mpi_error_of(all->ours[k].copied);
		failed = true;
		quiet &= all->ours[k].pending->quiet;
	}
	if (!failed || result != MPI_SUCCESS)
		return result;
	if (!quiet)
		PMPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_IN_STATUS);
	return MPI_ERR_IN_STATUS;
}

/* Whether a request is complete after a call on several, and well. */
static bool has_ended(int result, const MPI_Status *status, bool *well)
{
	int error = result == MPI_ERR_IN_STATUS ? status->MPI_ERROR : result;

	*well = error == MPI_SUCCESS;
	return *well || (result == MPI_ERR_IN_STATUS && error != MPI_ERR_PENDING);
}

/*
 * `status_of`: of each of ours, which of the statuses is its; -1: it was not completed. NULL: that
 * of its index.
 */
static int complete_several(struct several *all, MPI_Request requests[], MPI_Status *statuses,
			    int num, const int *status_of, int result)
{
	int told;
	bool well;

	leave_taken_over(all);
	for (int k = 0; k < all->num; k++) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		all->ours[k].settles = at >= 0 && has_ended(result, &statuses[at], &well) && well;
		if (all->ours[k].settles)
			core_mpi_pending_settle_begin(all->ours[k].pending, &statuses[at]);
	}
	settle_several(all);
	told = tell_failures(all, statuses, num, status_of, result);
	for (int k = all->num - 1; k >= 0; k--) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		if (at < 0 || !has_ended(result, &statuses[at], &well))
			continue;
		end(all->ours[k].pending, &requests[all->ours[k].index]);
		all->ours[k].pending = NULL;
	}
	put_back_several(all);
	return told;
}

int core_request_Waitall(int (*next)(int, MPI_Request[], MPI_Status[]), int count,
			 MPI_Request requests[], MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, count, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	result = wait_for_all(next, count, requests, statuses);
	return complete_several(&all, requests, statuses, count, NULL, result);
}

int core_request_Testall(int (*next)(int, MPI_Request[], int *, MPI_Status[]), int count,
			 MPI_Request requests[], int *flag, MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, count, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	core_drive_step();
	result = next(count, requests, flag, statuses);
	if (result != MPI_SUCCESS || *flag)
		return complete_several(&all, requests, statuses, count, NULL, result);
	put_back_several(&all);
	return result;
}

/* As MPI_Waitany, while something has to be driven. False: nothing has come of it. */
static bool drive_until_any(int count, MPI_Request requests[], int *indx, MPI_Status *status,
			    int *result)
{
	struct waiting waiting = {0};
	int flag = 0;

	while (core_drive_is_pending()) {
		core_requests_pass = true;
		*result = PMPI_Testany(count, requests, indx, &flag, status);
		if (*result != MPI_SUCCESS || flag)
			return true;
		go_on_waiting(&waiting);
	}
	return false;
}

/* The others go back before the one is settled, which takes time. */
static int complete_any(struct several *all, MPI_Request requests[], int index, int result,
			const MPI_Status *status)
{
	struct core_mpi_pending *pending = NULL;

	leave_taken_over(all);
	for (int k = 0; k < all->num && !pending; k++) {
		if (all->ours[k].index != index)
			continue;
		pending = all->ours[k].pending;
		all->ours[k].pending = NULL;
	}
	put_back_several(all);
	return pending ? complete(pending, &requests[index], result, status) : result;
}

int core_request_Waitany(int (*next)(int, MPI_Request[], int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, MPI_Status *status)
{
	struct several all;
	MPI_Status own;
	int result;

	if (!take_several(&all, count, requests, NULL))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*indx = MPI_UNDEFINED;
	status = status == MPI_STATUS_IGNORE ? &own : status;
	if (!drive_until_any(count, requests, indx, status, &result))
		result = next(count, requests, indx, status);
	return complete_any(&all, requests, *indx, result, status);
}

int core_request_Testany(int (*next)(int, MPI_Request[], int *, int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, int *flag, MPI_Status *status)
{
	struct several all;
	MPI_Status own;
	int result;

	if (!take_several(&all, count, requests, NULL))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*indx = MPI_UNDEFINED;
	status = status == MPI_STATUS_IGNORE ? &own : status;
	core_drive_step();
	result = next(count, requests, indx, flag, status);
	return complete_any(&all, requests, *flag || result != MPI_SUCCESS ? *indx : MPI_UNDEFINED,
			    result, status);
}

/* The n-th status is of request indices[n]. */
static int complete_some(struct several *all, MPI_Request requests[], int outcount,
			 const int indices[], MPI_Status *statuses, int result)
{
	int few[FEW], *status_of = all->num > FEW ? malloc((size_t)all->num * sizeof(int)) : few;
	bool well = status_of != NULL;

	leave_taken_over(all);
	if (outcount == MPI_UNDEFINED || (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS))
		outcount = 0;
	/* Both go up in most MPIs, so that one walk is enough. */
	for (int k = 0, n = 0; well && k < all->num; k++) {
		status_of[k] = -1;
		for (int tried = 0; tried < outcount && status_of[k] < 0; tried++) {
			n = n + 1 < outcount ? n + 1 : 0;
			if (indices[n] == all->ours[k].index)
				status_of[k] = n;
		}
	}
	if (well)
		result = complete_several(all, requests, statuses, outcount, status_of, result);
	else
		result = core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	if (status_of != few)
		free(status_of);
	return result;
}

/* As MPI_Waitsome, while something has to be driven. */
static bool drive_until_some(int incount, MPI_Request requests[], int *outcount, int indices[],
			     MPI_Status statuses[], int *result)
{
	struct waiting waiting = {0};

	while (core_drive_is_pending()) {
		core_requests_pass = true;
		*result = PMPI_Testsome(incount, requests, outcount, indices, statuses);
		if (*result != MPI_SUCCESS || *outcount)
			return true;
		go_on_waiting(&waiting);
	}
	return false;
}

static int some(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), bool waits,
		int incount, MPI_Request requests[], int *outcount, int indices[],
		MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, incount, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*outcount = 0;
	core_drive_step();
	if (!waits || !drive_until_some(incount, requests, outcount, indices, statuses, &result))
		result = next(incount, requests, outcount, indices, statuses);
	return complete_some(&all, requests, *outcount, indices, statuses, result);
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

/* ---- persistent requests ---- */

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

static void put_back_started(struct several *all)
{
	leave_taken_over(all);
	for (int k = 0; k < all->num; k++)
		core_mpi_table_put_back(all->ours[k].pending);
	for (int k = 0; k < all->num; k++)
		tell_started(all->ours[k].pending);
	close_several(all);
	core_drive_begin();
}

/* One after the other, so that it is known which have been started when one is refused. */
int core_request_Startall(int (*next)(int, MPI_Request[]), int count, MPI_Request requests[])
{
	enum util_status status = UTIL_OK;
	struct several all;
	bool quiet = false;
	int result = MPI_SUCCESS;

	if (!take_several(&all, count, requests, NULL))
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
