/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call does when a member fails, or is lost. */
#ifndef CORE_FAILURE_H
#define CORE_FAILURE_H

#include "core/accel/core_accel_call.h"

/*
 * Once a member is lost no call is agreed on any more. It fails on all, as staging it would leave
 * to the real MPI, at once, what others, who have heard of the loss a call later or earlier, fail
 * in: they would wait for each other for ever, or take each other's calls for the same.
 */
enum util_status core_failure_refuse(struct core_accel *accel);

/*
 * The status of a call on a communicator that counts as lost: UTIL_ERR_REVOKED, UTIL_ERR_LOST if a
 * member's process has ended or can't be reached, else, where a device is lost, UTIL_ERR_PEER.
 */
enum util_status core_failure_of_loss(const struct core_comm *comm);

/*
 * Called over and over in waits, these look now and then whether a member has failed or is lost:
 * core_failure_has_lost before the call is announced, and says so; core_failure_give_up while it is
 * being agreed on, which then is decided; core_failure_look later, which aborts this rank's kernel
 * and sets the result.
 */
bool core_failure_has_lost(struct core_accel *accel);
void core_failure_give_up(struct core_accel *accel);
void core_failure_look(struct core_accel *accel);

/*
 * Whether all members of this node are past the call; or, where one is lost or has failed, all that
 * live and have come to it: then it has failed.
 */
bool core_failure_has_met(struct core_accel *accel);

/*
 * The call has failed: tell other nodes, and have UCX let go of the application's memory. UTIL_OK:
 * this process may leave the call. UTIL_IN_PROGRESS; not for ever.
 */
enum util_status core_failure_settle(struct core_accel *accel);

/*
 * A rank whose device is lost takes part in nothing any more. Who had its part of the call done
 * learns of that in the next one, in which it would wait for this rank.
 */
void core_failure_give_up_device(struct core_accel *accel);

/*
 * So it is when the device was lost before the call, which has not been announced: it fails, here
 * with UTIL_ERR_CUDA.
 */
enum util_status core_failure_lose_device(struct core_accel *accel);

/*
 * The driver has refused something in a call that has not been announced. Stage it for the reason,
 * unless the device is lost: then it could not be staged here, and the others would wait for it.
 */
enum util_status core_failure_stage(struct core_accel *accel, enum core_reason reason);

#endif
