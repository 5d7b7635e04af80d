/* SPDX-License-Identifier: BSD-3-Clause */
/* From the members' offers to a schedule. */
#ifndef CORE_PLAN_H
#define CORE_PLAN_H

#include "core/accel/core_accel_call.h"

/*
 * Choose the algorithm, take its schedule, and decide on the rounds, from all members' offers.
 * UTIL_STAGE: it can't be done, which all find alike, and is to be staged.
 */
enum util_status core_plan_make(struct core_accel *accel);

/*
 * The same of an enqueued call, from its facts alone: an algorithm by which ranks touch nobody's
 * buffers, and kernels wait for each other.
 */
enum util_status core_plan_make_enqueued(struct core_accel *accel);

#endif
