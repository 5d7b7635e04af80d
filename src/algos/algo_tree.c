/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The double binary tree. Two trees over the same ranks share the data; who has children in one has
 * none in the other, so that together they use every rank's links in both directions.
 *
 * When: many ranks, small and middle messages; large ones too, as rounds follow each other like in
 * a pipeline. Cost: about log2(n) messages one after the other for bcast and reduce, twice that for
 * allreduce, and S bytes (allreduce: 2 S) in and out of each rank.
 *
 * Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
 * 2009. The root (of an allreduce, rank 0) stands above both trees, which are over the others,
 * numbered 1 to n - 1 from it on. The first tree is in order, and a node's height the number of
 * trailing zeros of its number, so odd nodes have no children; the second is the mirror image,
 * where that makes even nodes odd, or the same shifted by one. Where the request has rings, ranks
 * are numbered along the channel's, so that those who are close in the trees are near.
 */
#include "algos/algo.h"

struct tree {
	int nodes;    /* but the one above, which is 0 */
	bool shifted; /* the second tree */
	int channel, piece;
	int up, down; /* the first of the connections to and from parents, by child */
};

/* In [first, last], the number with the most trailing zeros. */
static int top_of(int first, int last)
{
	int step = 1;

	while (last / (2 * step) * (2 * step) >= first)
		step *= 2;
	return last / step * step;
}

struct family {
	int num_children, children[2];
};

/* Go down from the top to the node. */
static struct family family_of(const struct tree *tree, int node)
{
	int first = 1, last = tree->nodes, top = top_of(first, last);
	struct family family = {0};

	if (node == 0)
		return (struct family){1, {top}};
	while (top != node) {
		if (node < top)
			last = top - 1;
		else
			first = top + 1;
		top = top_of(first, last);
	}
	if (first < node)
		family.children[family.num_children++] = top_of(first, node - 1);
	if (node < last)
		family.children[family.num_children++] = top_of(node + 1, last);
	return family;
}

/* The number of a rank, from the root on. Both ways round the ring are alike here. */
static int number_of(const struct sched *sched, const struct tree *tree, int rank)
{
	const struct sched_request *request = &sched->request;
	int channel = request->num_rings ? tree->channel : 0;

	return algo_wrap(algo_ring_position(sched, channel, rank) -
				 algo_ring_position(sched, channel, request->root),
			 request->ranks);
}

/* Which node of the tree a rank is. */
static int node_of(const struct sched *sched, const struct tree *tree, int rank)
{
	int number = number_of(sched, tree, rank), m = tree->nodes;

	if (!number || !tree->shifted)
		return number;
	return m % 2 ? number % m + 1 : m + 1 - number;
}

/* The same the other way round. */
static int rank_of(const struct sched *sched, const struct tree *tree, int node)
{
	int channel = sched->request.num_rings ? tree->channel : 0;
	int m = tree->nodes, number = node;

	if (node && tree->shifted)
		number = m % 2 ? (node + m - 2) % m + 1 : m + 1 - node;
	return algo_ring_rank(sched, channel,
			      number + algo_ring_position(sched, channel, sched->request.root));
}

static void connect_tree(struct sched *sched, struct tree *tree, bool up, bool down)
{
	int *parents_first[] = {up ? &tree->up : NULL, down ? &tree->down : NULL};
	int parents[tree->nodes + 1];

	for (int node = 0; node <= tree->nodes; node++) {
		struct family family = family_of(tree, node);

		for (int i = 0; i < family.num_children; i++)
			parents[family.children[i]] = node;
	}
	for (int way = 0; way < 2; way++) {
		for (int node = 1; parents_first[way] && node <= tree->nodes; node++) {
			int child = rank_of(sched, tree, node);
			int parent = rank_of(sched, tree, parents[node]);
			int number = way == 0 ? sched_connect(sched, child, parent)
					      : sched_connect(sched, parent, child);

			if (node == 1)
				*parents_first[way] = number - 1;
		}
	}
}

static void add_children(struct sched *sched, const struct family *family, int first,
			 void (*add)(struct sched *, struct sched_operand))
{
	for (int i = 0; i < family->num_children; i++)
		add(sched, sched_fifo(first + family->children[i]));
}

/*
 * What comes from the children, with the input, goes to the parent, and from the top into the
 * output and, for an allreduce, down again.
 */
static void go_up(struct sched *sched, const struct tree *tree, int rank)
{
	int node = node_of(sched, tree, rank);
	struct family family = family_of(tree, node);

	sched_lane(sched, rank, tree->channel);
	sched_step(sched, tree->piece);
	add_children(sched, &family, tree->up, sched_from);
	sched_from(sched, sched_place(SCHED_IN, rank, 0));
	if (node)
		sched_to(sched, sched_fifo(tree->up + node));
	else
		sched_to(sched, sched_place(SCHED_OUT, rank, 0));
	if (!node && sched->request.coll == SCHED_ALLREDUCE)
		add_children(sched, &family, tree->down, sched_to);
}

static void go_down(struct sched *sched, const struct tree *tree, int rank)
{
	int node = node_of(sched, tree, rank);
	struct family family = family_of(tree, node);

	if (!node && sched->request.coll == SCHED_ALLREDUCE)
		return;
	sched_lane(sched, rank, tree->channel);
	sched_step(sched, tree->piece);
	sched_from(sched, node ? sched_fifo(tree->down + node) : sched_place(SCHED_IN, rank, 0));
	if (node)
		sched_to(sched, sched_place(SCHED_OUT, rank, 0));
	add_children(sched, &family, tree->down, sched_to);
}

void algo_tree(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	bool up = request->coll != SCHED_BCAST, down = request->coll != SCHED_REDUCE;

	sched->pieces = 2 * request->channels;
	for (int piece = 0; piece < sched->pieces; piece++) {
		struct tree tree = {.nodes = request->ranks - 1,
				    .shifted = piece % 2,
				    .channel = piece / 2,
				    .piece = piece};

		connect_tree(sched, &tree, up, down);
		for (int rank = 0; rank < request->ranks; rank++) {
			if (up)
				go_up(sched, &tree, rank);
			if (down)
				go_down(sched, &tree, rank);
		}
	}
}
