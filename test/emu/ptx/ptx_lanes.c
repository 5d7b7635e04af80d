/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lanes of a warp do together: votes, shuffles and so on, for which they wait for each other.
 */
#include "ptx_warp.h"
#include "ptx_watch.h"

/*
 * Lanes come to these with the same instruction and mask, though perhaps at different places, or in
 * different frames. What each brings is kept when it comes (bring), and what it gets goes to its
 * own registers.
 */
static uint64_t brought(const struct ptx_warp *warp, unsigned lane, unsigned operand)
{
	return warp->brought[lane][operand];
}

static void give(struct ptx_warp *warp, unsigned lane, unsigned operand, uint64_t value)
{
	uint32_t base = warp->base;

	warp->base = ptx_frame_of(warp, lane)->base;
	ptx_set(warp, &warp->waits_at[lane]->operands[operand], lane, value);
	warp->base = base;
}

static void bring(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane)
{
	warp->waits_at[lane] = instr;
	for (unsigned i = 0; i < instr->num; i++) {
		uint64_t value = ptx_value(warp, &instr->operands[i], lane);

		warp->brought[lane][i] = instr->operands[i].negated ? !value : value;
	}
	warp->wait_mask[lane] =
		instr->num ? (uint32_t)warp->brought[lane][instr->num - 1] : UINT32_MAX;
}

static void synchronize(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)instr;
	if (warp->block->watch)
		ptx_watch_meet(warp, lanes);
}

static void vote(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	uint32_t votes = 0, answer;

	PTX_FOR_LANES(lane, lanes)
	votes |= brought(warp, lane, 1) ? UINT32_C(1) << lane : 0;
	switch (instr->opcode->action) {
	case PTX_ALL:
		answer = votes == lanes;
		break;
	case PTX_ANY:
		answer = votes != 0;
		break;
	case PTX_UNI:
		answer = votes == lanes || !votes;
		break;
	default:
		answer = votes;
		break;
	}
	PTX_FOR_LANES(lane, lanes)
	give(warp, lane, 0, answer);
}

/* The lane that is read from; `c`: the segment, as PTX packs it. false: out of its range. */
static bool shuffle_from(enum ptx_action how, unsigned lane, uint32_t b, uint32_t c, unsigned *from)
{
	unsigned segment = c >> 8 & 31, most = (lane & segment) | (c & 31 & ~segment);
	unsigned least = lane & segment;

	b &= 31;
	switch (how) {
	case PTX_SHFL_UP:
		*from = lane - b;
		return (int)lane - (int)b >= (int)most;
	case PTX_SHFL_DOWN:
		*from = lane + b;
		return *from <= most;
	case PTX_BFLY:
		*from = lane ^ b;
		return *from <= most;
	default:
		*from = least | (b & ~segment);
		return *from <= most;
	}
}

/* d|p, a, b, c, mask. */
static void shuffle(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	uint64_t values[PTX_LANES];
	bool in_range[PTX_LANES];

	PTX_FOR_LANES(lane, lanes)
	{
		unsigned from;

		in_range[lane] = shuffle_from((enum ptx_action)instr->opcode->action, lane,
					      (uint32_t)brought(warp, lane, 3),
					      (uint32_t)brought(warp, lane, 4), &from);
		from = in_range[lane] ? from : lane;
		if (!(lanes >> from & 1))
			ptx_fail(warp, instr, lane, LAUNCH_FAILED,
				 "a shuffle from lane %u, which takes no part (%#x)", from, lanes);
		values[lane] = brought(warp, from, 2);
	}
	PTX_FOR_LANES(lane, lanes)
	{
		give(warp, lane, 0, values[lane]);
		give(warp, lane, 1, in_range[lane]);
	}
}

static uint32_t equals(const struct ptx_warp *warp, unsigned operand, uint32_t lanes,
		       uint64_t value)
{
	uint32_t same = 0;

	PTX_FOR_LANES(lane, lanes)
	same |= brought(warp, lane, operand) == value ? UINT32_C(1) << lane : 0;
	return same;
}

static void match_any(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)instr;
	PTX_FOR_LANES(lane, lanes)
	give(warp, lane, 0, equals(warp, 1, lanes, brought(warp, lane, 1)));
}

static void match_all(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	uint64_t first = brought(warp, (unsigned)__builtin_ctz(lanes), 2);
	bool all = equals(warp, 2, lanes, first) == lanes;

	(void)instr;
	PTX_FOR_LANES(lane, lanes)
	{
		give(warp, lane, 0, all ? lanes : 0);
		give(warp, lane, 1, all);
	}
}

static void reduce_lanes(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned first = (unsigned)__builtin_ctz(lanes);
	uint64_t value = brought(warp, first, 1);

	PTX_FOR_LANES(lane, lanes & (lanes - 1))
	value = ptx_apply(instr->opcode, value, brought(warp, lane, 1), 0, false);
	PTX_FOR_LANES(lane, lanes)
	give(warp, lane, 0, value & UINT32_MAX);
}

static void active_mask(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	ptx_set(warp, &instr->operands[0], lane, lanes);
}

const struct ptx_operation ptx_lane_operations[] = {
	{"activemask", 0, 0, PTX_PLAIN, active_mask, false},
	{"bar.warp", 0, 0, PTX_WARP_SYNC, synchronize, false},
	{"vote", 0, 0, PTX_WARP_SYNC, vote, false},
	{"shfl", 0, 0, PTX_WARP_SYNC, shuffle, false},
	{"match.any", 0, 0, PTX_WARP_SYNC, match_any, false},
	{"match.all", 0, 0, PTX_WARP_SYNC, match_all, false},
	{"redux", 0, 0, PTX_WARP_SYNC, reduce_lanes, false},
	{0},
};

/* If all are there that this lane waits for. */
static void go_together(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane)
{
	uint32_t here = 0, ended = 0, mask = warp->wait_mask[lane];

	for (unsigned other = 0; other < PTX_LANES; other++) {
		uint32_t bit = UINT32_C(1) << other;

		if (warp->state[other] == PTX_ENDED)
			ended |= bit;
		else if (warp->state[other] == PTX_WAITS_FOR_WARP &&
			 warp->waits_at[other]->opcode == instr->opcode &&
			 warp->wait_mask[other] == mask)
			here |= bit;
	}
	here &= mask;
	if ((here | ended | ~mask) != UINT32_MAX)
		return;
	instr->run(warp, instr, here);
	PTX_FOR_LANES(other, here)
	{
		ptx_set_state(warp, other, PTX_RUNS);
		warp->pc[other]++;
	}
}

/*
 * Lanes wait here until all that the mask names are here. Those that have ended will not come, nor
 * those that the warp does not have.
 */
void ptx_meet_lanes(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		ptx_set_state(warp, lane, PTX_WAITS_FOR_WARP);
		bring(warp, instr, lane);
		if (!(warp->wait_mask[lane] >> lane & 1))
			ptx_fail(warp, instr, lane, LAUNCH_FAILED,
				 "the mask %#x is without this thread's lane %u",
				 warp->wait_mask[lane], lane);
	}
	PTX_FOR_LANES(lane, lanes)
	{
		if (warp->state[lane] == PTX_WAITS_FOR_WARP)
			go_together(warp, instr, lane);
	}
}

/* Who waits for lanes that have ended since goes on. */
void ptx_look_at_waiting(struct ptx_warp *warp)
{
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		if (warp->state[lane] == PTX_WAITS_FOR_WARP)
			go_together(warp, warp->waits_at[lane], lane);
	}
}
