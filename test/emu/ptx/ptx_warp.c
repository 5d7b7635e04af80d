/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who goes next: warps of a block, and of each warp's lanes those that are at the same instruction.
 *
 * A group goes on until it parts at a branch, meets lanes that were ahead, waits, or has done
 * something that others can see and the seed says that it is another's turn. Mostly the lanes that
 * are farthest behind go, so that groups meet again; now and then those that have not gone for
 * longest, since they may be what the others wait for.
 */
#include "ptx.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic uint64_t ptx_executed;

enum { LAUNCH_FAILED = 719, OUT_OF_MEMORY = 2 };
enum { QUANTUM = 512 }; /* instructions of a group before it is another's turn at the latest */

static void tell_source(const struct ptx_module *module, const struct ptx_instr *instr, char *text,
			size_t bytes)
{
	const struct ptx_file *file = module->files;

	while (file && file->number != instr->file)
		file = file->next;
	*text = 0;
	if (file && instr->source_line)
		snprintf(text, bytes, ", %.120s:%u", file->name, instr->source_line);
}

void ptx_fail(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane, int code,
	      const char *format, ...)
{
	struct ptx_block *block = warp->block;
	char text[160], source[160];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	block->end->code = code;
	tell_source(block->module, instr, source, sizeof(source));
	snprintf(block->end->text, sizeof(block->end->text),
		 "kernel %.80s, block %u, thread %u, line %u of the PTX%s (%s): %s",
		 block->kernel->name, block->index, warp->number * PTX_LANES + lane, instr->line,
		 source, instr->opcode->text, text);
	longjmp(block->failed, 1);
}

/* xorshift64* */
static uint32_t draw(struct ptx_block *block)
{
	uint64_t x = block->seed;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	block->seed = x;
	return (uint32_t)(x * UINT64_C(0x2545f4914f6cdd1d) >> 32);
}

void ptx_visible(struct ptx_block *block)
{
	block->switches |= draw(block) % 8 == 0;
}

/* ---- special registers ---- */

static const struct {
	const char *name;
	uint32_t which;
} specials[] = {
	{"%tid.x", 0},
	{"%tid.y", 1},
	{"%tid.z", 2},
	{"%ntid.x", 3},
	{"%ntid.y", 4},
	{"%ntid.z", 5},
	{"%ctaid.x", 6},
	{"%ctaid.y", 7},
	{"%ctaid.z", 8},
	{"%nctaid.x", 9},
	{"%nctaid.y", 10},
	{"%nctaid.z", 11},
	{"%laneid", 12},
	{"%warpid", 13},
	{"%nwarpid", 14},
	{"%lanemask_eq", 15},
	{"%lanemask_lt", 16},
	{"%lanemask_le", 17},
	{"%lanemask_gt", 18},
	{"%lanemask_ge", 19},
	{"%clock", 20},
	{"%clock64", 20},
	{"%clock_hi", 21},
	{"%globaltimer", 20},
	{"%globaltimer_lo", 20},
	{"%globaltimer_hi", 21},
	{"%smid", 22},
	{"%nsmid", 23},
	{"%gridid", 24},
	{"%dynamic_smem_size", 25},
	{"%total_smem_size", 26},
	{"WARP_SZ", 27},
	{"%envreg1", 28},
	{"%envreg2", 29},
};

int ptx_special_find(const char *name)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
		if (!strcmp(specials[i].name, name))
			return (int)specials[i].which;
	}
	return -1;
}

static uint32_t part_of(uint32_t index, const uint32_t sizes[3], unsigned which)
{
	return which == 0   ? index % sizes[0]
	       : which == 1 ? index / sizes[0] % sizes[1]
			    : index / sizes[0] / sizes[1];
}

