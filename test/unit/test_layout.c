/* SPDX-License-Identifier: BSD-3-Clause */
/* Operands and runs: the arithmetic on bytes, without an MPI. */
#include "core/core_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const struct core_run int_run = {0, 4};
static const struct core_typemap int_map = {
	.extent = 4, .lo = 0, .hi = 4, .size = 4, .num_runs = 1, .runs = &int_run};

static void blocks_that_follow_are_one_piece(void **state)
{
	struct core_operand operand = {0};

	(void)state;
	assert_int_equal(core_operand_add(&operand, 0, 3, &int_map), UTIL_OK);
	assert_int_equal(core_operand_add(&operand, 12, 5, &int_map), UTIL_OK);
	assert_int_equal(operand.num_pieces, 1);
	assert_int_equal(operand.pieces[0].count, 8);
	assert_int_equal(core_operand_add(&operand, 40, 1, &int_map), UTIL_OK);
	assert_int_equal(operand.num_pieces, 2);
	assert_int_equal(operand.lo, 0);
	assert_int_equal(operand.hi, 44);
	core_operand_release(&operand);
}

static void empty_blocks_are_nothing(void **state)
{
	static const struct core_typemap nothing = {.extent = 8};
	struct core_operand operand = {0};

	(void)state;
	assert_int_equal(core_operand_add(&operand, 100, 0, &int_map), UTIL_OK);
	assert_int_equal(core_operand_add(&operand, 100, 4, &nothing), UTIL_OK);
	assert_int_equal(operand.num_pieces, 0);
	assert_int_equal(operand.lo, operand.hi);
	core_operand_release(&operand);
}

static void bounds_with_negative_extents(void **state)
{
	static const struct core_run run = {-8, 4};
	static const struct core_typemap backwards = {
		.extent = -16, .lo = -8, .hi = -4, .size = 4, .num_runs = 1, .runs = &run};
	struct core_operand operand = {0};

	(void)state;
	assert_int_equal(core_operand_add(&operand, 0, 3, &backwards), UTIL_OK);
	assert_int_equal(operand.lo, -40);
	assert_int_equal(operand.hi, -4);
	core_operand_release(&operand);
}

/* Every mask of 12 bytes: its runs, written out again, are the mask; scanned in two halves, the
 * runs are the same. */
static void runs_of_every_mask(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << 12; bits++) {
		unsigned char mask[12], again[12] = {0};
		struct core_run_list whole = {0}, halves = {0};

		for (int i = 0; i < 12; i++)
			mask[i] = bits >> i & 1 ? 0xff : 0;
		assert_int_equal(core_run_list_scan(&whole, mask, 12, -5), UTIL_OK);
		assert_int_equal(core_run_list_scan(&halves, mask, 6, -5), UTIL_OK);
		assert_int_equal(core_run_list_scan(&halves, mask + 6, 6, 1), UTIL_OK);
		for (size_t i = 0; i < whole.num_runs; i++) {
			memset(again + whole.runs[i].offset + 5, 0xff, whole.runs[i].length);
			assert_true(i == 0 || whole.runs[i].offset >
						      whole.runs[i - 1].offset +
							      (ptrdiff_t)whole.runs[i - 1].length);
		}
		assert_memory_equal(mask, again, 12);
		assert_int_equal(whole.num_runs, halves.num_runs);
		if (whole.num_runs)
			assert_memory_equal(whole.runs, halves.runs,
					    whole.num_runs * sizeof(*whole.runs));
		free(whole.runs);
		free(halves.runs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_that_follow_are_one_piece),
					   cmocka_unit_test(empty_blocks_are_nothing),
					   cmocka_unit_test(bounds_with_negative_extents),
					   cmocka_unit_test(runs_of_every_mask)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
