/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoall over connections.
 *
 * Pairwise: in step k rank r sends to r + k and receives from r - k; in place it exchanges blocks
 * with k - r, as what comes takes the place of what goes to the same rank. When: large blocks.
 * Cost: n - 1 messages of B bytes, each byte sent once.
 *
 * Bruck: blocks travel by the bits of the distance to their destination, each in at most log2(n)
 * hops. When: small blocks of one size. Cost: log2(n) rounds of n / 2 blocks, so every byte is sent
 * log2(n) / 2 times. Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all
 * communications in multiport message-passing systems, 1997.
 */
#include "algos/algo.h"

static void pairwise_channel(struct sched *sched, int channel)
{
	int n = sched->request.ranks, first = (int)sched->num_connections;

	/* Number first + r (n - 1) + k - 1 is rank r's in step k. */
	for (int rank = 0; rank < n; rank++) {
		for (int k = 1; k < n; k++)
			sched_connect(sched, rank, (rank + k) % n);
	}
	for (int rank = 0; rank < n; rank++) {
		sched_lane(sched, rank, channel);
		sched_copy(sched, channel, sched_place(SCHED_IN, rank, rank),
			   sched_place(SCHED_OUT, rank, rank));
		for (int k = 1; k < n; k++) {
			int to = (rank + k) % n, from = (rank - k + n) % n;

			sched_copy(sched, channel, sched_place(SCHED_IN, rank, to),
				   sched_fifo(first + rank * (n - 1) + k - 1));
			sched_copy(sched, channel, sched_fifo(first + from * (n - 1) + k - 1),
				   sched_place(SCHED_OUT, rank, from));
		}
	}
}

/* Of all connections between different ranks. */
static int number_of(int ranks, int from, int to)
{
	return from * (ranks - 1) + to - (to > from);
}

/* In a step all partners are partners of each other, so nobody waits for who waits for another. */
static void exchange_channel(struct sched *sched, int channel)
{
	int n = sched->request.ranks, first = (int)sched->num_connections;

	for (int rank = 0; rank < n; rank++) {
		for (int peer = 0; peer < n; peer++) {
			if (peer != rank)
				sched_connect(sched, rank, peer);
		}
	}
	for (int rank = 0; rank < n; rank++) {
		sched_lane(sched, rank, channel);
		for (int k = 0; k < n; k++) {
			int peer = (k - rank + n) % n;
			struct sched_operand block = sched_place(SCHED_OUT, rank, peer);

			if (peer == rank)
				continue;
			sched_copy(sched, channel, block,
				   sched_fifo(first + number_of(n, rank, peer)));
			sched_copy(sched, channel, sched_fifo(first + number_of(n, peer, rank)),
				   block);
		}
	}
}

void algo_pairwise(struct sched *sched)
{
	sched->pieces = sched->request.channels;
	for (int channel = 0; channel < sched->request.channels; channel++) {
		if (sched->request.in_place)
			exchange_channel(sched, channel);
		else
			pairwise_channel(sched, channel);
	}
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
