/* SPDX-License-Identifier: BSD-3-Clause */
/* How this process comes to the memory that the members of its node offer. */
#ifndef CORE_REACH_H
#define CORE_REACH_H

#include "core/accel/core_accel_call.h"

/* From here on the call may map memory. */
void core_reach_enter(struct core_accel *accel);

/* From here on it maps none. */
void core_reach_leave(struct core_accel *accel);

/*
 * Whether descriptors of this process get to all of the communicator's members on this node, as far
 * as it knows. NULL: there are none. Thread-safe.
 */
bool core_reach_passes_descriptors(const struct core_comm *comm);

/*
 * The offers are there: map what they name, and in a vote pass on the descriptors of this rank's
 * memory and prove what was mapped. UTIL_OK: this rank has all that it needs for the call.
 * UTIL_IN_PROGRESS: not yet.
 */
enum util_status core_reach_prepare(struct core_accel *accel);

/*
 * A vote is over, and all that was sent for it has come: what nobody has asked for is of memory
 * that was mapped already, and keeps that memory.
 */
void core_reach_drop_descriptors(struct core_accel *accel);

/*
 * After a vote that was won: all have mapped all that was offered, and nothing else is sure where
 * somebody forgot.
 */
void core_reach_learn(struct core_accel *accel);

/*
 * The call is agreed on: take the mappings that it needs. What a vote found to be in reach is so
 * still, unless it was dropped in between.
 */
void core_reach_again(struct core_accel *accel);

/* Whether something that a vote found to be in reach was dropped since. */
bool core_reach_has_lost(const struct core_accel *accel);

#endif
