/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking collectives on their way. Those of a communicator queue up: the oldest one agrees
 * with the other ranks on its path, those behind it wait. What is accelerated is done when it
 * leaves the queue; what is to be staged leaves it when the real MPI has got its own nonblocking
 * call, in the order in which they stand, which is the same on all ranks.
 *
 * They are driven by the application's threads, in calls of MPI that wait, and by a thread of the
 * library (core_progress.h) that makes no MPI calls. One thread drives at a time, and a thread that
 * finds another one at it goes on with something else.
 *
 * What consumes the order of the real MPI's calls on a communicator, or waits in the real MPI,
 * yields before: calls that are not decided are staged, and issued. test/model/queue.pml is the
 * model of this.
 */
#ifndef CORE_QUEUE_H
#define CORE_QUEUE_H

#include "core/core_queue_list.h"

/* By core_start: from here on calls can queue. */
void core_queue_start(void);

/* By core_stop. */
void core_queue_stop(void);

/* Whether calls on the communicator can queue. */
bool core_queue_takes(const struct core_comm *comm);

/*
 * Put the operation, which has been started, into its communicator's queue; core_drive_begin is to
 * follow.
 */
void core_queue_add(struct core_queued *queued);

/*
 * Whether calls wait in the communicator's queue. False: all that was done for them happened
 * before.
 */
static inline bool core_queue_holds(const struct core_comm *comm)
{
	return __atomic_load_n(&comm->queue.head, __ATOMIC_ACQUIRE) != NULL;
}

/*
 * Return when nothing waits in the communicator's queue any more; NULL: in any. For a moment they
 * may still be agreed on. After that those that are not are staged.
 */
void core_queue_yield(struct core_comm *comm);

/*
 * MPI frees the communicator: yield, and `end` it; where this comes from an error handler in a call
 * for the oldest one in its queue, when that has returned.
 */
void core_queue_close(struct core_comm *comm, void (*end)(struct core_comm *comm));

/* What the call waits for, or the oldest one in its queue, into `text`. */
void core_queue_describe(const struct core_queued *queued, char *text, size_t bytes);

/* What the oldest one in the communicator's queue waits for, into `text`. */
void core_queue_describe_first(const struct core_comm *comm, char *text, size_t bytes);

#endif
