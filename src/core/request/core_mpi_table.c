/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/request/core_mpi_table.h"
#include "core/mpi/core_mpi_raise.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdio.h>

enum { NUM_BUCKETS = 1024 };

uint64_t core_requests_pending; /* entries, in the table or taken out, and freed requests */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_pending *table[NUM_BUCKETS]; /* under the lock */

/* The handles in the table lie between these, since it was last empty. Under the lock. */
static size_t num_entries;
static uintptr_t lowest = UINTPTR_MAX, highest;

static size_t bucket_of(MPI_Request request)
{
	uintptr_t word = (uintptr_t)request;

	return (size_t)(word * UTIL_GOLDEN >> 54) % NUM_BUCKETS;
}

static void add_pending(struct core_mpi_pending *pending)
{
	struct core_mpi_pending **bucket = &table[bucket_of(pending->request)];
	uintptr_t word = (uintptr_t)pending->request;

	pending->next = *bucket;
	*bucket = pending;
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

static struct core_mpi_pending **find_pending(MPI_Request request)
{
	struct core_mpi_pending **link = &table[bucket_of(request)];

	while (*link && (*link)->request != request)
		link = &(*link)->next;
	return link;
}

static _Thread_local struct core_mpi_pending *taken; /* by this thread */

_Thread_local unsigned core_mpi_table_taken_over;

static void note_taken(struct core_mpi_pending *pending)
{
	pending->next = taken;
	taken = pending;
}

bool core_mpi_table_has_taken(const struct core_mpi_pending *pending)
{
	const struct core_mpi_pending *one = taken;

	while (one && one != pending)
		one = one->next;
	return one != NULL;
}

void core_mpi_table_drop_taken(struct core_mpi_pending *pending)
{
	struct core_mpi_pending **link = &taken;

	while (*link && *link != pending)
		link = &(*link)->next;
	if (*link)
		*link = pending->next;
}

static struct core_mpi_pending *find_taken(MPI_Request request)
{
	struct core_mpi_pending *one = taken;

	while (one && one->request != request)
		one = one->next;
	return one;
}

static struct core_mpi_pending *take_over(MPI_Request request)
{
	struct core_mpi_pending *one = find_taken(request);

	if (one)
		core_mpi_table_taken_over++;
	return one;
}

/* Under the lock. What is found is among the taken ones. */
static struct core_mpi_pending *take_pending(MPI_Request request, bool inside)
{
	struct core_mpi_pending **link = find_pending(request), *pending = *link;

	if (!pending)
		return inside ? take_over(request) : NULL;
	*link = pending->next;
	num_entries--;
	note_taken(pending);
	return pending;
}

static void put_pending(struct core_mpi_pending *pending)
{
	core_mpi_table_drop_taken(pending);
	add_pending(pending);
}

/* Of a call that was left by a jump. */
void core_requests_left(void)
{
	struct core_mpi_pending *all = taken, *one, *rest = NULL;

	if (!all)
		return;
	core_mpi_table_taken_over++; /* should it be in one, after all, it is to look again */
	pthread_mutex_lock(&lock);
	while ((one = all)) {
		all = one->next;
		if (one->kind->stays) {
			add_pending(one);
			continue;
		}
		one->next = rest;
		rest = one;
	}
	pthread_mutex_unlock(&lock);
	taken = NULL;
	if (!rest)
		return;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "an error handler has left an MPI call that completes requests: what comes for "
		 "those that it was given does not get to device memory");
}

