/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short calls over several nodes: the inputs travel with the agreement.
 *
 * Each member copies its input to the host before it announces itself, and leaves it, as a record,
 * on its node's board. What the nodes tell each other in their agreement (core_nodes.h) then has
 * the records of all members. So who knows that all are ready has all inputs, and makes its result
 * from them alone: one exchange between nodes, whatever the collective, which is the proof that the
 * call may be accelerated, too. Nobody writes an output before that, so a call that is staged after
 * all has lost nothing but the copy.
 *
 * All inputs go to all nodes, so this is for so few bytes that they cost less than another round.
 */
#ifndef CORE_EAGER_H
#define CORE_EAGER_H

#include "core/accel/core_accel_call.h"

/* Whether the call is so short, unless its buffers turn out to be scattered. All find the same. */
bool core_eager_is_certain(const struct core_accel *accel);

/*
 * Whether such a call is better left to the real MPI. Data that go from or to one rank need not
 * wait for what others say; and of data that are for one rank each, only a part has to go to each
 * node.
 */
bool core_eager_is_left(const struct core_accel *accel);

/* Whether a call with such an input is so short, by its configuration. */
bool core_eager_fits(const struct core_accel *accel, const struct core_buffer *in);

/* Set CORE_OFFER_EAGER if this call is so short, and its input is in one allocation. */
void core_eager_offer(struct core_accel *accel);

/* Then start the copy of the input, in stream order. */
enum util_status core_eager_fetch(const struct core_accel *accel);

/* And make the record of it, when the copy is done, before core_agree_announce. */
void core_eager_publish(const struct core_accel *accel);

/*
 * Once the call is agreed on, and all have said CORE_OFFER_EAGER: bring a block of a member's input
 * to where kernels read it, if this process has any. `*used` counts the bytes of the room for that;
 * it is 0 at first.
 */
struct gpu_place core_eager_bring(const struct core_accel *accel, int rank, int block,
				  size_t *used);

#endif
