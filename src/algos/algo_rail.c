/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks that go from one rank to another, over the receiver's rail, or the root's node's rails.
 *
 * rail-pairwise: an alltoall in which what a node has for a rank elsewhere is sent to it by that
 * rank's carrier: the one of the node on the same rail, who reads the blocks from the inputs of all
 * of the node. Inside a node each rank reads what is for it.
 *
 *      node 0: r0 r1            r0 sends r2 the blocks of r0 and r1, and r1 sends r3 theirs;
 *      node 1: r2 r3            nothing goes from r0 to r3
 *
 * rail-linear: a gather or scatter for which the ranks of the root's node are the others' ends,
 * each for those of its rail; they write to the root's output, or read from its input. So all NICs
 * of that node are at work, and not only the root's.
 *
 * When: ranks of a node reach each other's buffers. Cost: each byte over the wire once; for n nodes
 * n - 1 connections of each rank in an alltoall, where pairwise takes one for each other rank.
 *
 * NVIDIA: Doubling all2all performance with NVIDIA Collective Communication Library 2.12, 2022
 * (PXN).
 */
#include "algos/algo.h"
#include "algos/algo_nodes.h"

#include <stdlib.h>

struct rails {
	struct sched *sched;
	struct algo_nodes nodes;
	int *index_of; /* of each rank: its number on its node */
	int *links; /* of the channel: between each rank and each other node that it deals with */
	int channel;
};

static int size_of(const struct rails *r, int node)
{
	return algo_nodes_size(&r->nodes, node);
}

static int rank_at(const struct rails *r, int node, int number)
{
	return algo_nodes_rank(&r->nodes, node, number);
}

static int node_of(const struct rails *r, int rank)
{
	return r->sched->request.nodes[rank];
}

/* Who on the node deals with a rank elsewhere. */
static int carrier_for(const struct rails *r, int node, int rank)
{
	return algo_nodes_carrier(&r->nodes, node, r->index_of[rank]);
}

static int *link_of(const struct rails *r, int rank, int node)
{
	return &r->links[rank * r->nodes.num + node];
}

static struct sched_operand link_with(const struct rails *r, int rank, int node)
{
	return sched_fifo(*link_of(r, rank, node));
}

static struct sched_operand input(int rank, int block)
{
	return sched_place(SCHED_IN, rank, block);
}

static struct sched_operand output(int rank, int block)
{
	return sched_place(SCHED_OUT, rank, block);
}

/* ---- alltoall ---- */

static void connect_all(struct rails *r)
{
	for (int rank = 0; rank < r->sched->request.ranks; rank++) {
		for (int node = 0; node < r->nodes.num; node++) {
			if (node != node_of(r, rank))
				*link_of(r, rank, node) =
					sched_connect(r->sched, carrier_for(r, node, rank), rank);
		}
	}
}

/*
 * A lane of its own, so that a rank that has to wait until it can send goes on receiving. Nodes
 * begin with different ones.
 */
static void send_all(struct rails *r, int rank)
{
	int mine = node_of(r, rank);

	sched_lane(r->sched, rank, r->channel);
	for (int k = 1; k < r->nodes.num; k++) {
		int node = (mine + k) % r->nodes.num;

		for (int i = 0; i < size_of(r, node); i++) {
			int to = rank_at(r, node, i);

			if (carrier_for(r, mine, to) != rank)
				continue;
			for (int j = 0; j < size_of(r, mine); j++)
				sched_copy(r->sched, r->channel, input(rank_at(r, mine, j), to),
					   link_with(r, to, mine));
		}
	}
}

