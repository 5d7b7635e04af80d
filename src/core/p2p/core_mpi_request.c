/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of messages from and to device memory. They are the real MPI's own; what is to be done
 * when they complete hangs in a table by handle.
 *
 * A handle does not identify a request: the real MPI gives it to another one as soon as this one is
 * complete, perhaps in another thread. So an entry is taken out of the table before any call that
 * may complete its request, and put back if that did not. Requests that are complete when they are
 * made, whose handles many may have, get no entry at all.
 *
 * A request that is freed while it is under way is kept, and tested now and then, until it is done.
 *
 * An error handler of the application may complete requests that the call which it comes from has
 * taken out: so what a thread has taken out can be found by it. It may leave that call by a jump:
 * then nobody knows which of its requests are complete, and they are given up.
 */
#include "core/p2p/core_mpi_request.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/p2p/core_mpi_message.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_BUCKETS = 1024, FEW = 64, MOST_COPIES = 8 };

uint64_t core_requests_pending; /* entries, in the table or taken out, and freed requests */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_message *table[NUM_BUCKETS]; /* under the lock */
static struct core_mpi_message *freed;              /* under the lock */

/* The handles in the table lie between these, since it was last empty. Under the lock. */
static size_t num_entries;
static uintptr_t lowest = UINTPTR_MAX, highest;

static size_t bucket_of(MPI_Request request)
{
	uintptr_t word = (uintptr_t)request;

	return (size_t)(word * UINT64_C(0x9e3779b97f4a7c15) >> 54) % NUM_BUCKETS;
}

static void add(struct core_mpi_message *message)
{
	struct core_mpi_message **bucket = &table[bucket_of(message->request)];
	uintptr_t word = (uintptr_t)message->request;

	message->next = *bucket;
	*bucket = message;
	if (num_entries++ == 0) {
		lowest = UINTPTR_MAX;
		highest = 0;
	}
	lowest = word < lowest ? word : lowest;
	highest = word > highest ? word : highest;
}

/* Cheap. An entry that is taken out leaves the bounds as they are: it may come back. */
static bool may_be_in_table(MPI_Request request)
{
	uintptr_t word = (uintptr_t)request;

	return word >= lowest && word <= highest;
}

static struct core_mpi_message **find(MPI_Request request)
{
	struct core_mpi_message **link = &table[bucket_of(request)];

	while (*link && (*link)->request != request)
		link = &(*link)->next;
	return link;
}

/* By this thread, and how often one of them was taken over by a call inside the one that has it. */
static _Thread_local struct core_mpi_message *taken;
static _Thread_local unsigned taken_over;

static void note_taken(struct core_mpi_message *message)
{
	message->next = taken;
	taken = message;
}

/* False: a call inside this one has done with it. */
static bool has_taken(const struct core_mpi_message *message)
{
	const struct core_mpi_message *one = taken;

	while (one && one != message)
		one = one->next;
	return one != NULL;
}

static void drop_taken(struct core_mpi_message *message)
{
	struct core_mpi_message **link = &taken;

	while (*link && *link != message)
		link = &(*link)->next;
	if (*link)
		*link = message->next;
}

static struct core_mpi_message *find_taken(MPI_Request request)
{
	struct core_mpi_message *one = taken;

	while (one && one->request != request)
		one = one->next;
	return one;
}

static struct core_mpi_message *take_over(MPI_Request request)
{
	struct core_mpi_message *one = find_taken(request);

	if (one)
		taken_over++;
	return one;
}

/* Under the lock. What is found is among the taken ones. */
static struct core_mpi_message *take(MPI_Request request)
{
	struct core_mpi_message **link = find(request), *message = *link;

	if (!message)
		return taken ? take_over(request) : NULL;
	*link = message->next;
	num_entries--;
	note_taken(message);
	return message;
}

static void put(struct core_mpi_message *message)
{
	drop_taken(message);
	add(message);
}

/* Of a call that was left by a jump. */
void core_requests_left(void)
{
	if (!taken)
		return;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "an error handler has left an MPI call that completes requests: what comes for "
		 "those that it was given does not get to device memory");
	taken = NULL;
}

