/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Floating-point arithmetic. The host's is IEEE 754 as PTX's is, so that sums, products, quotients,
 * roots and fused multiply-adds are the same bits in every rounding; built without contraction, and
 * with a rounding that may change. A NaN that an operation of single or half precision gives is
 * 0x7fffffff or 0x7fff, as the PTX ISA says. What PTX calls approximate is what the host's library
 * gives, which is within PTX's bounds.
 */
#include "ptx.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

static float float_of(uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	float value;

	memcpy(&value, &low, sizeof(value));
	return value;
}

static uint64_t raw_bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static uint64_t bits_of(float value)
{
	return isnan(value) ? 0x7fffffff : raw_bits_of(value);
}

static double double_of(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint64_t bits_of_double(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

void ptx_round(enum ptx_rounding rounding)
{
	static const int modes[] = {[PTX_NEAREST] = FE_TONEAREST,
				    [PTX_ZERO] = FE_TOWARDZERO,
				    [PTX_DOWN] = FE_DOWNWARD,
				    [PTX_UP] = FE_UPWARD,
				    [PTX_NOT_ROUNDED] = FE_TONEAREST};

	fesetround(modes[rounding]);
}

static bool is_rounded(const struct ptx_opcode *o)
{
	return o->rounding != PTX_NEAREST && o->rounding != PTX_NOT_ROUNDED;
}

static float flush(float value)
{
	return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value;
}

static float saturate(float value)
{
	return isnan(value) || value < 0 ? 0 : value > 1 ? 1 : value;
}

/* ---- single and double ---- */

/* What goes in, and what comes out as bits: .ftz and .sat are of single precision. */
static float in_of_float(const struct ptx_opcode *o, uint64_t bits)
{
	return o->flushes ? flush(float_of(bits)) : float_of(bits);
}

static uint64_t out_of_float(const struct ptx_opcode *o, float value)
{
	value = o->flushes ? flush(value) : value;
	return bits_of(o->saturates ? saturate(value) : value);
}

static double in_of_double(const struct ptx_opcode *o, uint64_t bits)
{
	(void)o;
	return double_of(bits);
}

static uint64_t out_of_double(const struct ptx_opcode *o, double value)
{
	(void)o;
	return bits_of_double(value);
}

/*
 * `expression`: of a, b and c. The operands and the result go through memory (volatile), as the
 * compiler knows nothing of the rounding's change.
 */
#define REAL(name, real, expression)                                                               \
	static void name(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)     \
	{                                                                                          \
		const struct ptx_opcode *o = instr->opcode;                                        \
		unsigned in_a, in_b, in_c;                                                         \
		const uint64_t *as = ptx_source(warp, &instr->operands[1], &in_a);                 \
		const uint64_t *bs = ptx_source(warp, &instr->operands[2], &in_b);                 \
		const uint64_t *cs = ptx_source(warp, &instr->operands[3], &in_c);                 \
		uint64_t *out = ptx_slot(warp, instr->operands[0].slot);                           \
                                                                                                   \
		if (is_rounded(o))                                                                 \
			ptx_round((enum ptx_rounding)o->rounding);                                 \
		PTX_FOR_LANES(lane, lanes)                                                         \
		{                                                                                  \
			volatile real a = in_of_##real(o, as[lane & in_a]);                        \
			volatile real b = in_of_##real(o, bs[lane & in_b]);                        \
			volatile real c = in_of_##real(o, cs[lane & in_c]), result;                \
                                                                                                   \
			(void)b, (void)c;                                                          \
			result = (real)(expression);                                               \
			out[lane] = out_of_##real(o, result);                                      \
		}                                                                                  \
		if (is_rounded(o))                                                                 \
			ptx_round(PTX_NEAREST);                                                    \
	}

#define SINGLE(name, expression) REAL(name, float, expression)
#define DOUBLE(name, expression) REAL(name, double, expression)

/* The number, where the other is NaN; of two zeros -0 is the lesser. */
static double lesser(double a, double b, bool sees_nan)
{
	if (isnan(a) || isnan(b))
		return sees_nan || (isnan(a) && isnan(b)) ? NAN : isnan(a) ? b : a;
	if (a == b)
		return signbit(a) ? a : b;
	return a < b ? a : b;
}

static double greater(double a, double b, bool sees_nan)
{
	if (isnan(a) || isnan(b))
		return sees_nan || (isnan(a) && isnan(b)) ? NAN : isnan(a) ? b : a;
	if (a == b)
		return signbit(a) ? b : a;
	return a > b ? a : b;
}

SINGLE(add, a + b)
SINGLE(subtract, a - b)
SINGLE(multiply, a *b)
SINGLE(divide, a / b)
SINGLE(multiply_add, fmaf(a, b, c))
SINGLE(minimum, lesser(a, b, o->sees_nan))
SINGLE(maximum, greater(a, b, o->sees_nan))
SINGLE(reciprocal, 1 / a)
SINGLE(root, sqrtf(a))
SINGLE(reciprocal_root, 1 / sqrt(a))
SINGLE(power_of_two, exp2(a))
SINGLE(logarithm, log2(a))
SINGLE(sine, sin(a))
SINGLE(cosine, cos(a))
SINGLE(tangent, tanh(a))
DOUBLE(add_double, a + b)
DOUBLE(subtract_double, a - b)
DOUBLE(multiply_double, a *b)
DOUBLE(divide_double, a / b)
DOUBLE(multiply_add_double, fma(a, b, c))
DOUBLE(minimum_double, lesser(a, b, o->sees_nan))
DOUBLE(maximum_double, greater(a, b, o->sees_nan))
DOUBLE(reciprocal_double, 1 / a)
DOUBLE(root_double, sqrt(a))
DOUBLE(reciprocal_root_double, 1 / sqrt(a))

/* On the sign alone, NaN's too. */
#define SIGN(name, expression)                                                                     \
	static void name(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)     \
	{                                                                                          \
		const struct ptx_type *type = &instr->opcode->type;                                \
		uint64_t sign = UINT64_C(1) << (type->bits - 1);                                   \
                                                                                                   \
		sign |= type->pair ? sign >> 16 : 0;                                               \
		PTX_FOR_LANES(lane, lanes)                                                         \
		{                                                                                  \
			uint64_t a = ptx_value(warp, &instr->operands[1], lane);                   \
			uint64_t b = ptx_value(warp, &instr->operands[2], lane);                   \
                                                                                                   \
			(void)b;                                                                   \
			if (instr->opcode->flushes && type->bits == 32 && !type->pair)             \
				a = raw_bits_of(flush(float_of(a)));                               \
			ptx_set(warp, &instr->operands[0], lane, expression);                      \
		}                                                                                  \
	}

SIGN(absolute, a & ~sign)
SIGN(negate, a ^ sign)
SIGN(copy_sign, (b & ~sign) | (a & sign)) /* of a, to b */

/* ---- half precision ---- */

float ptx_widen(const struct ptx_type *type, uint64_t bits)
{
	uint64_t sign = bits >> 15 & 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
	float value;

	if (type->kind == PTX_BFLOAT)
		return float_of((bits & 0xffff) << 16);
	if (exponent == 31)
		value = fraction ? NAN : INFINITY;
	else
		value = ldexpf((float)(exponent ? fraction | 1024 : fraction),
			       (int)(exponent ? exponent : 1) - 25);
	return sign ? -value : value;
}

/*
 * From a double, in which sums and products of two are exact, so that there is one rounding. The
 * spacing of the numbers around the value divides it into a whole number and a rest.
 */
uint64_t ptx_narrow(const struct ptx_type *type, double value, enum ptx_rounding rounding)
{
	bool is_brain = type->kind == PTX_BFLOAT;
	int digits = is_brain ? 8 : 11, least = is_brain ? -126 : -14, exponent;
	uint64_t infinity = is_brain ? 0x7f80 : 0x7c00, sign = signbit(value) ? 0x8000 : 0;
	double size = fabs(value), whole, rest;

	if (isnan(value))
		return 0x7fff;
	if (size == 0 || isinf(value))
		return sign | (size == 0 ? 0 : infinity);
	frexp(size, &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	whole = floor(ldexp(size, digits - 1 - exponent));
	rest = ldexp(size, digits - 1 - exponent) - whole;
	if (rounding == PTX_UP ? rest > 0 && !sign : rounding == PTX_DOWN ? rest > 0 && sign : 0)
		whole += 1;
	else if (rounding == PTX_NEAREST || rounding == PTX_NOT_ROUNDED)
		whole += rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1);
	/* A carry into the exponent is what the addition makes of it. */
	if (whole < ldexp(1, digits - 1))
		return sign | (uint64_t)whole;
	whole += ldexp((double)(exponent - least), digits - 1);
	if (whole < (double)infinity)
		return sign | (uint64_t)whole;
	if (rounding == PTX_ZERO || (rounding == PTX_UP && sign) || (rounding == PTX_DOWN && !sign))
		return sign | (infinity - 1);
	return sign | infinity;
}

double ptx_number(const struct ptx_type *type, uint64_t bits)
{
	if (type->bits == 64)
		return double_of(bits);
	return type->bits == 32 && !type->pair ? float_of(bits) : ptx_widen(type, bits);
}

uint64_t ptx_bits(const struct ptx_type *type, double value)
{
	if (type->bits == 64)
		return bits_of_double(value);
	return type->bits == 32 && !type->pair ? bits_of((float)value)
					       : ptx_narrow(type, value, PTX_NEAREST);
}

static double saturate_double(double value)
{
	return isnan(value) || value < 0 ? 0 : value > 1 ? 1 : value;
}

/*
 * A sum whose last bit says that there was more, so that the rounding that follows is the only one
 * (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008). The error of a sum in
 * double precision is itself a double (Knuth).
 */
static double odd_sum(double a, double b)
{
	volatile double sum = a + b, b_part = sum - a, a_part = sum - b_part;
	volatile double error = (a - a_part) + (b - b_part);
	uint64_t bits = bits_of_double(sum);

	if (!isfinite(sum) || error == 0 || bits & 1)
		return sum;
	return double_of((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

static double flush_half(const struct ptx_type *type, double value)
{
	return type->kind == PTX_FLOAT && fabs(value) < 0x1p-14 ? copysign(0, value) : value;
}

/*
 * One value, or two; `expression`: in double precision, in which only the sum of an fma is not
 * exact: there the product and the addend may be far apart.
 */
#define HALF(name, expression)                                                                     \
	static void name(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)     \
	{                                                                                          \
		const struct ptx_opcode *o = instr->opcode;                                        \
		const struct ptx_type *type = &o->type;                                            \
                                                                                                   \
		PTX_FOR_LANES(lane, lanes)                                                         \
		{                                                                                  \
			uint64_t out = 0;                                                          \
                                                                                                   \
			for (unsigned at = 0; at < type->bits; at += 16) {                         \
				double a = ptx_widen(                                              \
					type, ptx_value(warp, &instr->operands[1], lane) >> at);   \
				double b = ptx_widen(                                              \
					type, ptx_value(warp, &instr->operands[2], lane) >> at);   \
				double c = ptx_widen(                                              \
					type, ptx_value(warp, &instr->operands[3], lane) >> at);   \
				double result;                                                     \
                                                                                                   \
				if (o->flushes) {                                                  \
					a = flush_half(type, a);                                   \
					b = flush_half(type, b);                                   \
					c = flush_half(type, c);                                   \
				}                                                                  \
				(void)b, (void)c;                                                  \
				result = (expression);                                             \
				if (o->flushes)                                                    \
					result = flush_half(type, result);                         \
				if (o->saturates)                                                  \
					result = saturate_double(result);                          \
				out |= ptx_narrow(type, result, PTX_NEAREST) << at;                \
			}                                                                          \
			ptx_set(warp, &instr->operands[0], lane, out);                             \
		}                                                                                  \
	}

HALF(add_half, a + b)
HALF(subtract_half, a - b)
HALF(multiply_half, a *b)
HALF(multiply_add_half, odd_sum(a *b, c))
HALF(minimum_half, lesser(a, b, o->sees_nan))
HALF(maximum_half, greater(a, b, o->sees_nan))
HALF(power_of_two_half, exp2(a))
HALF(tangent_half, tanh(a))

/* ---- comparisons ---- */

static bool compare(const struct ptx_opcode *o, double a, double b)
{
	bool is_nan = isnan(a) || isnan(b);

	if (o->compare == PTX_NUM || o->compare == PTX_NAN)
		return is_nan == (o->compare == PTX_NAN);
	if (is_nan)
		return o->unordered;
	return ptx_compare((enum ptx_compare)o->compare, a < b, a == b);
}

static double operand_of(const struct ptx_opcode *o, uint64_t bits)
{
	double value = ptx_number(&o->from, bits);

	if (!o->flushes || o->from.bits == 64)
		return value;
	return o->from.bits == 32 && !o->from.pair ? flush((float)value)
						   : flush_half(&o->from, value);
}

static void set_predicate(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;

	PTX_FOR_LANES(lane, lanes)
	ptx_set_answer(warp, instr, lane,
		       compare(o, operand_of(o, ptx_value(warp, &instr->operands[2], lane)),
			       operand_of(o, ptx_value(warp, &instr->operands[3], lane))));
}

/* Of two values: each predicate is one's answer. */
static void set_predicates_of_pair(struct ptx_warp *warp, const struct ptx_instr *instr,
				   uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;

	PTX_FOR_LANES(lane, lanes)
	{
		for (unsigned i = 0; i < 2; i++) {
			double a = ptx_widen(&o->from, ptx_value(warp, &instr->operands[2], lane) >>
							       (16 * i));
			double b = ptx_widen(&o->from, ptx_value(warp, &instr->operands[3], lane) >>
							       (16 * i));

			ptx_set(warp, &instr->operands[i], lane,
				ptx_combine(warp, instr, 4, lane, compare(o, a, b)));
		}
	}
}

/* set: all ones, or 1, of a register's half for each of two values. */
static void set_number(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const struct ptx_opcode *o = instr->opcode;
	struct ptx_type half = {o->type.kind, 16, false};
	unsigned bits = o->from.pair ? 16 : o->type.bits;
	bool is_float = o->type.kind == PTX_FLOAT || o->type.kind == PTX_BFLOAT;
	uint64_t yes = !is_float ? ptx_mask_of(bits) : ptx_bits(o->from.pair ? &half : &o->type, 1);

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t out = 0;

		for (unsigned at = 0; at < (o->from.pair ? 32U : 1U); at += 16) {
			double a = operand_of(o, ptx_value(warp, &instr->operands[1], lane) >> at);
			double b = operand_of(o, ptx_value(warp, &instr->operands[2], lane) >> at);

			if (ptx_combine(warp, instr, 3, lane, compare(o, a, b)))
				out |= yes << at;
		}
		ptx_set(warp, &instr->operands[0], lane, out);
	}
}

static void test_number(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	const char *what = strchr(instr->opcode->name, '.') + 1;

	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t bits = ptx_value(warp, &instr->operands[1], lane);
		int kind = instr->opcode->type.bits == 64 ? fpclassify(double_of(bits))
							  : fpclassify(float_of(bits));
		bool yes = !strcmp(what, "finite")       ? kind != FP_NAN && kind != FP_INFINITE
			   : !strcmp(what, "infinite")   ? kind == FP_INFINITE
			   : !strcmp(what, "number")     ? kind != FP_NAN
			   : !strcmp(what, "notanumber") ? kind == FP_NAN
			   : !strcmp(what, "normal")     ? kind == FP_NORMAL
							 : kind == FP_SUBNORMAL;

		ptx_set(warp, &instr->operands[0], lane, yes);
	}
}

enum { F = 1 << PTX_FLOAT, H = 1 << PTX_FLOAT | 1 << PTX_BFLOAT, PAIR = 32 | PTX_PAIR };

const struct ptx_operation ptx_float_operations[] = {
	{"add", F, 32, PTX_PLAIN, add, false},
	{"sub", F, 32, PTX_PLAIN, subtract, false},
	{"mul", F, 32, PTX_PLAIN, multiply, false},
	{"div", F, 32, PTX_PLAIN, divide, false},
	{"fma", F, 32, PTX_PLAIN, multiply_add, false},
	{"mad", F, 32, PTX_PLAIN, multiply_add, false},
	{"min", F, 32, PTX_PLAIN, minimum, false},
	{"max", F, 32, PTX_PLAIN, maximum, false},
	{"rcp", F, 32, PTX_PLAIN, reciprocal, false},
	{"sqrt", F, 32, PTX_PLAIN, root, false},
	{"rsqrt", F, 32, PTX_PLAIN, reciprocal_root, false},
	{"ex2", F, 32, PTX_PLAIN, power_of_two, false},
	{"lg2", F, 32, PTX_PLAIN, logarithm, false},
	{"sin", F, 32, PTX_PLAIN, sine, false},
	{"cos", F, 32, PTX_PLAIN, cosine, false},
	{"tanh", F, 32, PTX_PLAIN, tangent, false},
	{"add", F, 64, PTX_PLAIN, add_double, false},
	{"sub", F, 64, PTX_PLAIN, subtract_double, false},
	{"mul", F, 64, PTX_PLAIN, multiply_double, false},
	{"div", F, 64, PTX_PLAIN, divide_double, false},
	{"fma", F, 64, PTX_PLAIN, multiply_add_double, false},
	{"mad", F, 64, PTX_PLAIN, multiply_add_double, false},
	{"min", F, 64, PTX_PLAIN, minimum_double, false},
	{"max", F, 64, PTX_PLAIN, maximum_double, false},
	{"rcp", F, 64, PTX_PLAIN, reciprocal_double, false},
	{"sqrt", F, 64, PTX_PLAIN, root_double, false},
	{"rsqrt", F, 64, PTX_PLAIN, reciprocal_root_double, false},
	{"abs", H, 16, PTX_PLAIN, absolute, false},
	{"abs", H, PAIR, PTX_PLAIN, absolute, false},
	{"abs", F, 0, PTX_PLAIN, absolute, false},
	{"neg", H, 16, PTX_PLAIN, negate, false},
	{"neg", H, PAIR, PTX_PLAIN, negate, false},
	{"neg", F, 0, PTX_PLAIN, negate, false},
	{"copysign", F, 0, PTX_PLAIN, copy_sign, false},
	{"add", H, 16, PTX_PLAIN, add_half, false},
	{"add", H, PAIR, PTX_PLAIN, add_half, false},
	{"sub", H, 16, PTX_PLAIN, subtract_half, false},
	{"sub", H, PAIR, PTX_PLAIN, subtract_half, false},
	{"mul", H, 16, PTX_PLAIN, multiply_half, false},
	{"mul", H, PAIR, PTX_PLAIN, multiply_half, false},
	{"fma", H, 16, PTX_PLAIN, multiply_add_half, false},
	{"fma", H, PAIR, PTX_PLAIN, multiply_add_half, false},
	{"min", H, 16, PTX_PLAIN, minimum_half, false},
	{"min", H, PAIR, PTX_PLAIN, minimum_half, false},
	{"max", H, 16, PTX_PLAIN, maximum_half, false},
	{"max", H, PAIR, PTX_PLAIN, maximum_half, false},
	{"ex2", H, 16, PTX_PLAIN, power_of_two_half, false},
	{"ex2", H, PAIR, PTX_PLAIN, power_of_two_half, false},
	{"tanh", H, 16, PTX_PLAIN, tangent_half, false},
	{"tanh", H, PAIR, PTX_PLAIN, tangent_half, false},
	{"setp", H, PAIR, PTX_PLAIN, set_predicates_of_pair, false},
	{"setp", H, 16, PTX_PLAIN, set_predicate, false},
	{"setp", F, 0, PTX_PLAIN, set_predicate, false},
	{"set", H, PAIR, PTX_PLAIN, set_number, false},
	{"set", H, 16, PTX_PLAIN, set_number, false},
	{"set", F, 0, PTX_PLAIN, set_number, false},
	{"testp.finite", F, 0, PTX_PLAIN, test_number, false},
	{"testp.infinite", F, 0, PTX_PLAIN, test_number, false},
	{"testp.number", F, 0, PTX_PLAIN, test_number, false},
	{"testp.notanumber", F, 0, PTX_PLAIN, test_number, false},
	{"testp.normal", F, 0, PTX_PLAIN, test_number, false},
	{"testp.subnormal", F, 0, PTX_PLAIN, test_number, false},
	{0},
};
