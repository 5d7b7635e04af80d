/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nodes' agreement (core_nodes.h) alone: nodes of one member each in one process, each with an
 * area of its own, under a made-up network that delivers in any order, and a made-up clock. Each
 * member makes calls, some of which it stages; members come to them, and letters arrive, in random
 * turns.
 */
#include "../draw.h"
#include "core/agree/core_agree.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/agree/core_record.h"
#include "core/job/core_mpi_job.h"
#include "core/wire/core_mail.h"
#include "util/util_time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_NODES = 9, CALLS = 80, MOST_QUESTIONS = 4 * MOST_NODES * CALLS };

/* ---- what the agreement stands on ---- */

struct core_board_slot {
	uint64_t passed;
};

enum outcome { NOT_YET, STAGED, ACCELERATED };

struct letter {
	struct letter *next;
	int to;
	bool to_service;
	struct net_header header;
	_Atomic int *underway;
	size_t bytes;
	unsigned char data[];
};

struct net_payload {
	const struct letter *letter;
};

/* What a member does in a call. `behind`: it had to stage it, as it was too far ahead of another.
 */
struct plan {
	bool stages, withdraws, eager, behind;
};

struct node {
	struct core_board_slot slot; /* first, see core_board_area */
	struct core_comm *comm;
	struct core_agree agree;
	uint64_t call;
	bool offers, withdrawn;
	struct plan plans[CALLS];
	enum outcome outcomes[CALLS];
};

static struct world {
	int num;
	struct node nodes[MOST_NODES];
	bool nonblocking[CALLS],
		waits[CALLS]; /* of all: who leaves the call waits for the others */
	struct letter *letters;
	int num_letters;
	bool connected[MOST_NODES][MOST_NODES]; /* from, to: of main ports */
	struct net_header questions[MOST_QUESTIONS];
	int asked[MOST_QUESTIONS], num_questions; /* of which node */
	uint64_t now, random;
	int accelerated, behind; /* calls of the world; of its members, that had to be staged */
} world;

static core_mail_handler *handlers[CORE_MAIL_NUM_KINDS];
static const unsigned char zeros[64];

int clock_gettime(clockid_t clock, struct timespec *time)
{
	(void)clock;
	time->tv_sec = (time_t)(world.now / UTIL_SECONDS(1));
	time->tv_nsec = (long)(world.now % UTIL_SECONDS(1));
	return 0;
}

static uint32_t pick(uint32_t below)
{
	return (uint32_t)(draw(&world.random) % below);
}

void core_board_publish(struct core_board_slot *slot, uint64_t calls)
{
	slot->passed = calls;
}

uint64_t core_board_passed(const struct core_board_slot *slot, int local_rank)
{
	(void)local_rank;
	return slot->passed;
}

void *core_board_area(const struct core_board_slot *slot)
{
	return ((const struct node *)slot)->comm->area;
}

void net_lock(enum net_port port)
{
	(void)port;
}

void net_unlock(enum net_port port)
{
	(void)port;
}

void net_lose(int process)
{
	fail_msg("process %d is lost", process);
}

size_t net_payload_bytes(const struct net_payload *payload)
{
	return payload->letter->bytes;
}

const void *net_payload_data(const struct net_payload *payload)
{
	return payload->letter->data;
}

void core_mail_handle(enum core_mail_kind kind, core_mail_handler *handler)
{
	handlers[kind] = handler;
}

static void write_letter(int from, int to, bool to_service, const struct net_header *header,
			 const void *data, size_t bytes, _Atomic int *underway)
{
	struct letter *letter = malloc(sizeof(*letter) + bytes);

	assert_non_null(letter);
	*letter = (struct letter){world.letters, to, to_service, *header, underway, bytes};
	letter->header.from = (uint32_t)from;
	if (bytes)
		memcpy(letter->data, data, bytes);
	/* The first one between two waits for the receiver; later ones are out at once. */
	if (!to_service && world.connected[from][to])
		letter->underway = NULL;
	if (letter->underway)
		(*letter->underway)++;
	world.letters = letter;
	world.num_letters++;
}

