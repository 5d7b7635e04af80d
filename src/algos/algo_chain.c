/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The chain. What rank 0 contributes goes from each rank to the next, which adds its own; the last
 * one has the sum, and sends it back the same way (reduce: to the root at once).
 *
 * When: sums are to be in order (sched_request.ordered), of large messages or of many ranks, as
 * rounds follow each other like in a pipeline. Cost: 2(n - 1) messages one after the other (reduce:
 * n), S bytes through each link in each direction, which is what a ring takes that has both
 * directions.
 */
#include "algos/algo.h"

/* Connections of a channel: to the next rank; to the one before; to the root. */
struct links {
	int up, down, root;
};

static struct links connect_chain(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	struct links links = {.up = (int)sched->num_connections};
	int last = request->ranks - 1;

	for (int rank = 0; rank < last; rank++)
		sched_connect(sched, rank, rank + 1);
	links.down = (int)sched->num_connections;
	for (int rank = 0; request->coll == SCHED_ALLREDUCE && rank < last; rank++)
		sched_connect(sched, rank + 1, rank);
	links.root = (int)sched->num_connections;
	if (request->coll == SCHED_REDUCE && request->root != last)
		sched_connect(sched, last, request->root);
	return links;
}

static struct sched_operand in_of(int rank)
{
	return sched_place(SCHED_IN, rank, 0);
}

static struct sched_operand out_of(int rank)
{
	return sched_place(SCHED_OUT, rank, 0);
}

static void send_result(struct sched *sched, const struct links *links)
{
	int last = sched->request.ranks - 1;

	if (sched_has_block(&sched->request, last, SCHED_OUT, 0))
		sched_to(sched, out_of(last));
	if (sched->request.coll == SCHED_ALLREDUCE)
		sched_to(sched, sched_fifo(links->down + last - 1));
	else if (sched->request.root != last)
		sched_to(sched, sched_fifo(links->root));
}

static void go_up(struct sched *sched, int channel, const struct links *links)
{
	int last = sched->request.ranks - 1;

	for (int rank = 0; rank <= last; rank++) {
		sched_lane(sched, rank, channel);
		sched_step(sched, channel);
		if (rank > 0)
			sched_from(sched, sched_fifo(links->up + rank - 1));
		sched_from(sched, in_of(rank));
		if (rank < last)
			sched_to(sched, sched_fifo(links->up + rank));
		else
			send_result(sched, links);
	}
}

/* In lanes of their own: a rank has gone far ahead when the first result comes back. */
static void come_down(struct sched *sched, int channel, const struct links *links)
{
	const struct sched_request *request = &sched->request;
	int last = request->ranks - 1;

	for (int rank = last - 1; request->coll == SCHED_ALLREDUCE && rank >= 0; rank--) {
		sched_lane(sched, rank, channel);
		sched_copy(sched, channel, sched_fifo(links->down + rank), out_of(rank));
		if (rank > 0)
			sched_to(sched, sched_fifo(links->down + rank - 1));
	}
	if (request->coll == SCHED_REDUCE && request->root != last) {
		sched_lane(sched, request->root, channel);
		sched_copy(sched, channel, sched_fifo(links->root), out_of(request->root));
	}
}

void algo_chain(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->channels;
	for (int channel = 0; channel < request->channels; channel++) {
		struct links links = connect_chain(sched);

		go_up(sched, channel, &links);
		come_down(sched, channel, &links);
	}
}
