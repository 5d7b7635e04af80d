/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm of the catalogue proved; the verifier against an oracle that carries schedules
 * out with numbers, on schedules that are right and on thousands that were broken; and one wrong
 * schedule by hand for each thing that the verifier looks at.
 */
#include "algos/algo.h"
#include "algos/sched_carry.h"
#include "algos/sched_levels.h"
#include "algos/sched_verify.h"
#include "sched_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY = 256 };

static int roots(const struct sched_request *request)
{
	return sched_coll_has_root(request->coll) ? request->ranks : 1;
}

static void prove(const struct algo *algo, const struct sched_request *request)
{
	struct sched *sched = algo_make(algo, request);
	char why[WHY];

	assert_non_null(sched);
	if (!sched_verify(sched, algo->slots, why, sizeof(why)))
		fail_msg("%s %s, %d ranks, root %d, in place %d, ordered %d, %d channels: %s",
			 algo->name, sched_coll_name(request->coll), request->ranks, request->root,
			 request->in_place, request->ordered, request->channels, why);
	sched_free(sched);
}

/* Call for all collectives of the algorithm, roots, in place and not; in order where it can. */
static long for_all_of(const struct algo *algo, const struct sched_request *like, int root_step,
		       void (*call)(const struct algo *, const struct sched_request *))
{
	long calls = 0;

	for (int i = 0; i < 2 * SCHED_NUM_COLLS; i++) {
		struct sched_request r = *like;

		r.coll = (enum sched_coll)(i / 2);
		r.in_place = i % 2;
		r.ordered = sched_coll_reduces(r.coll);
		r.ordered = r.ordered && !algo_refuses(algo, &r, false);
		if (algo_refuses(algo, &r, false) ||
		    (r.in_place && r.coll == SCHED_BCAST)) /* which has one buffer */
			continue;
		for (; r.root < roots(&r); r.root += root_step, calls++)
			call(algo, &r);
	}
	return calls;
}

static long for_all(int ranks, int channels, int root_step,
		    void (*call)(const struct algo *, const struct sched_request *))
{
	struct sched_request like = {.ranks = ranks, .channels = channels};
	long calls = 0;

	for (const struct algo *algo = algo_catalogue; algo->name; algo++)
		calls += for_all_of(algo, &like, root_step, call);
	return calls;
}

static void all_are_proved(void **state)
{
	(void)state;
	for (int ranks = 1; ranks <= 64; ranks++)
		assert_true(for_all(ranks, 1, 1, prove) > 20);
	for (int ranks = 1; ranks <= 9; ranks++)
		for_all(ranks, 3, 1, prove);
}

/* Of ranks that share a GPU one does the work, but for what waits in another's HOLD. */
static void workers_alone_work(const struct algo *algo, const struct sched_request *request)
{
	bool holds = request->in_place && !strcmp(algo->name, "direct") &&
		     sched_coll_reduces(request->coll) && request->gpus[0] != 5;
	bool direct = algo->needs & ALGO_NEEDS_MAPPED && strcmp(algo->name, "oneshot") && !holds;
	struct sched *sched = algo_make(algo, request);

	assert_non_null(sched);
	for (uint32_t i = 0; direct && request->ranks > 1 && i < sched->num_lanes; i++) {
		int rank = sched->lanes[i].rank;

		if (sched->lanes[i].num && sched_worker(request, rank) != rank)
			fail_msg("%s %s: rank %d of %d works", algo->name,
				 sched_coll_name(request->coll), rank, request->ranks);
	}
	sched_free(sched);
	prove(algo, request);
}

static void shared_gpus_are_proved(void **state)
{
	int gpus[17];

	(void)state;
	for (int ranks = 1; ranks <= 17; ranks++) {
		struct sched_request like = {
			.ranks = ranks, .channels = 1, .gpus = gpus, .all_mapped = true};

		/* All on one, on two of one after the other, on three in turn. */
		for (int how = 0; how < 3; how++) {
			for (int rank = 0; rank < ranks; rank++)
				gpus[rank] = how == 0 ? 5 : how == 1 ? rank / 9 : rank % 3;
			for (const struct algo *algo = algo_catalogue; algo->name; algo++)
				for_all_of(algo, &like, 1, workers_alone_work);
			like.all_mapped = false;
			for (const struct algo *algo = algo_catalogue; algo->name; algo++)
				for_all_of(algo, &like, 3, prove);
			like.all_mapped = true;
		}
	}
}

/* ---- over nodes ---- */

enum { MAX_SHAPE = 64 };

/* How ranks are placed: node after node, in turn, or anyhow. */
enum placement { BLOCKS, ROUND_ROBIN, ANYHOW, NUM_PLACEMENTS };

struct shape {
	int ranks, num_nodes;
	int nodes[MAX_SHAPE];
};

/* Nodes of the sizes, which end with 0. */
static struct shape shape_of(const int *sizes, enum placement placement)
{
	struct shape shape = {0};
	int left[MAX_SHAPE] = {0};
	uint64_t seed = 1;

	for (; sizes[shape.num_nodes]; shape.num_nodes++) {
		left[shape.num_nodes] = sizes[shape.num_nodes];
		shape.ranks += sizes[shape.num_nodes];
	}
	for (int rank = 0, node = 0; rank < shape.ranks; rank++) {
		if (placement == ANYHOW)
			node = (int)(oracle_draw(&seed) % (uint32_t)shape.num_nodes);
		while (!left[node])
			node = (node + 1) % shape.num_nodes;
		left[node]--;
		shape.nodes[rank] = node;
		node = placement == ROUND_ROBIN ? (node + 1) % shape.num_nodes : node;
	}
	return shape;
}