void core_mail_tell(const struct core_comm *comm, int rank, const struct net_header *header,
		    const void *data, size_t bytes, _Atomic int *underway)
{
	write_letter(comm->rank, rank, false, header, data, bytes, underway);
}

void core_mail_tell_node(const struct core_comm *comm, int node, const struct net_header *header,
			 _Atomic int *underway)
{
	write_letter(comm->rank, node, true, header, NULL, 0, underway);
}

void core_mail_tell_nodes(const struct core_comm *comm, const struct net_header *header,
			  _Atomic int *underway)
{
	for (int i = 0; i < world.num; i++) {
		if (i != comm->node)
			core_mail_tell_node(comm, i, header, underway);
	}
}

/* ---- the services ---- */

/* As core_service.c does. Whether the question needs no further thought. */
static bool answer(int i)
{
	const struct net_header *question = &world.questions[i];
	struct node *node = &world.nodes[world.asked[i]];
	bool takes_back = question->kind == CORE_MAIL_TAKE_BACK;
	struct net_header header = {.comm = question->comm, .call = question->call};
	enum core_agree_state state =
		takes_back ? core_agree_take_back(node->comm->area, question->call)
			   : core_agree_where(&node->slot, node->comm->area, question->call,
					      question->link);

	if (state == CORE_AGREE_STAGE)
		header.kind = takes_back ? CORE_MAIL_TAKEN_BACK : CORE_MAIL_STAGED;
	else if (state == CORE_AGREE_READY && takes_back)
		header.kind = CORE_MAIL_COMMITTED;
	else
		return state == CORE_AGREE_READY;
	write_letter(node->comm->rank, (int)question->from, false, &header, NULL, 0, NULL);
	return true;
}

static void ask(int node, const struct net_header *question)
{
	assert_true(world.num_questions < MOST_QUESTIONS);
	world.questions[world.num_questions] = *question;
	world.asked[world.num_questions] = node;
	if (!answer(world.num_questions))
		world.num_questions++;
}

static void think_again(void)
{
	int i = world.num_questions ? (int)pick((uint32_t)world.num_questions) : -1;

	if (i < 0 || !answer(i))
		return;
	world.num_questions--;
	world.questions[i] = world.questions[world.num_questions];
	world.asked[i] = world.asked[world.num_questions];
}

/* ---- the network ---- */

/* Who is in the real MPI, or in its own code, does not look into its port. */
static bool is_at_home(const struct letter *letter)
{
	const struct node *to = &world.nodes[letter->to];

	return letter->to_service || to->offers || to->call == CALLS ||
	       to->outcomes[to->call] == ACCELERATED;
}

static void deliver(void)
{
	int skip = world.num_letters ? (int)pick((uint32_t)world.num_letters) : -1;
	struct letter **link = &world.letters, *letter;

	if (skip < 0)
		return;
	for (int i = 0; i < skip; i++)
		link = &(*link)->next;
	letter = *link;
	if (!is_at_home(letter))
		return;
	*link = letter->next;
	world.num_letters--;
	if (letter->to_service) {
		ask(letter->to, &letter->header);
	} else {
		struct net_payload payload = {letter};

		world.connected[letter->header.from][letter->to] = true;
		handlers[letter->header.kind](world.nodes[letter->to].comm, &letter->header,
					      &payload);
	}
	if (letter->underway)
		(*letter->underway)--;
	free(letter);
}

/* ---- a member ---- */

/* Its input, in a call of which all are so short. */
static void write_record(struct node *node)
{
	struct core_record *record = core_agree_record(&node->agree, node->comm->rank);
	uint32_t bytes = sizeof(*record) + sizeof(record->blocks[0]) + 1 + pick(40);

	record->bytes = bytes;
	record->num_blocks = 1;
	record->blocks[0].offset = sizeof(*record) + sizeof(record->blocks[0]);
	record->blocks[0].bytes = bytes - record->blocks[0].offset;
	memset((char *)record + record->blocks[0].offset,
	       (int)(node->call * 16 + (uint64_t)node->comm->rank), record->blocks[0].bytes);
}

