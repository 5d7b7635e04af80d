/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_window.h"
#include "gpu/gpu_launch.h"

bool core_window_is_used(const struct core_agree *agree, int rank, enum sched_buffer buffer)
{
	uint32_t flag = buffer == SCHED_IN ? CORE_OFFER_WINDOW_IN : CORE_OFFER_WINDOW_OUT;

	return core_agree_offer(agree, rank)->flags & flag;
}

/* In place, the rank's own block of an allgather or scatter stays where it is. */
static bool stays(const struct core_accel *accel, const struct core_buffer *buffer, int index)
{
	enum sched_coll coll = accel->sched->request.coll;

	if (buffer != &accel->shape.out || !accel->shape.in_place)
		return false;
	return coll == SCHED_SCATTER || (coll == SCHED_ALLGATHER && index == accel->comm->rank);
}

/* Whole elements: of pairs with padding only the data. */
static enum util_status copy_slice(struct core_accel *accel, char *to, const char *from,
				   size_t bytes)
{
	enum gpu_type padded = accel->shape.padded;
	struct gpu_type_part parts[GPU_TYPE_MOST_PARTS];
	enum util_status status = UTIL_OK;
	size_t pitch = gpu_type_bytes(padded);
	int num;

	if (padded == GPU_TYPE_NONE)
		return gpu_stream_copy_pieces(accel->windows.copies, to, from, bytes);
	num = gpu_type_parts(padded, parts);
	for (int i = 0; i < num && status == UTIL_OK; i++)
		status = gpu_stream_copy_rows(accel->windows.copies, to + parts[i].offset, pitch,
					      from + parts[i].offset, pitch, parts[i].bytes,
					      bytes / pitch);
	return status;
}

/* Between a buffer's blocks and their slices in its window. */
static enum util_status copy_slices(struct core_accel *accel, uint64_t round,
				    const struct core_buffer *buffer,
				    const struct gpu_scratch *window, bool out)
{
	enum util_status status = UTIL_OK;

	for (int i = 0; i < buffer->num_blocks && status == UTIL_OK; i++) {
		struct core_block user = core_rounds_slice(&accel->windows.rounds, round,
							   buffer->blocks[i], false, i);
		struct core_block ours = core_rounds_slice(&accel->windows.rounds, round,
							   buffer->blocks[i], true, i);
		void *at_user = (void *)(buffer->address + (uint64_t)user.offset);
		void *at_window = (void *)(window->address + (uint64_t)ours.offset);

		if (user.bytes && !stays(accel, buffer, i))
			status = copy_slice(accel, out ? at_user : at_window,
					    out ? at_window : at_user, user.bytes);
	}
	return status;
}

enum util_status core_window_fill(struct core_accel *accel, uint64_t round)
{
	const struct core_shape *shape = &accel->shape;

	if (accel->windows.in)
		return copy_slices(accel, round, &shape->in, accel->windows.in, false);
	/* Blocks that are swapped in place are input, too. */
	if (accel->windows.out && shape->in_place && !shape->in.num_blocks)
		return copy_slices(accel, round, &shape->out, accel->windows.out, false);
	return UTIL_OK;
}

enum util_status core_window_drain(struct core_accel *accel, uint64_t round)
{
	/* The result of a reduce_scatter in place may wait in scratch, for the last phase. */
	if (!accel->windows.out || accel->sched->holds)
		return UTIL_OK;
	return copy_slices(accel, round, &accel->shape.out, accel->windows.out, true);
}