static long for_shape(const int *sizes, int channels, bool flat_too,
		      void (*call)(const struct algo *, const struct sched_request *))
{
	long calls = 0;

	for (int i = 0; i < NUM_PLACEMENTS; i++) {
		struct shape shape = shape_of(sizes, (enum placement)i);
		struct sched_request like = {.ranks = shape.ranks,
					     .channels = channels,
					     .num_nodes = shape.num_nodes,
					     .nodes = shape.nodes};

		for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
			if (flat_too || algo->needs & ALGO_NEEDS_NODES)
				calls += for_all_of(algo, &like, shape.ranks > 16 ? 7 : 1, call);
		}
	}
	return calls;
}

static const int shapes[][9] = {
	{1, 1},       {2, 2},       {2, 2, 2, 1},    {4, 4},
	{1, 1, 1},    {3, 1},       {1, 3},          {1, 2, 4},
	{3, 3, 2},    {5, 1, 1, 1}, {2, 1, 2, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 1},
	{7, 5, 3, 1}, {8, 8},       {4, 4, 4, 4},
};
enum { NUM_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void hierarchies_are_proved(void **state)
{
	static const int large[][9] = {{8, 8, 8, 8, 8, 8, 8, 8}, {32, 32}, {16, 1, 16, 2}};

	(void)state;
	for (int i = 0; i < NUM_SHAPES; i++) {
		for (int channels = 1; channels <= 3; channels++)
			assert_true(for_shape(shapes[i], channels, false, prove) > 20);
	}
	for (int i = 0; i < 3; i++)
		assert_true(for_shape(large[i], 1, false, prove) > 20);
}

/* ---- exchanges of few ---- */

/* So many of a hundred pairs, drawn; a rank may be its own. */
static struct sched_pairs *draw_pairs(int ranks, uint64_t percent, uint64_t *seed)
{
	int *counts = calloc((size_t)ranks, sizeof(*counts)), num = 0;
	int *to = calloc((size_t)(ranks * ranks), sizeof(*to));
	struct sched_pairs *pairs;

	assert_true(counts && to);
	for (int i = 0; i < ranks * ranks; i++) {
		/* In descending order. */
		if (oracle_draw(seed) % 100 < percent) {
			counts[i / ranks]++;
			to[num++] = ranks - 1 - i % ranks;
		}
	}
	pairs = sched_pairs_new(ranks, counts, to);
	assert_non_null(pairs);
	assert_int_equal(sched_pairs_num(pairs), num);
	free(counts);
	free(to);
	return pairs;
}

static void check_pairs(const char *name, const struct sched_request *request, uint64_t *seed)
{
	const struct algo *algo = algo_find(name, SCHED_ALLTOALL);
	struct sched *sched = algo_make(algo, request);
	uint32_t links = 0;

	assert_null(algo_refuses(algo, request, true));
	prove(algo, request);
	assert_non_null(sched);
	assert_int_equal(oracle_run(sched, algo->slots, ORACLE_SUM, seed), ORACLE_RIGHT);
	/* No messages but between pairs. */
	for (int i = 0; i < request->ranks * request->ranks; i++) {
		int from = i / request->ranks, to = i % request->ranks;

		links += from != to && sched_pairs_have(request->pairs, from, to);
	}
	if (!(algo->needs & ALGO_NEEDS_MAPPED) && request->ranks > 1)
		assert_int_equal(sched->num_connections, links * (uint32_t)request->channels);
	sched_free(sched);
}

static void exchanges_of_few_are_proved(void **state)
{
	static const uint64_t percents[] = {0, 5, 30, 90, 100};
	uint64_t seed = 3;

	(void)state;
	for (int i = 0; i < 5 * 14; i++) {
		struct sched_request r = {
			.coll = SCHED_ALLTOALL, .ranks = 1 + i / 5, .channels = 1 + i % 3};
		struct sched_pairs *pairs = draw_pairs(r.ranks, percents[i % 5], &seed);
		struct sched_pairs *copy = sched_pairs_copy(pairs);

		r.pairs = pairs;
		assert_true(sched_pairs_equal(pairs, copy) && !sched_pairs_equal(pairs, NULL));
		check_pairs("pairwise", &r, &seed);
		check_pairs("direct", &r, &seed);
		if (r.ranks > 1)
			assert_non_null(algo_refuses(algo_find("bruck", r.coll), &r, false));
		sched_pairs_free(pairs);
		sched_pairs_free(copy);
	}
}

/* Each of many has something for the six that are next to it in a grid. */
static void many_ranks_of_a_grid_are_proved(void **state)
{
	enum { RANKS = 1000, DIMS = 3 };
	int counts[RANKS], to[RANKS * 2 * DIMS], num = 0;
	struct sched_request r = {.coll = SCHED_ALLTOALL, .ranks = RANKS, .channels = 2};
	struct sched_pairs *pairs;

	(void)state;
	for (int i = 0; i < RANKS; i++) {
		counts[i] = 2 * DIMS;
		for (int step = 1; step < RANKS; step *= 10) {
			int at = i / step % 10;

			to[num++] = i + ((at + 1) % 10 - at) * step;
			to[num++] = i + ((at + 9) % 10 - at) * step;
		}
	}
	assert_non_null(algo_refuses(algo_find("pairwise", r.coll), &r, true));
	r.pairs = pairs = sched_pairs_new(RANKS, counts, to);
	assert_non_null(pairs);
	assert_null(algo_refuses(algo_find("pairwise", r.coll), &r, true));
	prove(algo_find("pairwise", r.coll), &r);
	sched_pairs_free(pairs);
}

/* Most algorithms have n times n steps or messages, which takes long. */
static int most_ranks(const struct algo *algo)
{
	static const char *const some[] = {"ring", "halving", "direct"};
	static const char *const few[] = {"pairwise", "bruck", "scatter-allgather", "neighbor",
					  "doubling"};

	for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
		if (!strcmp(few[i], algo->name))
			return 256;
	}
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		if (!strcmp(some[i], algo->name))
			return 512;
	}
	return 1024;
}

static void prove_large(const struct algo *algo, const struct sched_request *request)
{
	if (request->ranks <= most_ranks(algo) && (request->ranks <= 256 || !request->in_place))
		prove(algo, request);
}

