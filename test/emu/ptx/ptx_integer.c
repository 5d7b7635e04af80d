/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Integer arithmetic, logic, comparisons, moves. Registers hold values with zeros above their
 * width, so that an unsigned value is what is there; S() is a signed one's.
 */
#include "ptx.h"

#define S(value) ptx_sign(value, bits)

/*
 * An operation of up to three operands behind the destination: `expression` is of a, b and c, and
 * is cut to a mask.
 */
#define OPERATION(name, cut, expression)                                                           \
	static void name(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)     \
	{                                                                                          \
		unsigned bits = instr->opcode->type.bits, in_a, in_b, in_c;                        \
		const uint64_t *as = ptx_source(warp, &instr->operands[1], &in_a);                 \
		const uint64_t *bs = ptx_source(warp, &instr->operands[2], &in_b);                 \
		const uint64_t *cs = ptx_source(warp, &instr->operands[3], &in_c);                 \
		uint64_t *out = ptx_slot(warp, instr->operands[0].slot), mask = cut;               \
                                                                                                   \
		PTX_FOR_LANES(lane, lanes)                                                         \
		{                                                                                  \
			uint64_t a = as[lane & in_a], b = bs[lane & in_b], c = cs[lane & in_c];    \
                                                                                                   \
			(void)bits, (void)a, (void)b, (void)c;                                     \
			out[lane] = (uint64_t)(expression)&mask;                                   \
		}                                                                                  \
	}

/* fns: the n-th bit that is set, from `base` on, upwards or, where n is negative, downwards. */
static uint64_t nth_set(uint64_t mask, uint32_t base, int32_t n)
{
	int64_t left = n < 0 ? -(int64_t)n : n, step = n < 0 ? -1 : 1;

	if (n == 0)
		return base < 32 && mask >> base & 1 ? base : UINT32_MAX;
	for (int64_t at = base; at >= 0 && at < 32; at += step) {
		if (mask >> at & 1 && --left == 0)
			return (uint64_t)at;
	}
	return UINT32_MAX;
}

/* The result has the type's width; or, of mul.wide and mad.wide, the register's, twice that. */
#define INTEGER(name, expression) OPERATION(name, instr->mask, expression)
#define WIDE(name, expression) OPERATION(name, instr->operands[0].mask, expression)

static uint64_t divide(uint64_t a, uint64_t b)
{
	return b ? a / b : ~UINT64_C(0); /* undefined in PTX; all ones on GPUs */
}

static uint64_t divide_signed(int64_t a, int64_t b)
{
	if (!b)
		return ~UINT64_C(0);
	return b == -1 ? -(uint64_t)a : (uint64_t)(a / b);
}

static uint64_t rest(uint64_t a, uint64_t b)
{
	return b ? a % b : a;
}

static uint64_t rest_signed(int64_t a, int64_t b)
{
	if (!b)
		return (uint64_t)a;
	return b == -1 ? 0 : (uint64_t)(a % b);
}

static uint64_t high(uint64_t a, uint64_t b, unsigned bits)
{
	return (uint64_t)((unsigned __int128)a * b >> bits);
}

static uint64_t high_signed(int64_t a, int64_t b, unsigned bits)
{
	return (uint64_t)((__int128)a * b >> bits);
}

/* Shifts by the width or more give what is shifted in. */
static uint64_t shift_left(uint64_t a, uint64_t b, unsigned bits)
{
	return b >= bits ? 0 : a << b;
}

static uint64_t shift_right(uint64_t a, uint64_t b, unsigned bits)
{
	return b >= bits ? 0 : a >> b;
}

static uint64_t shift_right_signed(int64_t a, uint64_t b, unsigned bits)
{
	return (uint64_t)(a >> (b >= bits ? bits - 1 : b));
}

/* Two 32-bit words as one, of which 32 bits are taken. */
static uint64_t funnel_left(uint64_t low, uint64_t top, uint64_t by)
{
	return (top << 32 | low) << by >> 32;
}

static uint64_t funnel_right(uint64_t low, uint64_t top, uint64_t by)
{
	return (top << 32 | low) >> by;
}

