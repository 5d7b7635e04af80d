/* SPDX-License-Identifier: BSD-3-Clause */
/* The queues of communicators (core_queue.h), and which have something in them. Thread-safe. */
#ifndef CORE_QUEUE_LIST_H
#define CORE_QUEUE_LIST_H

#include "core/core_op.h"

/* One that is queued; embedded in what the application's request stands for. */
struct core_queued {
	struct core_op op;
	struct core_queued *next;
	/*
	 * It has ended with `status`, and has been finished: tell MPI so. Called by a thread of the
	 * application, after which the queue knows nothing of it.
	 */
	void (*complete)(struct core_queued *queued);
	enum util_status status;
	bool raised; /* the error handler was called */
	bool ended;
	uint64_t ticket; /* of all that were queued, the first has 1 */
	bool held;       /* a thread calls MPI for it; and inside the call for that one: */
	struct core_queued *outer; /* NULL: inside none */
	uint64_t since;            /* when it was called for */
};

/* Whether something is queued. */
bool core_queue_list_any(void);

/* Put it at the end of its communicator's queue, with the next ticket. */
void core_queue_list_append(struct core_queued *queued);

/*
 * By who drives. Returns the next one. If there is none the communicator may be gone.
 * Release: who finds the queue empty finds what was done for the last call done.
 */
struct core_queued *core_queue_list_remove_head(struct core_comm *comm);

/*
 * By who drives: the communicator behind this one among those that have something queued; NULL: the
 * first. NULL: there is none. Those that had nothing before stand first.
 */
struct core_comm *core_queue_list_next(const struct core_comm *comm);

/* The ticket that was drawn last. */
uint64_t core_queue_list_newest(void);

/*
 * Whether the oldest call of a queue, of that of `of` or, NULL, of any, has a ticket up to this
 * one, and is none that `leaves_out` names, which is called under a lock.
 */
bool core_queue_list_has(const struct core_comm *of, uint64_t newest,
			 bool (*leaves_out)(const struct core_queued *queued));

#endif
