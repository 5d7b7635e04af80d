/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rounds of a call on which all have agreed: a kernel, and beside it the copies into and out of
 * windows, one round where there are none; and its end. What fails is kept in `result`, and the
 * states are gone through all the same, as the others may wait for this rank.
 */
#ifndef CORE_ACCEL_ROUNDS_H
#define CORE_ACCEL_ROUNDS_H

#include "core/accel/core_accel_call.h"

/* The call comes to the state, which the journal notes. */
void core_accel_go(struct core_accel *accel, enum core_accel_state state);

/* Begin the first round, with copies into the window, if there is one. */
void core_accel_begin(struct core_accel *accel);

/* The round's kernel, and beside it, in the other half of the windows, copies. */
void core_accel_start_round(struct core_accel *accel);

/* What comes after the meeting at the end. */
void core_accel_start_last(struct core_accel *accel);

/*
 * UTIL_IN_PROGRESS, or UTIL_OK when there is nothing more to wait for. Also after an error: what
 * was started uses memory that goes to other calls when this one ends.
 */
enum util_status core_accel_wait_for_steps(struct core_accel *accel);
enum util_status core_accel_wait_for_copies(struct core_accel *accel);

/* The same: messages to other nodes move no further when this process has left. */
enum util_status core_accel_drain(struct core_accel *accel);

/* Tell the others that this rank's windows are filled for the round. */
void core_accel_muster(struct core_accel *accel);

/* The round is done: the next one, or the end of this rank's part. */
void core_accel_end_round(struct core_accel *accel);

#endif