static uint64_t at_most_32(uint64_t by)
{
	by &= UINT32_MAX;
	return by > 32 ? 32 : by;
}

static uint64_t leading_zeros(uint64_t a, unsigned bits)
{
	return a ? (uint64_t)__builtin_clzll(a) - (64 - bits) : bits;
}

static uint64_t reverse(uint64_t a, unsigned bits)
{
	uint64_t to = 0;

	for (unsigned i = 0; i < bits; i++)
		to |= (a >> i & 1) << (bits - 1 - i);
	return to;
}

/* The highest bit that differs from the sign; all ones: there is none. */
static uint64_t find_bit(uint64_t a, unsigned bits)
{
	return a ? bits - 1 - leading_zeros(a, bits) : UINT32_MAX;
}

/* How far to shift left until the highest bit that differs from the sign is on top. */
static uint64_t find_signed_shift(uint64_t a, unsigned bits)
{
	if (ptx_sign(a, bits) < 0)
		a = ~a & ptx_mask_of(bits);
	return a ? leading_zeros(a, bits) : UINT32_MAX;
}

static uint64_t extract(uint64_t a, uint64_t at, uint64_t length, unsigned bits)
{
	at &= 255;
	length &= 255;
	return at >= bits || !length ? 0 : (a >> at) & ptx_mask_of((unsigned)length);
}

/* Above the top the sign goes on. */
static uint64_t extract_signed(uint64_t a, uint64_t at, uint64_t length, unsigned bits)
{
	int64_t value = ptx_sign(a, bits);

	at &= 255;
	length &= 255;
	if (!length)
		return 0;
	value >>= at > 63 ? 63 : at;
	return length > 63 ? (uint64_t)value
			   : (uint64_t)ptx_sign((uint64_t)value, (unsigned)length);
}

static uint64_t permute(uint64_t a, uint64_t b, uint64_t how)
{
	uint64_t from = b << 32 | a, to = 0;

	for (unsigned i = 0; i < 4; i++) {
		unsigned which = (unsigned)(how >> (4 * i)) & 15;
		uint64_t byte = from >> (8 * (which & 7)) & 255;

		if (which & 8)
			byte = byte & 128 ? 255 : 0;
		to |= byte << (8 * i);
	}
	return to;
}

