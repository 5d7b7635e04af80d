/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prefix sums over nodes, whose ranks follow each other.
 *
 * There is a rail for each rank of the largest node, which has a part of the data and a carrier on
 * each node. A carrier adds up its node's inputs, has the sums of the nodes before from a prefix
 * sum among the rail's carriers, and goes on from there with one rank of its node after the other:
 *
 *     sum = IN of r0 + IN of r1 + ...     carry = sums of all nodes before, along the rail
 *     OUT of r0 = carry + IN of r0, OUT of r1 = that + IN of r1, ...
 *
 * When: ranks of a node reach each other's buffers. Cost: that of the prefix sum for n nodes, a
 * chain for large messages, doubling for small ones; S bytes of each rank are read twice, and
 * written once.
 */
#include "algos/algo.h"
#include "algos/algo_nodes.h"

/* Blocks of a carrier's scratch; those of the inner schedule come behind them. */
enum { SUM, CARRY, NUM_BLOCKS };

struct rail_scan {
	struct sched *sched;
	struct sched *inner;
	struct algo_nodes nodes;
	int rail, carrier, node;
	int first_connection; /* of the inner schedule's */
};

static struct sched_operand scratch(const struct rail_scan *s, int block)
{
	return sched_place(SCHED_SCRATCH, s->carrier, block);
}

static struct sched_operand buffer(const struct rail_scan *s, enum sched_buffer buffer, int index)
{
	return sched_place(buffer, algo_nodes_rank(&s->nodes, s->node, index), 0);
}

/* What the inner schedule has as a node's input and output. */
static struct sched_operand operand(const struct rail_scan *s, const struct sched_operand *o)
{
	if (o->fifo)
		return sched_fifo(s->first_connection + o->at);
	if (o->buffer == SCHED_SCRATCH)
		return scratch(s, NUM_BLOCKS + o->block);
	return scratch(s, o->buffer == SCHED_IN ? SUM : CARRY);
}

static void add_step(struct rail_scan *s, const struct sched_step *step)
{
	const struct sched_operand *from = sched_sources(s->inner, step);
	const struct sched_operand *to = sched_targets(s->inner, step);

	sched_step(s->sched, s->rail * s->inner->pieces + step->piece);
	for (int i = 0; i < step->num_sources; i++)
		sched_from(s->sched, operand(s, &from[i]));
	for (int i = 0; i < step->num_targets; i++)
		sched_to(s->sched, operand(s, &to[i]));
}

static void add_up(struct rail_scan *s, int piece)
{
	sched_step(s->sched, piece);
	for (int i = 0; i < algo_nodes_size(&s->nodes, s->node); i++)
		sched_from(s->sched, buffer(s, SCHED_IN, i));
	sched_to(s->sched, scratch(s, SUM));
}

/*
 * In place, a rank's output takes the place of its input, which has been added to the carry. The
 * first rank of all has nothing before it.
 */
static void hand_out_exscan(struct rail_scan *s, int piece)
{
	int size = algo_nodes_size(&s->nodes, s->node);

	for (int i = 0; i < size; i++) {
		struct sched_operand from = scratch(s, i % 2 ? SUM : CARRY);
		struct sched_operand to = scratch(s, i % 2 ? CARRY : SUM);

		if (s->node == 0 && i == 0)
			sched_copy(s->sched, piece, buffer(s, SCHED_IN, 0), to);
		else if (i < size - 1)
			sched_reduce(s->sched, piece, from, buffer(s, SCHED_IN, i), to);
		if (s->node > 0 || i > 0)
			sched_copy(s->sched, piece, from, buffer(s, SCHED_OUT, i));
	}
}

static void hand_out_scan(struct rail_scan *s, int piece)
{
	for (int i = 0; i < algo_nodes_size(&s->nodes, s->node); i++) {
		if (s->node == 0 && i == 0)
			sched_copy(s->sched, piece, buffer(s, SCHED_IN, 0), scratch(s, CARRY));
		else
			sched_reduce(s->sched, piece, scratch(s, CARRY), buffer(s, SCHED_IN, i),
				     scratch(s, CARRY));
		sched_to(s->sched, buffer(s, SCHED_OUT, i));
	}
}

static void add_lane(struct rail_scan *s, const struct sched_lane *lane)
{
	int piece = s->rail * s->inner->pieces + lane->channel;

	s->node = lane->rank;
	s->carrier = algo_nodes_carrier(&s->nodes, s->node, s->rail);
	sched_lane(s->sched, s->carrier, lane->channel);
	add_up(s, piece);
	for (uint32_t i = 0; i < lane->num; i++)
		add_step(s, &s->inner->steps[lane->first + i]);
	if (s->sched->request.coll == SCHED_SCAN)
		hand_out_scan(s, piece);
	else
		hand_out_exscan(s, piece);
}

static void add_rail(struct rail_scan *s)
{
	s->first_connection = algo_nodes_connect(&s->nodes, s->sched, s->inner, s->rail);
	for (uint32_t i = 0; i < s->inner->num_lanes; i++)
		add_lane(s, &s->inner->lanes[i]);
}

/* Of the inner algorithms each channel has one piece, and one lane of each node. */
static void make_rail_scan(struct sched *sched, const char *inner)
{
	const struct sched_request *request = &sched->request;
	struct sched_request nodes = {
		.coll = SCHED_EXSCAN, .ranks = request->num_nodes, .channels = request->channels};
	struct rail_scan s = {.sched = sched,
			      .inner = algo_make(algo_find(inner, SCHED_EXSCAN), &nodes)};

	if (s.inner && algo_nodes_sort(&s.nodes, request)) {
		sched->pieces = s.nodes.rails * s.inner->pieces;
		sched->scratch_blocks = NUM_BLOCKS + s.inner->scratch_blocks;
		for (; s.rail < s.nodes.rails; s.rail++)
			add_rail(&s);
	} else {
		sched->failed = true;
	}
	algo_nodes_free(&s.nodes);
	sched_free(s.inner);
}

void algo_rail_chain(struct sched *sched)
{
	make_rail_scan(sched, "chain");
}

void algo_rail_doubling(struct sched *sched)
{
	make_rail_scan(sched, "doubling");
}
