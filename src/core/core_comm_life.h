/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The beginning and the end of a communicator's state, with all that hangs on it: a slot on the
 * board, messages, arenas, schedules, choices.
 */
#ifndef CORE_COMM_LIFE_H
#define CORE_COMM_LIFE_H

#include "core/call/core_reason.h"
#include "core/comm/core_comm.h"

/*
 * Why the communicator of these processes can have no slot on boards; CORE_REASON_NONE: it can. All
 * come to the same answer. Then one process of each node takes the slot there before the others
 * begin their states; all are told whether all could, so that they are of one mind.
 */
enum core_reason core_comm_life_why_no_slot(int size, const struct core_member *members);
bool core_comm_life_take_slot(uint64_t id, int size, const struct core_member *members);

/*
 * Make the state. `no_slot`: why there is none for it; CORE_REASON_NONE: there is. NULL: out of
 * memory.
 */
struct core_comm *core_comm_life_begin(uint64_t id, int rank, int size,
				       const struct core_member *members, enum core_reason no_slot);

/* Give back all, when MPI frees the communicator. */
void core_comm_life_end(struct core_comm *comm);

#endif
