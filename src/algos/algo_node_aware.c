/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node-aware recursive multiplying: an allreduce of few bytes in which the ranks of a node tell
 * different nodes at a time.
 *
 * First all ranks of a node exchange their inputs, and each has the node's sum. Then nodes meet in
 * groups, in stages, as in recursive doubling but more than two at a time: of the nodes of a group
 * each two exchange what they have, one rank of each for both, each rank of a node with other
 * nodes; who has received something passes it on to its node's others, and each adds up the
 * group's.
 *
 *      stage 0, groups of 4 nodes of 3 ranks:      node 0      node 1
 *      node 0's ranks exchange with nodes 1, 2, 3   a b c ----- a b c
 *      (which two nodes meet by which ranks: a       \ \---- node 2
 *      tournament, so that each rank has one)         \----- node 3
 *
 * A group is as large as a node has ranks, or `channels` times as large, each rank then exchanging
 * with so many nodes. Nodes that are too many for groups of such sizes fold, as in doubling: they
 * give their sum to another, and get the result from it.
 *
 * When: small messages, several nodes of several ranks. Cost: of n nodes, L ranks each, log_g(n)
 * messages between nodes one after the other, g = L channels, where doubling takes log2(n), and as
 * many in the node, and one; each rank sends S bytes in each. All ranks add up in the same order,
 * so they compute the same bits.
 *
 * Bienz, Olson, Gropp: Node-aware improvements to allreduce, 2019; Ruefenacht, Bull, Booth:
 * Generalisation of recursive doubling for AllReduce, 2017.
 */
#include "algos/algo.h"
#include "algos/algo_nodes.h"

#include <stdlib.h>

enum { MOST_STAGES = 16, MOST_IN_GROUP = 64 };

struct plan {
	struct sched *sched;
	struct algo_nodes nodes;
	int taking_part;                 /* nodes; the others fold */
	int stages, groups[MOST_STAGES]; /* nodes of a stage's groups */
	int colours;                     /* of the largest: see colour_of */
	int *slots;   /* of each node: with how many nodes a rank exchanges at a time, at most */
	int *between; /* connections: by stage, node and colour, from the node; -1: none */
	int *inside;  /* by rank and other rank of its node: the first of as many as slots */
	int *there, *back; /* of each node that folds */
	/* Of the lane that is made. */
	int node, number, rank;
};

/* ---- groups ---- */

/* How many rounds a tournament of all takes in which each meets each. */
static int rounds_for(int group)
{
	return group - 1 + group % 2;
}

/* The largest group whose tournament has so many rounds. */
static int group_for(int rounds)
{
	int group = rounds + rounds % 2;

	return group < 2 ? 2 : group < MOST_IN_GROUP ? group : MOST_IN_GROUP;
}

/*
 * The round in which two meet: those whose sum is the round's number, in a circle; where they are
 * even the last one stays outside, and meets who would meet itself.
 */
static int colour_of(int group, int a, int b)
{
	int circle = rounds_for(group), last = group - 1;

	if (group % 2)
		return (a + b) % circle;
	if (a == last || b == last)
		return 2 * (a == last ? b : a) % circle;
	return (a + b) % circle;
}

/*
 * Groups of at most `most` whose product is the number, in so many stages: the more alike the
 * better.
 */
static bool factor(int number, int stages, int most, int *groups)
{
	if (stages == 0)
		return number == 1;
	for (int group = 2; group <= most && group <= number; group++) {
		if (number % group)
			continue;
		groups[0] = group;
		if (factor(number / group, stages - 1, group, groups + 1))
			return true;
	}
	return false;
}

/* With the fewest stages; to fold is as much as one more, and at most half of the nodes can. */
static void choose_groups(struct plan *p, int most)
{
	int all = p->sched->request.num_nodes;

	for (p->stages = 1; p->stages < MOST_STAGES; p->stages++) {
		p->taking_part = all;
		if (factor(all, p->stages, most, p->groups))
			return;
		for (int fewer = all - 1; p->stages > 1 && 2 * fewer >= all; fewer--) {
			p->taking_part = fewer;
			if (factor(fewer, p->stages - 1, most, p->groups)) {
				p->stages--;
				return;
			}
		}
	}
}

/* How far apart the members of a stage's groups are. */
static int stride_of(const struct plan *p, int stage)
{
	int stride = 1;

	for (int i = 0; i < stage; i++)
		stride *= p->groups[i];
	return stride;
}

static int digit_of(const struct plan *p, int node, int stage)
{
	return node / stride_of(p, stage) % p->groups[stage];
}

