/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call takes for itself before it makes its offer: a stream, windows, arenas. */
#ifndef CORE_RESERVE_H
#define CORE_RESERVE_H

#include "core/accel/core_accel_call.h"

/* A buffer on its way to an offer. */
struct core_candidate {
	const struct core_buffer *buffer;
	bool touched;  /* by others */
	bool exported; /* so that they can */
	bool shared;   /* by another of this GPU, in this rank's stead, if that is possible */
	bool missing;  /* they can't, though they would */
	bool windowed; /* kernels use a window in its stead */
	struct gpu_pointer where;
	enum core_region_number number;
};

/* Take a stream, and all else that must not fail later, in the context of the buffers. */
enum util_status core_reserve_resources(struct core_accel *accel, const struct gpu_pointer *where);

/*
 * Who has no data may have messages to pass on, or to send without bytes, by kernels in the
 * thread's context; unless the communicator is at work in another one, which its arena would have
 * to leave.
 */
enum util_status core_reserve_without_data(struct core_accel *accel);

/*
 * Windows for the input and the output, smaller ones where there is no memory. A reduction in place
 * is one in its window, too. Where nothing can be exported they have none afterwards, and no other
 * process reaches them.
 */
enum util_status core_reserve_windows(struct core_accel *accel, struct core_candidate *in,
				      struct core_candidate *out);

/* Give back what core_reserve_windows took, if anything; nothing is being copied any more. */
void core_reserve_put_windows(struct core_accel *accel);

/*
 * Arenas for messages, into the offer, where the call may need some; and leave for a kernel that
 * waits, which core_reserve_give_back ends.
 */
enum util_status core_reserve_arenas(struct core_accel *accel);
void core_reserve_give_back(struct core_accel *accel);

#endif
