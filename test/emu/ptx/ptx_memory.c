/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads, stores, atomic operations. What others may look at (volatile, or with a scope) is done by
 * the host's atomic loads and stores, word by word, with acquire and release: more order than PTX
 * promises, so nothing here proves that a kernel has the fences it needs (see test/model).
 */
#include "ptx.h"
#include "ptx_watch.h"

#include <math.h>
#include <string.h>

/* CUDA's errors, as a CUresult. */
enum { ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, INVALID_ADDRESS_SPACE = 717 };

/* ---- places ---- */

static const char *const space_names[] = {
	[PTX_GENERIC] = "generic", [PTX_GLOBAL] = "global", [PTX_SHARED] = "shared",
	[PTX_LOCAL] = "local",     [PTX_PARAM] = "param",   [PTX_CONST] = "const",
};

static void fail_address(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			 enum ptx_space space, uint64_t address, size_t bytes)
{
	ptx_fail(warp, instr, lane, ILLEGAL_ADDRESS, "%zu bytes at %#llx are in no %s memory",
		 bytes, (unsigned long long)address, space_names[space]);
}

static unsigned char *place_shared(const struct ptx_block *block, uint64_t offset, size_t bytes)
{
	uint64_t dynamic = block->grid->shared_bytes, fixed = block->kernel->shared_bytes;

	if (offset >= PTX_DYNAMIC_SHARED) {
		offset -= PTX_DYNAMIC_SHARED;
		return offset <= dynamic && bytes <= dynamic - offset
			       ? block->shared + fixed + offset
			       : NULL;
	}
	return offset <= fixed && bytes <= fixed - offset ? block->shared + offset : NULL;
}

static unsigned char *place_of(struct ptx_warp *warp, unsigned lane, enum ptx_space space,
			       uint64_t address, size_t bytes)
{
	const struct ptx_block *block = warp->block;
	uint64_t window = address >> 60 << 60, offset = address - window;

	if (space == PTX_SHARED || space == PTX_LOCAL) {
		uint64_t own = space == PTX_SHARED ? PTX_SHARED_WINDOW : PTX_LOCAL_WINDOW;

		if (window && window != own)
			return NULL;
		window = own;
	}
	switch (window) {
	case 0:
		return ptx_device_place(address, bytes);
	case PTX_SHARED_WINDOW:
		return place_shared(block, offset, bytes);
	case PTX_LOCAL_WINDOW:
		return offset <= PTX_STACK_BYTES && bytes <= PTX_STACK_BYTES - offset
			       ? warp->stacks + (size_t)lane * PTX_STACK_BYTES + offset
			       : NULL;
	case PTX_PARAM_WINDOW:
		return offset <= block->kernel->param_bytes &&
				       bytes <= block->kernel->param_bytes - offset
			       ? (unsigned char *)block->args + offset
			       : NULL;
	default:
		return NULL;
	}
}

void *ptx_place(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		enum ptx_space space, uint64_t address, size_t bytes)
{
	unsigned char *place;

	if (address & (bytes - 1))
		ptx_fail(warp, instr, lane, MISALIGNED_ADDRESS,
			 "%zu bytes at %#llx, which is no multiple", bytes,
			 (unsigned long long)address);
	if (space == PTX_GLOBAL && address >> 60)
		ptx_fail(warp, instr, lane, INVALID_ADDRESS_SPACE,
			 "%#llx is not an address of global memory", (unsigned long long)address);
	place = place_of(warp, lane, space, address, bytes);
	if (!place)
		fail_address(warp, instr, lane, space, address, bytes);
	return place;
}

uint64_t ptx_address(struct ptx_warp *warp, const struct ptx_operand *operand, unsigned lane)
{
	switch (operand->kind) {
	case PTX_REGISTER:
		/* In 32 bits, as addresses of shared memory may be kept, it wraps there. */
		return (ptx_slot(warp, operand->slot)[lane] + operand->value) & operand->mask;
	case PTX_FRAME:
		return warp->stack + operand->value;
	default:
		return operand->value;
	}
}

/* ---- loads and stores ---- */

static uint64_t load_word(const unsigned char *from, unsigned bytes, bool visible)
{
	uint64_t value = 0;

	if (!visible) {
		memcpy(&value, from, bytes);
		return value;
	}
	switch (bytes) {
	case 1:
		return __atomic_load_n(from, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const uint16_t *)from, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const uint32_t *)from, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE);
	}
}