static void receive_all(struct rails *r, int rank)
{
	int mine = node_of(r, rank);

	sched_lane(r->sched, rank, r->channel);
	for (int i = 0; i < size_of(r, mine); i++) {
		int from = rank_at(r, mine, (r->index_of[rank] + i) % size_of(r, mine));

		sched_copy(r->sched, r->channel, input(from, rank), output(rank, from));
	}
	for (int k = 1; k < r->nodes.num; k++) {
		int node = (mine - k + r->nodes.num) % r->nodes.num;

		for (int j = 0; j < size_of(r, node); j++)
			sched_copy(r->sched, r->channel, link_with(r, rank, node),
				   output(rank, rank_at(r, node, j)));
	}
}

static void exchange_rails(struct rails *r)
{
	connect_all(r);
	for (int rank = 0; rank < r->sched->request.ranks; rank++) {
		send_all(r, rank);
		receive_all(r, rank);
	}
}

/* ---- gather and scatter ---- */

static bool is_gather(const struct rails *r)
{
	return r->sched->request.coll == SCHED_GATHER;
}

static void connect_to_root(struct rails *r)
{
	int home = node_of(r, r->sched->request.root);

	for (int rank = 0; rank < r->sched->request.ranks; rank++) {
		int end = carrier_for(r, home, rank);

		if (node_of(r, rank) != home)
			*link_of(r, rank, home) = sched_connect(r->sched, is_gather(r) ? rank : end,
								is_gather(r) ? end : rank);
	}
}

/* Of the root's node: its own block, and those of the ranks whose end it is. */
static void deal(struct rails *r, int rank)
{
	int root = r->sched->request.root, home = node_of(r, root);

	sched_lane(r->sched, rank, r->channel);
	if (is_gather(r))
		sched_copy(r->sched, r->channel, input(rank, rank), output(root, rank));
	else
		sched_copy(r->sched, r->channel, input(root, rank), output(rank, rank));
	for (int other = 0; other < r->sched->request.ranks; other++) {
		if (node_of(r, other) == home || carrier_for(r, home, other) != rank)
			continue;
		if (is_gather(r))
			sched_copy(r->sched, r->channel, link_with(r, other, home),
				   output(root, other));
		else
			sched_copy(r->sched, r->channel, input(root, other),
				   link_with(r, other, home));
	}
}

static void deal_with_root(struct rails *r)
{
	int home = node_of(r, r->sched->request.root);

	connect_to_root(r);
	for (int rank = 0; rank < r->sched->request.ranks; rank++) {
		if (node_of(r, rank) == home) {
			deal(r, rank);
			continue;
		}
		sched_lane(r->sched, rank, r->channel);
		if (is_gather(r))
			sched_copy(r->sched, r->channel, input(rank, rank),
				   link_with(r, rank, home));
		else
			sched_copy(r->sched, r->channel, link_with(r, rank, home),
				   output(rank, rank));
	}
}

/* ---- all ---- */

static bool prepare_rails(struct rails *r)
{
	size_t ranks = (size_t)r->sched->request.ranks;

	r->index_of = calloc(ranks, sizeof(*r->index_of));
	r->links = calloc(ranks * (size_t)r->sched->request.num_nodes, sizeof(*r->links));
	if (!r->index_of || !r->links || !algo_nodes_sort(&r->nodes, &r->sched->request))
		return false;
	for (int node = 0; node < r->nodes.num; node++) {
		for (int i = 0; i < size_of(r, node); i++)
			r->index_of[rank_at(r, node, i)] = i;
	}
	return true;
}

static void make_rails(struct sched *sched, void (*of_channel)(struct rails *r))
{
	struct rails r = {.sched = sched};

	sched->pieces = sched->request.channels;
	if (prepare_rails(&r)) {
		for (; r.channel < sched->request.channels; r.channel++)
			of_channel(&r);
	} else {
		sched->failed = true;
	}
	free(r.index_of);
	free(r.links);
	algo_nodes_free(&r.nodes);
}

void algo_rail_pairwise(struct sched *sched)
{
	make_rails(sched, exchange_rails);
}

void algo_rail_linear(struct sched *sched)
{
	make_rails(sched, deal_with_root);
}
