/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast as a scatter and an allgather: the root sends a piece to each rank, and the pieces go
 * round a ring.
 *
 * When: large messages, where the root's link is the narrow place of a tree. Cost: n messages one
 * after the other; the root sends 2 S (n - 1) / n bytes, all others S (n - 1) / n.
 *
 * Barnett, Shuler, Gupta, Payne, van de Geijn, Watts: Building a high-performance collective
 * communication library, 1994.
 */
#include "algos/algo.h"

/*
 * Ranks are numbered from the root on. The ring has no link back to the root, which has everything;
 * it sends what would have come round.
 */
struct ring {
	struct sched *sched;
	int channel, first; /* connections: root to 1, 2 ...; then 0 to 1, 1 to 2 ... */
};

static int rank_of(const struct ring *ring, int number)
{
	const struct sched_request *request = &ring->sched->request;

	return (number + request->root) % request->ranks;
}

static int piece_of(const struct ring *ring, int number)
{
	int n = ring->sched->request.ranks;

	return ring->channel * n + algo_wrap(number, n);
}

static struct sched_operand from_root(const struct ring *ring, int number)
{
	return sched_fifo(ring->first + number - 1);
}

static struct sched_operand to_next(const struct ring *ring, int number)
{
	return sched_fifo(ring->first + ring->sched->request.ranks - 1 + number);
}

static void root(const struct ring *ring)
{
	struct sched *s = ring->sched;
	struct sched_operand in = sched_place(SCHED_IN, s->request.root, 0);
	int n = s->request.ranks;

	sched_lane(s, s->request.root, ring->channel);
	for (int i = 1; i < n; i++)
		sched_copy(s, piece_of(ring, i), in, from_root(ring, i));
	for (int k = 0; k < n - 1; k++)
		sched_copy(s, piece_of(ring, -k), in, to_next(ring, 0));
}

static void other(const struct ring *ring, int number)
{
	struct sched *s = ring->sched;
	int n = s->request.ranks, rank = rank_of(ring, number);
	struct sched_operand out = sched_place(SCHED_OUT, rank, 0);

	sched_lane(s, rank, ring->channel);
	for (int k = 0; k < n; k++) {
		sched_copy(s, piece_of(ring, number - k),
			   k ? to_next(ring, number - 1) : from_root(ring, number), out);
		/* The next one begins where this one ends. */
		if (number < n - 1 && k < n - 1)
			sched_to(s, to_next(ring, number));
	}
}

void algo_scatter_allgather(struct sched *sched)
{
	int n = sched->request.ranks;

	sched->pieces = sched->request.channels * n;
	for (int channel = 0; channel < sched->request.channels; channel++) {
		struct ring ring = {sched, channel, (int)sched->num_connections};

		for (int i = 1; i < n; i++)
			sched_connect(sched, sched->request.root, rank_of(&ring, i));
		for (int i = 0; i < n - 1; i++)
			sched_connect(sched, rank_of(&ring, i), rank_of(&ring, i + 1));
		root(&ring);
		for (int i = 1; i < n; i++)
			other(&ring, i);
	}
}