static void store_word(unsigned char *to, unsigned bytes, bool visible, uint64_t value)
{
	if (!visible) {
		memcpy(to, &value, bytes);
		return;
	}
	switch (bytes) {
	case 1:
		__atomic_store_n(to, (uint8_t)value, __ATOMIC_RELEASE);
		break;
	case 2:
		__atomic_store_n((uint16_t *)to, (uint16_t)value, __ATOMIC_RELEASE);
		break;
	case 4:
		__atomic_store_n((uint32_t *)to, (uint32_t)value, __ATOMIC_RELEASE);
		break;
	default:
		__atomic_store_n((uint64_t *)to, value, __ATOMIC_RELEASE);
	}
}

/*
 * Who looks at others' memory again and again, and stores nothing, waits for somebody, who may need
 * the core: soon where it is the same word, or several warps look at one each, and at last where
 * they are many in turn.
 */
static void note_look(struct ptx_block *block, uint64_t address)
{
	enum { SAME = 32, AGAIN = 16, LOOKS = 64 };
	uint64_t *seen = &block->looked[address * UINT64_C(0x9e3779b97f4a7c15) >> 60];

	block->looks += address == block->looked_at ? SAME : address == *seen ? AGAIN : 1;
	block->looked_at = *seen = address;
	if (block->looks < LOOKS)
		return;
	block->looks = 0;
	ptx_device_pause();
}

static void load_of_lane(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane)
{
	const struct ptx_opcode *o = instr->opcode;
	unsigned bytes = o->type.bits / 8U;
	const unsigned char *from = ptx_place(warp, instr, lane, (enum ptx_space)o->space,
					      ptx_address(warp, &instr->operands[o->vector], lane),
					      (size_t)bytes * o->vector);

	for (unsigned i = o->vector; i-- > 0;) {
		uint64_t value;

		if (warp->block->watch)
			ptx_watch_load(warp, instr, lane, from + i * bytes, bytes, o->visible);
		value = load_word(from + i * bytes, bytes, o->visible);
		if (o->type.kind == PTX_SIGNED)
			value = (uint64_t)ptx_sign(value, o->type.bits);
		ptx_set(warp, &instr->operands[i], lane, value);
	}
}

/*
 * From the last lane's last word to the first, against the order of stores: a line of 128 bytes
 * that neighbours of a warp store at once, with its flag at the end, is seen whole or not at all,
 * as it is on GPUs that are joined by NVLink.
 */
static void load(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;

	if (o->visible && o->space != PTX_SHARED)
		note_look(warp->block, ptx_address(warp, &instr->operands[o->vector],
						   (unsigned)__builtin_ctz(lanes)));
	for (uint32_t left = lanes; left;) {
		unsigned lane = 31 - (unsigned)__builtin_clz(left);

		left &= ~(UINT32_C(1) << lane);
		load_of_lane(warp, instr, lane);
	}
	if (o->space != PTX_PARAM && o->space != PTX_LOCAL && o->space != PTX_CONST)
		ptx_visible(warp->block);
}

static void store(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	unsigned bytes = o->type.bits / 8U;

	warp->block->looks = 0;
	PTX_FOR_LANES(lane, lanes)
	{
		if (ptx_address(warp, &instr->operands[0], lane) >> 60 == PTX_PARAM_WINDOW >> 60)
			ptx_fail(warp, instr, lane, ILLEGAL_ADDRESS,
				 "a store to a kernel's parameters");
		unsigned char *to = ptx_place(warp, instr, lane, (enum ptx_space)o->space,
					      ptx_address(warp, &instr->operands[0], lane),
					      (size_t)bytes * o->vector);

		for (unsigned i = 0; i < o->vector; i++) {
			uint64_t value = ptx_value(warp, &instr->operands[i + 1], lane);

			if (warp->block->watch)
				ptx_watch_store(warp, instr, lane, to + i * bytes, bytes, value,
						o->visible);
			store_word(to + i * bytes, bytes, o->visible, value);
		}
	}
	if (o->space != PTX_PARAM && o->space != PTX_LOCAL)
		ptx_visible(warp->block);
}

/* ---- atomic operations ---- */

static bool is_less(const struct ptx_type *type, uint64_t a, uint64_t b)
{
	if (type->kind == PTX_SIGNED)
		return ptx_sign(a, type->bits) < ptx_sign(b, type->bits);
	return a < b;
}

static double flushed(double value)
{
	return fpclassify((float)value) == FP_SUBNORMAL ? copysign(0, value) : value;
}

/* In global memory single precision has no subnormal numbers, in shared memory it has. */
static uint64_t sum(const struct ptx_type *type, uint64_t a, uint64_t b, bool flushes)
{
	uint64_t out = 0;

	if (type->kind != PTX_FLOAT && type->kind != PTX_BFLOAT)
		return a + b;
	if (flushes && type->bits == 32 && !type->pair)
		return ptx_bits(
			type, flushed(flushed(ptx_number(type, a)) + flushed(ptx_number(type, b))));
	if (!type->pair)
		return ptx_bits(type, ptx_number(type, a) + ptx_number(type, b));
	for (unsigned at = 0; at < 32; at += 16)
		out |= ptx_narrow(type, (double)ptx_widen(type, a >> at) + ptx_widen(type, b >> at),
				  PTX_NEAREST)
		       << at;
	return out;
}