static void look_at_records(struct node *node)
{
	for (int i = 0; i < world.num; i++) {
		const struct core_record *record = core_agree_record(&node->agree, i);

		assert_int_equal(record->num_blocks, 1);
		assert_true(record->blocks[0].bytes > 0);
		const unsigned char *data =
			(const unsigned char *)record + record->blocks[0].offset;

		for (uint32_t j = 0; j < record->blocks[0].bytes; j++)
			assert_int_equal(data[j], (unsigned char)(node->call * 16 + (uint64_t)i));
	}
}

static void end_call(struct node *node, enum outcome outcome)
{
	node->offers = false;
	node->outcomes[node->call] = outcome;
	if (outcome == STAGED)
		core_meet_pass(node->comm, node->call);
}

static void come(struct node *node)
{
	struct plan *plan = &node->plans[node->call];
	struct core_offer offer = {.coll = CORE_ALLREDUCE,
				   .bytes = 100 + node->call,
				   .longest = 1 + (uint64_t)node->comm->rank,
				   .window = UINT64_MAX,
				   .blocks = 8};

	if (plan->stages || !core_agree_has_slot(node->comm, node->call)) {
		plan->behind = !plan->stages;
		end_call(node, STAGED);
		return;
	}
	core_agree_open(&node->agree, node->comm, node->call, world.nonblocking[node->call]);
	if (core_nodes_has_too_many(node->comm))
		offer.flags |= CORE_OFFER_BEHIND;
	if (plan->eager) {
		offer.flags |= CORE_OFFER_EAGER;
		write_record(node);
	}
	core_agree_announce(&node->agree, &offer, NULL);
	node->offers = true;
	node->withdrawn = false;
}

static void accelerate(struct node *node)
{
	const struct core_summary *common = core_agree_common(&node->agree);

	assert_true(common->fits);
	assert_int_equal(common->bytes, 100 + node->call);
	assert_int_equal(common->longest, world.num);
	assert_int_equal((common->all & CORE_OFFER_EAGER) != 0, node->plans[node->call].eager);
	if (common->all & CORE_OFFER_EAGER)
		look_at_records(node);
	end_call(node, ACCELERATED);
}

/* As core_vote.c does. */
static enum core_agree_state progress(struct node *node)
{
	enum core_agree_state state = core_agree_poll(&node->agree);
	uint64_t reach[CORE_NUM_REACHES] = {0};
	struct core_summary common;

	if (state == CORE_AGREE_ANNOUNCED) {
		core_agree_summarize(&node->agree, &common);
		core_agree_answer(&node->agree, common.fits && !(common.any & CORE_OFFER_BEHIND),
				  reach);
		node->plans[node->call].behind |= (common.any & CORE_OFFER_BEHIND) != 0;
	}
	if (node->plans[node->call].withdraws && !node->withdrawn && !pick(20)) {
		node->withdrawn = true;
		core_agree_withdraw(&node->agree);
	}
	state = core_agree_poll(&node->agree);
	if (state == CORE_AGREE_READY && node->withdrawn)
		core_nodes_take_back(&node->agree);
	state = core_agree_poll(&node->agree);
	if (state == CORE_AGREE_READY) {
		if (!core_nodes_has_begun(&node->agree))
			core_nodes_begin(&node->agree, CORE_OFFER_WHOLE);
		core_nodes_progress(&node->agree);
		state = core_agree_poll(&node->agree);
	}
	return state;
}

static void go_on(struct node *node)
{
	enum core_agree_state state = progress(node);

	if (state == CORE_AGREE_STAGE)
		end_call(node, STAGED);
	if (state == CORE_AGREE_ACCEL)
		accelerate(node);
}

static bool all_have_come(uint64_t call)
{
	for (int i = 0; i < world.num; i++) {
		if (world.nodes[i].outcomes[call] == NOT_YET)
			return false;
	}
	return true;
}

/* Some calls let nobody go before all have come, and some do. */
static void leave(struct node *node)
{
	if (world.waits[node->call] && !all_have_come(node->call))
		return;
	if (node->outcomes[node->call] == ACCELERATED)
		core_meet_pass(node->comm, node->call);
	node->call++;
}

