/* SPDX-License-Identifier: BSD-3-Clause */
/* The set of allocations that others have mapped: what was added is there, and nothing else. */
#include "core/comm/core_known.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { MANY = 4096 };

/* As the driver numbers them; and as ids of pools are made, alike in their lower bits. */
static uint64_t id_at(int kind, uint64_t i)
{
	return kind ? 7 ^ (i << 21) * UINT64_C(0x9e3779b97f4a7c15) : i;
}

static void holds_what_was_added(void **state)
{
	struct core_known known = {0};

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		assert_false(core_known_has(&known, id_at(kind, 1)));
		core_known_add(&known, 0);
		assert_int_equal(known.num, 0);
		for (uint64_t i = 1; i <= MANY; i++) {
			core_known_add(&known, id_at(kind, i));
			core_known_add(&known, id_at(kind, i));
		}
		assert_int_equal(known.num, MANY);
		for (uint64_t i = 1; i <= MANY; i++)
			assert_true(core_known_has(&known, id_at(kind, i)));
		for (uint64_t i = MANY + 1; i <= 3 * MANY; i++)
			assert_false(core_known_has(&known, id_at(kind, i)));
		core_known_clear(&known);
		assert_false(core_known_has(&known, id_at(kind, 1)));
	}
}

static void forgets_when_full(void **state)
{
	struct core_known known = {0};

	(void)state;
	for (uint64_t i = 1; i <= 10 * MANY; i++) {
		core_known_add(&known, i);
		assert_true(core_known_has(&known, i));
		assert_true(known.num <= MANY);
	}
	core_known_clear(&known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holds_what_was_added),
		cmocka_unit_test(forgets_when_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
