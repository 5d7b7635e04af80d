/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: memory of ours through which buffers that others can't map go slice by slice. */
#ifndef CORE_WINDOW_H
#define CORE_WINDOW_H

#include "core/accel/core_accel_call.h"

/* Whether the member, on this node, has a window for the buffer. */
bool core_window_is_used(const struct core_agree *agree, int rank, enum sched_buffer buffer);

/*
 * Put on the stream of copies those of a round's slice between this rank's buffers and its windows.
 */
enum util_status core_window_fill(struct core_accel *accel, uint64_t round);
enum util_status core_window_drain(struct core_accel *accel, uint64_t round);

#endif
