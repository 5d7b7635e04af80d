/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls to which some ranks bring host buffers, and others device buffers, are staged each time,
 * after those with device buffers have asked the others, which takes far longer than the call over
 * several nodes. So a rank that others had stage calls of one collective again and again stages
 * them without asking, as any rank may, and asks again now and then, in the same call as the
 * others: the first one of that collective after a round number.
 */
#ifndef CORE_MIXED_H
#define CORE_MIXED_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"

/* Whether this process had better stage the call, with its number on the communicator, unasked. */
bool core_mixed_gives_way(struct core_comm *comm, enum core_coll coll, uint64_t number);

/* What became of a call in which it asked: others staged it, or it is accelerated. */
void core_mixed_note(struct core_comm *comm, enum core_coll coll, bool gave_way);

#endif