static void add_new(struct core_mpi_pending *pending)
{
	__atomic_fetch_add(&core_requests_pending, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	add_pending(pending);
	pthread_mutex_unlock(&lock);
}

int core_mpi_table_begin(struct core_mpi_pending *pending, MPI_Request request, bool asks)
{
	enum util_status copied;
	MPI_Status status;
	int complete = 0;
	bool quiet;

	pending->request = request;
	if (!asks || pending->persistent ||
	    PMPI_Request_get_status(request, &complete, &status) != MPI_SUCCESS || !complete) {
		add_new(pending);
		return MPI_SUCCESS;
	}
	copied = core_mpi_pending_settle(pending, &status);
	quiet = pending->quiet;
	pending->kind->free(pending);
	return core_mpi_pending_raise(quiet, copied);
}

void core_mpi_table_forget(struct core_mpi_pending *pending)
{
	bool found;

	__atomic_fetch_sub(&core_requests_pending, 1, __ATOMIC_RELAXED);
	core_mpi_table_drop_taken(pending);
	pthread_mutex_lock(&lock);
	found = pending->gone = pending->finders > 0;
	pthread_mutex_unlock(&lock);
	if (!found)
		pending->kind->free(pending);
}

void core_mpi_table_put_back(struct core_mpi_pending *pending)
{
	pthread_mutex_lock(&lock);
	put_pending(pending);
	pthread_mutex_unlock(&lock);
}

bool core_mpi_table_is_inside(void)
{
	return taken != NULL;
}

struct core_mpi_pending *core_mpi_table_take_next(const MPI_Request requests[], int count,
						  int *index, bool inside)
{
	struct core_mpi_pending *pending = NULL;

	pthread_mutex_lock(&lock);
	for (; *index < count; ++*index) {
		/* Most are the application's alone. */
		if (!inside && !may_be_in_table(requests[*index]))
			continue;
		pending = take_pending(requests[*index], inside);
		if (pending)
			break;
	}
	pthread_mutex_unlock(&lock);
	return pending;
}

struct core_mpi_pending *core_mpi_table_take(MPI_Request request)
{
	struct core_mpi_pending *pending;

	pthread_mutex_lock(&lock);
	pending = take_pending(request, taken != NULL);
	pthread_mutex_unlock(&lock);
	return pending;
}

struct core_mpi_pending *core_mpi_table_find(MPI_Request request)
{
	struct core_mpi_pending *pending;

	pthread_mutex_lock(&lock);
	pending = *find_pending(request);
	pending = pending ? pending : find_taken(request);
	if (pending)
		pending->finders++;
	pthread_mutex_unlock(&lock);
	return pending;
}

void core_mpi_table_release(struct core_mpi_pending *pending)
{
	bool gone;

	pthread_mutex_lock(&lock);
	gone = --pending->finders == 0 && pending->gone;
	pthread_mutex_unlock(&lock);
	if (gone)
		pending->kind->free(pending);
}

static const struct core_mpi_pending *older(const struct core_mpi_pending *a,
					    const struct core_mpi_pending *b)
{
	return b && (!a || b->since < a->since) ? b : a;
}

void core_requests_describe(char *text, size_t bytes)
{
	const struct core_mpi_pending *oldest = NULL;
	char which[240];
	size_t num = 0;

	*text = '\0';
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < NUM_BUCKETS; i++) {
		for (const struct core_mpi_pending *one = table[i]; one; one = one->next) {
			if (one->persistent && !one->active)
				continue;
			oldest = older(oldest, one);
			num++;
		}
	}
	for (const struct core_mpi_pending *one = taken; one; one = one->next) {
		if (one->persistent && !one->active)
			continue;
		oldest = older(oldest, one);
		num++;
	}
	if (oldest) {
		oldest->kind->describe(oldest, which, sizeof(which));
		snprintf(text, bytes,
			 "; %zu of this rank's requests %s pending, the oldest for %.0f s: %s %s",
			 num, num == 1 ? "is" : "are", 1e-9 * (double)(util_now() - oldest->since),
			 oldest->name, which);
	}
	pthread_mutex_unlock(&lock);
}

void core_mpi_table_end(struct core_mpi_pending *pending, const MPI_Request *request)
{
	if (*request == MPI_REQUEST_NULL) {
		core_mpi_table_forget(pending);
		return;
	}
	pending->active = false;
	core_mpi_table_put_back(pending);
}

int core_mpi_table_complete(struct core_mpi_pending *pending, const MPI_Request *request,
			    int result, const MPI_Status *status)
{
	enum util_status copied = UTIL_OK;
	bool quiet;

	if (!core_mpi_table_has_taken(pending))
		return result;
	if (result == MPI_SUCCESS) {
		copied = core_mpi_pending_settle(pending, status);
	} else if (core_mpi_leaves_pending(result) ||
		   (!pending->persistent && *request != MPI_REQUEST_NULL)) {
		core_mpi_table_put_back(pending);
		return result;
	}
	quiet = pending->quiet;
	core_mpi_table_end(pending, request);
	return copied == UTIL_OK ? result : core_mpi_pending_raise(quiet, copied);
}
