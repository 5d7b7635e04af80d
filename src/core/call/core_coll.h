/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives as schedules know them. */
#ifndef CORE_COLL_H
#define CORE_COLL_H

#include "algos/sched.h"
#include "core/call/core_call.h"

enum sched_coll core_coll_sched(enum core_coll coll);

/* Whether the collective's blocks may differ in size. */
bool core_coll_sizes_differ(enum core_coll coll);

/* Whether it combines values by an operation. */
static inline bool core_coll_reduces(enum core_coll coll)
{
	return (coll > CORE_BCAST && coll <= CORE_EXSCAN) || coll == CORE_REDUCE_LOCAL;
}

#endif
