/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers of a block's threads, and their ends. */
#include "ptx_warp.h"
#include "ptx_watch.h"

static void vote_at_barrier(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);

/* Of bar.red: how many have said yes, or whether one has, or all. */
static void tell_answer(struct ptx_warp *warp, unsigned lane, uint32_t yes, uint32_t all)
{
	const struct ptx_instr *instr = &warp->block->module->code[warp->pc[lane] - 1];
	uint32_t base = warp->base;

	if (instr->run != vote_at_barrier)
		return;
	warp->base = ptx_frame_of(warp, lane)->base;
	ptx_set(warp, &instr->operands[0], lane,
		instr->opcode->action == PTX_POPC ? yes
		: instr->opcode->action == PTX_OR ? yes != 0
						  : yes == all);
	warp->base = base;
}

static void release_barrier(struct ptx_block *block, unsigned which)
{
	uint32_t yes = block->votes[which], all = block->arrived[which];

	block->arrived[which] = block->votes[which] = 0;
	for (uint32_t w = 0; w < block->num_warps; w++) {
		struct ptx_warp *warp = block->warps[w];

		warp->came[which] = 0;
		for (unsigned lane = 0; lane < PTX_LANES; lane++) {
			if (warp->state[lane] != PTX_WAITS_FOR_BLOCK ||
			    warp->barrier[lane] != which)
				continue;
			tell_answer(warp, lane, yes, all);
			if (block->watch)
				ptx_watch_go_on(warp, lane, which);
			ptx_set_state(warp, lane, PTX_RUNS);
		}
	}
	if (block->watch)
		ptx_watch_release(block, which);
}

/* Lanes that have ended and did not come, of warps that have: barriers count whole warps. */
static uint32_t absent_of(const struct ptx_block *block, unsigned which)
{
	uint32_t absent = 0;

	for (uint32_t w = 0; w < block->num_warps; w++) {
		const struct ptx_warp *warp = block->warps[w];
		uint32_t came = warp->came[which];

		for (unsigned lane = 0; lane < PTX_LANES && came; lane++)
			absent += warp->state[lane] == PTX_ENDED && !(came >> lane & 1);
	}
	return absent;
}

/* Threads that have ended are not waited for. */
static void look_at_barrier(struct ptx_block *block, unsigned which)
{
	uint32_t awaited = block->awaited[which] ? block->awaited[which] : block->alive;
	uint32_t arrived = block->arrived[which];

	if (arrived && block->awaited[which])
		arrived += absent_of(block, which);
	if (arrived >= awaited && arrived)
		release_barrier(block, which);
}

void ptx_end_lane(struct ptx_warp *warp, unsigned lane)
{
	ptx_set_state(warp, lane, PTX_ENDED);
	warp->block->alive--;
	warp->block->ended = true;
	for (unsigned i = 0; i < PTX_BARRIERS; i++)
		look_at_barrier(warp->block, i);
}

static void arrive(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		   uint64_t which, uint64_t awaited)
{
	if (which >= PTX_BARRIERS)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "there is no barrier %llu",
			 (unsigned long long)which);
	if (awaited % PTX_LANES || awaited > UINT32_MAX)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED,
			 "a barrier for %llu threads, which are no whole warps",
			 (unsigned long long)awaited);
	warp->block->awaited[which] = (uint32_t)awaited;
	warp->block->arrived[which]++;
	warp->barrier[lane] = (uint8_t)which;
	warp->came[which] |= UINT32_C(1) << lane;
	if (warp->block->watch)
		ptx_watch_come(warp, lane, (unsigned)which);
}

/*
 * bar.sync a{, b}; bar.arrive a, b; bar.red.OP d, a{, b}, p. Who waits has gone on: what it comes
 * back to is the next instruction.
 */
static void come_to_barrier(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	struct ptx_block *block = warp->block;
	bool arrives = instr->opcode->action == PTX_ARRIVE;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t which = instr->num ? ptx_value(warp, &instr->operands[0], lane) : 0;
		uint64_t awaited = instr->num > 1 ? ptx_value(warp, &instr->operands[1], lane) : 0;

		arrive(warp, instr, lane, which, awaited);
		if (!arrives)
			ptx_set_state(warp, lane, PTX_WAITS_FOR_BLOCK);
	}
	PTX_FOR_LANES(lane, lanes)
	look_at_barrier(block, warp->barrier[lane]);
}

/* The answer is there when all have come. */
static void vote_at_barrier(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	struct ptx_block *block = warp->block;
	const struct ptx_operand *vote = &instr->operands[instr->num - 1];

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t which = ptx_value(warp, &instr->operands[1], lane);
		bool mine = (ptx_value(warp, vote, lane) != 0) != vote->negated;

		arrive(warp, instr, lane, which,
		       instr->num > 3 ? ptx_value(warp, &instr->operands[2], lane) : 0);
		block->votes[which] += mine;
		ptx_set_state(warp, lane, PTX_WAITS_FOR_BLOCK);
	}
	PTX_FOR_LANES(lane, lanes)
	look_at_barrier(block, warp->barrier[lane]);
}

const struct ptx_operation ptx_barrier_operations[] = {
	{"bar", 0, 0, PTX_BARRIER, come_to_barrier, false},
	{"bar.red", 0, 0, PTX_BARRIER, vote_at_barrier, false},
	{0},
};
