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
 */
#include "core/core_mpi_message.h"
#include "core/core_mpi.h"
#include "core/core_mpi_request.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdlib.h>

enum { NUM_BUCKETS = 1024, FEW = 64, MOST_COPIES = 8 };

uint64_t core_requests_pending; /* entries, in the table or taken out, and freed requests */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_message *table[NUM_BUCKETS]; /* under the lock */
static struct core_mpi_message *freed;              /* under the lock */

static size_t bucket_of(MPI_Request request)
{
	uintptr_t word = (uintptr_t)request;

	return (size_t)(word * UINT64_C(0x9e3779b97f4a7c15) >> 54) % NUM_BUCKETS;
}

static void put(struct core_mpi_message *message)
{
	struct core_mpi_message **bucket = &table[bucket_of(message->request)];

	message->next = *bucket;
	*bucket = message;
}

static struct core_mpi_message **find(MPI_Request request)
{
	struct core_mpi_message **link = &table[bucket_of(request)];

	while (*link && (*link)->request != request)
		link = &(*link)->next;
	return link;
}

static struct core_mpi_message *take(MPI_Request request)
{
	struct core_mpi_message **link = find(request), *message = *link;

	if (message)
		*link = message->next;
	return message;
}

void core_mpi_request_add(struct core_mpi_message *message)
{
	__atomic_fetch_add(&core_requests_pending, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	put(message);
	pthread_mutex_unlock(&lock);
}

static void forget(struct core_mpi_message *message)
{
	__atomic_fetch_sub(&core_requests_pending, 1, __ATOMIC_RELAXED);
	core_mpi_message_free(message);
}

/* The message's request is complete, or was refused: done with it, unless it is persistent, which
 * begins anew. */
static void end(struct core_mpi_message *message, const MPI_Request *request)
{
	if (*request == MPI_REQUEST_NULL) {
		forget(message);
		return;
	}
	message->active = false;
	pthread_mutex_lock(&lock);
	put(message);
	pthread_mutex_unlock(&lock);
}

static void put_back(struct core_mpi_message *message)
{
	pthread_mutex_lock(&lock);
	put(message);
	pthread_mutex_unlock(&lock);
}

static struct core_mpi_message *take_one(const MPI_Request *request)
{
	struct core_mpi_message *message;

	pthread_mutex_lock(&lock);
	message = take(*request);
	pthread_mutex_unlock(&lock);
	return message;
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
		core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_CUDA);
	if (message->request != MPI_REQUEST_NULL)
		PMPI_Request_free(&message->request);
	forget(message);
}

static void look_at_freed(void)
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

/* Who frees a receive must see to it that something comes; what does not come is not waited for
 * without end. */
void core_requests_finish(void)
{
	static const uint64_t patience = 2000000000; /* ns */
	uint64_t since = util_now();

	while (freed && util_now() - since < patience)
		look_at_freed();
}

int core_request_Request_free(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_message *message = take_one(request);
	int result;

	look_at_freed();
	if (!message)
		return next(request);
	if (message->persistent && !message->active) {
		result = next(request);
		forget(message);
		return result;
	}
	pthread_mutex_lock(&lock);
	message->next = freed;
	freed = message;
	pthread_mutex_unlock(&lock);
	*request = MPI_REQUEST_NULL;
	return MPI_SUCCESS;
}

/* ---- one request ---- */

/* The call has ended with the request complete, or with an error. Returns MPI's result. */
static int complete(struct core_mpi_message *message, const MPI_Request *request, int result,
		    const MPI_Status *status)
{
	enum util_status copied = UTIL_OK;

	if (result == MPI_SUCCESS) {
		arrive(message, status);
		copied = core_dense_wait(&message->recv.dense);
	} else if (!message->persistent && *request != MPI_REQUEST_NULL) {
		put_back(message);
		return result;
	}
	end(message, request);
	return copied == UTIL_OK ? result : core_mpi_raise_on(MPI_COMM_WORLD, copied);
}

int core_request_Wait(int (*next)(MPI_Request *, MPI_Status *), MPI_Request *request,
		      MPI_Status *status)
{
	struct core_mpi_message *message = take_one(request);
	MPI_Status own;

	look_at_freed();
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

	look_at_freed();
	if (!message)
		return next(request, flag, status);
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(request, flag, status);
	if (result != MPI_SUCCESS || *flag)
		return complete(message, request, result, status);
	put_back(message);
	return result;
}

