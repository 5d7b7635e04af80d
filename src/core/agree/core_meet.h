/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far the members of a communicator are: which calls they are past, what they say of one on the
 * way, and where in it they wait for each other. Each member has words on the board that it alone
 * writes, and the others read.
 */
#ifndef CORE_MEET_H
#define CORE_MEET_H

#include "core/agree/core_area.h"

/*
 * This process is past the call, whatever its path, and touches neither slot nor others' memory for
 * it any more.
 */
void core_meet_pass(struct core_comm *comm, uint64_t call);

/*
 * This process's count of the communicator's calls can't be trusted any more: a call failed here,
 * which the others may not have made. From now on it is past every call, so all are staged.
 */
void core_meet_retire(struct core_comm *comm);

/* Whether the member, which is on this node, is past the call. Any thread. */
bool core_meet_is_past(const struct core_comm *comm, int rank, uint64_t call);

/* Whether all members on this node are past the call. */
bool core_meet_all_passed(struct core_comm *comm, uint64_t call);

/*
 * Tell the others, before core_meet_pass, that this process could not do its part of an
 * accelerated call. core_meet_failed: whether a member did, once all are past the call.
 */
void core_meet_fail(struct core_comm *comm, uint64_t call);
bool core_meet_failed(const struct core_comm *comm, uint64_t call);

/*
 * Tell the others on this node that the communicator has lost a member, for good. Every call that
 * is not done by then fails, and every later one, on all that would have to agree on it: nobody
 * leaves such a call to the real MPI, where it might wait for those who have failed in it.
 * core_meet_is_lost: whether somebody said so. Who sees another past a call that it gave up for
 * that reason, sees the loss too. core_meet_lose_far: by the node's service.
 */
void core_meet_lose(struct core_comm *comm);
bool core_meet_is_lost(const struct core_comm *comm);
void core_meet_lose_far(void *area);

/*
 * Tell the others, before core_meet_pass, that this process cut what came for the root, as more
 * came than it has room for. core_meet_was_cut: whether a member did, once all are past the call,
 * and before this process makes the next one.
 */
void core_meet_cut(struct core_comm *comm, uint64_t call);
bool core_meet_was_cut(const struct core_comm *comm, uint64_t call);

/*
 * Points inside an accelerated call at which all wait for all, numbered from 1. What a member did
 * before it arrived is done for who has seen all arrive.
 */
void core_meet_arrive(struct core_comm *comm, uint64_t call, uint64_t point);
bool core_meet_all_arrived(const struct core_comm *comm, uint64_t call, uint64_t point);

/* A member that has not arrived at the point; -1: all have. */
int core_meet_not_arrived(const struct core_comm *comm, uint64_t call, uint64_t point);

/*
 * Tell all members whether this one's kernels ran together with theirs, once in a call; and what
 * all have told comes to: UTIL_OK or UTIL_IN_PROGRESS. Where anybody found others late all were, as
 * it had given up when these came.
 */
void core_meet_try(struct core_comm *comm, uint64_t call, enum core_together together);
enum util_status core_meet_tried(const struct core_comm *comm, uint64_t call,
				 enum core_together *together);

/*
 * Tell the others, before the answer to a vote, that this process has left its cards with them
 * (core_proof.h). core_meet_has_shown: whether a member on this node has; what it left is there.
 */
void core_meet_show(struct core_comm *comm, uint64_t call);
bool core_meet_has_shown(const struct core_comm *comm, int rank, uint64_t call);

/*
 * The words by which hosts order the steps of an accelerated call (core_steps.h), as kernels do
 * with those in arenas (gpu_program.h): messages written to an incoming link, and read from an
 * outgoing one, above the call's number. core_meet_tell: to the rank, whose link it is; what was
 * done before is done for who has been told.
 */
void core_meet_tell(const struct core_comm *comm, int rank, enum core_meet_words words,
		    unsigned link, uint64_t value);
uint64_t core_meet_told(const struct core_comm *comm, enum core_meet_words words, unsigned link);

/* A member that is not past the call; -1: none. */
int core_meet_behind(const struct core_comm *comm, uint64_t call);

/* Whether all members on this node are past all calls below the number. */
bool core_meet_all_past(struct core_comm *comm, uint64_t calls);

/*
 * By the node's service, of an area on the board: a member on another node could not do its part in
 * the call.
 */
void core_meet_fail_far(void *area, uint64_t call);

#endif
