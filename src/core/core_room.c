/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_room.h"
#include "gpu/kernels/gpu_program.h"

enum { LEAST = 512 << 10, UNIT = 64 << 10 };

size_t core_room_arena(size_t scratch, int sharers)
{
	size_t share = scratch / (size_t)sharers / UNIT * UNIT;

	return share > LEAST ? share : LEAST;
}

size_t core_room_half(size_t arena)
{
	size_t half = arena / 2 / UNIT * UNIT;

	return half < LEAST ? 0 : half;
}

size_t core_room_ll(size_t arena)
{
	return arena / 8;
}

struct sched_room core_room_for(size_t arena)
{
	size_t ll = core_room_ll(arena);

	return (struct sched_room){.simple = arena - GPU_ARENA_SLOTS - ll,
				   .ll = ll,
				   .unit = GPU_MAX_PARTS * GPU_PART_UNIT};
}

int core_room_resident(int blocks, int sharers)
{
	return (blocks < GPU_MAX_PROBED ? blocks : GPU_MAX_PROBED) / sharers;
}