uint64_t ptx_special(const struct ptx_warp *warp, unsigned lane, uint32_t which)
{
	const struct ptx_block *block = warp->block;
	uint32_t bit = UINT32_C(1) << lane;

	if (which < 3)
		return part_of(warp->number * PTX_LANES + lane, block->grid->threads, which);
	if (which < 6)
		return block->grid->threads[which - 3];
	if (which < 9)
		return part_of(block->index, block->grid->blocks, which - 6);
	if (which < 12)
		return block->grid->blocks[which - 9];
	switch (which) {
	case 12:
		return lane;
	case 13:
		return warp->number;
	case 14:
		return block->num_warps;
	case 15:
		return bit;
	case 16:
		return bit - 1;
	case 17:
		return bit | (bit - 1);
	case 18:
		return ~(bit | (bit - 1));
	case 19:
		return ~(bit - 1);
	case 20:
		return ptx_device_clock();
	case 21:
		return ptx_device_clock() >> 32;
	case 22:
		return block->index;
	case 23:
		return (uint64_t)block->grid->blocks[0] * block->grid->blocks[1] *
		       block->grid->blocks[2];
	case 25:
		return block->grid->shared_bytes;
	case 26:
		return block->shared_bytes;
	case 27:
		return PTX_LANES;
	case 28:
		return block->grid->workspace >> 32;
	case 29:
		return block->grid->workspace & UINT32_MAX;
	default:
		return 0;
	}
}

static void set_state(struct ptx_warp *warp, unsigned lane, enum ptx_lane_state state)
{
	warp->block->running -= warp->state[lane] == PTX_RUNS;
	warp->block->running += state == PTX_RUNS;
	warp->state[lane] = (uint8_t)state;
}

/* ---- frames ---- */

static const struct ptx_frame *frame_of(const struct ptx_warp *warp, unsigned lane)
{
	return &warp->frames[lane][warp->depth[lane]];
}

/* Registers of a new frame are not cleared: on GPUs they hold anything. */
static void need_registers(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			   uint32_t slots)
{
	uint32_t room = warp->room ? warp->room : 256;
	void *registers;

	if (slots <= warp->room)
		return;
	while (room < slots)
		room *= 2;
	registers = realloc(warp->registers, room * sizeof(*warp->registers));
	if (!registers)
		ptx_fail(warp, instr, lane, OUT_OF_MEMORY, "no memory for registers");
	warp->registers = registers;
	/* A predicate is 0 or 1, and what is narrower than 64 bits has zeros above. */
	memset(warp->registers + warp->room, 0, (room - warp->room) * sizeof(*warp->registers));
	warp->room = room;
}

static uint32_t align_16(uint32_t value)
{
	return (value + 15) & ~UINT32_C(15);
}

static void copy_params(unsigned char *to, const struct ptx_param *to_params,
			const unsigned char *from, const struct ptx_param *from_params,
			uint32_t num)
{
	for (uint32_t i = 0; i < num; i++)
		memcpy(to + to_params[i].offset, from + from_params[i].offset,
		       to_params[i].bytes < from_params[i].bytes ? to_params[i].bytes
								 : from_params[i].bytes);
}

static const struct ptx_function *called(struct ptx_warp *warp, const struct ptx_instr *instr,
					 unsigned lane)
{
	const struct ptx_function *function = instr->call->function;
	uint64_t address;

	if (function)
		return function;
	address = ptx_value(warp, &instr->call->address, lane);
	function = warp->block->module->functions;
	while (function && PTX_CODE_WINDOW + function->number != address)
		function = function->next;
	if (!function)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "%#llx is not a function's address",
			 (unsigned long long)address);
	return function;
}

static void enter(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane)
{
	const struct ptx_call *call = instr->call;
	const struct ptx_function *to = called(warp, instr, lane);
	const struct ptx_frame *from = frame_of(warp, lane);
	struct ptx_frame *frame = &warp->frames[lane][warp->depth[lane] + 1];
	unsigned char *stack = warp->stacks + (size_t)lane * PTX_STACK_BYTES;

	if (warp->depth[lane] + 1 == PTX_DEPTH)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "calls deeper than %d", PTX_DEPTH);
	if (to->entry == UINT32_MAX || to->is_kernel)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED,
			 "%.60s is no function with a body here: %s", to->name,
			 to->why_not ? to->why_not : "");
	if (to->num_params != call->num_params || to->num_results != call->num_results)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "%s has other parameters", to->name);
	*frame = (struct ptx_frame){instr, to, from->base + from->function->slots,
				    from->stack + align_16(from->function->frame_bytes)};
	if (frame->stack + to->frame_bytes > PTX_STACK_BYTES)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "more than %d bytes of local memory",
			 PTX_STACK_BYTES);
	need_registers(warp, instr, lane, frame->base + to->slots);
	copy_params(stack + frame->stack, to->params, stack + from->stack, call->params,
		    call->num_params);
	warp->depth[lane]++;
	warp->pc[lane] = to->entry;
}

