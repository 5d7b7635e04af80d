/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbour exchange: allgather by exchanges between neighbours in a ring, now with the one on the
 * one side, now with the one on the other; first of a block, then of pairs of blocks.
 *
 * When: middle messages, an even number of ranks. Cost: n / 2 exchanges, half of a ring's steps,
 * and the same B (n - 1) bytes through each link.
 *
 * Chen, Zhang, Zhang, Yuan: Performance evaluation of allgather algorithms on terascale Linux
 * cluster with Fast Ethernet, 2005.
 */
#include "algos/algo.h"

struct seat {
	struct sched *sched;
	int channel, rank;
	int first; /* connection: two of each rank, to the next and to the one before */
};

/* Send a block and receive another, from the neighbour: +1 or -1. */
static void trade(const struct seat *seat, int neighbor, int sent, int received)
{
	int n = seat->sched->request.ranks, peer = algo_wrap(seat->rank + neighbor, n);
	int out = seat->first + 2 * seat->rank + (neighbor < 0);
	int in = seat->first + 2 * peer + (neighbor > 0);

	sched_copy(seat->sched, seat->channel, sched_place(SCHED_OUT, seat->rank, sent),
		   sched_fifo(out));
	sched_copy(seat->sched, seat->channel, sched_fifo(in),
		   sched_place(SCHED_OUT, seat->rank, received));
}

/*
 * Pair p is blocks 2p and 2p + 1. In step k a rank is given the pair that is (k + 1) / 2 pairs
 * away, on the side of the neighbour, which was given that in the step before, as this rank the one
 * that it sends.
 */
static void exchange_blocks(const struct seat *seat)
{
	int n = seat->sched->request.ranks, rank = seat->rank, pairs = n / 2, pair = rank / 2;
	int partner = rank % 2 ? -1 : 1, sent = pair;

	trade(seat, partner, rank, algo_wrap(rank + partner, n));
	for (int k = 1; k < pairs; k++) {
		int side = k % 2 ? -partner : partner;
		int received = algo_wrap(pair + side * ((k + 1) / 2), pairs);

		for (int i = 0; i < 2; i++)
			trade(seat, side, 2 * sent + i, 2 * received + i);
		sent = received;
	}
}

void algo_neighbor_exchange(struct sched *sched)
{
	int n = sched->request.ranks;

	sched->pieces = sched->request.channels;
	for (int channel = 0; channel < sched->request.channels; channel++) {
		struct seat seat = {sched, channel, 0, (int)sched->num_connections};

		for (int rank = 0; rank < n; rank++) {
			sched_connect(sched, rank, (rank + 1) % n);
			sched_connect(sched, rank, (rank + n - 1) % n);
		}
		for (seat.rank = 0; seat.rank < n; seat.rank++) {
			sched_lane(sched, seat.rank, channel);
			sched_copy(sched, channel, sched_place(SCHED_IN, seat.rank, seat.rank),
				   sched_place(SCHED_OUT, seat.rank, seat.rank));
			exchange_blocks(&seat);
		}
	}
}
