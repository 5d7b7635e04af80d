/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a call is done, from its facts, without a job: in which rounds, on whose memory, by which
 * protocol.
 */
#include "core/accel/core_mapped.h"
#include "core/accel/core_protocol.h"
#include "core/accel/core_rounds.h"
#include "made_up.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* ---- rounds ---- */

static void set_windows(struct made_up_call *call, const uint64_t *windows)
{
	for (int i = 0; i < call->comm->num_near; i++)
		core_area_desk_of(call->comm, 0, call->comm->near[i])->offer.window = windows[i];
}

/* Slices of all rounds are the block, one after the other; those in windows stay in their half. */
static void look_at_slices(const struct core_rounds *rounds, uint64_t longest, uint64_t window,
			   int slices)
{
	int64_t end = 100;

	for (uint64_t round = 0; round < rounds->num; round++) {
		struct core_block whole = {100, longest};
		struct core_block user = core_rounds_slice(rounds, round, whole, false, 0);

		assert_int_equal(user.offset, end);
		assert_true(user.bytes > 0);
		end += (int64_t)user.bytes;
		for (int i = 0; i < slices; i++) {
			struct core_block ours = core_rounds_slice(rounds, round, whole, true, i);
			int64_t start = round % 2 ? (int64_t)rounds->half : 0;
			uint64_t room = rounds->num == 1 ? window : window / 2;

			assert_int_equal(ours.bytes, user.bytes);
			assert_int_equal(ours.offset % 16, 0);
			assert_true(ours.offset >= start + i * (int64_t)ours.bytes);
			assert_true((uint64_t)(ours.offset - start) + ours.bytes <= room);
		}
	}
	assert_int_equal(end, 100 + (int64_t)longest);
	assert_int_equal(
		core_rounds_slice(rounds, rounds->num, (struct core_block){0, longest}, true, 0)
			.bytes,
		0);
}

static const struct {
	const char *what;
	uint32_t any;
	uint64_t bytes[MADE_UP_RANKS], longest;
	int slices;
	struct core_rounds wanted;
} windows[] = {
	{"no windows", 0, {4096, 4096, 4096, 4096}, 1 << 20, 4, {0, 0, 1}},
	{"all at once", CORE_OFFER_WINDOW_IN, {4096, 4096, 4096, 4096}, 1024, 4, {1024, 0, 1}},
	{"a byte too much",
	 CORE_OFFER_WINDOW_IN,
	 {4096, 4096, 4096, 4096},
	 1025,
	 4,
	 {512, 2048, 3}},
	{"one block", CORE_OFFER_WINDOW_OUT, {4096, 4096, 4096, 4096}, 8192, 1, {2048, 2048, 4}},
	{"the smallest counts",
	 CORE_OFFER_WINDOW_OUT,
	 {UINT64_MAX, 4096, 1024, 4096},
	 1024,
	 4,
	 {128, 512, 8}},
	{"slices begin at 16 bytes",
	 CORE_OFFER_WINDOW_IN,
	 {1040, 1040, 1040, 1040},
	 1000,
	 3,
	 {160, 512, 7}},
	{"no bytes", CORE_OFFER_WINDOW_IN, {4096, 4096, 4096, 4096}, 0, 4, {1024, 0, 1}},
};

static void rounds_of_windows(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		const struct made_up m = {.what = windows[i].what,
					  .nodes = "0000",
					  .devices = "1234",
					  .any = windows[i].any};
		struct made_up_call call = made_up_make(&m);
		struct core_facts facts = made_up_facts(&call, &m);
		struct core_rounds rounds;
		uint64_t window = UINT64_MAX;

		set_windows(&call, windows[i].bytes);
		for (int j = 0; j < MADE_UP_RANKS; j++)
			window = windows[i].bytes[j] < window ? windows[i].bytes[j] : window;
		facts.common.longest = windows[i].longest;
		rounds = core_rounds_of(&facts, windows[i].slices);
		if (rounds.width != windows[i].wanted.width ||
		    rounds.half != windows[i].wanted.half || rounds.num != windows[i].wanted.num)
			fail_msg("%s: %llu rounds of %llu bytes, half %llu", m.what,
				 (unsigned long long)rounds.num, (unsigned long long)rounds.width,
				 (unsigned long long)rounds.half);
		if (rounds.width && windows[i].longest)
			look_at_slices(&rounds, windows[i].longest, window, windows[i].slices);
		made_up_free(&call);
	}
}

/* ---- whose memory ---- */

