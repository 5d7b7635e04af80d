/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library knows of a communicator that has an identity: one whose constructor was a
 * wrapped, collective call. Hangs on the communicator as an attribute, so it ends when MPI frees
 * the communicator.
 */
#ifndef CORE_COMM_H
#define CORE_COMM_H

#include "core/core_board.h"

#include <stdatomic.h>

struct core_comm {
	uint64_t id; /* unique in the job: the drawing rank in the upper half, from 1 */
	struct core_board_slot *slot; /* NULL: the board is full or not there */
	/* Collective calls of this process. MPI has them made one at a time; atomic since thread
	 * may follow thread. */
	_Atomic uint64_t calls;
};

/* Make the state of a communicator with `local_members` processes on this node. NULL: out of
 * memory. */
struct core_comm *core_comm_create(uint64_t id, uint32_t local_members);
void core_comm_destroy(struct core_comm *comm);

/* Count one call and publish it: "past it" for all who read the board. */
static inline void core_comm_pass(struct core_comm *comm)
{
	uint64_t calls = atomic_fetch_add_explicit(&comm->calls, 1, memory_order_relaxed) + 1;

	if (comm->slot)
		core_board_publish(comm->slot, calls);
}

#endif