static void end_lane(struct ptx_warp *warp, unsigned lane);

/* From the kernel: the thread ends. */
static void leave(struct ptx_warp *warp, unsigned lane)
{
	const struct ptx_frame *frame = frame_of(warp, lane);
	const struct ptx_call *call;
	unsigned char *stack = warp->stacks + (size_t)lane * PTX_STACK_BYTES;

	if (!frame->call) {
		end_lane(warp, lane);
		return;
	}
	call = frame->call->call;
	warp->depth[lane]--;
	warp->pc[lane] = (uint32_t)(frame->call - warp->block->module->code) + 1;
	copy_params(stack + frame_of(warp, lane)->stack, call->results, stack + frame->stack,
		    frame->function->results, call->num_results);
}

/* ---- barriers of the block ---- */

static void vote_at_barrier(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);

/* Of bar.red: how many have said yes, or whether one has, or all. */
static void tell_answer(struct ptx_warp *warp, unsigned lane, uint32_t yes, uint32_t all)
{
	const struct ptx_instr *instr = &warp->block->module->code[warp->pc[lane] - 1];
	uint32_t base = warp->base;

	if (instr->run != vote_at_barrier)
		return;
	warp->base = frame_of(warp, lane)->base;
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

		warp->came &= ~(UINT32_C(1) << which);
		for (unsigned lane = 0; lane < PTX_LANES; lane++) {
			if (warp->state[lane] != PTX_WAITS_FOR_BLOCK ||
			    warp->barrier[lane] != which)
				continue;
			tell_answer(warp, lane, yes, all);
			set_state(warp, lane, PTX_RUNS);
		}
	}
}

/* Lanes that will not come, of warps that have come: barriers count whole warps. */
static uint32_t absent_of(const struct ptx_block *block, unsigned which)
{
	uint32_t absent = 0;

	for (uint32_t w = 0; w < block->num_warps; w++) {
		const struct ptx_warp *warp = block->warps[w];

		for (unsigned lane = 0; lane < PTX_LANES && warp->came >> which & 1; lane++)
			absent += warp->state[lane] == PTX_ENDED;
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

static void end_lane(struct ptx_warp *warp, unsigned lane)
{
	set_state(warp, lane, PTX_ENDED);
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
	warp->came |= UINT32_C(1) << which;
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
			set_state(warp, lane, PTX_WAITS_FOR_BLOCK);
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
		set_state(warp, lane, PTX_WAITS_FOR_BLOCK);
	}
	PTX_FOR_LANES(lane, lanes)
	look_at_barrier(block, warp->barrier[lane]);
}

/* ---- what lanes of a warp do together ---- */

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

	warp->base = frame_of(warp, lane)->base;
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

static void sync_warp(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)warp;
	(void)instr;
	(void)lanes;
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

static uint64_t reduce_two(const struct ptx_opcode *o, uint64_t a, uint64_t b)
{
	bool less = o->type.kind == PTX_SIGNED ? ptx_sign(a, 32) < ptx_sign(b, 32) : a < b;

	switch (o->action) {
	case PTX_ADD:
		return a + b;
	case PTX_AND:
		return a & b;
	case PTX_OR:
		return a | b;
	case PTX_XOR:
		return a ^ b;
	case PTX_MIN:
		return less ? a : b;
	default:
		return less ? b : a;
	}
}

static void reduce_lanes(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned first = (unsigned)__builtin_ctz(lanes);
	uint64_t value = brought(warp, first, 1);

	PTX_FOR_LANES(lane, lanes & (lanes - 1))
	value = reduce_two(instr->opcode, value, brought(warp, lane, 1));
	PTX_FOR_LANES(lane, lanes)
	give(warp, lane, 0, value & UINT32_MAX);
}

static void active_mask(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	ptx_set(warp, &instr->operands[0], lane, lanes);
}

/* ---- other instructions ---- */

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

static void nothing(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)warp;
	(void)instr;
	(void)lanes;
}

