/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls to which some ranks bring host buffers, and others device buffers, are staged each time,
 * after those with device buffers have asked the others. So a rank that others had stage short
 * calls of one collective again and again stages them without asking, as any rank may. Which calls
 * it asks in all the same follows from their numbers, so that ranks that have come to that find
 * each other when all bring device buffers.
 */
#ifndef CORE_MIXED_H
#define CORE_MIXED_H

#include "core/call/core_shape.h"
#include "core/comm/core_comm.h"

/* Whether others had this process stage such calls so often that it is a habit. */
bool core_mixed_is_habit(const struct core_comm *comm, const struct core_shape *shape);

/*
 * Whether a call of that number is one in which a rank asks in spite of the habit. Then all have to
 * wait for others that are far behind, also those that have no habit, as a root whose staged calls
 * let it run ahead would else never meet them.
 */
bool core_mixed_asks(uint64_t number);

/* What became of a call: others staged it, or it is accelerated. */
void core_mixed_note(struct core_comm *comm, enum core_coll coll, bool gave_way);

#endif
