/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchange. Rank r has what all ranks contribute to piece r (of a reduce_scatter: to its block)
 * sent to itself, adds it up in the order of ranks in one step, and sends the result to all that
 * want it.
 *
 * When: sums are to be in order (sched_request.ordered), and ranks don't reach each other's
 * buffers, as twoshot does. Cost: 2 messages one after the other, of a reduce_scatter 1; each rank
 * sends and receives 2 S (n - 1) / n bytes, as in a ring, but over links between all ranks.
 */
#include "algos/algo.h"

/* The first connections of a channel: from all ranks to all others, and those of results. */
struct links {
	int contributions, results;
};

static int to_other(const struct sched *sched, int first, int from, int to)
{
	int n = sched->request.ranks;

	return first + from * (n - 1) + algo_wrap(to - from, n) - 1;
}

/* Of a reduce there are those to the root only. */
static int to_user(const struct sched *sched, const struct links *links, int from, int to)
{
	if (sched->request.coll == SCHED_REDUCE)
		return links->results + from - (from > to);
	return to_other(sched, links->results, from, to);
}

/* Of each rank to those after it, round to the one before it. */
static void connect_all(struct sched *sched)
{
	int n = sched->request.ranks;

	for (int from = 0; from < n; from++) {
		for (int i = 1; i < n; i++)
			sched_connect(sched, from, (from + i) % n);
	}
}

static struct links connect_exchange(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	struct links links = {.contributions = (int)sched->num_connections};

	connect_all(sched);
	links.results = (int)sched->num_connections;
	if (request->coll == SCHED_ALLREDUCE)
		connect_all(sched);
	for (int i = 0; request->coll == SCHED_REDUCE && i < request->ranks; i++) {
		if (i != request->root)
			sched_connect(sched, i, request->root);
	}
	return links;
}

static bool has_blocks(const struct sched *sched)
{
	return sched->request.coll == SCHED_REDUCE_SCATTER;
}

static int piece_of(const struct sched *sched, int channel, int rank)
{
	return has_blocks(sched) ? channel : channel * sched->request.ranks + rank;
}

/* Of a rank's buffer, what `owner` adds up. */
static struct sched_operand part(const struct sched *sched, enum sched_buffer buffer, int rank,
				 int owner)
{
	return sched_place(buffer, rank, has_blocks(sched) ? owner : 0);
}

/* Each rank begins with another, so that they do not all send to one at a time. */
static void send_contributions(struct sched *sched, int channel, const struct links *links,
			       int rank)
{
	int n = sched->request.ranks;

	sched_lane(sched, rank, channel);
	for (int i = 1; i < n; i++) {
		int owner = (rank + i) % n;

		sched_copy(sched, piece_of(sched, channel, owner),
			   part(sched, SCHED_IN, rank, owner),
			   sched_fifo(to_other(sched, links->contributions, rank, owner)));
	}
}

/* In place, the result of a reduce_scatter would be written over input that is still to be sent. */
static struct sched_operand own_result(const struct sched *sched, int rank)
{
	bool waits = has_blocks(sched) && sched->request.in_place;

	return part(sched, waits ? SCHED_HOLD : SCHED_OUT, rank, rank);
}

static void add_up(struct sched *sched, int channel, const struct links *links, int rank)
{
	const struct sched_request *request = &sched->request;
	int n = request->ranks;

	sched_lane(sched, rank, channel);
	sched_step(sched, piece_of(sched, channel, rank));
	for (int from = 0; from < n; from++) {
		int link = to_other(sched, links->contributions, from, rank);

		sched_from(sched,
			   from == rank ? part(sched, SCHED_IN, rank, rank) : sched_fifo(link));
	}
	if (has_blocks(sched) || sched_has_block(request, rank, SCHED_OUT, 0))
		sched_to(sched, own_result(sched, rank));
	for (int i = 1; !has_blocks(sched) && i < n; i++) {
		int to = (rank + i) % n;

		if (sched_has_block(request, to, SCHED_OUT, 0))
			sched_to(sched, sched_fifo(to_user(sched, links, rank, to)));
	}
}

static void receive_results(struct sched *sched, int channel, const struct links *links, int rank)
{
	int n = sched->request.ranks;

	if (has_blocks(sched) || !sched_has_block(&sched->request, rank, SCHED_OUT, 0))
		return;
	sched_lane(sched, rank, channel);
	for (int i = 1; i < n; i++) {
		int owner = (rank + n - i) % n;

		sched_copy(sched, piece_of(sched, channel, owner),
			   sched_fifo(to_user(sched, links, owner, rank)),
			   part(sched, SCHED_OUT, rank, owner));
	}
}

void algo_exchange(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->channels * (has_blocks(sched) ? 1 : request->ranks);
	for (int channel = 0; channel < request->channels; channel++) {
		struct links links = connect_exchange(sched);

		for (int rank = 0; rank < request->ranks; rank++) {
			send_contributions(sched, channel, &links, rank);
			add_up(sched, channel, &links, rank);
			receive_results(sched, channel, &links, rank);
		}
	}
	if (has_blocks(sched) && request->in_place)
		algo_move_results(sched);
}
