/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hierarchical: an algorithm among nodes, inside which ranks help each other.
 *
 *      node 0                 node 1
 *     r0 ---> r1             r3 ---> r4       rail 0: r0, r3   what the others of a node give
 *      ^\     /^              ^\     /^       rail 1: r1, r4   to its carrier, and get from it
 *      | \   / |              | \   / |       rail 2: r2, r5
 *      +-- r2 -+              +-- r5 -+
 *
 * There is a rail for each rank of the largest node. A rail has a part of the data, one carrier on
 * each node, and a schedule of its own among its carriers, as if each node were one rank: where
 * that reads the input of a rank the carrier takes its own and what the node's others send it, all
 * in one step; where it writes the output for the last time the carrier writes it to its own and
 * sends it to the others. So each byte goes over the wire as often as among single ranks, from as
 * many ranks as the node has, and the node's part is pipelined with it.
 *
 * There are two kinds. In hier-ring and so on the others pass messages to the carrier and get
 * messages from it. In rail-ring and so on the carrier reads the others' inputs itself, and writes
 * to their outputs: they have nothing to do but on the rails of which they are carriers, links are
 * needed between nodes only, and bytes are written and read once less on each way.
 *
 * When: ranks on several nodes; rail-* where those of a node reach each other's buffers. Cost: that
 * of the inner algorithm for n nodes, and two messages more in each node, or a meeting; the carrier
 * of a piece takes it from all others, and gives the result to all (allreduce: (L - 1) / L S bytes
 * in, as many out, in a node of L ranks, which is the least).
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005;
 * Cho, Finkler, Serrano, Kung, Hunter: BlueConnect: decomposing all-reduce for deep learning on
 * heterogeneous network hierarchy, 2019.
 */
#include "algos/algo.h"
#include "algos/algo_nodes.h"

#include <stdlib.h>

/* A chunk that a carrier takes from its node's others, or gives to them. */
struct exchange {
	int piece, span, block;
};

struct exchanges {
	struct exchange *list;
	int num;
	int *connections; /* of each rank of the node; -1: none yet */
};

struct hier {
	struct sched *sched;
	struct sched *inner;
	bool mapped; /* carriers reach their nodes' buffers */
	int rail;
	int first_connection; /* of the inner schedule's */
	struct algo_nodes nodes;
	/* Of a lane of the inner schedule. */
	int node, carrier;
	struct exchanges taken, given;
	uint32_t *last; /* by piece of the inner schedule: the lane's step that writes it last */
	bool *has;      /* pieces that the carrier of a broadcast's root has in its output */
};

/* ---- ranks and nodes ---- */

/* Of a block for each rank: which is the inner schedule's of a node. -1: the rail has none. */
static int block_of(const struct hier *h, int inner)
{
	if (sched_num_blocks(&h->sched->request) == 1)
		return 0;
	return h->rail < algo_nodes_size(&h->nodes, inner)
		       ? algo_nodes_rank(&h->nodes, inner, h->rail)
		       : -1;
}

static bool is_rooted_here(const struct hier *h)
{
	const struct sched_request *request = &h->sched->request;

	return sched_coll_has_root(request->coll) && request->nodes[request->root] == h->node;
}

/* Whether the rank of the node has a part in what is read from the node's input. */
static bool contributes(const struct hier *h, int rank)
{
	switch (h->sched->request.coll) {
	case SCHED_ALLREDUCE:
	case SCHED_REDUCE:
	case SCHED_REDUCE_SCATTER:
		return true;
	case SCHED_ALLGATHER:
		return rank == h->carrier;
	default:
		return rank == h->sched->request.root;
	}
}

/* Whether what is written to the node's output is for the rank. */
static bool receives(const struct hier *h, int rank)
{
	switch (h->sched->request.coll) {
	case SCHED_REDUCE:
		return rank == h->sched->request.root;
	case SCHED_REDUCE_SCATTER:
		return rank == h->carrier;
	case SCHED_BCAST:
		return rank != h->sched->request.root;
	default:
		return true;
	}
}

/* ---- a step of the carrier ---- */

static struct sched_operand place(const struct hier *h, enum sched_buffer buffer, int rank,
				  int block)
{
	bool holds = h->sched->request.coll == SCHED_REDUCE_SCATTER && h->sched->request.in_place;

	return sched_place(buffer == SCHED_OUT && holds ? SCHED_HOLD : buffer, rank, block);
}

/* The connection of the node's index-th rank for the lane, to the carrier or from it. */
static struct sched_operand connection_of(struct hier *h, struct exchanges *exchanges, int index)
{
	int *number = &exchanges->connections[index];
	int rank = algo_nodes_rank(&h->nodes, h->node, index);

