/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who goes next: warps of a block, and of each warp's lanes those that are at the same instruction.
 *
 * A group goes on until it parts at a branch, meets lanes that were ahead, waits, or has done
 * something that others can see and the seed says that it is another's turn. Mostly the lanes that
 * are farthest behind go, so that groups meet again; now and then those that have not gone for
 * longest, since they may be what the others wait for.
 */
#include "ptx_warp.h"

#include <string.h>

enum { QUANTUM = 512 }; /* instructions of a group before it is another's turn at the latest */

/* ---- control ---- */

static void sleep_a_little(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)instr;
	(void)lanes;
	ptx_device_pause();
	warp->block->switches = true;
}

static void trap(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	ptx_fail(warp, instr, (unsigned)__builtin_ctz(lanes), LAUNCH_FAILED, "the kernel stops");
}

void ptx_nothing(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)warp;
	(void)instr;
	(void)lanes;
}

const struct ptx_operation ptx_warp_operations[] = {
	{"bra", 0, 0, PTX_BRANCH, ptx_nothing, false},
	{"brx.idx", 0, 0, PTX_BRANCH_INDEXED, ptx_nothing, false},
	{"call", 0, 0, PTX_CALL, ptx_nothing, false},
	{"ret", 0, 0, PTX_RET, ptx_nothing, false},
	{"exit", 0, 0, PTX_EXIT, ptx_nothing, false},
	{"trap", 0, 0, PTX_PLAIN, trap, false},
	{"brkpt", 0, 0, PTX_PLAIN, ptx_nothing, false},
	{"pmevent", 0, 0, PTX_PLAIN, ptx_nothing, false},
	{"nanosleep", 0, 0, PTX_PLAIN, sleep_a_little, false},
	{0},
};

/* ---- a group goes ---- */

static uint32_t guarded(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const uint64_t *guard = ptx_slot(warp, instr->guard);
	uint32_t go = 0;

	PTX_FOR_LANES(lane, lanes)
	{
		if ((guard[lane] != 0) != instr->guard_negated)
			go |= UINT32_C(1) << lane;
	}
	return go;
}

static void set_pc(struct ptx_warp *warp, uint32_t lanes, uint32_t pc)
{
	PTX_FOR_LANES(lane, lanes)
	warp->pc[lane] = pc;
}

static void branch_indexed(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t index = ptx_value(warp, &instr->operands[0], lane);

		if (index >= instr->target)
			ptx_fail(warp, instr, lane, LAUNCH_FAILED, "branch %llu of %u",
				 (unsigned long long)index, instr->target);
		warp->pc[lane] = instr->targets[index];
	}
}

static void call(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	if (instr->call->host) {
		instr->call->host(warp, instr, lanes);
		return;
	}
	PTX_FOR_LANES(lane, lanes)
	ptx_enter(warp, instr, lane);
}

/* What ends a group's run: each lane's state says what becomes of it. */
static void transfer(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes,
		     uint32_t go, uint32_t pc)
{
	set_pc(warp, lanes, pc + 1);
	switch (instr->control) {
	case PTX_BRANCH:
		set_pc(warp, go, instr->target);
		break;
	case PTX_BRANCH_INDEXED:
		branch_indexed(warp, instr, go);
		break;
	case PTX_CALL:
		call(warp, instr, go);
		break;
	case PTX_RET:
		PTX_FOR_LANES(lane, go)
		ptx_leave(warp, lane);
		break;
	case PTX_EXIT:
		PTX_FOR_LANES(lane, go)
		ptx_end_lane(warp, lane);
		break;
	case PTX_BARRIER:
		instr->run(warp, instr, go);
		break;
	default:
		set_pc(warp, go, pc);
		ptx_meet_lanes(warp, instr, go);
		break;
	}
}

/* `until`: where other lanes of the same frame are, ahead of these: there they meet. */
static void run_group(struct ptx_warp *warp, uint32_t lanes, uint32_t until)
{
	const struct ptx_instr *code = warp->block->module->code;
	unsigned num = (unsigned)__builtin_popcount(lanes);
	uint32_t pc = warp->pc[__builtin_ctz(lanes)];
	bool is_alone = warp->block->running == num;

	warp->block->switches = false;
	for (unsigned i = 0;
	     i < QUANTUM && (is_alone || !warp->block->switches) && (i == 0 || pc < until); i++) {
		const struct ptx_instr *instr = &code[pc];
		uint32_t go = instr->guarded ? guarded(warp, instr, lanes) : lanes;

		warp->block->executed += num;
		if (instr->control == PTX_PLAIN) {
			if (go)
				instr->run(warp, instr, go);
			pc++;
		} else if (!go) {
			pc++;
		} else if (instr->control == PTX_BRANCH && go == lanes) {
			pc = instr->target;
		} else {
			transfer(warp, instr, lanes, go, pc);
			return;
		}
	}
	set_pc(warp, lanes, pc);
}

/* Of those that can go: the deepest call's, of these the ones farthest behind; or who waited most.
 */
static int choose_lane(const struct ptx_warp *warp, bool oldest)
{
	int best = -1;

	for (int lane = 0; lane < PTX_LANES; lane++) {
		if (warp->state[lane] != PTX_RUNS)
			continue;
		if (best < 0 || (oldest ? warp->ran[lane] < warp->ran[best]
				 : warp->depth[lane] != warp->depth[best]
					 ? warp->depth[lane] > warp->depth[best]
					 : warp->pc[lane] < warp->pc[best]))
			best = lane;
	}
	return best;
}

bool ptx_run_warp(struct ptx_warp *warp)
{
	struct ptx_block *block = warp->block;
	bool oldest = ptx_draw(block) % 4 == 0;
	int first = choose_lane(warp, oldest);
	const struct ptx_frame *frame;
	uint32_t lanes = 0, until = UINT32_MAX;

	if (first < 0)
		return false;
	frame = ptx_frame_of(warp, (unsigned)first);
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		const struct ptx_frame *other = ptx_frame_of(warp, lane);

		if (warp->state[lane] != PTX_RUNS || other->base != frame->base ||
		    other->stack != frame->stack)
			continue;
		if (warp->pc[lane] == warp->pc[first]) {
			lanes |= UINT32_C(1) << lane;
			warp->ran[lane] = block->turns;
		} else if (warp->pc[lane] > warp->pc[first] && warp->pc[lane] < until) {
			until = warp->pc[lane];
		}
	}
	warp->base = frame->base;
	warp->stack = frame->stack;
	run_group(warp, lanes, until);
	return true;
}
