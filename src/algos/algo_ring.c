/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring. Every rank sends to the next and receives from the one before, all at a time.
 *
 * When: large messages, any number of ranks, and links that are busy only between neighbours (one
 * direction of each, or both with two channels). Cost: allreduce 2(n - 1) messages one after the
 * other and 2 S (n - 1) / n bytes through each link; reduce_scatter and allgather half of that;
 * bcast and reduce, which are pipelines (chains) along the ring, n - 1 messages and S bytes.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
 */
#include "algos/algo.h"

/* One rank's place in a channel's ring. */
struct seat {
	struct sched *sched;
	int channel, position, rank;
	struct sched_operand prev, next;
};

static struct seat take_seat(struct sched *sched, int channel, int position)
{
	int ranks = sched->request.ranks, first = channel * ranks;
	struct seat seat = {.sched = sched, .channel = channel, .position = position};

	seat.rank = algo_ring_rank(sched, channel, position);
	seat.next = sched_fifo(first + position);
	seat.prev = sched_fifo(first + (position + ranks - 1) % ranks);
	sched_lane(sched, seat.rank, channel);
	return seat;
}

static void connect_ring(struct sched *sched)
{
	for (int channel = 0; channel < sched->request.channels; channel++) {
		for (int i = 0; i < sched->request.ranks; i++)
			sched_connect(sched, algo_ring_rank(sched, channel, i),
				      algo_ring_rank(sched, channel, i + 1));
	}
}

static int wrap(const struct seat *seat, int index)
{
	return algo_wrap(index, seat->sched->request.ranks);
}

/* recvReduceSend: what comes, with the input, goes on. */
static void pass_on_sum(const struct seat *seat, int piece, struct sched_operand input)
{
	sched_reduce(seat->sched, piece, seat->prev, input, seat->next);
}

/* recvCopySend */
static void pass_on_copy(const struct seat *seat, int piece, struct sched_operand output)
{
	sched_copy(seat->sched, piece, seat->prev, output);
	sched_to(seat->sched, seat->next);
}

/*
 * Piece i of the channel's share begins at position i, collects on its way round the ring, is whole
 * at position i - 1, and goes round once more.
 */
static void allreduce(const struct seat *seat)
{
	struct sched *s = seat->sched;
	struct sched_operand in = sched_place(SCHED_IN, seat->rank, 0);
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);
	int n = s->request.ranks, base = seat->channel * n, at = seat->position;

	sched_copy(s, base + at, in, seat->next);
	for (int k = 1; k < n - 1; k++)
		pass_on_sum(seat, base + wrap(seat, at - k), in);
	sched_reduce(s, base + wrap(seat, at + 1), seat->prev, in, out);
	sched_to(s, seat->next);
	for (int k = 0; k < n - 2; k++)
		pass_on_copy(seat, base + wrap(seat, at - k), out);
	sched_copy(s, base + wrap(seat, at + 2), seat->prev, out);
}

static struct sched_operand block_in(const struct seat *seat, int position)
{
	return sched_place(SCHED_IN, seat->rank,
			   algo_ring_rank(seat->sched, seat->channel, position));
}

static struct sched_operand block_out(const struct seat *seat, int position)
{
	return sched_place(SCHED_OUT, seat->rank,
			   algo_ring_rank(seat->sched, seat->channel, position));
}

/*
 * The block of position i begins at i + 1 and ends at i. In place, the result would be written over
 * input that is still needed.
 */
static void reduce_scatter(const struct seat *seat)
{
	struct sched *s = seat->sched;
	int n = s->request.ranks, at = seat->position;

	sched_copy(s, seat->channel, block_in(seat, at - 1), seat->next);
	for (int k = 1; k < n - 1; k++)
		pass_on_sum(seat, seat->channel, block_in(seat, at - 1 - k));
	sched_reduce(
		s, seat->channel, seat->prev, block_in(seat, at),
		sched_place(s->request.in_place ? SCHED_HOLD : SCHED_OUT, seat->rank, seat->rank));
}

static void allgather(const struct seat *seat)
{
	struct sched *s = seat->sched;
	int n = s->request.ranks, at = seat->position;

	sched_copy(s, seat->channel, block_in(seat, at), block_out(seat, at));
	sched_to(s, seat->next);
	for (int k = 1; k < n - 1; k++)
		pass_on_copy(seat, seat->channel, block_out(seat, at - k));
	sched_copy(s, seat->channel, seat->prev, block_out(seat, at + 1));
}

/* From the root round the ring to the rank before it. */
static void bcast(const struct seat *seat, int root_position)
{
	struct sched *s = seat->sched;
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);

	if (seat->position == root_position)
		sched_copy(s, seat->channel, sched_place(SCHED_IN, seat->rank, 0), seat->next);
	else if (wrap(seat, seat->position + 1) == root_position)
		sched_copy(s, seat->channel, seat->prev, out);
	else
		pass_on_copy(seat, seat->channel, out);
}

/* From the rank after the root round the ring to the root. */
static void reduce(const struct seat *seat, int root_position)
{
	struct sched *s = seat->sched;
	struct sched_operand in = sched_place(SCHED_IN, seat->rank, 0);

	if (wrap(seat, seat->position - 1) == root_position)
		sched_copy(s, seat->channel, in, seat->next);
	else if (seat->position != root_position)
		pass_on_sum(seat, seat->channel, in);
	else
		sched_reduce(s, seat->channel, seat->prev, in,
			     sched_place(SCHED_OUT, seat->rank, 0));
}

static void take_part(const struct seat *seat, int root_position)
{
	switch (seat->sched->request.coll) {
	case SCHED_ALLREDUCE:
		allreduce(seat);
		break;
	case SCHED_REDUCE_SCATTER:
		reduce_scatter(seat);
		break;
	case SCHED_ALLGATHER:
		allgather(seat);
		break;
	case SCHED_BCAST:
		bcast(seat, root_position);
		break;
	default:
		reduce(seat, root_position);
		break;
	}
}

void algo_ring(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->channels;
	if (request->coll == SCHED_ALLREDUCE)
		sched->pieces *= request->ranks;
	connect_ring(sched);
	for (int channel = 0; channel < request->channels; channel++) {
		int root_position = algo_ring_position(sched, channel, request->root);

		for (int i = 0; i < request->ranks; i++) {
			struct seat seat = take_seat(sched, channel, i);

			take_part(&seat, root_position);
		}
	}
	if (request->coll == SCHED_REDUCE_SCATTER && request->in_place)
		algo_move_results(sched);
}
