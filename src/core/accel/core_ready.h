/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Earlier work on a call's buffers, which may go on after the CUDA call that began it has returned:
 * all that is on the legacy stream of their context when the MPI call is made. What comes there
 * later may wait for the call.
 */
#ifndef CORE_READY_H
#define CORE_READY_H

#include "core/accel/core_accel_call.h"

/* In the MPI call, of one that may go on after it: note what there is. */
void core_ready_mark(struct core_accel *accel);

/*
 * UTIL_IN_PROGRESS while that is under way; where it was not noted, what is there when this is
 * first asked, for which the call must have its stream.
 */
enum util_status core_ready_poll(struct core_accel *accel);

/* Give back what a mark holds. */
void core_ready_close(struct core_accel *accel);

#endif