const struct ptx_operation ptx_warp_operations[] = {
	{"bra", 0, 0, PTX_BRANCH, nothing, false},
	{"brx.idx", 0, 0, PTX_BRANCH_INDEXED, nothing, false},
	{"call", 0, 0, PTX_CALL, nothing, false},
	{"ret", 0, 0, PTX_RET, nothing, false},
	{"exit", 0, 0, PTX_EXIT, nothing, false},
	{"trap", 0, 0, PTX_PLAIN, trap, false},
	{"brkpt", 0, 0, PTX_PLAIN, nothing, false},
	{"pmevent", 0, 0, PTX_PLAIN, nothing, false},
	{"nanosleep", 0, 0, PTX_PLAIN, sleep_a_little, false},
	{"bar", 0, 0, PTX_BARRIER, come_to_barrier, false},
	{"bar.red", 0, 0, PTX_BARRIER, vote_at_barrier, false},
	{"bar.warp", 0, 0, PTX_WARP_SYNC, sync_warp, false},
	{"vote", 0, 0, PTX_WARP_SYNC, vote, false},
	{"shfl", 0, 0, PTX_WARP_SYNC, shuffle, false},
	{"match.any", 0, 0, PTX_WARP_SYNC, match_any, false},
	{"match.all", 0, 0, PTX_WARP_SYNC, match_all, false},
	{"redux", 0, 0, PTX_WARP_SYNC, reduce_lanes, false},
	{"activemask", 0, 0, PTX_PLAIN, active_mask, false},
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
	enter(warp, instr, lane);
}

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
		set_state(warp, other, PTX_RUNS);
		warp->pc[other]++;
	}
}

/*
 * Lanes wait here until all that the mask names are here. Those that have ended will not come, nor
 * those that the warp does not have.
 */
