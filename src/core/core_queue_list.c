/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_queue_list.h"

#include <pthread.h>

/* Held for moments only: the application appends, and only who drives takes out. */
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;
static struct core_comm *busy; /* with something in the queue. Changed under `lists` */
static uint64_t tickets;       /* drawn. Under `lists` */

bool core_queue_list_any(void)
{
	return __atomic_load_n(&busy, __ATOMIC_ACQUIRE) != NULL;
}

void core_queue_list_append(struct core_queued *queued)
{
	struct core_comm *comm = queued->op.comm;

	queued->next = NULL;
	pthread_mutex_lock(&lists);
	queued->ticket = ++tickets;
	if (comm->queue.head) {
		comm->queue.tail->next = queued;
	} else {
		__atomic_store_n(&comm->queue.head, queued, __ATOMIC_RELEASE);
		comm->queue.next = busy;
		__atomic_store_n(&busy, comm, __ATOMIC_RELEASE);
	}
	comm->queue.tail = queued;
	pthread_mutex_unlock(&lists);
}

struct core_queued *core_queue_list_remove_head(struct core_comm *comm)
{
	struct core_comm **link = &busy;
	struct core_queued *next;

	pthread_mutex_lock(&lists);
	next = comm->queue.head->next;
	while (!next && *link != comm)
		link = &(*link)->queue.next;
	if (!next)
		__atomic_store_n(link, comm->queue.next, __ATOMIC_RELEASE);
	__atomic_store_n(&comm->queue.head, next, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lists);
	if (!next && comm->queue.end)
		comm->queue.end(comm);
	return next;
}

struct core_comm *core_queue_list_next(const struct core_comm *comm)
{
	struct core_comm *next;

	pthread_mutex_lock(&lists);
	next = comm ? comm->queue.next : busy;
	pthread_mutex_unlock(&lists);
	return next;
}

bool core_queue_list_has(const struct core_comm *of, uint64_t newest,
			 bool (*leaves_out)(const struct core_queued *queued))
{
	bool found = false;

	pthread_mutex_lock(&lists);
	for (const struct core_comm *comm = busy; comm && !found; comm = comm->queue.next) {
		const struct core_queued *head = comm->queue.head;

		found = (!of || of == comm) && head->ticket <= newest && !leaves_out(head);
	}
	pthread_mutex_unlock(&lists);
	return found;
}

uint64_t core_queue_list_newest(void)
{
	uint64_t newest;

	pthread_mutex_lock(&lists);
	newest = tickets;
	pthread_mutex_unlock(&lists);
	return newest;
}
