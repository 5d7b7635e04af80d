/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_shape.h"

#include <stdlib.h>

bool core_shape_clear(struct core_shape *shape, int size)
{
	size_t room = size > CORE_FEW_BLOCKS ? (size_t)size : CORE_FEW_BLOCKS;

	shape->many = NULL;
	if (size > CORE_FEW_BLOCKS)
		shape->many = malloc(2 * room * sizeof(*shape->many));
	if (size > CORE_FEW_BLOCKS && !shape->many)
		return false;
	shape->in = (struct core_buffer){.blocks = shape->many ? shape->many : shape->few};
	shape->out = (struct core_buffer){.blocks = shape->in.blocks + room};
	shape->own = (struct core_block){0};
	shape->bytes = shape->counts = 0;
	shape->type = GPU_TYPE_NONE;
	shape->op = GPU_OP_NONE;
	return true;
}

void core_shape_release(struct core_shape *shape)
{
	free(shape->many);
	shape->many = NULL;
}
