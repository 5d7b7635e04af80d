/* SPDX-License-Identifier: BSD-3-Clause */
/* Which members of a communicator are lost, or behind after a failure. */
#ifndef CORE_LOST_H
#define CORE_LOST_H

#include "core/agree/core_agree.h"

/*
 * A member who is missed in the call: its process has ended, on this node, and it is not past the
 * call; or the connection to it was lost, or to its node's service, which all on other nodes are
 * if this node's own service has ended. -1: none.
 */
int core_lost_find(const struct core_comm *comm, uint64_t call);

/*
 * Whether processes on other nodes are known to be out of reach among such members: their
 * communicator, of several nodes, is not to be accelerated.
 */
bool core_lost_has_some(int size, const struct core_member *members);

/*
 * Break off the connections to all members on other nodes, so that UCX is done with all that it has
 * of them. They are lost then.
 */
void core_lost_break_off(const struct core_comm *comm);

/*
 * A member on this node that is in the call, which this one knows to have failed; -1: none. Not one
 * whose process has ended, nor one that has not come: it finds the call failed if it does, touches
 * nobody's memory, and may have no reason to come.
 */
int core_lost_find_behind(const struct core_agree *agree);

#endif
