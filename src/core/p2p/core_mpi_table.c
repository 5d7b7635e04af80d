/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/p2p/core_mpi_table.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdio.h>

enum { NUM_BUCKETS = 1024 };

uint64_t core_requests_pending; /* entries, in the table or taken out, and freed requests */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_message *table[NUM_BUCKETS]; /* under the lock */

/* The handles in the table lie between these, since it was last empty. Under the lock. */
static size_t num_entries;
static uintptr_t lowest = UINTPTR_MAX, highest;

static size_t bucket_of(MPI_Request request)
{
	uintptr_t word = (uintptr_t)request;

	return (size_t)(word * UTIL_GOLDEN >> 54) % NUM_BUCKETS;
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

static _Thread_local struct core_mpi_message *taken; /* by this thread */

_Thread_local unsigned core_mpi_table_taken_over;

static void note_taken(struct core_mpi_message *message)
{
	message->next = taken;
	taken = message;
}

bool core_mpi_table_has_taken(const struct core_mpi_message *message)
{
	const struct core_mpi_message *one = taken;

	while (one && one != message)
		one = one->next;
	return one != NULL;
}

void core_mpi_table_drop_taken(struct core_mpi_message *message)
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
		core_mpi_table_taken_over++;
	return one;
}

/* Under the lock. What is found is among the taken ones. */
static struct core_mpi_message *take(MPI_Request request, bool inside)
{
	struct core_mpi_message **link = find(request), *message = *link;

	if (!message)
		return inside ? take_over(request) : NULL;
	*link = message->next;
	num_entries--;
	note_taken(message);
	return message;
}

static void put(struct core_mpi_message *message)
{
	core_mpi_table_drop_taken(message);
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

void core_mpi_table_add(struct core_mpi_message *message)
{
	__atomic_fetch_add(&core_requests_pending, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	add(message);
	pthread_mutex_unlock(&lock);
}

void core_mpi_table_forget(struct core_mpi_message *message)
{
	bool found;

	__atomic_fetch_sub(&core_requests_pending, 1, __ATOMIC_RELAXED);
	core_mpi_table_drop_taken(message);
	pthread_mutex_lock(&lock);
	found = message->gone = message->finders > 0;
	pthread_mutex_unlock(&lock);
	if (!found)
		core_mpi_message_free(message);
}

void core_mpi_table_put_back(struct core_mpi_message *message)
{
	pthread_mutex_lock(&lock);
	put(message);
	pthread_mutex_unlock(&lock);
}

bool core_mpi_table_is_inside(void)
{
	return taken != NULL;
}

struct core_mpi_message *core_mpi_table_take_next(const MPI_Request requests[], int count,
						  int *index, bool inside)
{
	struct core_mpi_message *message = NULL;

	pthread_mutex_lock(&lock);
	for (; *index < count; ++*index) {
		/* Most are the application's alone. */
		if (!inside && !may_be_in_table(requests[*index]))
			continue;
		message = take(requests[*index], inside);
		if (message)
			break;
	}
	pthread_mutex_unlock(&lock);
	return message;
}

struct core_mpi_message *core_mpi_table_take(MPI_Request request)
{
	struct core_mpi_message *message;

	pthread_mutex_lock(&lock);
	message = take(request, taken != NULL);
	pthread_mutex_unlock(&lock);
	return message;
}

struct core_mpi_message *core_mpi_table_find(MPI_Request request)
{
	struct core_mpi_message *message;

	pthread_mutex_lock(&lock);
	message = *find(request);
	message = message ? message : find_taken(request);
	if (message)
		message->finders++;
	pthread_mutex_unlock(&lock);
	return message;
}

void core_mpi_table_release(struct core_mpi_message *message)
{
	bool gone;

	pthread_mutex_lock(&lock);
	gone = --message->finders == 0 && message->gone;
	pthread_mutex_unlock(&lock);
	if (gone)
		core_mpi_message_free(message);
}

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
