/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_eager.h"
#include "core/agree/core_record.h"
#include "core/call/core_coll.h"
#include "core/choose/core_wish.h"
#include "core/wire/core_wire.h"
#include "gpu/gpu_launch.h"
#include "util/util_config.h"

#include <string.h>

/*
 * Kernels access as many bytes at a time as addresses allow, so those stay what they are modulo
 * this.
 */
enum { ALIGNMENT = 16 };

/* An alltoall in place has its input where its output goes. */
static const struct core_buffer *input_of(const struct core_shape *shape)
{
	return shape->in_place && !shape->in.num_blocks ? &shape->out : &shape->in;
}

static uintptr_t first_byte(const struct core_buffer *in)
{
	return in->address + (uintptr_t)in->lo;
}

/* In a record the last pair has its padding. */
static size_t num_bytes(const struct core_accel *accel, const struct core_buffer *in)
{
	return in->lo == in->hi ? 0
				: (size_t)(in->hi - in->lo) + gpu_type_tail(accel->shape.padded);
}

/* Where in a record, which is aligned, the first byte is. */
static size_t data_offset(const struct core_buffer *in)
{
	const struct core_record *record = NULL;
	size_t header = sizeof(*record) + (size_t)in->num_blocks * sizeof(record->blocks[0]);

	return header + (first_byte(in) - header) % ALIGNMENT;
}

static bool is_short(const struct core_comm *comm, uint64_t bytes)
{
	return comm->spans && util_config.eager_max &&
	       bytes <= util_config.eager_max / (size_t)comm->size;
}

bool core_eager_fits(const struct core_accel *accel, const struct core_buffer *in)
{
	size_t room = core_area_record_bytes(accel->comm);

	if (accel->offer.wish.algos || !is_short(accel->comm, num_bytes(accel, in)))
		return false;
	/*
	 * A reduction takes all inputs in one step, and what has a block for each rank has a step
	 * for each two.
	 */
	if (accel->comm->size >= GPU_MAX_OPERANDS)
		return false;
	return num_bytes(accel, in) <= room && data_offset(in) + num_bytes(accel, in) <= room;
}

/* Of all ranks' inputs, in bytes; 0: not all know it. */
static uint64_t longest_input(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	uint64_t ranks = (uint64_t)accel->comm->size;

	if (shape->coll != CORE_SCATTER && shape->coll != CORE_ALLTOALL)
		return shape->bytes;
	return shape->bytes < UINT64_MAX / ranks ? shape->bytes * ranks : UINT64_MAX;
}

bool core_eager_is_certain(const struct core_accel *accel)
{
	uint64_t longest = longest_input(accel);

	return longest && is_short(accel->comm, longest) && accel->comm->size < GPU_MAX_OPERANDS &&
	       !core_wish_of(core_coll_sched(accel->shape.coll))->algos;
}

bool core_eager_is_left(const struct core_accel *accel)
{
	switch (accel->shape.coll) {
	case CORE_BCAST:
	case CORE_REDUCE:
	case CORE_GATHER:
	case CORE_SCATTER:
	case CORE_ALLTOALL:
		return core_eager_is_certain(accel);
	default:
		return false;
	}
}

void core_eager_offer(struct core_accel *accel)
{
	/* What is copied is all from the first byte to the last. */
	if (core_eager_fits(accel, input_of(&accel->shape)) && !accel->scattered)
		accel->offer.flags |= CORE_OFFER_EAGER;
}

enum util_status core_eager_fetch(const struct core_accel *accel)
{
	const struct core_buffer *in = input_of(&accel->shape);

	if (!(accel->offer.flags & CORE_OFFER_EAGER) || !num_bytes(accel, in))
		return UTIL_OK;
	return gpu_stream_copy(accel->stream, core_wire_ahead_out(accel->comm->wire),
			       (const void *)first_byte(in), (size_t)(in->hi - in->lo));
}

void core_eager_publish(const struct core_accel *accel)
{
	const struct core_buffer *in = input_of(&accel->shape);
	struct core_record *record = core_agree_record(&accel->agree, accel->comm->rank);
	size_t data = data_offset(in);

	if (!(accel->offer.flags & CORE_OFFER_EAGER))
		return;
	record->bytes = (uint32_t)(data + num_bytes(accel, in));
	record->num_blocks = (uint32_t)in->num_blocks;
	for (int i = 0; i < in->num_blocks; i++) {
		const struct core_block *block = &in->blocks[i];

		/* One without bytes may be anywhere. */
		record->blocks[i].bytes = (uint32_t)block->bytes;
		record->blocks[i].offset =
			block->bytes ? (uint32_t)(data + (size_t)(block->offset - in->lo)) : 0;
	}
	if (num_bytes(accel, in))
		memcpy((char *)record + data, core_wire_ahead_out(accel->comm->wire),
		       num_bytes(accel, in));
}

struct gpu_place core_eager_bring(const struct core_accel *accel, int rank, int block, size_t *used)
{
	const struct core_record *record = core_agree_record(&accel->agree, rank);
	const struct core_wire *wire = accel->comm->wire;
	uint32_t index = record->num_blocks > 1 ? (uint32_t)block : 0, offset, bytes;
	size_t at;

	if (index >= record->num_blocks || !record->blocks[index].bytes)
		return (struct gpu_place){0};
	offset = record->blocks[index].offset;
	bytes = record->blocks[index].bytes;
	if (!accel->launches)
		return (struct gpu_place){0, bytes};
	at = *used + (offset - *used) % ALIGNMENT;
	memcpy((char *)core_wire_ahead_in(wire) + at, (const char *)record + offset, bytes);
	*used = at + bytes;
	return (struct gpu_place){core_wire_ahead_address(wire) + at, bytes};
}
