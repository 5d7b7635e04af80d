/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo_direct.h"

/* Parts begin where 16-byte accesses can, and are worth the launch of a kernel. */
enum { PART_ALIGNMENT = 16, PART_LEAST = 8 << 10 };

static void begin(struct algo_plan *plan, const char *name, enum algo_kind kind)
{
	plan->name = name;
	plan->kind = kind;
	plan->bytes = 0;
	plan->num_sources = plan->num_targets = plan->num_moves = 0;
	plan->last.bytes = 0;
	plan->truncates = false;
}

/* The rank's part of `bytes` bytes, cut alike for all. */
static struct algo_block part_of(int rank, int ranks, uint64_t bytes)
{
	uint64_t part = (bytes + (uint64_t)ranks - 1) / (uint64_t)ranks;
	uint64_t first;

	part = part > PART_LEAST ? part : PART_LEAST;
	part = (part + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
	first = (uint64_t)rank * part;
	if (first >= bytes)
		return (struct algo_block){0, 0};
	return (struct algo_block){(int64_t)first, bytes - first < part ? bytes - first : part};
}

static void reduce_block(struct algo_plan *plan, int ranks, struct algo_block block)
{
	plan->kind = block.bytes ? ALGO_REDUCE : ALGO_NOTHING;
	plan->bytes = block.bytes;
	plan->num_sources = ranks;
	for (int i = 0; i < ranks; i++)
		plan->sources[i] = (struct algo_place){i, ALGO_IN, block.offset};
}

static void add_target(struct algo_plan *plan, int rank, enum algo_buffer buffer, int64_t offset)
{
	plan->targets[plan->num_targets++] = (struct algo_place){rank, buffer, offset};
}

/* Each rank begins with another peer, so that they do not all go to one at a time. Sources of a
 * reduction have the order of the ranks. */
static int peer_at(int step, int rank, int ranks)
{
	return (rank + step) % ranks;
}

void algo_allreduce(struct algo_plan *plan, int rank, int ranks, uint64_t bytes)
{
	struct algo_block part = part_of(rank, ranks, bytes);

	begin(plan, "direct two-shot", ALGO_REDUCE);
	reduce_block(plan, ranks, part);
	for (int step = 0; step < ranks; step++)
		add_target(plan, peer_at(step, rank, ranks), ALGO_OUT, part.offset);
}

void algo_allreduce_oneshot(struct algo_plan *plan, int rank, int ranks, uint64_t bytes)
{
	begin(plan, "direct one-shot", ALGO_REDUCE);
	reduce_block(plan, ranks, (struct algo_block){0, bytes});
	add_target(plan, rank, ALGO_OUT, 0);
}

void algo_reduce(struct algo_plan *plan, int rank, int ranks, int root, uint64_t bytes)
{
	struct algo_block part = part_of(rank, ranks, bytes);

	begin(plan, "direct", ALGO_REDUCE);
	reduce_block(plan, ranks, part);
	add_target(plan, root, ALGO_OUT, part.offset);
}

void algo_reduce_scatter(struct algo_plan *plan, int rank, int ranks, struct algo_block mine,
			 bool in_place)
{
	begin(plan, in_place ? "direct through scratch" : "direct", ALGO_REDUCE);
	reduce_block(plan, ranks, mine);
	add_target(plan, rank, in_place ? ALGO_SCRATCH : ALGO_OUT, 0);
	if (in_place)
		plan->last = (struct algo_move){.to = {rank, ALGO_OUT, 0},
						.from = {rank, ALGO_SCRATCH, 0},
						.bytes = mine.bytes};
}

static void add_move(struct algo_plan *plan, struct algo_place to, struct algo_place from,
		     uint64_t bytes)
{
	if (!bytes)
		return;
	plan->moves[plan->num_moves++] = (struct algo_move){to, from, bytes};
	plan->bytes += bytes;
}

static void end_moves(struct algo_plan *plan)
{
	if (!plan->num_moves)
		plan->kind = ALGO_NOTHING;
}

/* The bytes that both sides have room for. */
static uint64_t cut(struct algo_plan *plan, struct algo_block to, struct algo_block from)
{
	plan->truncates |= from.bytes > to.bytes;
	return from.bytes < to.bytes ? from.bytes : to.bytes;
}

void algo_pull(struct algo_plan *plan, int rank, int ranks, const struct algo_block *theirs,
	       const struct algo_block *mine)
{
	begin(plan, "direct pull", ALGO_COPY);
	for (int step = 0; step < ranks; step++) {
		int i = peer_at(step, rank, ranks);

		add_move(plan, (struct algo_place){rank, ALGO_OUT, mine[i].offset},
			 (struct algo_place){i, ALGO_IN, theirs[i].offset},
			 cut(plan, mine[i], theirs[i]));
	}
	end_moves(plan);
}

void algo_push(struct algo_plan *plan, int rank, int ranks, const struct algo_block *theirs,
	       const struct algo_block *mine)
{
	begin(plan, "direct push", ALGO_COPY);
	for (int step = 0; step < ranks; step++) {
		int i = peer_at(step, rank, ranks);

		add_move(plan, (struct algo_place){i, ALGO_OUT, theirs[i].offset},
			 (struct algo_place){rank, ALGO_IN, mine[i].offset},
			 cut(plan, theirs[i], mine[i]));
	}
	end_moves(plan);
}

void algo_swap(struct algo_plan *plan, int rank, int ranks, const struct algo_block *theirs,
	       const struct algo_block *mine)
{
	begin(plan, "direct swap", ALGO_SWAP);
	for (int step = 1; step < ranks; step++) {
		int i = peer_at(step, rank, ranks);
		uint64_t bytes = cut(plan, mine[i], theirs[i]);
		uint64_t half = bytes / 2 / PART_ALIGNMENT * PART_ALIGNMENT;
		uint64_t first = rank < i ? 0 : half;

		add_move(plan, (struct algo_place){rank, ALGO_OUT, mine[i].offset + (int64_t)first},
			 (struct algo_place){i, ALGO_OUT, theirs[i].offset + (int64_t)first},
			 rank < i ? half : bytes - half);
	}
	end_moves(plan);
}
