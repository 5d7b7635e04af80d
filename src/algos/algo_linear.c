/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linear gather and scatter: the root receives from, or sends to, one rank after the other.
 *
 * When: ranks do not reach each other's memory. Cost: one message for each rank, but n - 1 of them
 * at the root, whose link all bytes must go through in any case.
 */
#include "algos/algo.h"

static void root(struct sched *sched, int channel, int first)
{
	int n = sched->request.ranks, me = sched->request.root;

	sched_lane(sched, me, channel);
	sched_copy(sched, channel, sched_place(SCHED_IN, me, me), sched_place(SCHED_OUT, me, me));
	for (int k = 1; k < n; k++) {
		int rank = (me + k) % n;

		if (sched->request.coll == SCHED_GATHER)
			sched_copy(sched, channel, sched_fifo(first + rank),
				   sched_place(SCHED_OUT, me, rank));
		else
			sched_copy(sched, channel, sched_place(SCHED_IN, me, rank),
				   sched_fifo(first + rank));
	}
}

static void other(struct sched *sched, int channel, int first, int rank)
{
	sched_lane(sched, rank, channel);
	if (sched->request.coll == SCHED_GATHER)
		sched_copy(sched, channel, sched_place(SCHED_IN, rank, rank),
			   sched_fifo(first + rank));
	else
		sched_copy(sched, channel, sched_fifo(first + rank),
			   sched_place(SCHED_OUT, rank, rank));
}

void algo_linear(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->channels;
	for (int channel = 0; channel < request->channels; channel++) {
		int first = (int)sched->num_connections;

		/* One by the root's own number is never used. */
		for (int rank = 0; rank < request->ranks; rank++)
			sched_connect(sched, request->coll == SCHED_GATHER ? rank : request->root,
				      request->coll == SCHED_GATHER ? request->root : rank);
		root(sched, channel, first);
		for (int rank = 0; rank < request->ranks; rank++) {
			if (rank != request->root)
				other(sched, channel, first, rank);
		}
	}
}