static void turn(struct node *node)
{
	if (node->call == CALLS)
		return;
	if (node->outcomes[node->call] != NOT_YET)
		leave(node);
	else if (node->offers)
		go_on(node);
	else
		come(node);
}

/* ---- worlds ---- */

static void make_node(int i)
{
	struct node *node = &world.nodes[i];
	struct core_member members[MOST_NODES];
	size_t bytes = core_area_bytes(1, 1, world.num, true);

	for (int j = 0; j < world.num; j++)
		members[j] = (struct core_member){j, j, j == i ? 0 : -1};
	*node = (struct node){.comm = core_comm_new(1, i, world.num, members)};
	assert_non_null(node->comm);
	node->comm->spans = true;
	node->comm->slot = &node->slot;
	node->comm->area = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(node->comm->area);
	memset(node->comm->area, 0, bytes);
	node->comm->agreement = core_nodes_create(node->comm);
	assert_non_null(node->comm->agreement);
}

/* One in `stages` stages a call, one in `withdraws` may take back that it would not; 0: nobody. */
static void make_world(uint64_t seed, uint32_t stages, uint32_t withdraws)
{
	world = (struct world){.random = seed, .now = UTIL_SECONDS(1)};
	world.num = 2 + (int)pick(MOST_NODES - 1);
	for (int i = 0; i < world.num; i++)
		make_node(i);
	for (int call = 0; call < CALLS; call++) {
		bool eager = pick(2);

		world.nonblocking[call] = withdraws && pick(2);
		world.waits[call] = pick(2);
		for (int i = 0; i < world.num; i++)
			world.nodes[i].plans[call] = (struct plan){
				.stages = stages && !pick(stages),
				.withdraws = world.nonblocking[call] && !pick(withdraws),
				.eager = eager};
	}
}

static bool is_done(void)
{
	for (int i = 0; i < world.num; i++) {
		if (world.nodes[i].call < CALLS)
			return false;
	}
	return true;
}

static void free_world(void)
{
	struct letter *letter;

	while ((letter = world.letters)) {
		world.letters = letter->next;
		if (letter->underway)
			(*letter->underway)--;
		free(letter);
	}
	for (int i = 0; i < world.num; i++) {
		core_nodes_free(world.nodes[i].comm->agreement);
		free(world.nodes[i].comm->area);
		core_comm_free(world.nodes[i].comm);
	}
}

/* Of all members the same; and staged where somebody stages it. */
static void look_at_outcomes(uint64_t seed)
{
	for (int call = 0; call < CALLS; call++) {
		bool staged = false, withdrawn = false;

		for (int i = 0; i < world.num; i++) {
			staged |= world.nodes[i].plans[call].stages;
			staged |= world.nodes[i].plans[call].behind;
			world.behind += world.nodes[i].plans[call].behind;
			withdrawn |= world.nodes[i].plans[call].withdraws;
			if (world.nodes[i].outcomes[call] != world.nodes[0].outcomes[call])
				fail_msg("seed %llu: call %d is %d on node 0, %d on node %d",
					 (unsigned long long)seed, call,
					 world.nodes[0].outcomes[call],
					 world.nodes[i].outcomes[call], i);
		}
		if (staged && world.nodes[0].outcomes[call] == ACCELERATED)
			fail_msg("seed %llu: call %d is staged by one, and accelerated",
				 (unsigned long long)seed, call);
		if (!staged && !withdrawn && world.nodes[0].outcomes[call] == STAGED)
			fail_msg("seed %llu: nobody has staged call %d, and it is",
				 (unsigned long long)seed, call);
		world.accelerated += world.nodes[0].outcomes[call] == ACCELERATED;
	}
}

static void go_through(uint64_t seed)
{
	const int most = 4000000;

	for (int step = 0; !is_done(); step++) {
		if (step == most)
			fail_msg("seed %llu: %d nodes are not done after %d steps",
				 (unsigned long long)seed, world.num, most);
		world.now += pick(20000);
		if (pick(2))
			deliver();
		else if (pick(4))
			turn(&world.nodes[pick((uint32_t)world.num)]);
		else
			think_again();
	}
	look_at_outcomes(seed);
	free_world();
}

static void run(uint64_t seed, uint32_t stages, uint32_t withdraws)
{
	make_world(seed, stages, withdraws);
	go_through(seed);
}