static uint64_t magnitude(int64_t a)
{
	return a < 0 ? -(uint64_t)a : (uint64_t)a;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static uint64_t saturate(int64_t value)
{
	return (uint64_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}

INTEGER(add, instr->opcode->saturates ? saturate(S(a) + S(b)) : a + b)
INTEGER(subtract, instr->opcode->saturates ? saturate(S(a) - S(b)) : a - b)
INTEGER(multiply_low, a *b)
INTEGER(multiply_high, high(a, b, bits))
INTEGER(multiply_high_signed, high_signed(S(a), S(b), bits))
INTEGER(mad_low, a *b + c)
INTEGER(mad_high, high(a, b, bits) + c)
INTEGER(mad_high_signed, high_signed(S(a), S(b), bits) + c)
INTEGER(multiply_24, (a & 0xffffff) * (b & 0xffffff))
INTEGER(multiply_24_signed, (uint64_t)(ptx_sign(a, 24) * ptx_sign(b, 24)))
INTEGER(mad_24, (a & 0xffffff) * (b & 0xffffff) + c)
INTEGER(mad_24_signed, (uint64_t)(ptx_sign(a, 24) * ptx_sign(b, 24)) + c)
INTEGER(quotient, divide(a, b))
INTEGER(quotient_signed, divide_signed(S(a), S(b)))
INTEGER(remainder_of, rest(a, b))
INTEGER(remainder_signed, rest_signed(S(a), S(b)))
INTEGER(absolute, magnitude(S(a)))
INTEGER(negate, -a)
INTEGER(minimum, a < b ? a : b)
INTEGER(minimum_signed, S(a) < S(b) ? a : b)
INTEGER(maximum, a > b ? a : b)
INTEGER(maximum_signed, S(a) > S(b) ? a : b)
INTEGER(and_bits, a &b)
INTEGER(or_bits, a | b)
INTEGER(xor_bits, a ^ b)
INTEGER(not_bits, ~a)
INTEGER(is_zero, !a)
INTEGER(to_left, shift_left(a, b, bits))
INTEGER(to_right, shift_right(a, b, bits))
INTEGER(to_right_signed, shift_right_signed(S(a), b, bits))
INTEGER(funnel_left_wrap, funnel_left(a, b, c & 31))
INTEGER(funnel_left_clamp, at_most_32(c) == 32 ? a : funnel_left(a, b, at_most_32(c)))
INTEGER(funnel_right_wrap, funnel_right(a, b, c & 31))
INTEGER(funnel_right_clamp, funnel_right(a, b, at_most_32(c)))
INTEGER(sum_of_differences, distance(a, b) + c)
INTEGER(sum_of_differences_signed, (S(a) > S(b) ? a - b : b - a) + c)
INTEGER(extract_bits, extract(a, b, c, bits))
INTEGER(extract_bits_signed, extract_signed(a, b, c, bits))
INTEGER(permute_bytes, permute(a, b, c))
INTEGER(find_nth_set, nth_set(a, (uint32_t)b, (int32_t)c))
INTEGER(make_mask, a > 31 ? 0 : ptx_mask_of(b > 32 ? 32 : (unsigned)b) << a)
INTEGER(make_mask_wrapped, ptx_mask_of(b & 31) << (a & 31))

/* Of one operand, whose width is the type's; the result has 32 bits. */
#define COUNT(name, expression)                                                                    \
	static void name(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)     \
	{                                                                                          \
		unsigned bits = instr->opcode->type.bits;                                          \
                                                                                                   \
		PTX_FOR_LANES(lane, lanes)                                                         \
		{                                                                                  \
			uint64_t a = ptx_value(warp, &instr->operands[1], lane);                   \
                                                                                                   \
			(void)bits;                                                                \
			ptx_set(warp, &instr->operands[0], lane, expression);                      \
		}                                                                                  \
	}

COUNT(count_ones, (uint64_t)__builtin_popcountll(a))
COUNT(count_leading_zeros, leading_zeros(a, bits))
COUNT(reverse_bits, reverse(a, bits))
COUNT(find_highest, find_bit(a, bits))
COUNT(find_shift, a ? leading_zeros(a, bits) : UINT32_MAX)
COUNT(find_shift_signed, find_signed_shift(a, bits))
COUNT(find_highest_signed, find_bit(S(a) < 0 ? ~a & instr->mask : a, bits))

WIDE(multiply_wide, a *b)
WIDE(multiply_wide_signed, (uint64_t)(S(a) * S(b)))
WIDE(mad_wide, a *b + c)
WIDE(mad_wide_signed, (uint64_t)(S(a) * S(b)) + c)

/* ---- with a carry ---- */

/* a + b + carry, of the type's width: a borrow is the carry's opposite, as GPUs have it. */
static void add_with_carry(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes,
			   bool takes, bool subtracts)
{
	unsigned bits = instr->opcode->type.bits;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = ptx_value(warp, &instr->operands[1], lane);
		uint64_t b = ptx_value(warp, &instr->operands[2], lane);
		unsigned carry = takes ? warp->carry[lane] : subtracts;
		unsigned __int128 sum =
			(unsigned __int128)a + (subtracts ? ~b & instr->mask : b) + carry;

		ptx_set(warp, &instr->operands[0], lane, (uint64_t)sum & instr->mask);
		if (instr->opcode->carries)
			warp->carry[lane] = (uint8_t)(sum >> bits & 1);
	}
}

static void add_carry(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	add_with_carry(warp, instr, lanes, true, false);
}

static void subtract_carry(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	add_with_carry(warp, instr, lanes, true, true);
}

static void add_any(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	if (instr->opcode->carries)
		add_with_carry(warp, instr, lanes, false, false);
	else
		add(warp, instr, lanes);
}

static void subtract_any(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	if (instr->opcode->carries)
		add_with_carry(warp, instr, lanes, false, true);
	else
		subtract(warp, instr, lanes);
}

/* mad.lo.cc, madc.hi ...: the product's half, and then as an addition. */
static void mad_with_carry(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes,
			   bool takes, bool top)
{
	unsigned bits = instr->opcode->type.bits;
	bool is_signed = instr->opcode->type.kind == PTX_SIGNED;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = ptx_value(warp, &instr->operands[1], lane);
		uint64_t b = ptx_value(warp, &instr->operands[2], lane);
		uint64_t half = !top        ? a * b
				: is_signed ? high_signed(S(a), S(b), bits)
					    : high(a, b, bits);
		unsigned __int128 sum = (unsigned __int128)(half & instr->mask) +
					ptx_value(warp, &instr->operands[3], lane) +
					(takes ? warp->carry[lane] : 0);

		ptx_set(warp, &instr->operands[0], lane, (uint64_t)sum & instr->mask);
		if (instr->opcode->carries)
			warp->carry[lane] = (uint8_t)(sum >> bits & 1);
	}
}

