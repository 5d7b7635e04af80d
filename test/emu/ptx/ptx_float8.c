/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Floating point of 8 bits, which comes in pairs and is only converted: E4M3, without infinity, and
 * E5M2, the upper half of binary16.
 */
#include "ptx.h"

#include <math.h>

bool ptx_is_float8(const struct ptx_type *type)
{
	return type->kind == PTX_E4M3 || type->kind == PTX_E5M2;
}

static unsigned fraction_bits(const struct ptx_type *type)
{
	return type->kind == PTX_E4M3 ? 3 : 2;
}

static int bias(const struct ptx_type *type)
{
	return type->kind == PTX_E4M3 ? 7 : 15;
}

/* Of the finite numbers; a NaN has all bits set. */
static unsigned largest(const struct ptx_type *type)
{
	return type->kind == PTX_E4M3 ? 0x7e : 0x7b;
}

static double widen(const struct ptx_type *type, unsigned bits)
{
	unsigned size = bits & 0x7f, fraction = size & ((1U << fraction_bits(type)) - 1);
	int exponent = (int)(size >> fraction_bits(type));
	double value = fraction;

	if (size > largest(type))
		return size == largest(type) + 1 && type->kind == PTX_E5M2
			       ? copysign(INFINITY, bits & 0x80 ? -1 : 1)
			       : NAN;
	if (exponent)
		value += 1U << fraction_bits(type);
	value = ldexp(value, (exponent ? exponent : 1) - bias(type) - (int)fraction_bits(type));
	return bits & 0x80 ? -value : value;
}

/* To nearest even; what is too large becomes the largest. */
static unsigned narrow(const struct ptx_type *type, double value)
{
	unsigned sign = signbit(value) ? 0x80 : 0, units;
	int exponent;

	if (isnan(value))
		return 0x7f;
	/* Of zero it says nothing. */
	frexp(value, &exponent);
	if (value == 0 || exponent < 2 - bias(type))
		exponent = 2 - bias(type);
	if (fabs(value) >= widen(type, largest(type)))
		return sign | largest(type);
	/* A carry out of the fraction goes on into the exponent. */
	units = (unsigned)nearbyint(ldexp(fabs(value), (int)fraction_bits(type) + 1 - exponent));
	return sign | (((unsigned)(exponent + bias(type) - 2) << fraction_bits(type)) + units);
}

/* Two of 32 bits, the first on top, or a pair of 16. */
static void narrow_pair(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	struct ptx_type one = {o->from.kind, o->from.pair ? 16 : o->from.bits, false};

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t first = ptx_value(warp, &instr->operands[1], lane), top = first, low;

		if (o->from.pair) {
			top = first >> 16;
			low = first & 0xffff;
		} else {
			low = ptx_value(warp, &instr->operands[2], lane);
		}
		ptx_set(warp, &instr->operands[0], lane,
			narrow(&o->type, ptx_number(&one, top)) << 8 |
				narrow(&o->type, ptx_number(&one, low)));
	}
}

void ptx_widen_pair(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	struct ptx_type half = {o->type.kind, 16, false};

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t pair = ptx_value(warp, &instr->operands[1], lane);
		uint64_t top = ptx_narrow(&half, widen(&o->from, pair >> 8 & 0xff), PTX_NEAREST);
		uint64_t low = ptx_narrow(&half, widen(&o->from, pair & 0xff), PTX_NEAREST);

		ptx_set(warp, &instr->operands[0], lane, top << 16 | low);
	}
}

const struct ptx_operation ptx_float8_operations[] = {
	{"cvt", 1 << PTX_E4M3 | 1 << PTX_E5M2, 16 | PTX_PAIR, PTX_PLAIN, narrow_pair, false},
	{0},
};
