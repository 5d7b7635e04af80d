/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-shot and two-shot: all-pairs over mapped memory. In one shot every rank that has an output
 * makes it from all inputs by itself. In two shots rank r reduces piece r of all inputs and writes
 * it to all outputs (reduce: to the root's; bcast: it reads piece r of the root's input only); of
 * ranks that share a GPU one has a piece for all of them.
 *
 * When: all ranks reach each other's memory, or have copies of all inputs (core_eager.h). One-shot
 * for small messages where each rank has a GPU for itself, two-shot otherwise. Cost: no message,
 * only the two ends of the phase; one-shot reads n S bytes on every rank, two-shot S and writes S.
 * In place, two-shot needs no scratch: rank r alone touches piece r. One-shot can't work in place:
 * an input could be overwritten before another rank has read it.
 */
#include "algos/algo.h"

static void from_all(struct sched *sched)
{
	for (int i = 0; i < sched->request.ranks; i++)
		sched_from(sched, sched_place(SCHED_IN, i, 0));
}

static void gather(struct sched *sched, int piece)
{
	int root = sched->request.root;

	for (int i = 0; i < sched->request.ranks; i++)
		sched_copy(sched, piece, sched_place(SCHED_IN, i, i),
			   sched_place(SCHED_OUT, root, i));
}

static void reduce_to(struct sched *sched, int piece, int rank)
{
	sched_step(sched, piece);
	from_all(sched);
	sched_to(sched, sched_place(SCHED_OUT, rank, 0));
}

void algo_oneshot(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->channels;
	for (int rank = 0; rank < request->ranks; rank++) {
		if (request->coll != SCHED_ALLREDUCE && rank != request->root)
			continue;
		for (int channel = 0; channel < request->channels; channel++) {
			sched_lane(sched, rank, channel);
			if (request->coll == SCHED_GATHER)
				gather(sched, channel);
			else
				reduce_to(sched, channel, rank);
		}
	}
}

/*
 * To all that have an output, each rank beginning with another, so that they do not all write to
 * one at a time.
 */
static void to_all(struct sched *sched, int rank)
{
	const struct sched_request *request = &sched->request;

	for (int i = 0; i < request->ranks; i++) {
		int peer = (rank + i) % request->ranks;

		if (sched_has_block(request, peer, SCHED_OUT, 0))
			sched_to(sched, sched_place(SCHED_OUT, peer, 0));
	}
}

void algo_twoshot(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	int pieces = 0;

	for (int rank = 0; rank < request->ranks; rank++) {
		if (sched_worker(request, rank) != rank)
			continue;
		for (int channel = 0; channel < request->channels; channel++) {
			sched_lane(sched, rank, channel);
			sched_step(sched, pieces++);
			if (request->coll == SCHED_BCAST)
				sched_from(sched, sched_place(SCHED_IN, request->root, 0));
			else
				from_all(sched);
			to_all(sched, rank);
		}
	}
	sched->pieces = pieces;
}
