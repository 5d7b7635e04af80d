/* SPDX-License-Identifier: BSD-3-Clause */
/* What follows from the facts of a call, without a job: the offers of some ranks, made up. */
#include "made_up.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Each has a text of its own. */
static void reasons_have_texts(void **state)
{
	(void)state;
	assert_null(core_reason_text(CORE_REASON_NONE));
	for (int i = 1; i < CORE_NUM_REASONS; i++) {
		const char *text = core_reason_text((enum core_reason)i);

		assert_non_null(text);
		for (int j = 1; j < i; j++)
			assert_string_not_equal(text, core_reason_text((enum core_reason)j));
	}
}

static void kernels_that_may_wait(void **state)
{
	static const struct {
		struct made_up made;
		bool gdr, fused;
		const char *never;
	} rows[] = {
		{.made = {.what = "a GPU each",
			  .nodes = "0000",
			  .devices = "1234",
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "one has no room",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_CAN_FUSE},
		 .never =
			 "a rank's GPU has no room for a kernel that waits, or GPUCOLL_EXEC=stepped there"},
		{.made = {.what = "nobody needs room",
			  .nodes = "0000",
			  .devices = "1234",
			  .no_arena = true},
		 .fused = true},
		{.made = {.what = "a failure",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_LINKS_FAILED,
			  .all = CORE_OFFER_CAN_FUSE},
		 .never = "a call with messages failed earlier"},
		{.made = {.what = "a shared GPU, not tried",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "a shared GPU, they take turns",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE,
			  .together = CORE_TOGETHER_NO}},
		{.made = {.what = "they take turns on a GPU of nobody here",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_APART,
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "a shared GPU, another communicator's probe",
			  .nodes = "0000",
			  .devices = "1134",
			  .any = CORE_OFFER_APART,
			  .all = CORE_OFFER_CAN_FUSE}},
		{.made = {.what = "a shared GPU that can't be tried",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE,
			  .cut = "01"}},
		{.made = {.what = "others that do not reach each other",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE,
			  .cut = "23"},
		 .fused = true},
		{.made = {.what = "two nodes",
			  .nodes = "0011",
			  .devices = "1212",
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "two nodes, turns on one",
			  .nodes = "0011",
			  .devices = "1111",
			  .any = CORE_OFFER_APART,
			  .all = CORE_OFFER_CAN_FUSE},
		 .never =
			 "on some node the kernels of ranks that share a GPU do not run at the same time"},
		{.made = {.what = "messages into device memory",
			  .nodes = "0011",
			  .devices = "1212",
			  .all = CORE_OFFER_CAN_FUSE},
		 .gdr = true,
		 .never = "messages between nodes arrive in device memory"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct made_up *m = &rows[i].made;
		struct made_up_call call = made_up_make(m);
		struct core_facts facts = made_up_facts(&call, m);

		must_say(m->what, core_terms_why_never_fused(&facts, rows[i].gdr), rows[i].never);
		if (core_terms_may_fuse(&facts, rows[i].gdr) != rows[i].fused)
			fail_msg("%s: %sfused", m->what, rows[i].fused ? "not " : "");
		made_up_free(&call);
	}
}

static void messages_that_can_be(void **state)
{
	static const struct {
		struct made_up made;
		enum core_reason refused;
	} rows[] = {
		{.made = {.what = "all reach all", .nodes = "0000", .devices = "1234"},
		 .refused = CORE_REASON_NONE},
		{.made = {.what = "no data",
			  .nodes = "0000",
			  .devices = "1234",
			  .without_data = true},
		 .refused = CORE_REASON_RANK_WITHOUT_DATA},
		{.made = {.what = "a window in",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_WINDOW_IN},
		 .refused = CORE_REASON_NOT_EXPORTED},
		{.made = {.what = "a window out",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_WINDOW_OUT},
		 .refused = CORE_REASON_NOT_EXPORTED},
		{.made = {.what = "no arena", .nodes = "0000", .devices = "1234", .no_arena = true},
		 .refused = CORE_REASON_RANK_WITHOUT_ARENA},
		{.made = {.what = "a failure on one node",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_LINKS_FAILED},
		 .refused = CORE_REASON_NONE},
		{.made = {.what = "a failure on two",
			  .nodes = "0011",
			  .devices = "1212",
			  .any = CORE_OFFER_LINKS_FAILED},
		 .refused = CORE_REASON_LINKS_FAILED},
		{.made = {.what = "two apart", .nodes = "0000", .devices = "1234", .cut = "13"},
		 .refused = CORE_REASON_NOT_MAPPED},
		{.made = {.what = "two apart, with host memory",
			  .nodes = "0000",
			  .devices = "1234",
			  .cut = "13",
			  .shm = true},
		 .refused = CORE_REASON_NONE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct made_up *m = &rows[i].made;
		struct made_up_call call = made_up_make(m);
		struct core_facts facts = made_up_facts(&call, m);

		must_be(m->what, core_terms_refuse(&facts), rows[i].refused);
		made_up_free(&call);
	}
}

static void how_links_go(void **state)
{
	const struct made_up m = {
		.what = "two apart", .nodes = "0001", .devices = "1231", .cut = "02", .shm = true};
	struct made_up_call call = made_up_make(&m);

	(void)state;
	assert_int_equal(core_terms_transport(call.comm, 1), GPU_TRANSPORT_P2P);
	assert_int_equal(core_terms_transport(call.comm, 2), GPU_TRANSPORT_SHM);
	assert_int_equal(core_terms_transport(call.comm, 3), GPU_TRANSPORT_NET);
	assert_false(core_terms_all_reach(call.comm, GPU_TRANSPORT_P2P));
	assert_true(core_terms_all_reach(call.comm, GPU_TRANSPORT_SHM));
	assert_true(core_terms_have_own_gpus(&call.agree));
	made_up_free(&call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reasons_have_texts),
		cmocka_unit_test(kernels_that_may_wait),
		cmocka_unit_test(messages_that_can_be),
		cmocka_unit_test(how_links_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
