/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversions between types, and of addresses between spaces. */
#include "ptx.h"

#include <math.h>

static bool is_float(const struct ptx_type *type)
{
	return type->kind == PTX_FLOAT || type->kind == PTX_BFLOAT;
}

/* ---- to an integer ---- */

static double lowest(const struct ptx_type *to)
{
	return to->kind == PTX_SIGNED ? -ldexp(1, to->bits - 1) : 0;
}

/* The first number above those that fit. */
static double beyond(const struct ptx_type *to)
{
	return ldexp(1, to->kind == PTX_SIGNED ? to->bits - 1 : to->bits);
}

/* Numbers that do not fit become the nearest that does; NaN zero, or with 64 bits the lowest. */
static uint64_t integer_of(double value, const struct ptx_opcode *o)
{
	double whole;

	if (isnan(value))
		return o->from.bits == 64 || o->type.bits == 64 ? UINT64_C(1) << (o->type.bits - 1)
								: 0;
	ptx_round((enum ptx_rounding)o->rounding);
	whole = nearbyint(value);
	ptx_round(PTX_NEAREST);
	if (whole >= beyond(&o->type))
		return ptx_mask_of(o->type.kind == PTX_SIGNED ? o->type.bits - 1U : o->type.bits);
	if (whole <= lowest(&o->type))
		return o->type.kind == PTX_SIGNED ? UINT64_C(1) << (o->type.bits - 1) : 0;
	return o->type.kind == PTX_SIGNED ? (uint64_t)(int64_t)whole : (uint64_t)whole;
}

/* Between integers; only what saturates looks at whether it fits. */
static uint64_t integer_of_integer(uint64_t bits, const struct ptx_opcode *o)
{
	bool is_signed = o->from.kind == PTX_SIGNED;
	__int128 value = is_signed ? (__int128)ptx_sign(bits, o->from.bits)
				   : (__int128)(bits & ptx_mask_of(o->from.bits));
	__int128 least = o->type.kind == PTX_SIGNED ? -((__int128)1 << (o->type.bits - 1)) : 0;
	__int128 most =
		((__int128)1 << (o->type.kind == PTX_SIGNED ? o->type.bits - 1 : o->type.bits)) - 1;

	if (o->saturates)
		value = value < least ? least : value > most ? most : value;
	return (uint64_t)value;
}

/* ---- to a floating-point number ---- */

static float flush(float value)
{
	return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

/* To half precision by a double with all that matters: its last bit says that there was more. */
static uint64_t half_of_integer(uint64_t bits, const struct ptx_opcode *o)
{
	bool is_signed = o->from.kind == PTX_SIGNED;
	int64_t value = is_signed ? ptx_sign(bits, o->from.bits) : 0;
	uint64_t size = is_signed ? (value < 0 ? -(uint64_t)value : (uint64_t)value)
				  : bits & ptx_mask_of(o->from.bits);
	uint64_t low = size >> 53 ? size & 0xfff : 0;
	double result = (double)((size - low) | (low ? 0x1000 : 0));

	return ptx_narrow(&o->type, value < 0 ? -result : result, (enum ptx_rounding)o->rounding);
}

/* To single precision straight from the integer, as a double on the way would round twice. */
static uint64_t float_of_integer(uint64_t bits, const struct ptx_opcode *o)
{
	volatile double result;

	if (o->type.bits == 16)
		return half_of_integer(bits, o);
	ptx_round((enum ptx_rounding)o->rounding);
	if (o->from.kind == PTX_SIGNED) {
		volatile int64_t value = ptx_sign(bits, o->from.bits);

		result = o->type.bits == 64 ? (double)value : (double)(float)value;
	} else {
		volatile uint64_t value = bits & ptx_mask_of(o->from.bits);

		result = o->type.bits == 64 ? (double)value : (double)(float)value;
	}
	ptx_round(PTX_NEAREST);
	return ptx_bits(&o->type, result);
}

static double saturated(double value)
{
	return isnan(value) || value < 0 ? 0 : value > 1 ? 1 : value;
}

static uint64_t round_to(double value, const struct ptx_opcode *o, const struct ptx_type *to)
{
	volatile float single;

	if (o->to_integral && !isnan(value)) {
		ptx_round((enum ptx_rounding)o->rounding);
		value = nearbyint(value);
		ptx_round(PTX_NEAREST);
	}
	if (o->saturates)
		value = saturated(value);
	if (to->bits == 16)
		return ptx_narrow(to, value, (enum ptx_rounding)o->rounding);
	if (to->bits == 64)
		return ptx_bits(to, value);
	ptx_round(o->to_integral ? PTX_NEAREST : (enum ptx_rounding)o->rounding);
	single = (float)value;
	ptx_round(PTX_NEAREST);
	return ptx_bits(to, o->flushes ? flush(single) : single);
}

static double number_of(uint64_t bits, const struct ptx_opcode *o)
{
	double value = ptx_number(&o->from, bits);

	return o->flushes && o->from.bits == 32 ? flush((float)value) : value;
}

static uint64_t convert_one(uint64_t bits, const struct ptx_opcode *o)
{
	if (is_float(&o->from))
		return is_float(&o->type) ? round_to(number_of(bits, o), o, &o->type)
					  : integer_of(number_of(bits, o), o);
	return is_float(&o->type) ? float_of_integer(bits, o) : integer_of_integer(bits, o);
}

/* A signed result fills a wider register with its sign. */
static void convert(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t value = convert_one(ptx_value(warp, &instr->operands[1], lane), o);

		value &= instr->mask;
		if (o->type.kind == PTX_SIGNED)
			value = (uint64_t)ptx_sign(value, o->type.bits);
		ptx_set(warp, &instr->operands[0], lane, value);
	}
}