	if (*number < 0)
		*number = exchanges == &h->taken ? sched_connect(h->sched, rank, h->carrier)
						 : sched_connect(h->sched, h->carrier, rank);
	return sched_fifo(*number);
}

/* Whether the carrier needs no help to have, or to write, what is the rank's. */
static bool is_in_reach(const struct hier *h, int rank)
{
	return h->mapped || rank == h->carrier;
}

static void take_piece(struct hier *h, int piece, int span, int block)
{
	for (int i = 0; i < algo_nodes_size(&h->nodes, h->node); i++) {
		int rank = algo_nodes_rank(&h->nodes, h->node, i);

		if (contributes(h, rank))
			sched_from(h->sched, is_in_reach(h, rank) ? place(h, SCHED_IN, rank, block)
								  : connection_of(h, &h->taken, i));
	}
	h->taken.list[h->taken.num++] = (struct exchange){piece, span, block};
}

static void give(struct hier *h, int piece, int span, int block)
{
	for (int i = 0; i < algo_nodes_size(&h->nodes, h->node); i++) {
		int rank = algo_nodes_rank(&h->nodes, h->node, i);

		if (receives(h, rank))
			sched_to(h->sched, is_in_reach(h, rank) ? place(h, SCHED_OUT, rank, block)
								: connection_of(h, &h->given, i));
	}
	h->given.list[h->given.num++] = (struct exchange){piece, span, block};
}

/* The node of a broadcast's root has the data; its carrier gets them once, and so do the others. */
static bool is_first_read(const struct hier *h, int piece)
{
	return h->sched->request.coll == SCHED_BCAST && is_rooted_here(h) && !h->has[piece];
}

static bool has_copy(const struct hier *h, int piece)
{
	return h->sched->request.coll == SCHED_BCAST && is_rooted_here(h) && h->has[piece] &&
	       h->carrier != h->sched->request.root;
}

static void add_source(struct hier *h, const struct sched_operand *o, int piece, int span)
{
	int block = block_of(h, o->block);

	if (o->fifo)
		sched_from(h->sched, sched_fifo(h->first_connection + o->at));
	else if (o->buffer == SCHED_OUT || has_copy(h, piece))
		sched_from(h->sched, place(h, SCHED_OUT, h->carrier, block));
	else
		take_piece(h, piece, span, block);
}

/* `result`: it is not written again. Until then it is the carrier's own. */
static void add_target(struct hier *h, const struct sched_operand *o, int piece, int span,
		       bool result)
{
	if (o->fifo)
		sched_to(h->sched, sched_fifo(h->first_connection + o->at));
	else if (result)
		give(h, piece, span, block_of(h, o->block));
	else
		sched_to(h->sched, place(h, SCHED_OUT, h->carrier, block_of(h, o->block)));
}

/* Whether the rail has the blocks that the step is about. */
static bool concerns_rail(const struct hier *h, const struct sched_step *step)
{
	const struct sched_operand *o = sched_sources(h->inner, step);

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		if (!o[i].fifo && block_of(h, o[i].block) < 0)
			return false;
	}
	return true;
}

static void add_step(struct hier *h, const struct sched_step *step, uint32_t index)
{
	const struct sched_operand *from = sched_sources(h->inner, step);
	const struct sched_operand *to = sched_targets(h->inner, step);
	int piece = step->piece, span = step->span;
	bool first, result = true;

	/* Blocks are written once. */
	if (sched_num_blocks(&h->sched->request) == 1) {
		result = h->last[piece] == index;
		piece += h->rail * h->inner->pieces;
	}
	first = is_first_read(h, piece);
	sched_step(h->sched, piece);
	for (int i = 0; i < step->num_sources; i++)
		add_source(h, &from[i], piece, span);
	for (int i = 0; i < step->num_targets; i++)
		add_target(h, &to[i], piece, span, result);
	if (first) {
		give(h, piece, span, 0);
		h->has[piece] = true;
	}
	sched_widen(h->sched, span);
}

/* ---- the others of the node ---- */

/* Their lanes: what they give to the carrier, or what they get from it. */
static void add_others(struct hier *h, struct exchanges *exchanges, int channel)
{
	bool gives = exchanges == &h->taken;

	for (int i = 0; i < algo_nodes_size(&h->nodes, h->node); i++) {
		int rank = algo_nodes_rank(&h->nodes, h->node, i);

		if (rank == h->carrier || !(gives ? contributes(h, rank) : receives(h, rank)))
			continue;
		sched_lane(h->sched, rank, channel);
		for (int j = 0; j < exchanges->num; j++) {
			const struct exchange *e = &exchanges->list[j];
			struct sched_operand link = connection_of(h, exchanges, i);
			struct sched_operand own =
				place(h, gives ? SCHED_IN : SCHED_OUT, rank, e->block);

			sched_copy(h->sched, e->piece, gives ? own : link, gives ? link : own);
			sched_widen(h->sched, e->span);
		}
	}
}