static void samples_of_many_ranks_are_proved(void **state)
{
	(void)state;
	for_all(100, 1, 99, prove_large);
	for_all(128, 2, 100, prove_large);
	for_all(255, 1, 200, prove_large);
	for_all(512, 1, 500, prove_large);
	for_all(1024, 1, 1023, prove_large);
}

/* ---- the catalogue's data ---- */

static bool is_proved(const struct algo *algo, const struct sched_request *request, int slots,
		      bool uniform)
{
	struct sched *sched = algo_make(algo, request);
	char why[WHY];
	bool proved;

	assert_non_null(sched);
	sched->uniform = uniform;
	proved = sched_verify(sched, slots, why, sizeof(why));
	sched_free(sched);
	return proved;
}

/* With fewer slots than the catalogue asks for, some number of ranks waits for ever. */
static void slots_are_needed(void **state)
{
	int found = 0;

	(void)state;
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
			struct sched_request few = {
				.coll = (enum sched_coll)coll, .ranks = 4, .channels = 1};
			struct sched_request more = few;

			more.ranks = 9;
			if (algo->slots == 1 || algo_refuses(algo, &few, false))
				continue;
			assert_false(is_proved(algo, &few, algo->slots - 1, false) &&
				     is_proved(algo, &more, algo->slots - 1, false));
			found++;
		}
	}
	assert_true(found > 0);
}

static bool is_uniform(const struct algo *algo)
{
	return algo->needs & ALGO_NEEDS_UNIFORM;
}

/* What is refused would be wrong. */
static void restrictions_are_needed(void **state)
{
	struct sched_request oneshot = {.coll = SCHED_ALLREDUCE, .ranks = 4, .channels = 1};
	struct sched_request doubling = {.coll = SCHED_ALLGATHER, .ranks = 6, .channels = 1};
	struct sched_request halving = {.coll = SCHED_REDUCE_SCATTER, .ranks = 6, .channels = 1};
	struct sched_request neighbor = {.coll = SCHED_ALLGATHER, .ranks = 5, .channels = 1};
	struct sched_request alltoall = {.coll = SCHED_ALLTOALL, .ranks = 4, .channels = 1};
	struct {
		const char *name;
		struct sched_request *request;
		bool *in_place;
	} cases[] = {{"oneshot", &oneshot, &oneshot.in_place},
		     {"doubling", &doubling, NULL},
		     {"halving", &halving, NULL},
		     {"neighbor", &neighbor, NULL}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sched_request *r = cases[i].request;
		const struct algo *algo = algo_find(cases[i].name, r->coll);

		if (cases[i].in_place) {
			assert_true(is_proved(algo, r, algo->slots, is_uniform(algo)));
			*cases[i].in_place = true;
		}
		assert_non_null(algo_refuses(algo, r, false));
		assert_false(is_proved(algo, r, algo->slots, is_uniform(algo)));
	}
	/* Of all that have blocks, one that is not uniform is right for blocks of any sizes. */
	const struct algo *bruck = algo_find("bruck", SCHED_ALLTOALL);

	assert_non_null(algo_refuses(bruck, &alltoall, true));
	assert_true(is_proved(bruck, &alltoall, 1, true));
	assert_false(is_proved(bruck, &alltoall, 1, false));
}

/* ---- costs ---- */

static struct sched_cost cost_of(const char *name, enum sched_coll coll, int ranks, uint64_t bytes)
{
	struct sched_request request = {.coll = coll, .ranks = ranks, .channels = 1};
	struct sched *sched = algo_make(algo_find(name, coll), &request);
	struct sched_levels trace;
	struct sched_cost cost;

	assert_non_null(sched);
	assert_true(sched_levels_new(sched, &trace));
	cost = sched_cost_of(sched, &trace, bytes);
	sched_levels_free(&trace);
	sched_free(sched);
	return cost;
}

static uint32_t log2_of(int number)
{
	uint32_t log = 0;

	while (1 << log < number)
		log++;
	return log;
}

/* What the heads of the algorithms' files say. */
static void costs_are_as_promised(void **state)
{
	(void)state;
	for (int n = 2; n <= 64; n++) {
		uint64_t block = 8 << 10, bytes = block * (uint64_t)n, others = (uint64_t)n - 1;
		struct sched_cost ring = cost_of("ring", SCHED_ALLREDUCE, n, bytes);
		struct sched_cost twoshot = cost_of("twoshot", SCHED_ALLREDUCE, n, bytes);
		struct sched_cost tree = cost_of("tree", SCHED_ALLREDUCE, n, bytes);
		struct sched_cost pairwise = cost_of("pairwise", SCHED_ALLTOALL, n, block);
		struct sched_cost bruck = cost_of("bruck", SCHED_ALLTOALL, n, block);
		struct sched_cost chain = cost_of("chain", SCHED_SCAN, n, bytes);

		assert_int_equal(ring.hops, 2 * (n - 1));
		assert_int_equal(ring.sent, 2 * others * block);
		assert_int_equal(ring.waits, 0);
		assert_int_equal(twoshot.hops, 0);
		assert_int_equal(twoshot.waits, 1);
		assert_int_equal(twoshot.remote, 2 * others * block);
		assert_in_range(tree.hops, 1, 2 * (log2_of(n) + 1));
		assert_true(tree.sent <= 2 * bytes + block); /* pieces differ by a unit */
		assert_int_equal(pairwise.sent, others * block);
		assert_true(bruck.sent <= (uint64_t)log2_of(n) * (uint64_t)((n + 1) / 2) * block);
		assert_int_equal(chain.hops, n - 1);
		assert_int_equal(chain.sent, bytes);
	}
	for (int n = 2; n <= 64; n *= 2) {
		uint64_t bytes = (uint64_t)n << 13;
		struct sched_cost doubling = cost_of("doubling", SCHED_ALLREDUCE, n, bytes);
		struct sched_cost halving = cost_of("halving", SCHED_ALLREDUCE, n, bytes);

		assert_int_equal(doubling.hops, log2_of(n));
		assert_int_equal(doubling.sent, log2_of(n) * bytes);
		assert_int_equal(halving.sent, 2 * (bytes - bytes / (uint64_t)n));
	}
	/* Grids of 2 x 2, 3 x 2, 8 x 4 and 8 x 8. */
	for (int i = 0; i < 4; i++) {
		static const int ranks[] = {4, 6, 32, 64}, rings[] = {2, 3, 10, 14};
		uint64_t bytes = (uint64_t)ranks[i] << 13;
		struct sched_cost torus = cost_of("torus", SCHED_ALLREDUCE, ranks[i], bytes);

		assert_int_equal(torus.hops, 2 * rings[i]);
		assert_int_equal(torus.sent, 2 * (bytes - bytes / (uint64_t)ranks[i]));
	}
}