/* Nothing is completed, so the entry stays. */
int core_request_Request_get_status(int (*next)(MPI_Request, int *, MPI_Status *),
				    MPI_Request request, int *flag, MPI_Status *status)
{
	struct core_mpi_message *message = take_one(&request);
	enum util_status copied = UTIL_OK;
	MPI_Status own;
	int result;

	if (!message)
		return next(request, flag, status);
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(request, flag, status);
	if (result == MPI_SUCCESS && *flag) {
		arrive(message, status);
		copied = core_dense_wait(&message->recv.dense);
	}
	put_back(message);
	return copied == UTIL_OK ? result : core_mpi_raise_on(MPI_COMM_WORLD, copied);
}

/* ---- several ---- */

/* The requests of a call, those of ours among them, and statuses for all. */
struct several {
	int count, ours;
	struct core_mpi_message **messages; /* NULL: not ours */
	MPI_Status *statuses;
	struct core_mpi_message *few_messages[FEW];
	MPI_Status few_statuses[FEW];
};

static void close_several(struct several *all)
{
	if (all->messages != all->few_messages)
		free(all->messages);
	if (all->statuses != all->few_statuses)
		free(all->statuses);
}

/* False: no memory. */
static bool take_several(struct several *all, int count, const MPI_Request requests[])
{
	size_t num = count > 0 ? (size_t)count : 0;
	bool few = num <= FEW;

	look_at_freed();
	all->count = (int)num;
	all->ours = 0;
	all->messages = few ? all->few_messages : malloc(num * sizeof(struct core_mpi_message *));
	all->statuses = few ? all->few_statuses : malloc(num * sizeof(MPI_Status));
	if (!all->messages || !all->statuses) {
		close_several(all);
		return false;
	}
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < num; i++) {
		all->messages[i] = requests[i] == MPI_REQUEST_NULL ? NULL : take(requests[i]);
		all->ours += all->messages[i] != NULL;
	}
	pthread_mutex_unlock(&lock);
	return true;
}

/* What is left of them was not completed. */
static void put_back_several(struct several *all)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < all->count; i++) {
		if (all->messages[i])
			put(all->messages[i]);
	}
	pthread_mutex_unlock(&lock);
	close_several(all);
}

/* Let what has come to those that arrived be unpacked, some at a time. */
static enum util_status unpack_several(struct several *all)
{
	enum util_status status = UTIL_OK, one;

	for (int first = 0, last; first < all->count; first = last) {
		int begun = 0;

		for (last = first; last < all->count && begun < MOST_COPIES; last++) {
			struct core_mpi_message *message = all->messages[last];

			if (message && message->recv.dense.state != CORE_DENSE_IDLE) {
				core_dense_progress(&message->recv.dense);
				begun++;
			}
		}
		for (int i = first; i < last; i++) {
			one = all->messages[i] ? core_dense_wait(&all->messages[i]->recv.dense)
					       : UTIL_OK;
			status = one != UTIL_OK ? one : status;
		}
	}
	return status;
}

/* Whether request i is complete after a call on all of them, and well. */
static bool has_ended(int result, const MPI_Status *status, bool *well)
{
	int error = result == MPI_ERR_IN_STATUS ? status->MPI_ERROR : result;

	*well = error == MPI_SUCCESS;
	return *well || (result == MPI_ERR_IN_STATUS && error != MPI_ERR_PENDING);
}

static int complete_all(struct several *all, MPI_Request requests[], const MPI_Status *statuses,
			int result)
{
	enum util_status copied;
	bool well;

	for (int i = 0; i < all->count; i++) {
		if (all->messages[i] && has_ended(result, &statuses[i], &well) && well)
			arrive(all->messages[i], &statuses[i]);
	}
	copied = unpack_several(all);
	for (int i = 0; i < all->count; i++) {
		if (!all->messages[i] || !has_ended(result, &statuses[i], &well))
			continue;
		end(all->messages[i], &requests[i]);
		all->messages[i] = NULL;
	}
	put_back_several(all);
	return copied == UTIL_OK ? result : core_mpi_raise_on(MPI_COMM_WORLD, copied);
}

