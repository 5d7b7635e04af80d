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
 * Say that this process is past the call, whatever its path: it touches neither the slot nor
 * others' memory for it any more.
 */
void core_meet_pass(struct core_comm *comm, uint64_t call);

/*
 * Give up counting: a call failed here which the others may not have made. From now on this process
 * is past every call, so all of them are staged.
 */
void core_meet_retire(struct core_comm *comm);

/* Whether the member, which is on this node, is past the call. Any thread. */
bool core_meet_is_past(const struct core_comm *comm, int rank, uint64_t call);

/* Whether some member on this node is past the call. */
bool core_meet_anybody_past(const struct core_comm *comm, uint64_t call);

/* Whether all members on this node are past the call. */
bool core_meet_all_passed(struct core_comm *comm, uint64_t call);

/* Whether all members on this node are past all calls below the number. */
bool core_meet_all_past(struct core_comm *comm, uint64_t calls);

/* Returns a member on this node that is not past the call, or -1. */
int core_meet_behind(const struct core_comm *comm, uint64_t call);

/*
 * Say that this process could not do its part of an accelerated call. Call it before
 * core_meet_pass.
 */
void core_meet_fail(struct core_comm *comm, uint64_t call);

/* The same of a member on another node, by the node's service; `area` is the communicator's. */
void core_meet_fail_far(void *area, uint64_t call);

/*
 * Whether a member could not do its part. Of members here it is final once all are past the call,
 * until one has come to the call that is CORE_AGREE_SLOTS later.
 */
bool core_meet_failed(const struct core_comm *comm, uint64_t call);

/*
 * Say that the communicator has lost a member, for good. Every call that is not done by then fails,
 * and so does every later one, on all members that would have to agree on it. Nobody leaves such a
 * call to the real MPI, where it might wait for those who have failed in it.
 */
void core_meet_lose(struct core_comm *comm);

/* The same of a communicator that is revoked. */
void core_meet_revoke(struct core_comm *comm);

/* One of the two by the node's service; `area` is the communicator's. */
void core_meet_lose_far(void *area, bool revoked);

/*
 * Whether somebody said so. A process that sees another past a call which that one gave up for this
 * reason sees the loss, too.
 */
bool core_meet_is_lost(const struct core_comm *comm);

/* Whether it is so for that it was revoked. */
bool core_meet_is_revoked(const struct core_comm *comm);

/*
 * Say that this process cut what came for the root, because more came than the root has room for.
 * Call it before core_meet_pass.
 */
void core_meet_cut(struct core_comm *comm, uint64_t call);

/* Whether a member did. Ask once all are past the call, and before the next call is made. */
bool core_meet_was_cut(const struct core_comm *comm, uint64_t call);

/*
 * Say that this process has come to a point inside an accelerated call, at which all wait for all.
 * Points are numbered from 1.
 */
void core_meet_arrive(struct core_comm *comm, uint64_t call, uint64_t point);

/* Whether all have. What a member did before it arrived is done then. */
bool core_meet_all_arrived(const struct core_comm *comm, uint64_t call, uint64_t point);

/* Returns a member that has not arrived at the point, or -1. */
int core_meet_not_arrived(const struct core_comm *comm, uint64_t call, uint64_t point);

/* Say whether this process's kernels ran together with the others', once in a call. */
void core_meet_try(struct core_comm *comm, uint64_t call, enum core_together together);

/*
 * What all have said of that. UTIL_OK or UTIL_IN_PROGRESS. If one member found others late the
 * answer is CORE_TOGETHER_LATE: it had given up when they came.
 */
enum util_status core_meet_tried(const struct core_comm *comm, uint64_t call,
				 enum core_together *together);

/*
 * Say that this process has left its cards with the others (core_proof.h). Call it before the
 * answer to the vote.
 */
void core_meet_show(struct core_comm *comm, uint64_t call);

/* Whether the member, which is on this node, has. What it left is there then. */
bool core_meet_has_shown(const struct core_comm *comm, int rank, uint64_t call);

/*
 * Set the word of a link of the rank, which is on this node, to a number above the call's: of
 * messages written to an incoming link (TAILS), or read from an outgoing one (HEADS). By these
 * words hosts order the steps of an accelerated call (core_steps.h), as kernels do by those in
 * arenas (gpu_program.h). What was done before is done for the process that reads the word.
 */
void core_meet_tell(const struct core_comm *comm, int rank, enum core_meet_words words,
		    unsigned link, uint64_t value);

/* The word of a link of this process. */
uint64_t core_meet_told(const struct core_comm *comm, enum core_meet_words words, unsigned link);

#endif