enum { EXPORTED = CORE_OFFER_EXPORTED, SOME = CORE_OFFER_IN_PLACE };
static const struct {
	struct made_up made;
	enum core_coll coll;
	const char *algo;
	bool enqueued, unreached, windowed;
	bool shared;
	enum core_reason refused;
} buffers[] = {
	{.made = {.what = "twoshot", .all = EXPORTED}, .algo = "twoshot", .shared = true},
	{.made = {.what = "several nodes", .nodes = "0011", .all = EXPORTED},
	 .algo = "twoshot",
	 .refused = CORE_REASON_NOT_MAPPED},
	{.made = {.what = "enqueued", .all = EXPORTED},
	 .algo = "twoshot",
	 .enqueued = true,
	 .shared = true,
	 .refused = CORE_REASON_NOT_MAPPED},
	{.made = {.what = "two that do not reach each other", .all = EXPORTED},
	 .algo = "twoshot",
	 .unreached = true,
	 .shared = true,
	 .refused = CORE_REASON_NOT_MAPPED},
	{.made = {.what = "through windows"}, .algo = "twoshot", .windowed = true},
	{.made = {.what = "oneshot through windows"},
	 .algo = "oneshot",
	 .windowed = true,
	 .refused = CORE_REASON_NOT_BY_WINDOWS},
	{.made = {.what = "oneshot, one in place", .any = SOME},
	 .algo = "oneshot",
	 .refused = CORE_REASON_NOT_IN_PLACE},
	{.made = {.what = "others' work, not offered"},
	 .algo = "shared",
	 .refused = CORE_REASON_NOT_OFFERED},
	{.made = {.what = "others' work", .all = EXPORTED}, .algo = "shared", .shared = true},
	{.made = {.what = "some in place", .any = SOME, .all = EXPORTED}, .algo = "twoshot"},
	{.made = {.what = "all in place", .all = EXPORTED | SOME},
	 .algo = "twoshot",
	 .shared = true},
	{.made = {.what = "reduce_scatter, all in place", .all = EXPORTED | SOME},
	 .coll = CORE_REDUCE_SCATTER,
	 .algo = "twoshot"},
	{.made = {.what = "gather, the root in place", .any = SOME, .all = EXPORTED},
	 .coll = CORE_GATHER,
	 .algo = "direct",
	 .shared = true},
};

static void who_works_where(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
		struct made_up m = buffers[i].made;
		struct algo algo = {.name = buffers[i].algo, .needs = ALGO_NEEDS_MAPPED};
		struct made_up_call call;
		struct core_facts facts;
		bool shared;

		m.nodes = m.nodes ? m.nodes : "0000";
		m.devices = "1234";
		call = made_up_make(&m);
		facts = made_up_facts(&call, &m);
		facts.coll = buffers[i].coll ? buffers[i].coll : CORE_ALLREDUCE;
		facts.enqueued = buffers[i].enqueued;
		if (buffers[i].unreached)
			call.comm->voted.reach[CORE_REACH_BUFFERS][2] &= ~UINT64_C(2);
		if (!strcmp(algo.name, "shared"))
			algo.needs |= ALGO_NEEDS_ALL_MAPPED;
		shared = core_mapped_is_shared(&facts);
		if (shared != buffers[i].shared)
			fail_msg("%s: %sshared", m.what, shared ? "" : "not ");
		must_be(m.what, core_mapped_refuse(&facts, &algo, shared, buffers[i].windowed),
			buffers[i].refused);
		made_up_free(&call);
	}
}

/* ---- protocols ---- */

static struct core_schedule *take_schedule(struct core_comm *comm, const char *name)
{
	struct sched_request request = {.coll = SCHED_ALLREDUCE,
					.ranks = comm->size,
					.channels = 1,
					.num_nodes = comm->num_nodes,
					.nodes = comm->nodes};
	struct core_schedule *schedule;
	enum core_reason why;

	assert_int_equal(core_schedule_take(comm, algo_find(name, SCHED_ALLREDUCE), &request,
					    &schedule, &why),
			 UTIL_OK);
	return schedule;
}