/* ---- rails ---- */

static bool begin_exchanges(struct hier *h, struct exchanges *exchanges, uint32_t most)
{
	int ranks = algo_nodes_size(&h->nodes, h->node);

	exchanges->num = 0;
	exchanges->list = calloc(most, sizeof(*exchanges->list));
	exchanges->connections = calloc((size_t)ranks, sizeof(*exchanges->connections));
	for (int i = 0; exchanges->connections && i < ranks; i++)
		exchanges->connections[i] = -1;
	return exchanges->list && exchanges->connections;
}

static void end_exchanges(struct exchanges *exchanges)
{
	free(exchanges->list);
	free(exchanges->connections);
	*exchanges = (struct exchanges){0};
}

static void find_results(struct hier *h, const struct sched_lane *lane)
{
	for (uint32_t i = 0; i < lane->num; i++) {
		const struct sched_step *step = &h->inner->steps[lane->first + i];
		const struct sched_operand *to = sched_targets(h->inner, step);

		for (int j = 0; j < step->num_targets; j++) {
			for (int k = 0; !to[j].fifo && k < step->span; k++)
				h->last[step->piece + k] = i;
		}
	}
}

static void add_lane(struct hier *h, const struct sched_lane *lane)
{
	h->node = lane->rank;
	h->carrier = algo_nodes_carrier(&h->nodes, h->node, h->rail);
	if (begin_exchanges(h, &h->taken, lane->num) && begin_exchanges(h, &h->given, lane->num)) {
		sched_lane(h->sched, h->carrier, lane->channel);
		find_results(h, lane);
		for (uint32_t i = 0; i < lane->num; i++) {
			const struct sched_step *step = &h->inner->steps[lane->first + i];

			if (concerns_rail(h, step))
				add_step(h, step, i);
		}
		if (!h->mapped) {
			add_others(h, &h->taken, lane->channel);
			add_others(h, &h->given, lane->channel);
		}
	} else {
		h->sched->failed = true;
	}
	end_exchanges(&h->taken);
	end_exchanges(&h->given);
}

static void add_rail(struct hier *h)
{
	h->first_connection = algo_nodes_connect(&h->nodes, h->sched, h->inner, h->rail);
	for (uint32_t i = 0; i < h->inner->num_lanes; i++) {
		if (h->inner->lanes[i].num)
			add_lane(h, &h->inner->lanes[i]);
	}
}

static void compose(struct hier *h)
{
	const struct sched_request *request = &h->sched->request;

	h->sched->pieces = h->inner->pieces;
	if (sched_num_blocks(request) == 1)
		h->sched->pieces *= h->nodes.rails;
	h->has = calloc((size_t)h->sched->pieces, sizeof(*h->has));
	h->last = calloc((size_t)h->inner->pieces, sizeof(*h->last));
	if (!h->has || !h->last) {
		h->sched->failed = true;
		return;
	}
	for (h->rail = 0; h->rail < h->nodes.rails; h->rail++)
		add_rail(h);
	if (request->coll == SCHED_REDUCE_SCATTER && request->in_place)
		algo_move_results(h->sched);
}

/* The inner algorithm is one that reads each input once. It may sum up in the output. */
static void make_hier(struct sched *sched, const char *inner, bool mapped)
{
	const struct sched_request *request = &sched->request;
	struct sched_request nodes = {.coll = request->coll,
				      .ranks = request->num_nodes,
				      .root = request->nodes[request->root],
				      .channels = request->channels};
	struct hier h = {.sched = sched,
			 .mapped = mapped,
			 .inner = algo_make(algo_find(inner, request->coll), &nodes)};

	if (h.inner && algo_nodes_sort(&h.nodes, request))
		compose(&h);
	else
		sched->failed = true;
	free(h.has);
	free(h.last);
	algo_nodes_free(&h.nodes);
	sched_free(h.inner);
}

void algo_hier_halving(struct sched *sched)
{
	make_hier(sched, "halving", false);
}

void algo_hier_ring(struct sched *sched)
{
	make_hier(sched, "ring", false);
}

void algo_hier_torus(struct sched *sched)
{
	make_hier(sched, "torus", false);
}

void algo_hier_tree(struct sched *sched)
{
	make_hier(sched, "tree", false);
}

void algo_rail_halving(struct sched *sched)
{
	make_hier(sched, "halving", true);
}

void algo_rail_ring(struct sched *sched)
{
	make_hier(sched, "ring", true);
}

void algo_rail_torus(struct sched *sched)
{
	make_hier(sched, "torus", true);
}

void algo_rail_tree(struct sched *sched)
{
	make_hier(sched, "tree", true);
}
