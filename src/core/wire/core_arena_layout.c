/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_arena_layout.h"
#include "gpu/kernels/gpu_program.h"
#include "net/net_port.h"

enum { LEAST = 512 << 10, UNIT = 64 << 10 };

/*
 * Of a piece: larger ones only make pipelines slow to fill. By sockets UCX has buffers of
 * NET_SEGMENT, and puts together what does not fit one in other memory. What is fetched does not go
 * through them, but should not leave the caches. See docs/decisions/0017.
 */
enum {
	MOST = 512 << 10,
	MOST_BY_SOCKETS = NET_SEGMENT - (4 << 10), /* and headers */
	MOST_FETCHED_BY_SOCKETS = 112 << 10
};

size_t core_arena_layout_bytes(size_t scratch, int sharers)
{
	size_t share = scratch / (size_t)sharers / UNIT * UNIT;

	return share > LEAST ? share : LEAST;
}

/* A link has its share of the room, and messages are in pieces of a fraction of that. */
size_t core_arena_layout_enough(size_t bytes)
{
	static const size_t most = (size_t)1 << 40;
	size_t enough = bytes < most ? (4 * bytes + UNIT) / UNIT * UNIT : most;

	return enough > LEAST ? enough : LEAST;
}

size_t core_arena_layout_half(size_t arena)
{
	size_t half = arena / 2 / UNIT * UNIT;

	return half < LEAST ? 0 : half;
}

size_t core_arena_layout_share(size_t arena)
{
	return core_arena_layout_half(arena) ? (arena - arena / 8) / 2 / UNIT * UNIT : 0;
}

/* For each protocol that has flags. */
static size_t room_with_flags(size_t arena)
{
	return arena / 8;
}

size_t core_arena_layout_flags(size_t arena)
{
	return 2 * room_with_flags(arena);
}

size_t core_arena_layout_start(size_t arena, enum sched_proto proto)
{
	size_t start = GPU_ARENA_SLOTS;

	if (proto == SCHED_LL)
		return start;
	return start +
	       (proto == SCHED_LL128 ? room_with_flags(arena) : core_arena_layout_flags(arena));
}

struct sched_room core_arena_layout_for(size_t arena, bool sockets, bool gdr)
{
	size_t flags = room_with_flags(arena);
	size_t by_sockets = gdr ? MOST_FETCHED_BY_SOCKETS : MOST_BY_SOCKETS;

	return (struct sched_room){
		.bytes = {[SCHED_SIMPLE] = arena - GPU_ARENA_SLOTS - core_arena_layout_flags(arena),
			  [SCHED_LL] = flags,
			  [SCHED_LL128] = flags},
		.unit = GPU_MAX_PARTS * GPU_PART_UNIT,
		.most = sockets ? by_sockets : MOST};
}

int core_arena_layout_resident(int blocks, int sharers)
{
	return (blocks < GPU_MAX_PROBED ? blocks : GPU_MAX_PROBED) / sharers;
}