/* ---- the oracle ---- */

static uint64_t seed = 20261121;

static enum oracle_verdict worst_of(const struct sched *sched, int slots, enum oracle_op op,
				    int runs)
{
	enum oracle_verdict verdict = ORACLE_RIGHT;

	while (runs-- && verdict == ORACLE_RIGHT)
		verdict = oracle_run(sched, slots, op, &seed);
	return verdict;
}

static void ask_oracle(const struct algo *algo, const struct sched_request *request)
{
	struct sched *sched = algo_make(algo, request);
	bool commutative = algo->needs & ALGO_NEEDS_COMMUTATIVE;
	enum oracle_op op = request->ordered ? ORACLE_FOLD
			    : commutative    ? ORACLE_SUM
					     : ORACLE_COMPOSE;

	assert_non_null(sched);
	if (worst_of(sched, algo->slots, op, 3))
		fail_msg("%s %s, %d ranks, root %d, in place %d, ordered %d", algo->name,
			 sched_coll_name(request->coll), request->ranks, request->root,
			 request->in_place, request->ordered);
	sched_free(sched);
}

static void oracle_finds_all_right(void **state)
{
	(void)state;
	for (int ranks = 1; ranks <= 17; ranks++)
		for_all(ranks, 1 + ranks % 3, 1, ask_oracle);
	for_all(32, 1, 31, ask_oracle);
}

static void oracle_finds_hierarchies_right(void **state)
{
	(void)state;
	for (int i = 0; i < NUM_SHAPES; i++)
		for_shape(shapes[i], 1 + i % 3, false, ask_oracle);
}

/* The steps that a network may do, of each rank by whether it is in place. */
static void ask_oracle_of_network(const struct algo *algo, const struct sched_request *request)
{
	struct sched *sched = algo_make(algo, request);
	uint8_t *levels = malloc(sched->num_steps + (size_t)1);

	assert_true(levels && sched_find_carried(sched, levels));
	for (uint32_t i = 0; i < sched->num_lanes; i++) {
		const struct sched_lane *lane = &sched->lanes[i];
		bool in_place = sched_is_in_place(request, lane->rank);

		/* The bits of what is in place stand beside the others. */
		for (uint32_t j = lane->first; in_place && j < lane->first + lane->num; j++)
			levels[j] >>= 1;
	}
	for (int i = 0; i < 2; i++) {
		if (oracle_run_carried(sched, algo->slots + i, ORACLE_SUM, levels,
				       SCHED_CARRY_APART, SCHED_CARRY_EARLY_APART, &seed))
			fail_msg("%s %s, %d ranks on %d nodes, root %d, in place %d", algo->name,
				 sched_coll_name(request->coll), request->ranks, request->num_nodes,
				 request->root, request->in_place);
	}
	free(levels);
	sched_free(sched);
}

static void oracle_finds_the_network_right(void **state)
{
	(void)state;
	for (int i = 0; i < NUM_SHAPES; i++)
		for_shape(shapes[i], 1 + i % 3, true, ask_oracle_of_network);
}

/* What is said to need a commutative operation gives other results with one that is not. */
static void order_matters_where_it_is_said_to(void **state)
{
	(void)state;
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
			struct sched_request r = {
				.coll = (enum sched_coll)coll, .ranks = 8, .channels = 1};
			struct sched *sched;

			if (!(algo->needs & ALGO_NEEDS_COMMUTATIVE) ||
			    algo_refuses(algo, &r, false))
				continue;
			sched = algo_make(algo, &r);
			assert_int_equal(worst_of(sched, algo->slots, ORACLE_COMPOSE, 1),
					 ORACLE_WRONG);
			sched_free(sched);
		}
	}
}

/* What is said not to add in order is not proved to, nor does it. */
static void order_is_refused_where_it_is_said_to_be(void **state)
{
	int refused = 0;

	(void)state;
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
			struct sched_request r = {
				.coll = (enum sched_coll)coll, .ranks = 8, .channels = 1};
			struct sched *sched;
			char why[WHY];

			if (!(algo->needs & (ALGO_NEEDS_COMMUTATIVE | ALGO_NEEDS_ASSOCIATIVE)) ||
			    algo_refuses(algo, &r, false))
				continue;
			sched = algo_make(algo, &r);
			assert_int_equal(worst_of(sched, algo->slots, ORACLE_FOLD, 1),
					 ORACLE_WRONG);
			sched->request.ordered = true;
			assert_false(sched_verify(sched, algo->slots, why, sizeof(why)));
			assert_non_null(strstr(why, "the next rank"));
			assert_non_null(algo_refuses(algo, &sched->request, false));
			sched_free(sched);
			refused++;
		}
	}
	assert_true(refused > 8);
}

static uint32_t any(uint32_t below)
{
	return (uint32_t)(oracle_draw(&seed) % below);
}

