/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement of the nodes of a communicator on the path of a call.
 *
 * On each node the members agree as everywhere (core_agree.h), on one of two things: somebody there
 * stages the call, or the node is ready for it, which it can't take back. One member of each node
 * that is ready, its speaker, tells the others so, with what the offers come to, and, if all that
 * it has heard of have made them, the records of inputs (core_eager.h), in a dissemination: in
 * round k node i sends to node i + 2^k what it knows of itself and the 2^k - 1 before it, so after
 * log2(n) rounds all have heard of all. The call is accelerated where all are ready; nobody can
 * have heard of all where one is not.
 *
 * Members that stage look at nobody and tell nobody. So a speaker that has waited for a while asks
 * the services of the other nodes (core_service.h), who look at their boards and answer when
 * somebody there stages it.
 *
 * In a nonblocking call a node that is ready can take that back, until the first node's speaker has
 * heard of all and promises that the call is accelerated (core_promise.h), which goes to the others
 * along a tree. A member that can't wait so long asks the first node's service to have the call
 * staged; so does who is told that somebody stages it. What is first on that node's board decides.
 *
 * A node may be ready for a call while on another, members go ahead on host buffers, and receive
 * nothing for long. So that messages don't pile up there, they are acknowledged now and then, and
 * who has too many underway stages calls.
 *
 * Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988.
 * test/model/nodes.pml is the model of this.
 */
#ifndef CORE_NODES_H
#define CORE_NODES_H

#include "core/agree/core_agree.h"

/* What this process keeps of it for a communicator of several nodes. NULL: no memory. */
struct core_nodes *core_nodes_create(const struct core_comm *comm);

/* Free it. NULL is allowed. */
void core_nodes_free(struct core_nodes *nodes);

/*
 * Whether the speaker has sent so many messages that were not seen that its node had better stage
 * the call.
 */
bool core_nodes_has_too_many(const struct core_comm *comm);

/* Whether the speaker has begun its part in the call. */
bool core_nodes_has_begun(const struct core_agree *agree);

/*
 * Begin it, once, after CORE_AGREE_READY. `flags`: what is true of the node, besides the flags that
 * all its members' offers have.
 */
void core_nodes_begin(const struct core_agree *agree, uint32_t flags);

/*
 * Go on. UTIL_OK: the call is settled (core_agree_settle). UTIL_ERR_PEER: a member failed or is
 * lost, or its message was damaged; the call is settled then, too. UTIL_IN_PROGRESS.
 */
enum util_status core_nodes_progress(struct core_agree *agree);

/*
 * Take back, of a nonblocking call, that this node is ready, by any of its members: while it is
 * CORE_AGREE_READY call this again, which tells what comes of it.
 */
void core_nodes_take_back(struct core_agree *agree);

/*
 * Tell the other nodes that this process could not do its part in the call, or that the
 * communicator has lost a member.
 */
void core_nodes_tell_failure(struct core_comm *comm, uint64_t call);

/* The same of the communicator with the id, of the same members, which was revoked. */
void core_nodes_tell_revoked(struct core_comm *comm, uint64_t id);

/* Whether all that was told has left. */
bool core_nodes_has_told(const struct core_comm *comm);

/* A member that is waited for, for reports of long waits; -1: none. */
int core_nodes_missing(const struct core_comm *comm);

/* Have messages for it come here; before the network is up. */
void core_nodes_handle_mail(void);

#endif