/* The node of the same group with the digit. */
static int node_with(const struct plan *p, int node, int stage, int digit)
{
	return node + (digit - digit_of(p, node, stage)) * stride_of(p, stage);
}

/* ---- connections ---- */

static int size_of(const struct plan *p, int node)
{
	return algo_nodes_size(&p->nodes, node);
}

static int rank_at(const struct plan *p, int node, int number)
{
	return algo_nodes_rank(&p->nodes, node, number % size_of(p, node));
}

static int *between(const struct plan *p, int stage, int node, int colour)
{
	return &p->between[(stage * p->taking_part + node) * p->colours + colour];
}

static int *inside(const struct plan *p, int rank, int other)
{
	return &p->inside[rank * p->nodes.rails + other];
}

static void connect_group(struct plan *p, int stage, int node)
{
	int digit = digit_of(p, node, stage);

	for (int other = 0; other < p->groups[stage]; other++) {
		int colour = colour_of(p->groups[stage], digit, other);

		if (other != digit)
			*between(p, stage, node, colour) =
				sched_connect(p->sched, rank_at(p, node, colour),
					      rank_at(p, node_with(p, node, stage, other), colour));
	}
}

static void connect_inside(struct plan *p, int node)
{
	for (int i = 0; i < size_of(p, node); i++) {
		for (int j = 0; j < size_of(p, node); j++) {
			*inside(p, rank_at(p, node, i), j) = (int)p->sched->num_connections;
			for (int slot = 0; i != j && slot < p->slots[node]; slot++)
				sched_connect(p->sched, rank_at(p, node, i), rank_at(p, node, j));
		}
	}
}

static void connect_all(struct plan *p)
{
	for (int node = 0; node < p->nodes.num; node++)
		connect_inside(p, node);
	for (int stage = 0; stage < p->stages; stage++) {
		for (int node = 0; node < p->taking_part; node++)
			connect_group(p, stage, node);
	}
	for (int node = p->taking_part; node < p->nodes.num; node++) {
		int folded = node - p->taking_part, a = rank_at(p, node, folded);
		int b = rank_at(p, folded, folded);

		p->there[folded] = sched_connect(p->sched, a, b);
		p->back[folded] = sched_connect(p->sched, b, a);
	}
}

/* ---- a rank's lane ---- */

static struct sched_operand output(const struct plan *p)
{
	return sched_place(SCHED_OUT, p->rank, 0);
}

static struct sched_operand kept(const struct plan *p, int slot)
{
	return sched_place(SCHED_SCRATCH, p->rank, slot);
}

static bool is_mine(const struct plan *p, int number)
{
	return number % size_of(p, p->node) == p->number;
}

/* To all others of the node. */
static void tell_node(const struct plan *p, int slot)
{
	for (int i = 0; i < size_of(p, p->node); i++) {
		if (i != p->number)
			sched_to(p->sched, sched_fifo(*inside(p, p->rank, i) + slot));
	}
}

/* What another of the node has passed on. */
static struct sched_operand told(const struct plan *p, int number, int slot)
{
	int other = rank_at(p, p->node, number);

	return sched_fifo(*inside(p, other, p->number) + slot);
}

/* What comes into the node by the rank of the number: kept there, passed on to the others. */
static void take_message(const struct plan *p, int connection, int number, int slot)
{
	if (!is_mine(p, number))
		return;
	sched_step(p->sched, 0);
	sched_from(p->sched, sched_fifo(connection));
	sched_to(p->sched, kept(p, slot));
	tell_node(p, slot);
}

static struct sched_operand taken(const struct plan *p, int number, int slot)
{
	return is_mine(p, number) ? kept(p, slot) : told(p, number, slot);
}

static bool folds(const struct plan *p)
{
	return p->node >= p->taking_part;
}

static bool has_folded(const struct plan *p)
{
	return p->node + p->taking_part < p->nodes.num;
}

/*
 * A step that adds up ends with its result in the output and, by the rank whose it is, on the way
 * to the next stage's nodes, or, after the last one, back to a node that folded.
 */
static void pass_on_blocks(const struct plan *p, int stage)
{
	sched_to(p->sched, output(p));
	if (stage == p->stages) {
		if (has_folded(p) && is_mine(p, p->node))
			sched_to(p->sched, sched_fifo(p->back[p->node]));
		return;
	}
	for (int colour = 0; colour < rounds_for(p->groups[stage]); colour++) {
		int connection = *between(p, stage, p->node, colour);

		if (is_mine(p, colour) && connection >= 0)
			sched_to(p->sched, sched_fifo(connection));
	}
}

