/* SPDX-License-Identifier: BSD-3-Clause */
/* One call's way through the agreement (core_agree.h), with a vote where memory must be mapped. */
#ifndef CORE_VOTE_H
#define CORE_VOTE_H

#include "core/accel/core_accel_call.h"

/*
 * Announce the offer, when earlier work on the buffers has finished. UTIL_OK, UTIL_IN_PROGRESS;
 * UTIL_STAGE: the call is to be staged.
 */
enum util_status core_vote_announce(struct core_accel *accel);

/* Go on until the call is decided: UTIL_OK: accelerated; else as above. */
enum util_status core_vote_progress(struct core_accel *accel);

#endif