static void drop_step(struct sched *s, struct sched_lane *lane)
{
	uint32_t at = lane->first + any(lane->num);

	memmove(&s->steps[at], &s->steps[at + 1],
		(lane->first + lane->num - at - 1) * sizeof(*s->steps));
	lane->num--;
}

static void repeat_step(struct sched *s, struct sched_lane *lane)
{
	uint32_t from = lane->first + any(lane->num), to = lane->first + any(lane->num);

	s->steps[to] = s->steps[from];
}

static void exchange_steps(struct sched *s, struct sched_lane *lane)
{
	uint32_t a = lane->first + any(lane->num), b = lane->first + any(lane->num);
	struct sched_step step = s->steps[a];

	s->steps[a] = s->steps[b];
	s->steps[b] = step;
}

static void redirect(struct sched *s, struct sched_lane *lane)
{
	const struct sched_step *step = &s->steps[lane->first + any(lane->num)];
	uint32_t num = (uint32_t)(step->num_sources + step->num_targets);
	struct sched_operand *o = &s->operands[step->first + any(num)];
	uint32_t ranks = (uint32_t)s->request.ranks;

	if (o->fifo && any(4)) {
		o->at = (int32_t)any(s->num_connections);
		return;
	}
	switch (o->fifo ? 3 : any(4)) {
	case 0:
		o->at = (int32_t)any(ranks);
		break;
	case 1:
		o->block = (int32_t)any((uint32_t)sched_num_blocks(&s->request));
		break;
	case 2:
		o->buffer = (uint8_t)any(SCHED_NUM_BUFFERS);
		break;
	default:
		*o = s->operands[any(s->num_operands)];
		break;
	}
}

static void change_piece(struct sched *s, struct sched_lane *lane)
{
	s->steps[lane->first + any(lane->num)].piece = (int32_t)any((uint32_t)s->pieces);
}

static void change_span(struct sched *s, struct sched_lane *lane)
{
	struct sched_step *step = &s->steps[lane->first + any(lane->num)];

	step->span = 1 + (int32_t)any((uint32_t)(s->pieces - step->piece));
	s->most_span = s->pieces;
}

static void drop_operand(struct sched *s, struct sched_lane *lane)
{
	struct sched_step *step = &s->steps[lane->first + any(lane->num)];

	if (step->num_targets > 1)
		step->num_targets--;
	else if (step->num_sources > 1 && !step->swap)
		step->num_sources--, step->first++;
}

static void exchange_sources(struct sched *s, struct sched_lane *lane)
{
	const struct sched_step *step = &s->steps[lane->first + any(lane->num)];
	struct sched_operand *a = &s->operands[step->first + any((uint32_t)step->num_sources)];
	struct sched_operand *b = &s->operands[step->first + any((uint32_t)step->num_sources)];
	struct sched_operand operand = *a;

	*a = *b;
	*b = operand;
}

static void change_phase(struct sched *s, struct sched_lane *lane)
{
	lane->phase = (int32_t)any((uint32_t)s->phases);
}

static void make_swap(struct sched *s, struct sched_lane *lane)
{
	struct sched_step *step = &s->steps[lane->first + any(lane->num)];

	if (step->num_sources != 1 || step->num_targets != 1)
		return;
	step->swap = true;
	step->num_sources = 2;
	step->num_targets = 0;
}

static void mutate(struct sched *s)
{
	static void (*const kinds[])(struct sched *, struct sched_lane *) = {
		drop_step, repeat_step,  exchange_steps,   redirect,
		redirect,  change_piece, drop_operand,     change_phase,
		make_swap, change_span,  exchange_sources,
	};
	struct sched_lane *lane = &s->lanes[any(s->num_lanes)];

	if (lane->num)
		kinds[any(sizeof(kinds) / sizeof(kinds[0]))](s, lane);
}

static const struct algo *any_algo(struct sched_request *request)
{
	uint32_t num = 0;

	while (algo_catalogue[num].name)
		num++;
	for (;;) {
		const struct algo *algo = &algo_catalogue[any(num)];

		*request = (struct sched_request){.coll = (enum sched_coll)any(SCHED_NUM_COLLS),
						  .ranks = 2 + (int)any(6),
						  .in_place = any(2),
						  .channels = 1 + (int)any(2)};
		request->root =
			sched_coll_has_root(request->coll) ? (int)any((uint32_t)request->ranks) : 0;
		request->ordered = sched_coll_reduces(request->coll) && any(2);
		if (!algo_refuses(algo, request, false))
			return algo;
	}
}

/* Whatever the oracle finds wrong or stuck, the verifier refuses. */
static void broken_schedules_are_refused(void **state)
{
	enum { MUTATIONS = 10000 };
	int wrong = 0, stuck = 0, refused = 0;

	(void)state;
	for (int i = 0; i < MUTATIONS; i++) {
		struct sched_request request;
		const struct algo *algo = any_algo(&request);
		struct sched *sched = algo_make(algo, &request);
		enum oracle_verdict verdict;
		char why[WHY];
		bool proved;

		for (uint32_t j = 0; j <= any(2); j++)
			mutate(sched);
		proved = sched_verify(sched, 2, why, sizeof(why));
		verdict = worst_of(sched, 2, request.ordered ? ORACLE_FOLD : ORACLE_SUM,
				   proved ? 10 : 2);
		if (proved && verdict != ORACLE_RIGHT)
			fail_msg("mutation %d of %s %s is proved, but %s", i, algo->name,
				 sched_coll_name(request.coll),
				 verdict == ORACLE_STUCK ? "stuck" : "wrong");
		refused += !proved;
		wrong += verdict == ORACLE_WRONG;
		stuck += verdict == ORACLE_STUCK;
		sched_free(sched);
	}
	print_message("%d mutations: %d wrong, %d stuck, %d refused\n", MUTATIONS, wrong, stuck,
		      refused);
	assert_true(wrong > MUTATIONS / 4 && stuck > MUTATIONS / 20 && refused < MUTATIONS);
}

/* ---- what the verifier says ---- */