static void add_node(const struct plan *p)
{
	struct sched_operand input = sched_place(SCHED_IN, p->rank, 0);

	if (size_of(p, p->node) > 1) {
		sched_step(p->sched, 0);
		sched_from(p->sched, input);
		tell_node(p, 0);
	}
	sched_step(p->sched, 0);
	for (int i = 0; i < size_of(p, p->node); i++)
		sched_from(p->sched, i == p->number ? input : told(p, i, 0));
	if (folds(p) && is_mine(p, p->node - p->taking_part))
		sched_to(p->sched, sched_fifo(p->there[p->node - p->taking_part]));
	if (folds(p) || has_folded(p))
		sched_to(p->sched, output(p));
	else
		pass_on_blocks(p, 0);
}

/* What a node that folds has given. */
static void add_folded(const struct plan *p)
{
	take_message(p, p->there[p->node], p->node, 0);
	sched_step(p->sched, 0);
	sched_from(p->sched, output(p));
	sched_from(p->sched, taken(p, p->node, 0));
	pass_on_blocks(p, 0);
}

static int slot_of(const struct plan *p, int colour)
{
	return colour / size_of(p, p->node);
}

static void add_group(const struct plan *p, int stage)
{
	int group = p->groups[stage], digit = digit_of(p, p->node, stage);

	for (int colour = 0; colour < rounds_for(group); colour++) {
		for (int other = 0; other < group; other++) {
			int node = node_with(p, p->node, stage, other);

			if (other != digit && colour_of(group, digit, other) == colour)
				take_message(p, *between(p, stage, node, colour), colour,
					     slot_of(p, colour));
		}
	}
	sched_step(p->sched, 0);
	for (int other = 0; other < group; other++) {
		int colour = colour_of(group, digit, other);

		sched_from(p->sched,
			   other == digit ? output(p) : taken(p, colour, slot_of(p, colour)));
	}
	pass_on_blocks(p, stage + 1);
}

/* The result, to a node that folded. */
static void receive_blocks(const struct plan *p)
{
	int folded = p->node - p->taking_part;

	sched_step(p->sched, 0);
	if (is_mine(p, folded)) {
		sched_from(p->sched, sched_fifo(p->back[folded]));
		sched_to(p->sched, output(p));
		tell_node(p, 0);
	} else {
		sched_from(p->sched, told(p, folded, 0));
		sched_to(p->sched, output(p));
	}
}

static void make_lane(struct plan *p)
{
	p->rank = rank_at(p, p->node, p->number);
	sched_lane(p->sched, p->rank, 0);
	add_node(p);
	if (folds(p)) {
		receive_blocks(p);
		return;
	}
	if (has_folded(p))
		add_folded(p);
	for (int stage = 0; stage < p->stages; stage++)
		add_group(p, stage);
}

/* ---- all ---- */

static bool prepare_plan(struct plan *p)
{
	const struct sched_request *request = &p->sched->request;
	size_t links;

	if (!algo_nodes_sort(&p->nodes, request))
		return false;
	choose_groups(p, group_for(p->nodes.rails * request->channels));
	for (int i = 0; i < p->stages; i++) {
		int rounds = rounds_for(p->groups[i]);

		p->colours = rounds > p->colours ? rounds : p->colours;
	}
	links = (size_t)(p->stages * p->taking_part * p->colours);
	p->slots = calloc((size_t)request->num_nodes, sizeof(*p->slots));
	p->between = malloc(links * sizeof(*p->between));
	p->inside = calloc((size_t)(request->ranks * p->nodes.rails), sizeof(*p->inside));
	p->there = calloc((size_t)request->num_nodes, sizeof(*p->there));
	p->back = calloc((size_t)request->num_nodes, sizeof(*p->back));
	if (!p->slots || !p->between || !p->inside || !p->there || !p->back)
		return false;
	for (size_t i = 0; i < links; i++)
		p->between[i] = -1;
	for (int node = 0; node < p->nodes.num; node++) {
		int rounds = node < p->taking_part ? p->colours : 1;

		p->slots[node] = (rounds + size_of(p, node) - 1) / size_of(p, node);
		if (p->slots[node] > p->sched->scratch_blocks)
			p->sched->scratch_blocks = p->slots[node];
	}
	return true;
}

void algo_node_aware(struct sched *sched)
{
	struct plan p = {.sched = sched};

	if (prepare_plan(&p)) {
		connect_all(&p);
		for (p.node = 0; p.node < p.nodes.num; p.node++) {
			for (p.number = 0; p.number < size_of(&p, p.node); p.number++)
				make_lane(&p);
		}
	} else {
		sched->failed = true;
	}
	free(p.slots);
	free(p.between);
	free(p.inside);
	free(p.there);
	free(p.back);
	algo_nodes_free(&p.nodes);
}
