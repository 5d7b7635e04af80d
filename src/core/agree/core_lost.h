/* SPDX-License-Identifier: BSD-3-Clause */
/* Which members of a communicator are lost, or behind after a failure. */
#ifndef CORE_LOST_H
#define CORE_LOST_H

#include "core/agree/core_agree.h"

/*
 * Returns a member that the call will miss, or -1: one on this node whose process has ended before
 * it was past the call; or one on another node to which, or to whose node's service, the connection
 * was lost. If this node's own service has ended, all members on other nodes are missed.
 */
int core_lost_find(const struct core_comm *comm, uint64_t call);

/*
 * Whether some of these processes, on other nodes, are known to be out of reach. A communicator of
 * them is not to be accelerated.
 */
bool core_lost_has_some(int size, const struct core_member *members);

/*
 * In a call in which a member is lost or has failed: returns a member on this node that is still in
 * it, or -1. A member whose process has ended does not count, nor one that has not come: if it does
 * come it finds the call failed, touches nobody's memory, and may have no reason to come at all.
 */
int core_lost_find_behind(const struct core_agree *agree);

#endif
