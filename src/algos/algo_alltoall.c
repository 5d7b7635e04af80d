/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoall over connections.
 *
 * Pairwise: in step k rank r sends to r + k and receives from r - k, where they have something for
 * each other, so it is the one for exchanges of few, too; in place it exchanges blocks
 * with k - r, as what comes takes the place of what goes to the same rank. When: large blocks.
 * Cost: n - 1 messages of B bytes, each byte sent once.
 *
 * Bruck: blocks travel by the bits of the distance to their destination, each in at most log2(n)
 * hops. When: small blocks of one size. Cost: log2(n) rounds of n / 2 blocks, so every byte is sent
 * log2(n) / 2 times. Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all
 * communications in multiport message-passing systems, 1997.
 */
#include "algos/algo.h"

#include <stdlib.h>

static bool is_pair(const struct sched *sched, int from, int to)
{
	return sched_has_block(&sched->request, from, SCHED_IN, to);
}

/* `fifos`: of one channel, from each rank to each; -1: there is none, in any channel. */
static void connect_pairs(struct sched *sched, int channel, int *fifos)
{
	int n = sched->request.ranks;

	for (int i = 0; i < n * n; i++) {
		int from = i / n, to = i % n;
		bool linked = channel ? fifos[i] >= 0 : to != from && is_pair(sched, from, to);

		fifos[i] = linked ? sched_connect(sched, from, to) : -1;
	}
}

static void pairwise_lane(struct sched *sched, int channel, int rank, const int *fifos)
{
	int n = sched->request.ranks;

	for (int k = 1; k < n; k++) {
		int to = (rank + k) % n, from = (rank - k + n) % n;

		if (fifos[rank * n + to] >= 0)
			sched_copy(sched, channel, sched_place(SCHED_IN, rank, to),
				   sched_fifo(fifos[rank * n + to]));
		if (fifos[from * n + rank] >= 0)
			sched_copy(sched, channel, sched_fifo(fifos[from * n + rank]),
				   sched_place(SCHED_OUT, rank, from));
	}
}

/* In a lane of its own, as messages need not wait for it. */
static void own_lane(struct sched *sched, int channel, int rank)
{
	if (sched->request.in_place || !is_pair(sched, rank, rank))
		return;
	sched_lane(sched, rank, channel);
	sched_copy(sched, channel, sched_place(SCHED_IN, rank, rank),
		   sched_place(SCHED_OUT, rank, rank));
}

/* In a step all partners are partners of each other, so nobody waits for who waits for another. */
static void exchange_lane(struct sched *sched, int channel, int rank, const int *fifos)
{
	int n = sched->request.ranks;

	for (int k = 0; k < n; k++) {
		int peer = (k - rank + n) % n;
		struct sched_operand block = sched_place(SCHED_OUT, rank, peer);

		if (peer == rank)
			continue;
		sched_copy(sched, channel, block, sched_fifo(fifos[rank * n + peer]));
		sched_copy(sched, channel, sched_fifo(fifos[peer * n + rank]), block);
	}
}

static void pairwise_channel(struct sched *sched, int channel, int *fifos)
{
	connect_pairs(sched, channel, fifos);
	for (int rank = 0; rank < sched->request.ranks; rank++) {
		sched_lane(sched, rank, channel);
		if (sched->request.in_place)
			exchange_lane(sched, channel, rank, fifos);
		else
			pairwise_lane(sched, channel, rank, fifos);
		own_lane(sched, channel, rank);
	}
}

void algo_pairwise(struct sched *sched)
{
	size_t n = (size_t)sched->request.ranks;
	int *fifos = malloc(n * n * sizeof(*fifos));

	sched->failed |= !fifos;
	sched->pieces = sched->request.channels;
	for (int channel = 0; fifos && channel < sched->request.channels; channel++)
		pairwise_channel(sched, channel, fifos);
	free(fifos);
}

/*
 * Block i of the scratch is for the rank i further on; after the step of bit k it has come from
 * 2^k further back if i has that bit, so in the end it is from the rank i further back. What is
 * sent and what replaces it take turns, so that one slot is enough.
 */
static void bruck_lane(struct sched *sched, int channel, int rank, int first)
{
	int n = sched->request.ranks;

	sched_lane(sched, rank, channel);
	for (int i = 0; i < n; i++)
		sched_copy(sched, channel, sched_place(SCHED_IN, rank, (rank + i) % n),
			   sched_place(SCHED_SCRATCH, rank, i));
	for (int level = 0; 1 << level < n; level++) {
		int from = (rank - (1 << level) + n) % n;

		for (int i = 1; i < n; i++) {
			struct sched_operand block = sched_place(SCHED_SCRATCH, rank, i);

			if (!(i >> level & 1))
				continue;
			sched_copy(sched, channel, block, sched_fifo(first + level * n + rank));
			sched_copy(sched, channel, sched_fifo(first + level * n + from), block);
		}
	}
	for (int i = 0; i < n; i++)
		sched_copy(sched, channel, sched_place(SCHED_SCRATCH, rank, i),
			   sched_place(SCHED_OUT, rank, (rank - i + n) % n));
}

void algo_bruck(struct sched *sched)
{
	int n = sched->request.ranks;

	sched->pieces = sched->request.channels;
	sched->scratch_blocks = n;
	for (int channel = 0; channel < sched->request.channels; channel++) {
		int first = (int)sched->num_connections;

		for (int level = 0; 1 << level < n; level++) {
			for (int rank = 0; rank < n; rank++)
				sched_connect(sched, rank, (rank + (1 << level)) % n);
		}
		for (int rank = 0; rank < n; rank++)
			bruck_lane(sched, channel, rank, first);
	}
}
