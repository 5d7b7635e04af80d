/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that are bound to a stream of the application's, and the calls that are enqueued on
 * them (gpucoll.h; src/core/stream). Under the door's guard. All return MPI's code, and have raised
 * an error on the communicator that they were given.
 */
#ifndef CORE_MPI_ENQUEUE_H
#define CORE_MPI_ENQUEUE_H

#include "core/call/core_call.h"
#include "core/call/core_hooks.h"
#include "core/p2p/core_message.h"

/* Make a duplicate of the communicator for a stream, by its handle. Collective. */
int core_enqueue_open(core_handle comm, void *stream, core_handle *newcomm);

/*
 * Enqueue a collective, whose `real` is the nonblocking form's function and `name` the call's; or a
 * message, of the kind CORE_ISEND or CORE_IRECV. Thread-safe.
 */
int core_enqueue_run(const struct core_call *call, void *stream);
int core_enqueue_message(const struct core_message_call *call, const char *name, void *stream);

/* Two numbers for a barrier on it: what is added up, and where the sum, which nobody reads, goes.
 */
void core_enqueue_barrier_words(core_handle comm, const int **from, int **to);

/* The next collective that this thread enqueues has them. */
void core_enqueue_hook(const struct core_hooks *hooks);

/* The code of the first enqueued call that failed since this was last asked, or MPI_SUCCESS. */
int core_enqueue_take_error(core_handle comm, int *error);

/* The communicator is about to be freed: what is enqueued on it ends before. Any communicator. */
void core_enqueue_end(core_handle comm);

/* Before MPI_Finalize: the same of all that are left. */
void core_enqueue_stop(void);

#endif