static void meet_lanes(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		set_state(warp, lane, PTX_WAITS_FOR_WARP);
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
static void look_at_waiting(struct ptx_warp *warp)
{
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		if (warp->state[lane] == PTX_WAITS_FOR_WARP)
			go_together(warp, warp->waits_at[lane], lane);
	}
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
		leave(warp, lane);
		break;
	case PTX_EXIT:
		PTX_FOR_LANES(lane, go)
		end_lane(warp, lane);
		break;
	case PTX_BARRIER:
		instr->run(warp, instr, go);
		break;
	default:
		set_pc(warp, go, pc);
		meet_lanes(warp, instr, go);
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

static bool run_warp(struct ptx_warp *warp)
{
	struct ptx_block *block = warp->block;
	bool oldest = draw(block) % 4 == 0;
	int first = choose_lane(warp, oldest);
	const struct ptx_frame *frame;
	uint32_t lanes = 0, until = UINT32_MAX;

	if (first < 0)
		return false;
	frame = frame_of(warp, (unsigned)first);
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		const struct ptx_frame *other = frame_of(warp, lane);

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

/* ---- a block ---- */

/*
 * Warps of blocks that have ended, with their memory, which would cost more to have anew than a
 * short kernel. What is in it is of no meaning, as on a GPU.
 */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ptx_warp *spare;

static struct ptx_warp *make_warp(void)
{
	struct ptx_warp *warp = calloc(1, sizeof(*warp));

	if (!warp)
		return NULL;
	warp->frames = calloc(PTX_LANES, sizeof(*warp->frames));
	warp->stacks = calloc(PTX_LANES, PTX_STACK_BYTES);
	if (warp->frames && warp->stacks)
		return warp;
	free(warp->frames);
	free(warp->stacks);
	free(warp);
	return NULL;
}

static struct ptx_warp *take_warp(void)
{
	struct ptx_warp *warp;

	pthread_mutex_lock(&spare_lock);
	warp = spare;
	if (warp)
		spare = warp->next;
	pthread_mutex_unlock(&spare_lock);
	return warp ? warp : make_warp();
}

static void give_back_warp(struct ptx_warp *warp)
{
	pthread_mutex_lock(&spare_lock);
	warp->next = spare;
	spare = warp;
	pthread_mutex_unlock(&spare_lock);
}

static void prepare_warp(struct ptx_block *block, uint32_t number)
{
	struct ptx_warp *warp = take_warp();
	uint32_t left = block->threads - number * PTX_LANES;

	block->warps[number] = warp;
	if (!warp)
		longjmp(block->failed, 1);
	warp->block = block;
	warp->number = number;
	warp->there = left < PTX_LANES ? left : PTX_LANES;
	memset(warp->depth, 0, sizeof(warp->depth));
	memset(warp->ran, 0, sizeof(warp->ran));
	memset(warp->carry, 0, sizeof(warp->carry));
	warp->came = 0;
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		warp->frames[lane][0] = (struct ptx_frame){NULL, block->kernel, 0, 0};
		warp->pc[lane] = block->kernel->entry;
		warp->state[lane] = PTX_ENDED;
		if (lane < warp->there)
			set_state(warp, lane, PTX_RUNS);
	}
	need_registers(warp, &block->module->code[block->kernel->entry], 0, block->kernel->slots);
}

static void fail_dead(struct ptx_block *block)
{
	for (uint32_t w = 0; w < block->num_warps; w++) {
		struct ptx_warp *warp = block->warps[w];

		for (unsigned lane = 0; lane < PTX_LANES; lane++) {
			const struct ptx_instr *instr = &block->module->code[warp->pc[lane]];

			if (warp->state[lane] == PTX_WAITS_FOR_WARP)
				ptx_fail(warp, instr, lane, LAUNCH_FAILED,
					 "waits for lanes %#x, of which not all come here",
					 warp->wait_mask[lane]);
			if (warp->state[lane] == PTX_WAITS_FOR_BLOCK)
				ptx_fail(warp, instr - 1, lane, LAUNCH_FAILED,
					 "waits at barrier %u, which not all threads come to",
					 warp->barrier[lane]);
		}
	}
}

/* One that can go, from a random one on. False: none can. */
static bool run_some_warp(struct ptx_block *block)
{
	uint32_t first = block->num_warps > 1 ? draw(block) % block->num_warps : 0;

	for (uint32_t i = 0; i < block->num_warps; i++) {
		if (run_warp(block->warps[(first + i) % block->num_warps]))
			return true;
	}
	return false;
}

/* With one block's error the launch ends: others may wait for it. */
static bool is_stopped(const struct ptx_block *block)
{
	return block->grid->stopped &&
	       atomic_load_explicit(block->grid->stopped, memory_order_relaxed);
}

static void run(struct ptx_block *block)
{
	while (block->alive && !is_stopped(block)) {
		block->turns++;
		if (block->ended) {
			block->ended = false;
			for (uint32_t w = 0; w < block->num_warps; w++)
				look_at_waiting(block->warps[w]);
		}
		if (!run_some_warp(block) && !block->ended)
			fail_dead(block);
	}
}

void ptx_run_block(const struct ptx_module *module, const struct ptx_function *kernel,
		   const struct ptx_grid *grid, const void *args, uint32_t index, uint64_t seed,
		   struct ptx_end *end)
{
	struct ptx_block block = {.module = module,
				  .kernel = kernel,
				  .grid = grid,
				  .args = args,
				  .index = index,
				  .seed = seed | 1,
				  .end = end};

	*end = (struct ptx_end){0};
	block.threads = grid->threads[0] * grid->threads[1] * grid->threads[2];
	block.alive = block.threads;
	block.num_warps = (block.threads + PTX_LANES - 1) / PTX_LANES;
	block.shared_bytes = kernel->shared_bytes + grid->shared_bytes;
	block.shared = malloc(block.shared_bytes + 1);
	block.warps = calloc(block.num_warps, sizeof(*block.warps));
	if (!setjmp(block.failed)) {
		if (!block.shared || !block.warps)
			longjmp(block.failed, 1);
		memset(block.shared, 0xcd, block.shared_bytes);
		for (uint32_t i = 0; i < block.num_warps; i++)
			prepare_warp(&block, i);
		run(&block);
	} else if (!end->code) {
		end->code = OUT_OF_MEMORY;
		snprintf(end->text, sizeof(end->text), "no memory for a block's threads");
	}
	for (uint32_t i = 0; block.warps && i < block.num_warps; i++) {
		if (block.warps[i])
			give_back_warp(block.warps[i]);
	}
	free(block.warps);
	free(block.shared);
	__atomic_fetch_add(&ptx_executed, block.executed, __ATOMIC_RELAXED);
}