int core_request_Waitall(int (*next)(int, MPI_Request[], MPI_Status[]), int count,
			 MPI_Request requests[], MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, count, requests))
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
	if (all.ours && statuses == MPI_STATUSES_IGNORE)
		statuses = all.statuses;
	result = next(count, requests, statuses);
	return complete_all(&all, requests, statuses, result);
}

int core_request_Testall(int (*next)(int, MPI_Request[], int *, MPI_Status[]), int count,
			 MPI_Request requests[], int *flag, MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, count, requests))
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
	if (all.ours && statuses == MPI_STATUSES_IGNORE)
		statuses = all.statuses;
	result = next(count, requests, flag, statuses);
	if (result != MPI_SUCCESS || *flag)
		return complete_all(&all, requests, statuses, result);
	put_back_several(&all);
	return result;
}

/* The others go back before the one is unpacked, which takes time. */
static int complete_any(struct several *all, MPI_Request requests[], int index, int result,
			const MPI_Status *status)
{
	bool ours = index >= 0 && index < all->count && all->messages[index];
	struct core_mpi_message *message = ours ? all->messages[index] : NULL;

	if (ours)
		all->messages[index] = NULL;
	put_back_several(all);
	return ours ? complete(message, &requests[index], result, status) : result;
}

int core_request_Waitany(int (*next)(int, MPI_Request[], int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, MPI_Status *status)
{
	struct several all;
	MPI_Status own;
	int result;

	if (!take_several(&all, count, requests))
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
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

	if (!take_several(&all, count, requests))
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
	*indx = MPI_UNDEFINED;
	status = status == MPI_STATUS_IGNORE ? &own : status;
	result = next(count, requests, indx, flag, status);
	return complete_any(&all, requests, *flag || result != MPI_SUCCESS ? *indx : MPI_UNDEFINED,
			    result, status);
}

/* The k-th status is of request indices[k]. */
static int complete_some(struct several *all, MPI_Request requests[], int outcount,
			 const int indices[], const MPI_Status *statuses, int result)
{
	enum util_status copied;
	bool well;

	if (outcount == MPI_UNDEFINED || (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS))
		outcount = 0;
	for (int k = 0; k < outcount; k++) {
		struct core_mpi_message *message = all->messages[indices[k]];

		if (message && has_ended(result, &statuses[k], &well) && well)
			arrive(message, &statuses[k]);
	}
	copied = unpack_several(all);
	for (int k = 0; k < outcount; k++) {
		int i = indices[k];

		if (!all->messages[i] || !has_ended(result, &statuses[k], &well))
			continue;
		end(all->messages[i], &requests[i]);
		all->messages[i] = NULL;
	}
	put_back_several(all);
	return copied == UTIL_OK ? result : core_mpi_raise_on(MPI_COMM_WORLD, copied);
}

int core_request_Waitsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[])
{
	struct several all;
	int result;

	if (!take_several(&all, incount, requests))
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
	if (all.ours && statuses == MPI_STATUSES_IGNORE)
		statuses = all.statuses;
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
	return core_mpi_message_pack(message);
}

int core_request_Start(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_message *message = take_one(request);
	enum util_status status = UTIL_OK;
	int result;

	look_at_freed();
	if (!message)
		return next(request);
	if (!message->active)
		status = prepare_start(message);
	if (status != UTIL_OK) {
		put_back(message);
		return core_mpi_raise_on(MPI_COMM_WORLD, status);
	}
	result = next(request);
	message->active |= result == MPI_SUCCESS;
	put_back(message);
	return result;
}

int core_request_Startall(int (*next)(int, MPI_Request[]), int count, MPI_Request requests[])
{
	enum util_status status = UTIL_OK;
	struct several all;
	int result;

	if (!take_several(&all, count, requests))
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
	for (int i = 0; i < all.count && status == UTIL_OK; i++) {
		if (all.messages[i] && !all.messages[i]->active)
			status = prepare_start(all.messages[i]);
	}
	if (status != UTIL_OK) {
		put_back_several(&all);
		return core_mpi_raise_on(MPI_COMM_WORLD, status);
	}
	result = next(count, requests);
	for (int i = 0; i < all.count; i++) {
		if (all.messages[i])
			all.messages[i]->active |= result == MPI_SUCCESS;
	}
	put_back_several(&all);
	return result;
}
