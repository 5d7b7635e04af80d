/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The direct algorithms, carried out on bytes in this process and compared with what MPI says the
 * collective does. The ranks' plans are carried out in two orders: no plan may depend on what
 * another rank's does before all are done.
 */
#include "algos/algo_direct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 17 };

struct world {
	int ranks;
	uint8_t *in[ALGO_MAX_RANKS], *out[ALGO_MAX_RANKS], *scratch[ALGO_MAX_RANKS];
	struct algo_plan plans[ALGO_MAX_RANKS];
	bool in_place;
};

static uint8_t value(int rank, uint64_t at)
{
	return (uint8_t)((unsigned)rank * 37 + at * 11 + at / 251);
}

static struct world *world_new(int ranks, bool in_place)
{
	struct world *w = calloc(1, sizeof(*w));

	w->ranks = ranks;
	w->in_place = in_place;
	for (int i = 0; i < ranks; i++) {
		w->in[i] = malloc(MOST);
		w->out[i] = in_place ? w->in[i] : malloc(MOST);
		w->scratch[i] = malloc(MOST);
		memset(w->out[i], 0xee, MOST);
		for (uint64_t at = 0; at < MOST; at++)
			w->in[i][at] = value(i, at);
	}
	return w;
}

static void world_free(struct world *w)
{
	for (int i = 0; i < w->ranks; i++) {
		free(w->in[i]);
		if (!w->in_place)
			free(w->out[i]);
		free(w->scratch[i]);
	}
	free(w);
}

static uint8_t *at_place(struct world *w, const struct algo_place *place)
{
	uint8_t **buffers = place->buffer == ALGO_IN    ? w->in
			    : place->buffer == ALGO_OUT ? w->out
							: w->scratch;

	return buffers[place->rank] + place->offset;
}

static void carry_out_reduce(struct world *w, const struct algo_plan *plan)
{
	for (uint64_t at = 0; at < plan->bytes; at++) {
		uint8_t sum = 0;

		for (int i = 0; i < plan->num_sources; i++)
			sum = (uint8_t)(sum + at_place(w, &plan->sources[i])[at]);
		for (int i = 0; i < plan->num_targets; i++)
			at_place(w, &plan->targets[i])[at] = sum;
	}
}

static void carry_out_move(struct world *w, const struct algo_move *move, bool swap)
{
	uint8_t *to = at_place(w, &move->to), *from = at_place(w, &move->from);

	for (uint64_t at = 0; at < move->bytes; at++) {
		uint8_t byte = from[at];

		if (swap)
			from[at] = to[at];
		to[at] = byte;
	}
}

static void carry_out(struct world *w, const struct algo_plan *plan)
{
	if (plan->kind == ALGO_REDUCE)
		carry_out_reduce(w, plan);
	for (int i = 0; i < plan->num_moves; i++)
		carry_out_move(w, &plan->moves[i], plan->kind == ALGO_SWAP);
}

static void carry_out_all(struct world *w, bool backwards)
{
	for (int i = 0; i < w->ranks; i++)
		carry_out(w, &w->plans[backwards ? w->ranks - 1 - i : i]);
	for (int i = 0; i < w->ranks; i++)
		carry_out_move(w, &w->plans[i].last, false);
}

static uint8_t sum_of(int ranks, uint64_t at)
{
	uint8_t sum = 0;

	for (int i = 0; i < ranks; i++)
		sum = (uint8_t)(sum + value(i, at));
	return sum;
}

/* The rest of an output is as it was. */
static void check_rest(const struct world *w, int rank, uint64_t from)
{
	for (uint64_t at = from; at < MOST; at++)
		assert_int_equal(w->out[rank][at], w->in_place ? value(rank, at) : 0xee);
}

static const int rank_counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 64};
static const uint64_t sizes[] = {1, 2, 16, 17, 4096, 8192, 8193, 16400, 100000};
#define NUM(array) (sizeof(array) / sizeof((array)[0]))

static void check_allreduce(int ranks, uint64_t bytes, bool in_place, bool oneshot, bool backwards)
{
	struct world *w = world_new(ranks, in_place);

	for (int i = 0; i < ranks; i++) {
		if (oneshot)
			algo_allreduce_oneshot(&w->plans[i], i, ranks, bytes);
		else
			algo_allreduce(&w->plans[i], i, ranks, bytes);
	}
	carry_out_all(w, backwards);
	for (int i = 0; i < ranks; i++) {
		for (uint64_t at = 0; at < bytes; at++)
			assert_int_equal(w->out[i][at], sum_of(ranks, at));
		check_rest(w, i, bytes);
	}
	world_free(w);
}

static void test_allreduce(void **state)
{
	(void)state;
	for (size_t n = 0; n < NUM(rank_counts); n++) {
		for (size_t s = 0; s < NUM(sizes); s++) {
			check_allreduce(rank_counts[n], sizes[s], false, false, s & 1);
			check_allreduce(rank_counts[n], sizes[s], true, false, s & 1);
			check_allreduce(rank_counts[n], sizes[s], false, true, s & 1);
		}
	}
}