static void mad_low_any(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	if (instr->opcode->carries)
		mad_with_carry(warp, instr, lanes, false, false);
	else
		mad_low(warp, instr, lanes);
}

static void mad_high_any(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	if (instr->opcode->carries)
		mad_with_carry(warp, instr, lanes, false, true);
	else if (instr->opcode->type.kind == PTX_SIGNED)
		mad_high_signed(warp, instr, lanes);
	else
		mad_high(warp, instr, lanes);
}

static void madc_low(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	mad_with_carry(warp, instr, lanes, true, false);
}

static void madc_high(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	mad_with_carry(warp, instr, lanes, true, true);
}

/* ---- of four operands ---- */

static void insert_bits(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned bits = instr->opcode->type.bits;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = ptx_value(warp, &instr->operands[1], lane);
		uint64_t b = ptx_value(warp, &instr->operands[2], lane);
		uint64_t at = ptx_value(warp, &instr->operands[3], lane) & 255;
		uint64_t length = ptx_value(warp, &instr->operands[4], lane) & 255, field;

		field = at < bits ? ptx_mask_of((unsigned)length) << at & instr->mask : 0;
		field = length ? field : 0;
		ptx_set(warp, &instr->operands[0], lane,
			(b & ~field) | (at < bits ? a << at & field : 0));
	}
}

/* Bit i of the table: what comes out where the three bits, a's first, are i. */
static void logic_of_three(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = ptx_value(warp, &instr->operands[1], lane);
		uint64_t b = ptx_value(warp, &instr->operands[2], lane);
		uint64_t c = ptx_value(warp, &instr->operands[3], lane);
		uint64_t table = ptx_value(warp, &instr->operands[4], lane), out = 0;

		for (unsigned i = 0; i < 8; i++) {
			if (table >> i & 1)
				out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
		}
		ptx_set(warp, &instr->operands[0], lane, out & instr->mask);
	}
}

/* Four products of bytes; the two types are of a and b, and the sum is signed where one is. */
static void dot_of_bytes(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	bool signed_a = instr->opcode->type.kind == PTX_SIGNED;
	bool signed_b = instr->opcode->from.kind == PTX_SIGNED;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = ptx_value(warp, &instr->operands[1], lane);
		uint64_t b = ptx_value(warp, &instr->operands[2], lane);
		int64_t sum = (int64_t)ptx_value(warp, &instr->operands[3], lane);

		for (unsigned i = 0; i < 32; i += 8) {
			uint64_t x = a >> i & 255, y = b >> i & 255;

			sum += (signed_a ? ptx_sign(x, 8) : (int64_t)x) *
			       (signed_b ? ptx_sign(y, 8) : (int64_t)y);
		}
		ptx_set(warp, &instr->operands[0], lane, (uint64_t)sum & UINT32_MAX);
	}
}

/* ---- moves, choices, comparisons ---- */