static struct sched *two_ranks(enum sched_coll coll, bool in_place)
{
	struct sched_request request = {
		.coll = coll, .ranks = 2, .in_place = in_place, .channels = 1};

	return sched_new(&request);
}

static struct sched_operand in(int rank)
{
	return sched_place(SCHED_IN, rank, 0);
}

static struct sched_operand out(int rank)
{
	return sched_place(SCHED_OUT, rank, 0);
}

static void refuse_with(struct sched *sched, int slots, const char *why)
{
	char said[WHY];

	assert_false(sched_verify(sched, slots, said, sizeof(said)));
	if (!strstr(said, why))
		fail_msg("'%s' was said instead of '%s'", said, why);
	sched_free(sched);
}

static void refuse(struct sched *sched, const char *why)
{
	refuse_with(sched, 1, why);
}

/* Two ranks on two nodes, with a connection in each direction. */
static struct sched *two_nodes(void)
{
	static const int nodes[] = {0, 1};
	struct sched_request r = {
		.coll = SCHED_ALLREDUCE, .ranks = 2, .channels = 1, .num_nodes = 2, .nodes = nodes};
	struct sched *s = sched_new(&r);

	sched_connect(s, 0, 1);
	sched_connect(s, 1, 0);
	s->pieces = 2;
	sched_lane(s, 0, 0);
	return s;
}

/* Add a step of rank 0 by the network: piece 0 of IN or OUT goes, or piece 1 comes to OUT. */
static void add_sent(struct sched *s, struct sched_operand place)
{
	sched_copy(s, 0, place, sched_fifo(0));
}

static void add_received(struct sched *s)
{
	sched_copy(s, 1, sched_fifo(1), out(0));
}

static void expect_levels(struct sched *s, uint32_t step, uint8_t expected)
{
	uint8_t levels[8];

	assert_true(s->num_steps <= 8 && sched_find_carried(s, levels));
	assert_int_equal(levels[step], expected);
	sched_free(s);
}

enum {
	APART = SCHED_CARRY_APART,
	ALWAYS = SCHED_CARRY_APART | SCHED_CARRY_ALWAYS,
	EARLY_APART = SCHED_CARRY_EARLY_APART,
	EARLY_ALWAYS = SCHED_CARRY_EARLY_APART | SCHED_CARRY_EARLY_ALWAYS
};

/* What no algorithm of the catalogue has may be in the next one. */
static void the_network_sends_what_stays(void **state)
{
	struct sched *s = two_nodes();

	(void)state;
	add_sent(s, in(0));
	expect_levels(s, 0, ALWAYS);

	s = two_nodes();
	add_sent(s, in(0));
	sched_copy(s, 1, in(0), out(0));
	expect_levels(s, 0, APART);

	/* Before, in the lane; but in another one? */
	s = two_nodes();
	sched_copy(s, 1, in(0), out(0));
	add_sent(s, in(0));
	expect_levels(s, 1, ALWAYS);
	s = two_nodes();
	sched_copy(s, 1, in(0), out(0));
	sched_lane(s, 0, 0);
	add_sent(s, in(0));
	expect_levels(s, 1, APART);

	s = two_nodes();
	sched_copy(s, 0, in(0), out(0));
	add_sent(s, out(0));
	expect_levels(s, 1, ALWAYS);
	s = two_nodes();
	add_sent(s, out(0));
	sched_copy(s, 0, in(0), out(0));
	expect_levels(s, 0, 0);
	s = two_nodes();
	add_sent(s, out(0));
	sched_copy(s, 1, in(0), out(0));
	expect_levels(s, 0, ALWAYS);
	s = two_nodes();
	add_sent(s, in(0));
	sched_swap(s, 0, in(0), out(0));
	expect_levels(s, 0, 0);

	/* Where others write to OUT they may any time. */
	s = two_nodes();
	add_sent(s, out(0));
	sched_copy(s, 1, in(0), out(1));
	expect_levels(s, 0, 0);
	s = two_nodes();
	add_sent(s, in(0));
	sched_copy(s, 1, in(0), out(1));
	expect_levels(s, 0, APART);

	/* Nothing is to be done with it, and it is the rank's own. */
	s = two_nodes();
	sched_reduce(s, 0, in(0), out(0), sched_fifo(0));
	expect_levels(s, 0, 0);
	s = two_nodes();
	add_sent(s, in(1));
	expect_levels(s, 0, 0);
	s = two_nodes();
	sched_copy(s, 0, in(0), out(0));
	sched_to(s, sched_fifo(0));
	expect_levels(s, 0, 0);
}

static void the_network_receives_early_where_nobody_looks(void **state)
{
	struct sched *s = two_nodes();

	(void)state;
	add_received(s);
	expect_levels(s, 0, ALWAYS | EARLY_ALWAYS);

	s = two_nodes();
	sched_copy(s, 1, out(0), sched_place(SCHED_HOLD, 0, 0));
	sched_lane(s, 0, 0);
	add_received(s);
	expect_levels(s, 1, ALWAYS);
	s = two_nodes();
	sched_copy(s, 0, out(0), sched_place(SCHED_HOLD, 0, 0));
	sched_lane(s, 0, 0);
	add_received(s);
	expect_levels(s, 1, ALWAYS | EARLY_ALWAYS);
	s = two_nodes();
	sched_copy(s, 1, in(0), sched_place(SCHED_HOLD, 0, 0));
	sched_lane(s, 0, 0);
	add_received(s);
	expect_levels(s, 1, ALWAYS | EARLY_APART);
	s = two_nodes();
	add_received(s);
	sched_copy(s, 0, in(1), out(0));
	expect_levels(s, 0, ALWAYS);

	/* On from there. */
	s = two_nodes();
	add_received(s);
	sched_to(s, sched_fifo(0));
	expect_levels(s, 0, ALWAYS | EARLY_ALWAYS);
	s = two_nodes();
	add_received(s);
	sched_to(s, sched_fifo(0));
	sched_copy(s, 1, in(0), out(0));
	expect_levels(s, 0, EARLY_ALWAYS);
	s = two_nodes();
	sched_reduce(s, 1, sched_fifo(1), in(0), out(0));
	expect_levels(s, 0, 0);
}