static const struct {
	struct made_up made;
	enum sched_proto wanted;
	uint16_t granted; /* bits; 0: no wish */
	bool stepped, unknown_sizes, moved;
	uint32_t flag; /* the last one that was used */
	uint64_t longest;
	enum sched_proto chosen;
	const char *why;
} protocols[] = {
	{.made = {.what = "simple"}, .wanted = SCHED_SIMPLE, .chosen = SCHED_SIMPLE},
	{.made = {.what = "ll"}, .wanted = SCHED_LL, .chosen = SCHED_LL},
	{.made = {.what = "ll, stepped"},
	 .wanted = SCHED_LL,
	 .stepped = true,
	 .chosen = SCHED_SIMPLE},
	{.made = {.what = "ll is asked for, stepped"},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL,
	 .stepped = true,
	 .chosen = SCHED_SIMPLE,
	 .why = "the execution is not fused"},
	{.made = {.what = "ll or simple is asked for, stepped"},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL | 1 << SCHED_SIMPLE,
	 .stepped = true,
	 .chosen = SCHED_SIMPLE},
	{.made = {.what = "sizes that one end knows"},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL,
	 .unknown_sizes = true,
	 .chosen = SCHED_SIMPLE,
	 .why = "sizes are not known to both ends"},
	{.made = {.what = "padding", .any = CORE_OFFER_PADDED},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL,
	 .chosen = SCHED_SIMPLE,
	 .why = "elements have padding"},
	{.made = {.what = "the room has changed: no complaint, it is there next time"},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL,
	 .moved = true,
	 .chosen = SCHED_SIMPLE},
	{.made = {.what = "no flags are left"},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL,
	 .flag = UINT32_MAX - 2,
	 .chosen = SCHED_SIMPLE,
	 .why = "there is no room for its messages"},
	{.made = {.what = "lines that nobody has looked at"},
	 .wanted = SCHED_LL128,
	 .granted = 1 << SCHED_LL128,
	 .chosen = SCHED_SIMPLE,
	 .why = "between some ranks lines of 128 bytes may be cut"},
	{.made = {.what = "the other one with flags"},
	 .wanted = SCHED_LL128,
	 .granted = 1 << SCHED_LL128 | 1 << SCHED_LL,
	 .chosen = SCHED_LL},
	{.made = {.what = "ll128 between nodes", .nodes = "0011", .devices = "1212"},
	 .wanted = SCHED_LL128,
	 .granted = 1 << SCHED_LL128,
	 .chosen = SCHED_SIMPLE,
	 .why = "ranks are on several nodes"},
	{.made = {.what = "ll between nodes", .nodes = "0011", .devices = "1212"},
	 .wanted = SCHED_LL,
	 .chosen = SCHED_LL},
	{.made = {.what = "nothing stays within a node", .nodes = "0123", .devices = "1111"},
	 .wanted = SCHED_LL,
	 .granted = 1 << SCHED_LL,
	 .chosen = SCHED_SIMPLE,
	 .why = "no message stays within a node"},
	{.made = {.what = "several rounds"},
	 .wanted = SCHED_SIMPLE,
	 .longest = 64 << 20,
	 .chosen = SCHED_SIMPLE},
};

static void which_protocol(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
		struct made_up m = protocols[i].made;
		struct core_protocol chosen;
		struct made_up_call call;
		struct core_facts facts;
		struct core_fit fit;

		m.nodes = m.nodes ? m.nodes : "0000";
		m.devices = m.devices ? m.devices : "1234";
		call = made_up_make(&m);
		facts = made_up_facts(&call, &m);
		facts.common.wish.protos = protocols[i].granted;
		facts.common.longest = protocols[i].longest ? protocols[i].longest : 4096;
		facts.knows_sizes = !protocols[i].unknown_sizes;
		call.comm->links.flags_moved = protocols[i].moved;
		call.comm->links.ll_flag = protocols[i].flag;
		chosen = core_protocol_choose(&facts, take_schedule(call.comm, "ring"), false,
					      protocols[i].wanted, !protocols[i].stepped);
		if (chosen.proto != protocols[i].chosen)
			fail_msg("%s: %s", m.what, sched_proto_name(chosen.proto));
		must_say(m.what, chosen.why, protocols[i].why);
		assert_true(
			core_protocol_fit(&facts, call.comm->schedules, false, chosen.proto, &fit));
		assert_memory_equal(&fit, &chosen.fit, sizeof(fit));
		assert_true(fit.rounds * fit.slots.width >= facts.common.longest);
		assert_true((fit.rounds - 1) * fit.slots.width < facts.common.longest);
		core_schedule_put(call.comm->schedules);
		made_up_free(&call);
	}
}

static const struct {
	struct made_up made;
	uint32_t blocks;
	const char *never, *stepped;
} waits[] = {
	{.made = {.what = "room", .all = CORE_OFFER_CAN_FUSE}, .blocks = 8},
	{.made = {.what = "too few blocks", .all = CORE_OFFER_CAN_FUSE},
	 .never = "the algorithm takes more blocks than can be resident",
	 .stepped = "the algorithm takes more blocks than can be resident"},
	{.made = {.what = "turns",
		  .devices = "1134",
		  .all = CORE_OFFER_CAN_FUSE,
		  .together = CORE_TOGETHER_NO},
	 .blocks = 8,
	 .stepped = "the kernels of ranks that share a GPU do not run at the same time"},
};

static void who_waits(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		struct made_up m = waits[i].made;
		struct core_schedule *schedule;
		struct made_up_call call;
		struct core_facts facts;

		m.nodes = "0000";
		m.devices = m.devices ? m.devices : "1234";
		call = made_up_make(&m);
		facts = made_up_facts(&call, &m);
		facts.common.blocks = waits[i].blocks;
		schedule = take_schedule(call.comm, "ring");
		must_say(m.what, core_protocol_why_never_fused(&facts, schedule, false),
			 waits[i].never);
		must_say(m.what, core_protocol_why_stepped(&facts, schedule, false),
			 waits[i].stepped);
		core_schedule_put(schedule);
		made_up_free(&call);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_of_windows),
		cmocka_unit_test(who_works_where),
		cmocka_unit_test(which_protocol),
		cmocka_unit_test(who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
