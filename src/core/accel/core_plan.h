/* SPDX-License-Identifier: BSD-3-Clause */
/* From the members' offers to a schedule, and from its steps to launches. */
#ifndef CORE_PLAN_H
#define CORE_PLAN_H

#include "core/accel/core_accel_call.h"

/*
 * Choose the algorithm, take its schedule, and decide on the rounds, from all members' offers.
 * UTIL_ERR_UNSUPPORTED: it can't be done, which all find alike, and is to be staged.
 */
enum util_status core_plan_make(struct core_accel *accel);

/*
 * Begin this rank's steps: those of the round in the first phase; those of the second phase, for
 * all rounds, which concern its own memory. Sets `running` where there is something to do.
 */
enum util_status core_plan_begin(struct core_accel *accel);
enum util_status core_plan_begin_last(struct core_accel *accel);

/*
 * Put on the stream of copies those of a round's slice between this rank's buffers and its windows.
 */
enum util_status core_plan_fill(struct core_accel *accel, uint64_t round);
enum util_status core_plan_drain(struct core_accel *accel, uint64_t round);

#endif