void core_mpi_request_add(struct core_mpi_message *message)
{
	__atomic_fetch_add(&core_requests_pending, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	add(message);
	pthread_mutex_unlock(&lock);
}

static void forget(struct core_mpi_message *message)
{
	__atomic_fetch_sub(&core_requests_pending, 1, __ATOMIC_RELAXED);
	drop_taken(message);
	core_mpi_message_free(message);
}

static void put_back(struct core_mpi_message *message)
{
	pthread_mutex_lock(&lock);
	put(message);
	pthread_mutex_unlock(&lock);
}

/*
 * The message's request is complete, or was refused: done with it, unless it is persistent, which
 * begins anew.
 */
static void end(struct core_mpi_message *message, const MPI_Request *request)
{
	if (*request == MPI_REQUEST_NULL) {
		forget(message);
		return;
	}
	message->active = false;
	put_back(message);
}

static struct core_mpi_message *take_one(const MPI_Request *request)
{
	struct core_mpi_message *message;

	pthread_mutex_lock(&lock);
	message = take(*request);
	pthread_mutex_unlock(&lock);
	return message;
}

/* Left where it is. */
static struct core_mpi_message *find_one(MPI_Request request)
{
	struct core_mpi_message *message;

	pthread_mutex_lock(&lock);
	message = *find(request);
	pthread_mutex_unlock(&lock);
	return message ? message : find_taken(request);
}

/* Of a persistent request that is not started the status is empty. */
static void arrive(struct core_mpi_message *message, const MPI_Status *status)
{
	if (!message->persistent || message->active)
		core_mpi_message_arrive(message, status);
}

/* ---- what was freed while it was under way ---- */

static void finish_freed(struct core_mpi_message *message, const MPI_Status *status)
{
	arrive(message, status);
	if (core_dense_wait(&message->recv.dense) != UTIL_OK)
		core_mpi_raise_on(core_mpi_world(), UTIL_ERR_CUDA);
	if (message->request != MPI_REQUEST_NULL)
		PMPI_Request_free(&message->request);
	forget(message);
}

void core_requests_look(void)
{
	struct core_mpi_message *all, *message, *rest = NULL;
	MPI_Status status;
	int done;

	if (!__atomic_load_n(&freed, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	all = freed;
	freed = NULL;
	pthread_mutex_unlock(&lock);
	while ((message = all)) {
		all = message->next;
		done = 0;
		if (PMPI_Test(&message->request, &done, &status) == MPI_SUCCESS && done) {
			finish_freed(message, &status);
			continue;
		}
		message->next = rest;
		rest = message;
	}
	pthread_mutex_lock(&lock);
	while ((message = rest)) {
		rest = message->next;
		message->next = freed;
		freed = message;
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Who frees a receive must see to it that something comes; what does not come is not waited for
 * without end.
 */
void core_requests_finish(void)
{
	static const uint64_t patience = 2000000000; /* ns */
	uint64_t since = util_now();

	while (freed && util_now() - since < patience)
		core_requests_look();
}

int core_request_Request_free(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_message *message = take_one(request);
	int result;

	core_requests_look();
	if (!message)
		return next(request);
	if (message->persistent && !message->active) {
		result = next(request);
		forget(message);
		return result;
	}
	drop_taken(message);
	pthread_mutex_lock(&lock);
	message->next = freed;
	freed = message;
	pthread_mutex_unlock(&lock);
	*request = MPI_REQUEST_NULL;
	return MPI_SUCCESS;
}

/* ---- reports ---- */

static const struct core_mpi_message *older(const struct core_mpi_message *a,
					    const struct core_mpi_message *b)
{
	return b && (!a || b->since < a->since) ? b : a;
}

/* Whom it is from or to. */
static void describe_peer(const struct core_message_call *call, char *text, size_t bytes)
{
	if (call->recvtype && call->source == MPI_ANY_SOURCE)
		snprintf(text, bytes, "from any rank");
	else if (call->message)
		snprintf(text, bytes, "of a message that was probed");
	else
		snprintf(text, bytes, "%s rank %d, tag %d", call->recvtype ? "from" : "to",
			 call->recvtype ? call->source : call->dest,
			 call->recvtype ? call->recvtag : call->sendtag);
}

void core_requests_describe(char *text, size_t bytes)
{
	const struct core_mpi_message *oldest = NULL;
	char peer[64];
	size_t num = 0;

	*text = '\0';
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < NUM_BUCKETS; i++) {
		for (const struct core_mpi_message *one = table[i]; one; one = one->next) {
			if (one->persistent && !one->active)
				continue;
			oldest = older(oldest, one);
			num++;
		}
	}
	if (oldest) {
		describe_peer(&oldest->call, peer, sizeof(peer));
		snprintf(text, bytes,
			 "; %zu of this rank's messages %s pending, the oldest for %.0f s: %s %s",
			 num, num == 1 ? "is" : "are", 1e-9 * (double)(util_now() - oldest->since),
			 core_message_name(oldest->call.kind), peer);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- one request ---- */

/* The call has ended with the request complete, or with an error. Returns MPI's result. */
static int complete(struct core_mpi_message *message, const MPI_Request *request, int result,
		    const MPI_Status *status)
{
	enum util_status copied = UTIL_OK;

	if (!has_taken(message))
		return result;
	if (result == MPI_SUCCESS) {
		arrive(message, status);
		copied = core_dense_wait(&message->recv.dense);
	} else if (!message->persistent && *request != MPI_REQUEST_NULL) {
		put_back(message);
		return result;
	}
	end(message, request);
	return copied == UTIL_OK ? result : core_mpi_raise_on(core_mpi_world(), copied);
}

int core_request_Wait(int (*next)(MPI_Request *, MPI_Status *), MPI_Request *request,
		      MPI_Status *status)
{
	struct core_mpi_message *message = take_one(request);
	MPI_Status own;

	core_requests_look();
	if (!message)
		return next(request, status);
	status = status == MPI_STATUS_IGNORE ? &own : status;
	return complete(message, request, next(request, status), status);
}

int core_request_Test(int (*next)(MPI_Request *, int *, MPI_Status *), MPI_Request *request,
		      int *flag, MPI_Status *status)
{
	struct core_mpi_message *message = take_one(request);
	MPI_Status own;
	int result;

	core_requests_look();
	if (!message)
		return next(request, flag, status);
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(request, flag, status);
	if (result != MPI_SUCCESS || *flag)
		return complete(message, request, result, status);
	if (has_taken(message))
		put_back(message);
	return result;
}

/* By whichever thread comes first. An error handler that is called meanwhile may come here, too. */
static enum util_status unpack_once(struct core_mpi_message *message, const MPI_Status *status)
{
	static pthread_mutex_t unpacking = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	enum util_status copied;

	pthread_mutex_lock(&unpacking);
	arrive(message, status);
	copied = core_dense_wait(&message->recv.dense);
	pthread_mutex_unlock(&unpacking);
	return copied;
}

/* Nothing is completed, so the entry stays where it is, and several threads may ask at a time. */
int core_request_Request_get_status(int (*next)(MPI_Request, int *, MPI_Status *),
				    MPI_Request request, int *flag, MPI_Status *status)
{
	struct core_mpi_message *message;
	enum util_status copied;
	MPI_Status own;
	int result;

	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(request, flag, status);
	if (result != MPI_SUCCESS || !*flag)
		return result;
	message = find_one(request);
	copied = message ? unpack_once(message, status) : UTIL_OK;
	return copied == UTIL_OK ? result : core_mpi_raise_on(core_mpi_world(), copied);
}

/* ---- several ---- */

/*
 * Those of ours among the requests of a call, and where they are among them; and room for statuses
 * of all.
 */
struct ours {
	int index;
	struct core_mpi_message *message; /* NULL: done with */
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

static bool add_ours(struct several *all, int index, struct core_mpi_message *message)
{
	struct ours *larger;

	if (all->num == FEW) {
		larger = malloc((size_t)all->count * sizeof(*larger));
		if (!larger)
			return false;
		memcpy(larger, all->few, sizeof(all->few));
		all->ours = larger;
	}
	all->ours[all->num++] = (struct ours){index, message};
	return true;
}

/* Those that a call inside the real MPI's has done with are not ours any more. */
static void leave_taken_over(struct several *all)
{
	if (all->taken_over == taken_over)
		return;
	for (int k = 0; k < all->num; k++) {
		if (all->ours[k].message && !has_taken(all->ours[k].message))
			all->ours[k] = all->ours[--all->num], k--;
	}
	all->taken_over = taken_over;
}

/* What is left of them was not completed. */
static void put_back_several(struct several *all)
{
	leave_taken_over(all);
	pthread_mutex_lock(&lock);
	for (int k = all->num - 1; k >= 0; k--) { /* the last one taken first */
		if (all->ours[k].message)
			put(all->ours[k].message);
	}
	pthread_mutex_unlock(&lock);
	close_several(all);
}

/* `statuses`: the application's, or to be replaced if it wants none. False: no memory. */
static bool take_several(struct several *all, int count, const MPI_Request requests[],
			 MPI_Status **statuses)
{
	struct core_mpi_message *message = NULL;
	bool well = true;

	core_requests_look();
	all->count = count;
	all->num = 0;
	all->ours = all->few;
	all->statuses = all->few_statuses;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < count && well; i++) {
		/* Most are the application's alone. */
		if (!taken && !may_be_in_table(requests[i]))
			continue;
		message = take(requests[i]);
		if (!message)
			continue;
		well = add_ours(all, i, message);
	}
	if (!well)
		put(message);
	pthread_mutex_unlock(&lock);
	all->taken_over = taken_over;
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

/* Let what has come be unpacked, some at a time. */
static enum util_status unpack_several(struct several *all)
{
	enum util_status status = UTIL_OK, one;

	for (int first = 0, last; first < all->num; first = last) {
		last = first + MOST_COPIES < all->num ? first + MOST_COPIES : all->num;
		for (int k = first; k < last; k++)
			core_dense_progress(&all->ours[k].message->recv.dense);
		for (int k = first; k < last; k++) {
			one = core_dense_wait(&all->ours[k].message->recv.dense);
			status = one != UTIL_OK ? one : status;
		}
	}
	return status;
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
static int complete_several(struct several *all, MPI_Request requests[], const MPI_Status *statuses,
			    const int *status_of, int result)
{
	enum util_status copied;
	bool well;

	leave_taken_over(all);
	for (int k = 0; k < all->num; k++) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		if (at >= 0 && has_ended(result, &statuses[at], &well) && well)
			arrive(all->ours[k].message, &statuses[at]);
	}
	copied = unpack_several(all);
	for (int k = all->num - 1; k >= 0; k--) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		if (at < 0 || !has_ended(result, &statuses[at], &well))
			continue;
		end(all->ours[k].message, &requests[all->ours[k].index]);
		all->ours[k].message = NULL;
	}
	put_back_several(all);
	return copied == UTIL_OK ? result : core_mpi_raise_on(core_mpi_world(), copied);
}

int core_request_Waitall(int (*next)(int, MPI_Request[], MPI_Status[]), int count,
			 MPI_Request requests[], MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, count, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	result = next(count, requests, statuses);
	return complete_several(&all, requests, statuses, NULL, result);
}

int core_request_Testall(int (*next)(int, MPI_Request[], int *, MPI_Status[]), int count,
			 MPI_Request requests[], int *flag, MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, count, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	result = next(count, requests, flag, statuses);
	if (result != MPI_SUCCESS || *flag)
		return complete_several(&all, requests, statuses, NULL, result);
	put_back_several(&all);
	return result;
}

/* The others go back before the one is unpacked, which takes time. */
static int complete_any(struct several *all, MPI_Request requests[], int index, int result,
			const MPI_Status *status)
{
	struct core_mpi_message *message = NULL;

	leave_taken_over(all);
	for (int k = 0; k < all->num && !message; k++) {
		if (all->ours[k].index != index)
			continue;
		message = all->ours[k].message;
		all->ours[k].message = NULL;
	}
	put_back_several(all);
	return message ? complete(message, &requests[index], result, status) : result;
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
	result = next(count, requests, indx, flag, status);
	return complete_any(&all, requests, *flag || result != MPI_SUCCESS ? *indx : MPI_UNDEFINED,
			    result, status);
}

/* The n-th status is of request indices[n]. */
static int complete_some(struct several *all, MPI_Request requests[], int outcount,
			 const int indices[], const MPI_Status *statuses, int result)
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
		result = complete_several(all, requests, statuses, status_of, result);
	else
		result = core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	if (status_of != few)
		free(status_of);
	return result;
}

int core_request_Waitsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, incount, requests, &statuses))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	*outcount = 0;
	result = next(incount, requests, outcount, indices, statuses);
	return complete_some(&all, requests, *outcount, indices, statuses, result);
}

int core_request_Testsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[])
{
	return core_request_Waitsome(next, incount, requests, outcount, indices, statuses);
}

/* ---- persistent requests ---- */

static enum util_status prepare_start(struct core_mpi_message *message)
{
	message->arrived = false;
	message->since = util_now();
	return core_mpi_message_pack(message);
}

int core_request_Start(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_message *message = take_one(request);
	enum util_status status = UTIL_OK;
	int result;

	core_requests_look();
	if (!message)
		return next(request);
	if (!message->active)
		status = prepare_start(message);
	if (status != UTIL_OK) {
		put_back(message);
		return core_mpi_raise_on(core_mpi_world(), status);
	}
	result = next(request);
	message->active |= result == MPI_SUCCESS;
	message->request = *request; /* Open MPI may have made a new one */
	put_back(message);
	return result;
}

int core_request_Startall(int (*next)(int, MPI_Request[]), int count, MPI_Request requests[])
{
	enum util_status status = UTIL_OK;
	struct several all;
	int result;

	if (!take_several(&all, count, requests, NULL))
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	for (int k = 0; k < all.num && status == UTIL_OK; k++) {
		if (!all.ours[k].message->active)
			status = prepare_start(all.ours[k].message);
	}
	if (status != UTIL_OK) {
		put_back_several(&all);
		return core_mpi_raise_on(core_mpi_world(), status);
	}
	result = next(count, requests);
	for (int k = 0; k < all.num; k++) {
		all.ours[k].message->active |= result == MPI_SUCCESS;
		all.ours[k].message->request = requests[all.ours[k].index];
	}
	put_back_several(&all);
	return result;
}