static void pack(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned num = instr->num - 1U, bits = instr->opcode->type.bits / num;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t value = 0;

		for (unsigned i = 0; i < num; i++)
			value |=
				(ptx_value(warp, &instr->operands[i + 1], lane) & ptx_mask_of(bits))
				<< (i * bits);
		ptx_set(warp, &instr->operands[0], lane, value);
	}
}

static void unpack(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned num = instr->num - 1U, bits = instr->opcode->type.bits / num;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t value = ptx_value(warp, &instr->operands[num], lane);

		for (unsigned i = 0; i < num; i++)
			ptx_set(warp, &instr->operands[i], lane,
				value >> (i * bits) & ptx_mask_of(bits));
	}
}

/* The only one that reads special registers, and places in the frame. */
static void move_from(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_operand *from = &instr->operands[1];

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t value = from->kind == PTX_SPECIAL ? ptx_special(warp, lane, from->slot)
				 : from->kind == PTX_FRAME ? from->value + warp->stack
							   : ptx_value(warp, from, lane);

		ptx_set(warp, &instr->operands[0], lane, value & instr->mask);
	}
}

INTEGER(move_value, a)

/* More than two operands are the parts of one, whose width tells which side they are on. */
static void move(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	if (instr->num == 2 && instr->operands[1].kind <= PTX_IMMEDIATE &&
	    instr->operands[0].kind == PTX_REGISTER)
		move_value(warp, instr, lanes);
	else if (instr->num == 2)
		move_from(warp, instr, lanes);
	else if (instr->operands[0].kind == PTX_REGISTER && instr->operands[0].mask == instr->mask)
		pack(warp, instr, lanes);
	else
		unpack(warp, instr, lanes);
}

static void choose(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned in_a, in_b, in_p;
	const uint64_t *as = ptx_source(warp, &instr->operands[1], &in_a);
	const uint64_t *bs = ptx_source(warp, &instr->operands[2], &in_b);
	const uint64_t *ps = ptx_source(warp, &instr->operands[3], &in_p);
	uint64_t *out = ptx_slot(warp, instr->operands[0].slot), mask = instr->mask;

	PTX_FOR_LANES(lane, lanes)
	out[lane] = (ps[lane & in_p] ? as[lane & in_a] : bs[lane & in_b]) & mask;
}

/* The first one where c >= 0, which NaN is not, and -0 is. */
static void choose_by_sign(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	bool is_float = instr->opcode->from.kind == PTX_FLOAT;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t c = ptx_value(warp, &instr->operands[3], lane) & UINT32_MAX;
		bool first = is_float ? c <= 0x7f800000 || c == 0x80000000 : !(c >> 31);

		ptx_set(warp, &instr->operands[0], lane,
			ptx_value(warp, &instr->operands[first ? 1 : 2], lane));
	}
}

bool ptx_compare(enum ptx_compare how, bool less, bool equal)
{
	switch (how) {
	case PTX_EQ:
		return equal;
	case PTX_NE:
		return !equal;
	case PTX_LT:
		return less;
	case PTX_LE:
		return less || equal;
	case PTX_GT:
		return !less && !equal;
	default:
		return !less;
	}
}

bool ptx_combine(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned with, unsigned lane,
		 bool answer)
{
	const struct ptx_operand *operand = &instr->operands[with];
	bool other;

	if (!instr->opcode->combine)
		return answer;
	other = (ptx_value(warp, operand, lane) != 0) != operand->negated;
	switch (instr->opcode->combine) {
	case '&':
		return answer && other;
	case '|':
		return answer || other;
	default:
		return answer != other;
	}
}

/*
 * A comparison's answer goes to a predicate, and its opposite to a second one; before that it may
 * be combined with another predicate, also one that is negated.
 */
void ptx_set_answer(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    bool answer)
{
	ptx_set(warp, &instr->operands[0], lane, ptx_combine(warp, instr, 4, lane, answer));
	ptx_set(warp, &instr->operands[1], lane, ptx_combine(warp, instr, 4, lane, !answer));
}

/* Signed numbers have the order of unsigned ones when the sign is turned. */
static uint64_t turn_of(const struct ptx_type *type)
{
	return type->kind == PTX_SIGNED ? UINT64_C(1) << (type->bits - 1) : 0;
}

