/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_rounds.h"
#include "core/comm/core_comm.h"

enum { SLICE_ALIGNMENT = 16 }; /* where 16-byte accesses can begin */

/* As many rounds as the longest block needs with so many bytes for a round's slices. */
static void set_num(struct core_rounds *rounds, uint64_t bytes, int slices, uint64_t longest)
{
	rounds->width = bytes / (uint64_t)slices / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	rounds->num = longest ? (longest + rounds->width - 1) / rounds->width : 1;
}

static uint64_t smallest_window(const struct core_facts *facts)
{
	uint64_t window = UINT64_MAX;

	for (int i = 0; i < facts->comm->num_near; i++) {
		const struct core_offer *offer =
			core_agree_offer(facts->agree, facts->comm->near[i]);

		window = offer->window < window ? offer->window : window;
	}
	return window;
}

struct core_rounds core_rounds_of(const struct core_facts *facts, int slices)
{
	struct core_rounds rounds = {.num = 1};
	uint64_t longest = facts->common.longest, window;

	if (!(facts->common.any & (CORE_OFFER_WINDOW_IN | CORE_OFFER_WINDOW_OUT)))
		return rounds;
	window = smallest_window(facts);
	set_num(&rounds, window, slices, longest);
	if (rounds.num == 1)
		return rounds;
	rounds.half = window / 2 / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	set_num(&rounds, rounds.half, slices, longest);
	return rounds;
}

/* Where the round's slices begin in windows. */
static int64_t window_start(const struct core_rounds *rounds, uint64_t round)
{
	return round % 2 ? (int64_t)rounds->half : 0;
}

struct core_block core_rounds_slice(const struct core_rounds *rounds, uint64_t round,
				    struct core_block block, bool windowed, int index)
{
	uint64_t start = round * rounds->width, rest;

	if (!rounds->width)
		return block;
	if (start >= block.bytes)
		return (struct core_block){0, 0};
	rest = block.bytes - start;
	block.offset = windowed ? window_start(rounds, round) + (int64_t)rounds->width * index
				: block.offset + (int64_t)start;
	block.bytes = rest < rounds->width ? rest : rounds->width;
	return block;
}
