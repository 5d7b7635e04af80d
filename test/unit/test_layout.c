/* SPDX-License-Identifier: BSD-3-Clause */
/* Operands and runs: the arithmetic on bytes, without an MPI. */
#include "core/call/core_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const struct core_span int_run = {0, 4};
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
	static const struct core_span run = {-8, 4};
	static const struct core_typemap backwards = {
		.extent = -16, .lo = -8, .hi = -4, .size = 4, .num_runs = 1, .runs = &run};
	struct core_operand operand = {0};

	(void)state;
	assert_int_equal(core_operand_add(&operand, 0, 3, &backwards), UTIL_OK);
	assert_int_equal(operand.lo, -40);
	assert_int_equal(operand.hi, -4);
	core_operand_release(&operand);
}

/*
 * Bytes at such offsets, numbered as MPI would send them: whatever the order, a walk through the
 * runs meets the bytes in it.
 */
static void check_order(const int *numbers, int num)
{
	struct core_run_list list = {0};
	int expected = 0;

	for (int i = 0; i < num; i++) {
		if (numbers[i] >= 0)
			assert_int_equal(core_run_list_add(&list, i - 5, (size_t)numbers[i]),
					 UTIL_OK);
	}
	for (int i = 0; i < num; i++)
		expected += numbers[i] >= 0;
	core_run_list_sort(&list, (size_t)expected);
	assert_true(list.in_order);
	for (size_t i = 0, number = 0; i < list.num_runs; i++) {
		for (size_t j = 0; j < list.runs[i].length; j++, number++)
			assert_int_equal(numbers[list.runs[i].offset + 5 + (ptrdiff_t)j], number);
	}
	free(list.runs);
}

static void runs_of_every_mask(void **state)
{
	enum { BYTES = 10 };

	(void)state;
	for (unsigned bits = 0; bits < 1u << BYTES; bits++) {
		int rising[BYTES], falling[BYTES], pairs[BYTES], num = 0;

		for (int i = 0; i < BYTES; i++)
			rising[i] = bits >> i & 1 ? num++ : -1;
		for (int i = 0; i < BYTES; i++) {
			falling[i] = rising[i] < 0 ? -1 : num - 1 - rising[i];
			pairs[i] = rising[i] < 0 || (num % 2 && rising[i] == num - 1)
					   ? rising[i]
					   : rising[i] ^ 1;
		}
		check_order(rising, BYTES);
		check_order(falling, BYTES);
		check_order(pairs, BYTES);
	}
}

/* What MPI sends twice has the number that was written last: the runs are by offset then. */
static void bytes_sent_twice(void **state)
{
	struct core_run_list list = {0};

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(core_run_list_add(&list, i, (size_t)(7 - i)), UTIL_OK);
	core_run_list_sort(&list, 8);
	assert_false(list.in_order);
	assert_true(list.num_runs == 1 && list.runs[0].offset == 0 && list.runs[0].length == 4);
	free(list.runs);
}

/* Whatever their offsets; what follows on the last is part of it, and no byte is there twice. */
static void runs_as_they_are_sent(void **state)
{
	const struct core_span apart[] = {{100, 8}, {0, 4}, {4, 4}, {50, 2}};
	const struct core_span twice[] = {{100, 8}, {0, 4}, {107, 1}};
	struct core_run_list list = {0}, other = {0};

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(core_run_list_append(&list, apart[i]), UTIL_OK);
	assert_int_equal(core_run_list_end(&list), UTIL_OK);
	assert_true(list.in_order && list.num_runs == 3 && !list.numbers);
	assert_true(list.runs[0].offset == 100 && list.runs[1].length == 8 &&
		    list.runs[2].offset == 50);
	free(list.runs);
	for (int i = 0; i < 3; i++)
		assert_int_equal(core_run_list_append(&other, twice[i]), UTIL_OK);
	assert_int_equal(core_run_list_end(&other), UTIL_ERR_UNSUPPORTED);
	free(other.runs);
}

/* Where it does not matter in which order, and how often, they are sent. */
static void runs_by_offset(void **state)
{
	const struct core_span apart[] = {{0, 4}, {4, 4}, {10, 2}};
	const struct core_span mixed[] = {{100, 8}, {0, 4}, {2, 1}, {107, 3}, {4, 2}, {-9, 3}};
	struct core_run_list list = {0}, other = {0};

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(core_run_list_append(&list, apart[i]), UTIL_OK);
	assert_true(core_run_list_rises(&list));
	free(list.runs);
	free(list.numbers);
	for (int i = 0; i < 6; i++)
		assert_int_equal(core_run_list_append(&other, mixed[i]), UTIL_OK);
	assert_false(core_run_list_rises(&other));
	core_run_list_unite(&other);
	assert_true(other.num_runs == 3 && !other.in_order && !other.numbers);
	assert_true(other.runs[0].offset == -9 && other.runs[0].length == 3);
	assert_true(other.runs[1].offset == 0 && other.runs[1].length == 6);
	assert_true(other.runs[2].offset == 100 && other.runs[2].length == 10);
	free(other.runs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_that_follow_are_one_piece),
					   cmocka_unit_test(empty_blocks_are_nothing),
					   cmocka_unit_test(bounds_with_negative_extents),
					   cmocka_unit_test(runs_of_every_mask),
					   cmocka_unit_test(bytes_sent_twice),
					   cmocka_unit_test(runs_as_they_are_sent),
					   cmocka_unit_test(runs_by_offset)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