static void set_predicate(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	uint64_t turn = turn_of(&instr->opcode->from);
	unsigned in_a, in_b;
	const uint64_t *as = ptx_source(warp, &instr->operands[2], &in_a);
	const uint64_t *bs = ptx_source(warp, &instr->operands[3], &in_b);

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = as[lane & in_a] ^ turn, b = bs[lane & in_b] ^ turn;

		ptx_set_answer(
			warp, instr, lane,
			ptx_compare((enum ptx_compare)instr->opcode->compare, a < b, a == b));
	}
}

/* set: all ones, or 1.0, in a register. */
static void set_number(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	uint64_t turn = turn_of(&o->from);
	uint64_t yes = o->type.kind == PTX_FLOAT ? ptx_bits(&o->type, 1) : instr->mask;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t a = ptx_value(warp, &instr->operands[1], lane) ^ turn;
		uint64_t b = ptx_value(warp, &instr->operands[2], lane) ^ turn;
		bool answer = ptx_compare((enum ptx_compare)o->compare, a < b, a == b);

		ptx_set(warp, &instr->operands[0], lane,
			ptx_combine(warp, instr, 3, lane, answer) ? yes : 0);
	}
}

/* On predicates, of which an operand may be negated. */
#define LOGIC(name, expression)                                                                    \
	static void name(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)     \
	{                                                                                          \
		const struct ptx_operand *from = instr->operands;                                  \
                                                                                                   \
		PTX_FOR_LANES(lane, lanes)                                                         \
		{                                                                                  \
			bool a = (ptx_value(warp, &from[1], lane) != 0) != from[1].negated;        \
			bool b = instr->num > 2 &&                                                 \
				 (ptx_value(warp, &from[2], lane) != 0) != from[2].negated;        \
                                                                                                   \
			(void)b;                                                                   \
			ptx_set(warp, &instr->operands[0], lane, expression);                      \
		}                                                                                  \
	}

LOGIC(and_predicates, a &&b)
LOGIC(or_predicates, a || b)
LOGIC(xor_predicates, a != b)
LOGIC(not_predicate, !a)
LOGIC(move_predicate, a)

enum {
	U = 1 << PTX_UNSIGNED,
	I = 1 << PTX_SIGNED,
	B = 1 << PTX_BITS,
	P = 1 << PTX_PRED,
	N = U | I | B,
	ALL = N | 1 << PTX_FLOAT | 1 << PTX_BFLOAT,
};