uint64_t ptx_apply(const struct ptx_opcode *o, uint64_t was, uint64_t b, uint64_t c, bool flushes)
{
	switch (o->action) {
	case PTX_ADD:
		return sum(&o->type, was, b, flushes);
	case PTX_AND:
		return was & b;
	case PTX_OR:
		return was | b;
	case PTX_XOR:
		return was ^ b;
	case PTX_MIN:
		return is_less(&o->type, b, was) ? b : was;
	case PTX_MAX:
		return is_less(&o->type, was, b) ? b : was;
	case PTX_CAS:
		return was == b ? c : was;
	case PTX_INC:
		return was >= b ? 0 : was + 1;
	case PTX_DEC:
		return was == 0 || was > b ? b : was - 1;
	default:
		return b;
	}
}

static bool swap(unsigned char *at, unsigned bits, uint64_t *was, uint64_t now)
{
	if (bits == 64)
		return __atomic_compare_exchange_n((uint64_t *)at, was, now, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	if (bits == 32) {
		uint32_t expected = (uint32_t)*was;
		bool done = __atomic_compare_exchange_n((uint32_t *)at, &expected, (uint32_t)now,
							false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);

		*was = expected;
		return done;
	}
	uint16_t expected = (uint16_t)*was;
	bool done = __atomic_compare_exchange_n((uint16_t *)at, &expected, (uint16_t)now, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);

	*was = expected;
	return done;
}

/*
 * An element of a lane. `first`: the operand that is the address; before it those of old values, or
 * none; behind it those of new ones.
 */
static void update_element(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			   unsigned first, unsigned element, unsigned char *at)
{
	const struct ptx_opcode *o = instr->opcode;
	uint64_t address = ptx_address(warp, &instr->operands[first], lane);
	uint64_t b = ptx_value(warp, &instr->operands[first + 1 + element], lane) & instr->mask;
	uint64_t c = ptx_value(warp, &instr->operands[first + 2], lane) & instr->mask;
	bool flushes = o->space != PTX_SHARED && address >> 60 == 0;
	unsigned bits = o->type.bits;
	uint64_t was;

	if (warp->block->watch)
		ptx_watch_load(warp, instr, lane, at, bits / 8, true);
	was = load_word(at, bits / 8, true);
	while (!swap(at, bits, &was, ptx_apply(o, was, b, c, flushes) & instr->mask))
		;
	if (warp->block->watch && (o->action != PTX_CAS || was == b))
		ptx_watch_swap(warp, instr, lane, at, bits / 8);
	if (o->action == PTX_CAS && was != b)
		note_look(warp->block, address);
	if (first)
		ptx_set(warp, &instr->operands[element], lane, was);
}

/* One lane after the other, and of a vector, which is not atomic as such, one element. */
static void update(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes,
		   unsigned first)
{
	const struct ptx_opcode *o = instr->opcode;
	unsigned bytes = o->type.bits / 8U;

	if (o->action != PTX_CAS)
		warp->block->looks = 0;
	PTX_FOR_LANES(lane, lanes)
	{
		unsigned char *at = ptx_place(warp, instr, lane, (enum ptx_space)o->space,
					      ptx_address(warp, &instr->operands[first], lane),
					      (size_t)bytes * o->vector);

		for (unsigned i = 0; i < o->vector; i++)
			update_element(warp, instr, lane, first, i, at + i * bytes);
	}
	ptx_visible(warp->block);
}

static void atomic(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	update(warp, instr, lanes, instr->opcode->vector);
}

static void reduce(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	update(warp, instr, lanes, 0);
}

static void fence(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)instr;
	(void)lanes;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ptx_visible(warp->block);
}

const struct ptx_operation ptx_memory_operations[] = {
	{"ld", 0, 0, PTX_PLAIN, load, true},
	{"ldu", 0, 0, PTX_PLAIN, load, true},
	{"st", 0, 0, PTX_PLAIN, store, true},
	{"atom", 0, 0, PTX_PLAIN, atomic, true},
	{"red", 0, 0, PTX_PLAIN, reduce, true},
	{"fence", 0, 0, PTX_PLAIN, fence, false},
	{"membar", 0, 0, PTX_PLAIN, fence, false},
	{"prefetch", 0, 0, PTX_PLAIN, ptx_nothing, true},
	{"prefetchu", 0, 0, PTX_PLAIN, ptx_nothing, true},
	{0},
};