static void nobody_stages(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		run(seed, 0, 0);
		assert_int_equal(world.accelerated, CALLS);
	}
}

enum { WORLDS = 500 };

/* In worlds of all kinds; one in `least` calls or fewer is staged. Returns how many are
 * accelerated. */
static int run_worlds(uint32_t least, bool withdraws)
{
	int accelerated = 0;

	for (uint64_t seed = 1; seed <= WORLDS; seed++) {
		run(seed, least + (uint32_t)(seed % 30), withdraws ? 1 + (uint32_t)(seed % 5) : 0);
		accelerated += world.accelerated;
	}
	return accelerated;
}

static void some_stage(void **state)
{
	(void)state;
	assert_true(run_worlds(2, false) > WORLDS * CALLS / 4);
}

static void some_take_back(void **state)
{
	(void)state;
	assert_true(run_worlds(4, true) > WORLDS * CALLS / 10);
}

/* It sees none of what the others send it, and they stop to send before that is too much. */
static void one_stages_all(void **state)
{
	int behind = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		make_world(seed, 0, 0);
		for (int call = 0; call < CALLS; call++)
			world.nodes[0].plans[call].stages = true;
		go_through(seed);
		assert_int_equal(world.accelerated, 0);
		behind += world.behind;
	}
	assert_true(behind > 0);
}

/* One letter, of which a bit is wrong, or of which the end is missing. */
static bool damage(void)
{
	for (struct letter *letter = world.letters; letter; letter = letter->next) {
		if (letter->header.kind != CORE_MAIL_READY || pick(4))
			continue;
		letter->data[pick((uint32_t)letter->bytes)] ^= (unsigned char)(1U << pick(8));
		if (!pick(4))
			letter->bytes = pick((uint32_t)letter->bytes);
		return true;
	}
	return false;
}

/*
 * The call fails or is done, or goes on: where a letter is damaged it may be refused, and then the
 * node that has it has failed; the others' places in the area are as they were.
 */
static void damaged(void **state)
{
	int refused = 0, done = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		bool is_damaged = false;

		make_world(seed, 0, 0);
		for (int i = 0; i < world.num; i++) {
			world.nodes[i].plans[0].eager = true;
			come(&world.nodes[i]);
		}
		for (int step = 0; step < 400; step++) {
			is_damaged = is_damaged || damage();
			progress(&world.nodes[pick((uint32_t)world.num)]);
			deliver();
		}
		for (int i = 0; i < world.num; i++) {
			refused += is_damaged && core_meet_failed(world.nodes[i].comm, 0);
			done += core_agree_poll(&world.nodes[i].agree) == CORE_AGREE_ACCEL;
			for (int j = 0; j < world.num; j++)
				assert_memory_equal(core_area_record_of(world.nodes[i].comm, 1, j),
						    zeros, sizeof(zeros));
		}
		free_world();
	}
	assert_true(refused > 100 && done > 100);
}

/* Where a member is a call behind: what fails meanwhile is none of that call's failures. */
static void failed_in_one(void **state)
{
	struct core_comm *comm;

	(void)state;
	make_world(1, 0, 0);
	comm = world.nodes[0].comm;
	for (uint64_t call = 0; call < 20; call++) {
		bool fails[] = {call % 3 == 1, call % 5 == 2};

		if (fails[0])
			core_meet_fail(comm, call);
		if (fails[1])
			core_meet_fail_far(comm->area, call);
		assert_int_equal(core_meet_failed(comm, call), fails[0] || fails[1]);
		assert_false(core_meet_failed(comm, call + 1));
		if (call > 0)
			assert_int_equal(core_meet_failed(comm, call - 1),
					 (call - 1) % 3 == 1 || (call - 1) % 5 == 2);
	}
	free_world();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_stages),  cmocka_unit_test(some_stage),
		cmocka_unit_test(some_take_back), cmocka_unit_test(one_stages_all),
		cmocka_unit_test(damaged),        cmocka_unit_test(failed_in_one),
	};

	core_mpi_job.size = MOST_NODES;
	core_nodes_handle_mail();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
