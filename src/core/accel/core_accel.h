/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The accelerated path: one call carried out by kernels over mapped memory of all members.
 *
 *     OFFER    what this process offers is found out
 *     READY    earlier work on the buffers (late memset and such) finishes
 *     AGREE    the offer is announced; the members' offers are looked at; their memory is mapped
 *     FILL     windows only: the first round's slice of the input is copied into the window
 *     MUSTER   windows only: until all members are ready for the round
 *     TRY      before a fused call, once: do the kernels of ranks that share a GPU run together?
 *     RUN      this rank's kernel; with windows, those of all rounds in turn
 *     MEET     until all are past the call, where ranks reach into others' memory
 *     LAST     copies in this rank's own memory
 *     DONE
 *
 * Up to AGREE the call can still be staged: UTIL_STAGE says that it must be, and `reason`
 * why.
 *
 * Memory that can't be exported (of pools, of the virtual memory API, managed) is offered as a
 * window: memory of our own, through which the call goes slice by slice, in rounds. If one member
 * has a window all go in rounds; who has none moves nothing twice. Rounds use the two halves of the
 * windows in turn: while the kernels of one round work in one half, the result of the last round is
 * copied out of the other, and then the input of the next into it. So a member is ready for a round
 * when its kernel of the round before and its copies beside that are done.
 */
#ifndef CORE_ACCEL_H
#define CORE_ACCEL_H

#include "core/accel/core_accel_call.h"

/*
 * Begin call `number` on `comm`, which may be NULL. UTIL_STAGE: to be staged. Must be
 * finished in any case. Calls MPI functions that are local; the others here call none, and may be
 * called by another thread. Calls of a communicator make progress one after the other.
 */
enum util_status core_accel_start(struct core_accel *accel, const struct core_call *call,
				  struct core_comm *comm, uint64_t number);

/*
 * Do what can be done now. UTIL_OK: done, and this process is past the call. UTIL_STAGE:
 * to be staged, which all members do. Other errors: this process is past the call, which has
 * failed.
 */
enum util_status core_accel_progress(struct core_accel *accel);

/* Whether it can't be announced yet, as others are calls behind. */
bool core_accel_is_ahead(const struct core_accel *accel);

/*
 * This process is about to make a call that the others may make before they come to this one: have
 * it staged if that is not too late, which progress will tell.
 */
void core_accel_withdraw(struct core_accel *accel);

void core_accel_finish(struct core_accel *accel);

/* Grows as the call goes on; not while it only waits. */
uint64_t core_accel_moves(const struct core_accel *accel);

/* Whether this process carries messages for a kernel of the call (core_steps.h). */
bool core_accel_carries(const struct core_accel *accel);

#endif