static void add_both(struct sched *s, int rank)
{
	sched_lane(s, rank, 0);
	sched_step(s, 0);
	sched_from(s, in(0));
	sched_from(s, in(1));
	sched_to(s, out(rank));
}

static void a_race_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, true);

	(void)state;
	add_both(s, 0);
	add_both(s, 1);
	refuse(s, "reads IN block 0 of rank 0 while lane 0 writes it");
}

static void two_writers_are_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	for (int rank = 0; rank < 2; rank++) {
		sched_lane(s, rank, 0);
		sched_copy(s, 0, in(0), out(1));
	}
	refuse(s, "writes OUT block 0 of rank 1 while lane 0 writes it");
}

/* Also of what is there already. */
static void a_write_while_another_reads_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, true);

	(void)state;
	s->scratch_blocks = 1;
	sched_lane(s, 0, 0);
	sched_copy(s, 0, in(1), sched_place(SCHED_SCRATCH, 0, 0));
	sched_lane(s, 1, 0);
	sched_copy(s, 0, in(1), out(1));
	refuse(s, "writes OUT block 0 of rank 1 while lane 0 reads it");
}

static void a_result_over_needed_input_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_REDUCE_SCATTER, true);

	(void)state;
	for (int rank = 0; rank < 2; rank++)
		sched_connect(s, rank, 1 - rank);
	for (int rank = 0; rank < 2; rank++) {
		sched_lane(s, rank, 0);
		sched_copy(s, 0, sched_place(SCHED_IN, rank, 1 - rank), sched_fifo(rank));
		sched_step(s, 0);
		sched_from(s, sched_fifo(1 - rank));
		sched_from(s, sched_place(SCHED_IN, rank, rank));
		sched_to(s, sched_place(SCHED_OUT, rank, rank));
	}
	/* Right in one round; in the next, some of the input is lost. */
	refuse(s, "reads IN block 1 of rank 0, where there is nothing");
}

static void another_piece_than_was_sent_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	s->pieces = 2;
	sched_connect(s, 0, 1);
	for (int rank = 0; rank < 2; rank++) {
		sched_lane(s, rank, 0);
		for (int i = 0; i < 2; i++)
			sched_copy(s, rank ? 1 - i : i, rank ? sched_fifo(0) : in(0),
				   rank ? out(1) : sched_fifo(0));
	}
	refuse(s, "rank 1, channel 0, step 0 (recv, piece 1): moves piece 0 of round 0");
}

static void a_step_of_unknown_size_is_refused(void **state)
{
	struct sched_request request = {.coll = SCHED_REDUCE, .ranks = 3, .root = 2, .channels = 1};
	struct sched *s = sched_new(&request);

	(void)state;
	sched_connect(s, 0, 1);
	sched_connect(s, 1, 2);
	sched_lane(s, 0, 0);
	sched_copy(s, 0, in(0), sched_fifo(0));
	sched_lane(s, 1, 0);
	sched_copy(s, 0, sched_fifo(0), sched_fifo(1));
	refuse(s, "has no place, so its size is not known");
}

/* Right in two rounds, but not in three. */
static void swaps_across_rounds_are_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);
	struct sched_operand scratch = sched_place(SCHED_SCRATCH, 1, 0);

	(void)state;
	s->scratch_blocks = 1;
	sched_lane(s, 1, 0);
	sched_copy(s, 0, in(0), out(1));
	sched_copy(s, 0, in(0), scratch);
	for (int i = 0; i < 3; i++) {
		sched_next_phase(s);
		sched_lane(s, 1, 0);
		sched_swap(s, 0, out(1), scratch);
	}
	refuse(s, "moves piece 0 of round 1");
}

static void a_connection_twice_in_a_step_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	sched_connect(s, 0, 1);
	sched_lane(s, 0, 0);
	sched_copy(s, 0, in(0), sched_fifo(0));
	sched_to(s, sched_fifo(0));
	sched_lane(s, 1, 0);
	for (int i = 0; i < 2; i++)
		sched_copy(s, 0, sched_fifo(0), out(1));
	refuse_with(s, 2, "uses a connection twice");
}

static void lanes_of_nobody_are_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	sched_lane(s, 2, 0);
	sched_copy(s, 0, in(0), out(1));
	refuse(s, "lane 0 is of rank 2, phase 0");
	s = two_ranks(SCHED_BCAST, false);
	sched_lane(s, 1, 0);
	sched_copy(s, 0, in(0), out(1));
	s->lanes[0].phase = 1;
	refuse(s, "lane 0 is of rank 1, phase 1");
	s = two_ranks(SCHED_REDUCE, false);
	s->request.root = 2;
	refuse(s, "root 2 of 2 ranks");
}

static void garbage_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	sched_lane(s, 1, 0);
	sched_copy(s, 0, out(1), out(1));
	refuse(s, "rank 1, channel 0, step 0 (copy, piece 0): reads OUT block 0 of rank 1, where "
		  "there is nothing");
}

static void missing_output_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, false);

	(void)state;
	add_both(s, 0);
	refuse(s, "nothing is in piece 0 of block 0 of rank 1's output");
}

static void a_contribution_twice_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, false);

	(void)state;
	add_both(s, 0);
	sched_from(s, in(0));
	s->steps[0].num_sources = 2; /* as built: 0, 1, then the target */
	s->operands[1] = in(0);
	refuse(s, "adds a contribution twice");
}

static void half_a_sum_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, false);

	(void)state;
	add_both(s, 0);
	sched_lane(s, 1, 0);
	sched_copy(s, 0, in(1), out(1));
	refuse(s, "piece 0 of block 0 of rank 1's output is wrong");
}

