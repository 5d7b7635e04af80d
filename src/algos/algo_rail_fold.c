/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums in the order of ranks over nodes, whose ranks follow each other.
 *
 * There is a rail for each rank of the largest node, which has a part of the data and a carrier on
 * each node. A carrier goes on from the sum that comes from the node before with one rank of its
 * node after the other, and sends what that comes to to the next node. The last one has the whole
 * sum, which goes back the same way, or to the root's node; in a scan each rank's part has been
 * written on the way.
 *
 *     node 0: r0 r1        r0: IN of r0 + IN of r1, of its part, to r2
 *     node 1: r2 r3        r2: that + IN of r2 + IN of r3
 *
 * When: sums are to be in order (sched_request.ordered), and ranks of a node reach each other's
 * buffers. Cost: for n nodes 2(n - 1) messages one after the other (reduce: n; scan: n - 1), S
 * bytes over all NICs of a node together in each direction; S bytes of each rank are read once, and
 * written once.
 */
#include "algos/algo.h"
#include "algos/algo_nodes.h"

struct fold {
	struct sched *sched;
	struct algo_nodes nodes;
	int channel, rail, piece, node;
	int up, down, root; /* the rail's first connections: to the next node, to the one before */
};

static int last_node(const struct fold *f)
{
	return f->nodes.num - 1;
}

static int size_of(const struct fold *f)
{
	return algo_nodes_size(&f->nodes, f->node);
}

static int carrier_on(const struct fold *f, int node)
{
	return algo_nodes_carrier(&f->nodes, node, f->rail);
}

static int root_node(const struct fold *f)
{
	return f->sched->request.nodes[f->sched->request.root];
}

static struct sched_operand buffer(const struct fold *f, enum sched_buffer buffer, int index)
{
	return sched_place(buffer, algo_nodes_rank(&f->nodes, f->node, index), 0);
}

static struct sched_operand scratch(const struct fold *f, int block)
{
	return sched_place(SCHED_SCRATCH, carrier_on(f, f->node), block);
}

static struct sched_operand before(const struct fold *f)
{
	return sched_fifo(f->up + f->node - 1);
}

static struct sched_operand next(const struct fold *f)
{
	return sched_fifo(f->up + f->node);
}

static void connect_fold(struct fold *f)
{
	const struct sched_request *request = &f->sched->request;
	int last = last_node(f);

	f->up = (int)f->sched->num_connections;
	for (int node = 0; node < last; node++)
		sched_connect(f->sched, carrier_on(f, node), carrier_on(f, node + 1));
	f->down = (int)f->sched->num_connections;
	for (int node = 0; request->coll == SCHED_ALLREDUCE && node < last; node++)
		sched_connect(f->sched, carrier_on(f, node + 1), carrier_on(f, node));
	f->root = (int)f->sched->num_connections;
	if (request->coll == SCHED_REDUCE && root_node(f) != last)
		sched_connect(f->sched, carrier_on(f, last), carrier_on(f, root_node(f)));
}

/* ---- one sum for all ---- */

static void write_results(struct fold *f)
{
	for (int i = 0; i < size_of(f); i++) {
		struct sched_operand out = buffer(f, SCHED_OUT, i);

		if (sched_has_block(&f->sched->request, out.at, SCHED_OUT, 0))
			sched_to(f->sched, out);
	}
}

static void add_up(struct fold *f)
{
	enum sched_coll coll = f->sched->request.coll;

	sched_step(f->sched, f->piece);
	if (f->node > 0)
		sched_from(f->sched, before(f));
	for (int i = 0; i < size_of(f); i++)
		sched_from(f->sched, buffer(f, SCHED_IN, i));
	if (f->node < last_node(f)) {
		sched_to(f->sched, next(f));
		return;
	}
	write_results(f);
	if (coll == SCHED_ALLREDUCE)
		sched_to(f->sched, sched_fifo(f->down + f->node - 1));
	else if (root_node(f) != f->node)
		sched_to(f->sched, sched_fifo(f->root));
}

/* In a lane of its own: a carrier has gone far ahead when the first result comes back. */
static void come_back(struct fold *f)
{
	bool all = f->sched->request.coll == SCHED_ALLREDUCE;

	if (f->node == last_node(f) || (!all && root_node(f) != f->node))
		return;
	sched_lane(f->sched, carrier_on(f, f->node), f->channel);
	sched_step(f->sched, f->piece);
	sched_from(f->sched, sched_fifo(all ? f->down + f->node : f->root));
	write_results(f);
	if (all && f->node > 0)
		sched_to(f->sched, sched_fifo(f->down + f->node - 1));
}

/* ---- prefix sums ---- */

static bool is_last(const struct fold *f, int index)
{
	return f->node == last_node(f) && index == size_of(f) - 1;
}

/* What the next rank goes on from: on this node, or on the next one. */
static struct sched_operand hand_on(const struct fold *f, int index)
{
	return index < size_of(f) - 1 ? scratch(f, index % 2) : next(f);
}

static void scan(struct fold *f)
{
	for (int i = 0; i < size_of(f); i++) {
		sched_step(f->sched, f->piece);
		if (i > 0)
			sched_from(f->sched, scratch(f, (i - 1) % 2));
		else if (f->node > 0)
			sched_from(f->sched, before(f));
		sched_from(f->sched, buffer(f, SCHED_IN, i));
		sched_to(f->sched, buffer(f, SCHED_OUT, i));
		if (!is_last(f, i))
			sched_to(f->sched, hand_on(f, i));
	}
}

/* In place, a rank's output takes the place of its input, which has been added before. */
static void exscan(struct fold *f)
{
	enum { CARRY = 2 };

	if (f->node > 0)
		sched_copy(f->sched, f->piece, before(f), scratch(f, CARRY));
	for (int i = 0; i < size_of(f); i++) {
		struct sched_operand carry = scratch(f, i ? (i - 1) % 2 : CARRY);

		if (f->node == 0 && i == 0) {
			sched_copy(f->sched, f->piece, buffer(f, SCHED_IN, 0), hand_on(f, 0));
			continue;
		}
		if (!is_last(f, i))
			sched_reduce(f->sched, f->piece, carry, buffer(f, SCHED_IN, i),
				     hand_on(f, i));
		sched_copy(f->sched, f->piece, carry, buffer(f, SCHED_OUT, i));
	}
}

/* ---- all ---- */

static void add_rail(struct fold *f)
{
	connect_fold(f);
	for (f->node = 0; f->node < f->nodes.num; f->node++) {
		sched_lane(f->sched, carrier_on(f, f->node), f->channel);
		if (f->sched->request.coll == SCHED_SCAN) {
			scan(f);
		} else if (f->sched->request.coll == SCHED_EXSCAN) {
			exscan(f);
		} else {
			add_up(f);
			come_back(f);
		}
	}
}

void algo_rail_fold(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	bool scans = request->coll == SCHED_SCAN || request->coll == SCHED_EXSCAN;
	struct fold f = {.sched = sched};

	if (!algo_nodes_sort(&f.nodes, request)) {
		sched->failed = true;
	} else {
		sched->pieces = f.nodes.rails * request->channels;
		sched->scratch_blocks = scans ? 3 : 0;
		for (f.channel = 0; f.channel < request->channels; f.channel++) {
			for (f.rail = 0; f.rail < f.nodes.rails; f.rail++, f.piece++)
				add_rail(&f);
		}
	}
	algo_nodes_free(&f.nodes);
}