const struct ptx_operation ptx_integer_operations[] = {
	{"add", N, 0, PTX_PLAIN, add_any, false},
	{"addc", N, 0, PTX_PLAIN, add_carry, false},
	{"sub", N, 0, PTX_PLAIN, subtract_any, false},
	{"subc", N, 0, PTX_PLAIN, subtract_carry, false},
	{"mul.lo", N, 0, PTX_PLAIN, multiply_low, false},
	{"mul.hi", U, 0, PTX_PLAIN, multiply_high, false},
	{"mul.hi", I, 0, PTX_PLAIN, multiply_high_signed, false},
	{"mul.wide", U, 0, PTX_PLAIN, multiply_wide, false},
	{"mul.wide", I, 0, PTX_PLAIN, multiply_wide_signed, false},
	{"mul24.lo", U, 0, PTX_PLAIN, multiply_24, false},
	{"mul24.lo", I, 0, PTX_PLAIN, multiply_24_signed, false},
	{"mad.lo", N, 0, PTX_PLAIN, mad_low_any, false},
	{"mad.hi", N, 0, PTX_PLAIN, mad_high_any, false},
	{"madc.lo", N, 0, PTX_PLAIN, madc_low, false},
	{"madc.hi", N, 0, PTX_PLAIN, madc_high, false},
	{"mad.wide", U, 0, PTX_PLAIN, mad_wide, false},
	{"mad.wide", I, 0, PTX_PLAIN, mad_wide_signed, false},
	{"mad24.lo", U, 0, PTX_PLAIN, mad_24, false},
	{"mad24.lo", I, 0, PTX_PLAIN, mad_24_signed, false},
	{"div", U, 0, PTX_PLAIN, quotient, false},
	{"div", I, 0, PTX_PLAIN, quotient_signed, false},
	{"rem", U, 0, PTX_PLAIN, remainder_of, false},
	{"rem", I, 0, PTX_PLAIN, remainder_signed, false},
	{"abs", I, 0, PTX_PLAIN, absolute, false},
	{"neg", N, 0, PTX_PLAIN, negate, false},
	{"min", U, 0, PTX_PLAIN, minimum, false},
	{"min", I, 0, PTX_PLAIN, minimum_signed, false},
	{"max", U, 0, PTX_PLAIN, maximum, false},
	{"max", I, 0, PTX_PLAIN, maximum_signed, false},
	{"and", N, 0, PTX_PLAIN, and_bits, false},
	{"or", N, 0, PTX_PLAIN, or_bits, false},
	{"xor", N, 0, PTX_PLAIN, xor_bits, false},
	{"not", N, 0, PTX_PLAIN, not_bits, false},
	{"cnot", N, 0, PTX_PLAIN, is_zero, false},
	{"and", P, 0, PTX_PLAIN, and_predicates, false},
	{"or", P, 0, PTX_PLAIN, or_predicates, false},
	{"xor", P, 0, PTX_PLAIN, xor_predicates, false},
	{"not", P, 0, PTX_PLAIN, not_predicate, false},
	{"mov", P, 0, PTX_PLAIN, move_predicate, false},
	{"shl", N, 0, PTX_PLAIN, to_left, false},
	{"shr", U | B, 0, PTX_PLAIN, to_right, false},
	{"shr", I, 0, PTX_PLAIN, to_right_signed, false},
	{"shf.l.wrap", B, 32, PTX_PLAIN, funnel_left_wrap, false},
	{"shf.l.clamp", B, 32, PTX_PLAIN, funnel_left_clamp, false},
	{"shf.r.wrap", B, 32, PTX_PLAIN, funnel_right_wrap, false},
	{"shf.r.clamp", B, 32, PTX_PLAIN, funnel_right_clamp, false},
	{"sad", U, 0, PTX_PLAIN, sum_of_differences, false},
	{"sad", I, 0, PTX_PLAIN, sum_of_differences_signed, false},
	{"bfe", U, 0, PTX_PLAIN, extract_bits, false},
	{"bfe", I, 0, PTX_PLAIN, extract_bits_signed, false},
	{"bfi", B, 0, PTX_PLAIN, insert_bits, false},
	{"prmt", B, 32, PTX_PLAIN, permute_bytes, false},
	{"lop3", B, 32, PTX_PLAIN, logic_of_three, false},
	{"fns", B, 32, PTX_PLAIN, find_nth_set, false},
	{"popc", B, 0, PTX_PLAIN, count_ones, false},
	{"clz", B, 0, PTX_PLAIN, count_leading_zeros, false},
	{"brev", B, 0, PTX_PLAIN, reverse_bits, false},
	{"bfind", U, 0, PTX_PLAIN, find_highest, false},
	{"bfind", I, 0, PTX_PLAIN, find_highest_signed, false},
	{"bmsk.clamp", B, 32, PTX_PLAIN, make_mask, false},
	{"bmsk.wrap", B, 32, PTX_PLAIN, make_mask_wrapped, false},
	{"bfind.shiftamt", U, 0, PTX_PLAIN, find_shift, false},
	{"bfind.shiftamt", I, 0, PTX_PLAIN, find_shift_signed, false},
	{"dp4a", U | I, 32, PTX_PLAIN, dot_of_bytes, false},
	{"mov", ALL, 0, PTX_PLAIN, move, true},
	{"selp", ALL, 0, PTX_PLAIN, choose, false},
	{"slct", ALL, 0, PTX_PLAIN, choose_by_sign, false},
	{"setp", N, 0, PTX_PLAIN, set_predicate, false},
	{"set", N, 0, PTX_PLAIN, set_number, false},
	{0},
};