static void written_input_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, false);

	(void)state;
	sched_lane(s, 0, 0);
	sched_copy(s, 0, in(0), in(1));
	refuse(s, "writes IN block 0 of rank 1, which is only for reading");
}

static void a_deadlock_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_ALLREDUCE, false);

	(void)state;
	for (int rank = 0; rank < 2; rank++)
		sched_connect(s, rank, 1 - rank);
	for (int rank = 0; rank < 2; rank++) {
		sched_lane(s, rank, 0);
		sched_copy(s, 0, sched_fifo(1 - rank), out(rank));
		sched_copy(s, 0, in(rank), sched_fifo(rank));
	}
	refuse(s, "rank 0, channel 0, step 0 (recv, piece 0): waits for ever, with 1 slots");
}

static void a_message_left_over_is_refused(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	for (int i = 0; i < 2; i++)
		sched_connect(s, 0, 1);
	sched_lane(s, 0, 0);
	sched_copy(s, 0, in(0), sched_fifo(0));
	sched_copy(s, 0, in(0), sched_fifo(1));
	sched_lane(s, 1, 0);
	sched_copy(s, 0, sched_fifo(0), out(1));
	refuse_with(s, 2, "what was sent on connection 1 is not received");
}

static void bounds_are_checked(void **state)
{
	const struct sched_operand wrong[] = {
		sched_place(SCHED_IN, 1, 0),      sched_place(SCHED_IN, 0, 1),
		sched_place(SCHED_OUT, 0, 0),     sched_place(SCHED_IN, 2, 0),
		sched_place(SCHED_SCRATCH, 0, 0), sched_place(SCHED_HOLD, 0, 1)};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct sched *s = two_ranks(SCHED_BCAST, false);

		sched_lane(s, 1, 0);
		sched_copy(s, 0, wrong[i], out(1));
		refuse(s, "there is no block");
	}
	struct sched *s = two_ranks(SCHED_BCAST, false);

	sched_lane(s, 1, 0);
	sched_copy(s, 1, in(0), out(1));
	refuse(s, "there are no pieces 1 to 1");
	s = two_ranks(SCHED_BCAST, false);
	sched_lane(s, 1, 0);
	sched_copy(s, 0, sched_fifo(0), out(1));
	refuse(s, "there is no connection 0");
}

static void a_fifo_has_one_lane_at_each_end(void **state)
{
	struct sched *s = two_ranks(SCHED_BCAST, false);

	(void)state;
	sched_connect(s, 0, 1);
	for (int i = 0; i < 2; i++) {
		sched_lane(s, 0, i);
		sched_copy(s, 0, in(0), sched_fifo(0));
	}
	refuse(s, "uses connection 0, as lane 0 does");
	s = two_ranks(SCHED_BCAST, false);
	sched_connect(s, 1, 0);
	sched_lane(s, 0, 0);
	sched_copy(s, 0, in(0), sched_fifo(0));
	refuse(s, "uses connection 0 from 1 to 0");
}

/* ---- pieces ---- */

static void pieces_cover_a_block(void **state)
{
	static const uint64_t sizes[] = {0, 1, 15, 16, 17, 1000, 65536, 65537, 1ull << 40};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (int pieces = 1; pieces < 40; pieces += 3) {
			uint64_t at = 0;

			for (int piece = 0; piece < pieces; piece++) {
				struct sched_span span = sched_span(sizes[i], 16, pieces, piece);

				assert_int_equal(span.offset, at);
				assert_true(span.offset % 16 == 0 || !span.bytes);
				assert_true(span.bytes <= sizes[i] / (uint64_t)pieces + 32);
				at += span.bytes;
			}
			assert_int_equal(at, sizes[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_proved),
		cmocka_unit_test(shared_gpus_are_proved),
		cmocka_unit_test(hierarchies_are_proved),
		cmocka_unit_test(oracle_finds_hierarchies_right),
		cmocka_unit_test(oracle_finds_the_network_right),
		cmocka_unit_test(samples_of_many_ranks_are_proved),
		cmocka_unit_test(exchanges_of_few_are_proved),
		cmocka_unit_test(many_ranks_of_a_grid_are_proved),
		cmocka_unit_test(slots_are_needed),
		cmocka_unit_test(restrictions_are_needed),
		cmocka_unit_test(costs_are_as_promised),
		cmocka_unit_test(oracle_finds_all_right),
		cmocka_unit_test(order_matters_where_it_is_said_to),
		cmocka_unit_test(order_is_refused_where_it_is_said_to_be),
		cmocka_unit_test(broken_schedules_are_refused),
		cmocka_unit_test(the_network_sends_what_stays),
		cmocka_unit_test(the_network_receives_early_where_nobody_looks),
		cmocka_unit_test(a_race_is_refused),
		cmocka_unit_test(two_writers_are_refused),
		cmocka_unit_test(a_write_while_another_reads_is_refused),
		cmocka_unit_test(a_result_over_needed_input_is_refused),
		cmocka_unit_test(another_piece_than_was_sent_is_refused),
		cmocka_unit_test(a_step_of_unknown_size_is_refused),
		cmocka_unit_test(swaps_across_rounds_are_refused),
		cmocka_unit_test(a_connection_twice_in_a_step_is_refused),
		cmocka_unit_test(lanes_of_nobody_are_refused),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(missing_output_is_refused),
		cmocka_unit_test(a_contribution_twice_is_refused),
		cmocka_unit_test(half_a_sum_is_refused),
		cmocka_unit_test(written_input_is_refused),
		cmocka_unit_test(a_deadlock_is_refused),
		cmocka_unit_test(a_message_left_over_is_refused),
		cmocka_unit_test(bounds_are_checked),
		cmocka_unit_test(a_fifo_has_one_lane_at_each_end),
		cmocka_unit_test(pieces_cover_a_block),
	};

	/* Schedules of many ranks are large, and made one after another: their pages are kept. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
