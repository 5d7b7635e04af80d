/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/call/core_shape.h"
#include "core/call/core_coll.h"
#include "util/util_config.h"

#include <stdlib.h>

bool core_shape_clear(struct core_shape *shape, int size)
{
	struct core_block *blocks = shape->few;

	shape->many = NULL;
	if (size > CORE_FEW_BLOCKS) {
		blocks = shape->many = malloc(2 * (size_t)size * sizeof(*blocks));
		if (!blocks)
			return false;
	}
	shape->in = (struct core_buffer){.blocks = blocks};
	shape->out = (struct core_buffer){.blocks = blocks +
						    (shape->many ? (size_t)size : CORE_FEW_BLOCKS)};
	shape->own = (struct core_block){0};
	shape->bytes = shape->counts = 0;
	shape->type = shape->padded = GPU_TYPE_NONE;
	shape->op = GPU_OP_NONE;
	return true;
}

bool core_shape_is_ordered(const struct core_shape *shape)
{
	return util_config.reproducible && core_coll_reduces(shape->coll) &&
	       gpu_type_is_floating(shape->type);
}

uint64_t core_buffer_longest(const struct core_buffer *buffer)
{
	uint64_t longest = 0;

	for (int i = 0; i < buffer->num_blocks; i++) {
		if (buffer->blocks[i].bytes > longest)
			longest = buffer->blocks[i].bytes;
	}
	return longest;
}

void core_shape_release(struct core_shape *shape)
{
	free(shape->many);
	shape->many = NULL;
}

uint64_t core_shape_bytes(const struct core_shape *shape)
{
	uint64_t bytes = 0;

	for (int i = 0; i < shape->in.num_blocks; i++)
		bytes += shape->in.blocks[i].bytes;
	for (int i = 0; i < shape->out.num_blocks; i++)
		bytes += shape->out.blocks[i].bytes;
	return bytes;
}