static void test_reduce(void **state)
{
	(void)state;
	for (size_t n = 0; n < NUM(rank_counts); n++) {
		int ranks = rank_counts[n], root = ranks / 2;

		for (size_t s = 0; s < NUM(sizes); s++) {
			struct world *w = world_new(ranks, false);

			for (int i = 0; i < ranks; i++)
				algo_reduce(&w->plans[i], i, ranks, root, sizes[s]);
			carry_out_all(w, s & 1);
			for (uint64_t at = 0; at < sizes[s]; at++)
				assert_int_equal(w->out[root][at], sum_of(ranks, at));
			for (int i = 0; i < ranks; i++)
				check_rest(w, i, i == root ? sizes[s] : 0);
			world_free(w);
		}
	}
}

static void check_reduce_scatter(int ranks, uint64_t unit, bool in_place, bool backwards)
{
	struct world *w = world_new(ranks, in_place);
	struct algo_block blocks[ALGO_MAX_RANKS];
	uint64_t at = 0;

	for (int i = 0; i < ranks; i++) {
		blocks[i] = (struct algo_block){(int64_t)at, unit * (uint64_t)(i % 3)};
		at += blocks[i].bytes;
		algo_reduce_scatter(&w->plans[i], i, ranks, blocks[i], in_place);
	}
	carry_out_all(w, backwards);
	for (int i = 0; i < ranks; i++) {
		for (at = 0; at < blocks[i].bytes; at++)
			assert_int_equal(w->out[i][at],
					 sum_of(ranks, (uint64_t)blocks[i].offset + at));
		check_rest(w, i, blocks[i].bytes);
	}
	world_free(w);
}

static void test_reduce_scatter(void **state)
{
	(void)state;
	for (size_t n = 0; n < NUM(rank_counts); n++) {
		for (uint64_t unit = 1; unit < 1000; unit = unit * 3 + 1) {
			check_reduce_scatter(rank_counts[n], unit, false, unit & 1);
			check_reduce_scatter(rank_counts[n], unit, true, unit & 1);
		}
	}
}

/* What rank `from` has for rank `to`: symmetric, some empty. */
static uint64_t length(int from, int to)
{
	return (uint64_t)((from + to) % 4) * (uint64_t)(1 + (from * to) % 300);
}

static struct algo_block block_for(int rank, int peer)
{
	return (struct algo_block){(int64_t)peer * 1800, length(rank, peer)};
}

static void fill_blocks(int rank, int ranks, struct algo_block *theirs, struct algo_block *mine)
{
	for (int i = 0; i < ranks; i++) {
		theirs[i] = block_for(i, rank);
		mine[i] = block_for(rank, i);
	}
}

/* An exchange: pulled, pushed, or swapped in place. */
static void check_exchange(int ranks, char how, bool backwards)
{
	struct algo_block theirs[ALGO_MAX_RANKS], mine[ALGO_MAX_RANKS];
	struct world *w = world_new(ranks, how == 's');

	for (int i = 0; i < ranks; i++) {
		fill_blocks(i, ranks, theirs, mine);
		if (how == 'l')
			algo_pull(&w->plans[i], i, ranks, theirs, mine);
		else if (how == 'h')
			algo_push(&w->plans[i], i, ranks, theirs, mine);
		else
			algo_swap(&w->plans[i], i, ranks, theirs, mine);
		assert_false(w->plans[i].truncates);
	}
	carry_out_all(w, backwards);
	for (int i = 0; i < ranks; i++) {
		for (uint64_t at = 0; at < 1800 * (uint64_t)ranks; at++) {
			int peer = (int)(at / 1800);
			uint64_t in_block = at % 1800;
			int want = in_block < length(i, peer)
					   ? value(peer, (uint64_t)i * 1800 + in_block)
				   : w->in_place ? value(i, at)
						 : 0xee;

			assert_int_equal(w->out[i][at], want);
		}
	}
	world_free(w);
}

static void test_exchange(void **state)
{
	(void)state;
	for (size_t n = 0; n < NUM(rank_counts); n++) {
		for (int backwards = 0; backwards < 2; backwards++) {
			check_exchange(rank_counts[n], 'l', backwards);
			check_exchange(rank_counts[n], 'h', backwards);
			check_exchange(rank_counts[n], 's', backwards);
		}
	}
}

static void test_cut(void **state)
{
	struct algo_block longer[2] = {{0, 20}, {100, 7}}, shorter[2] = {{0, 12}, {50, 7}};
	struct algo_plan plan;

	(void)state;
	algo_pull(&plan, 0, 2, longer, shorter);
	assert_true(plan.truncates);
	assert_int_equal(plan.num_moves, 2);
	assert_int_equal(plan.moves[0].bytes, 12);
	algo_push(&plan, 0, 2, longer, shorter);
	assert_false(plan.truncates);
	assert_int_equal(plan.moves[0].bytes, 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allreduce),
		cmocka_unit_test(test_reduce),
		cmocka_unit_test(test_reduce_scatter),
		cmocka_unit_test(test_exchange),
		cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
