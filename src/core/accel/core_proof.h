/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether what is mapped of another device's memory can be believed.
 *
 * The driver says that devices can map each other's memory by what they are capable of. Where PCI
 * Express ACS sends such accesses to an IOMMU that translates, and in some virtual machines,
 * mapping succeeds as well, and then stores vanish and loads return anything, without an error. So
 * before two processes on different devices believe it they try, once, in the first vote in which
 * they meet (gpu_verify.cu):
 *
 *     each offers cards in its device's memory, with its own on top;
 *     each leaves its card in the other's memory, by a kernel and by a copy, and reads the other's;
 *     each says so on the board;
 *     each looks at what has come.
 *
 * If any of it is not as it should be, for one of the two, neither reaches the other's memory
 * (comm->voted.reach), on this communicator and every later one: messages go through pinned memory
 * of the host. No call but a vote has anything to do with it.
 *
 * Both ends must come to the same answer to whether a pair is to be tried, or one waits for a
 * trial that the other does not make. It follows from the offers alone: their devices differ, and
 * both say that they show their cards. What a process knows from an earlier vote was found out by
 * both of a pair in that vote, so both know it; only where other threads of the two have just
 * finished that vote on another communicator may one still show its cards and the other not. Then
 * the call is staged, and tried again in the next one.
 */
#ifndef CORE_PROOF_H
#define CORE_PROOF_H

#include "core/accel/core_accel_call.h"

/*
 * Add this process's cards to the offer, if there may be somebody who has to see them. Sets
 * accel->clearing where the stream writes them. UTIL_STAGE: the call is to be staged; an error: the
 * stream failed.
 */
enum util_status core_proof_offer(struct core_accel *accel);

/*
 * In a vote, once what is offered is mapped. UTIL_OK: accel->reached.kinds has only what works.
 * UTIL_IN_PROGRESS; an error: the call is to be staged.
 */
enum util_status core_proof_progress(struct core_accel *accel);

/* Whether the stream is done with it; before the call may end. UTIL_OK or UTIL_IN_PROGRESS. */
enum util_status core_proof_settle(struct core_accel *accel);

/*
 * After a vote in which the call was staged: perhaps for a trial of which only some see that it is
 * missing. In the next call all look again who has to see their cards.
 */
void core_proof_doubt(struct core_accel *accel);

/* After a vote that was won: remember what it has shown. */
void core_proof_learn(struct core_accel *accel);

/* A member whose trial is waited for; -1: none. */
int core_proof_missing(const struct core_accel *accel);

/* Forget all. No call may be under way. */
void core_proof_stop(void);

#endif
