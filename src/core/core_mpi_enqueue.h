/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that are enqueued on communicators for streams (core_mpi_bound.h). Under the door's guard.
 * They return MPI's code, and have raised an error on the communicator that they were given.
 */
#ifndef CORE_MPI_ENQUEUE_H
#define CORE_MPI_ENQUEUE_H

#include "core/call/core_call.h"
#include "core/call/core_hooks.h"
#include "core/call/core_message_part.h"
#include "core/p2p/core_message.h"

/*
 * Enqueue a collective, whose `real` is the nonblocking form's function and `name` the call's; or a
 * message, of the kind CORE_ISEND or CORE_IRECV. Thread-safe.
 */
int core_enqueue_run(const struct core_call *call, void *stream);
int core_enqueue_message(const struct core_message_call *call, const char *name, void *stream);

/*
 * Whether groups of messages on the communicator are kernels, as all its ranks find alike; such a
 * group, whose messages of a pair of ranks are received in the order in which they are sent. `name`
 * is of static storage. The parts stay the caller's.
 */
bool core_enqueue_takes_groups(core_handle comm);
int core_enqueue_group(const struct core_message_part *parts, int num, const char *name,
		       core_handle comm, void *stream);

/* No more is to come of this rank on the communicator: what others' kernels wait for is given up.
 */
void core_enqueue_give_up(core_handle comm);

/* The next collective that this thread enqueues has them. */
void core_enqueue_hook(const struct core_hooks *hooks);

#endif