/* Two numbers into one register, the first one on top. */
static void convert_pair(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	struct ptx_type half = {o->type.kind, 16, false};

	if (ptx_is_float8(&o->from)) {
		ptx_widen_pair(warp, instr, lanes);
		return;
	}
	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t top = round_to(number_of(ptx_value(warp, &instr->operands[1], lane), o), o,
					&half);
		uint64_t low = round_to(number_of(ptx_value(warp, &instr->operands[2], lane), o), o,
					&half);

		ptx_set(warp, &instr->operands[0], lane, top << 16 | low);
	}
}

/* Between integers nothing but the width changes, mostly. */
static void resize(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	uint64_t mask = instr->mask & ptx_mask_of(o->from.bits);
	unsigned in;
	const uint64_t *from = ptx_source(warp, &instr->operands[1], &in);
	uint64_t *out;

	if (is_float(&o->from) || o->saturates || o->from.kind == PTX_SIGNED ||
	    o->type.kind == PTX_SIGNED || instr->operands[0].kind != PTX_REGISTER) {
		convert(warp, instr, lanes);
		return;
	}
	out = ptx_slot(warp, instr->operands[0].slot);
	PTX_FOR_LANES(lane, lanes)
	out[lane] = from[lane & in] & mask;
}

/* ---- addresses ---- */

static uint64_t window_of(enum ptx_space space)
{
	return space == PTX_SHARED ? PTX_SHARED_WINDOW : space == PTX_LOCAL ? PTX_LOCAL_WINDOW : 0;
}

static void convert_address(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	uint64_t window = window_of((enum ptx_space)instr->opcode->space);

	PTX_FOR_LANES(lane, lanes)
	{
		const struct ptx_operand *from = &instr->operands[1];
		uint64_t address =
			ptx_value(warp, from, lane) + (from->kind == PTX_FRAME ? warp->stack : 0);

		ptx_set(warp, &instr->operands[0], lane,
			instr->opcode->to_space ? address - window : address + window);
	}
}

static bool is_in(enum ptx_space space, uint64_t address)
{
	switch (space) {
	case PTX_SHARED:
		return address >> 60 == PTX_SHARED_WINDOW >> 60;
	case PTX_LOCAL:
		return address >> 60 == PTX_LOCAL_WINDOW >> 60;
	case PTX_PARAM:
		return address >> 60 == PTX_PARAM_WINDOW >> 60;
	case PTX_GLOBAL:
		return address >> 60 == 0;
	default:
		return false;
	}
}

static void ask_space(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	ptx_set(warp, &instr->operands[0], lane,
		is_in((enum ptx_space)instr->opcode->space,
		      ptx_value(warp, &instr->operands[1], lane)));
}

enum {
	N = 1 << PTX_UNSIGNED | 1 << PTX_SIGNED | 1 << PTX_BITS,
	H = 1 << PTX_FLOAT | 1 << PTX_BFLOAT,
};

const struct ptx_operation ptx_convert_operations[] = {
	{"cvt", N, 0, PTX_PLAIN, resize, false},
	{"cvt", H, 32 | PTX_PAIR, PTX_PLAIN, convert_pair, false},
	{"cvt", H, 0, PTX_PLAIN, convert, false},
	{"cvta", 0, 0, PTX_PLAIN, convert_address, true},
	{"isspacep", 0, 0, PTX_PLAIN, ask_space, false},
	{0},
};
