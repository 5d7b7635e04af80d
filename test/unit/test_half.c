/* SPDX-License-Identifier: BSD-3-Clause */
/* 16-bit floating point: every number of both formats, and rounding between any two neighbours. */
#include "gpu/kernels/gpu_half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

struct format {
	int exponent_bits, fraction_bits;
	float (*to_float)(uint16_t half);
	uint16_t (*from_float)(float value);
};

static const struct format formats[] = {
	{5, 10, gpu_float16_to_float, gpu_float16_from_float},
	{8, 7, gpu_bfloat16_to_float, gpu_bfloat16_from_float},
};

/* What the bits mean, by arithmetic. */
static double value_of(const struct format *f, uint16_t half)
{
	int fraction = half & ((1 << f->fraction_bits) - 1);
	int exponent = half >> f->fraction_bits & ((1 << f->exponent_bits) - 1);
	int bias = (1 << (f->exponent_bits - 1)) - 1;
	double sign = half & 0x8000 ? -1 : 1;

	if (exponent == (1 << f->exponent_bits) - 1)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - f->fraction_bits);
	return sign * ldexp((1 << f->fraction_bits) + fraction, exponent - bias - f->fraction_bits);
}

static void test_all_numbers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		const struct format *f = &formats[i];

		for (unsigned half = 0; half < 0x10000; half++) {
			double want = value_of(f, (uint16_t)half);
			float got = f->to_float((uint16_t)half);

			if (isnan(want)) {
				assert_true(isnan(got));
				assert_true(isnan(f->to_float(f->from_float(got))));
				continue;
			}
			assert_true((double)got == want && !signbit(got) == !signbit(want));
			assert_int_equal(f->from_float(got), half);
		}
	}
}

/* Just below, at and just above the middle between two neighbours of one sign. */
static void check_middle(const struct format *f, uint16_t half)
{
	double low = value_of(f, half), high = value_of(f, (uint16_t)(half + 1));
	/* The neighbour of the greatest number would be one more step away. */
	if (isinf(high))
		high = low + (low - value_of(f, (uint16_t)(half - 1)));
	float middle = (float)((low + high) / 2);

	assert_int_equal(f->from_float(nextafterf(middle, (float)low)), half);
	assert_int_equal(f->from_float(middle), half & 1 ? half + 1 : half);
	assert_int_equal(f->from_float(nextafterf(middle, (float)high)), half + 1);
}

static void test_rounding(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		const struct format *f = &formats[i];
		unsigned infinity = ((1u << f->exponent_bits) - 1) << f->fraction_bits;

		for (unsigned half = 0; half < infinity; half++) {
			check_middle(f, (uint16_t)half);
			check_middle(f, (uint16_t)(half | 0x8000));
		}
		assert_int_equal(f->from_float(INFINITY), infinity);
		assert_int_equal(f->from_float(-INFINITY), infinity | 0x8000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_numbers),
		cmocka_unit_test(test_rounding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
