/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-shot and two-shot: all-pairs over mapped memory. In a one-shot allreduce every rank reduces
 * everything for itself. In two shots rank r reduces piece r of all inputs and writes it to all
 * outputs (reduce: to the root's; bcast: it reads piece r of the root's input only).
 *
 * When: all ranks reach each other's memory. One-shot for small messages where each rank has a GPU
 * for itself, two-shot otherwise. Cost: no message, only the two ends of the phase; one-shot reads
 * n S bytes on every rank, two-shot S and writes S. In place, two-shot needs no scratch: rank r
 * alone touches piece r. One-shot can't work in place: an input could be overwritten before another
 * rank has read it.
 */
#include "algos/algo.h"

static void from_all(struct sched *sched)
{
	for (int i = 0; i < sched->request.ranks; i++)
		sched_from(sched, sched_place(SCHED_IN, i, 0));
}

void algo_oneshot(struct sched *sched)
{
	int channels = sched->request.channels;

	sched->pieces = channels;
	for (int rank = 0; rank < sched->request.ranks; rank++) {
		for (int channel = 0; channel < channels; channel++) {
			sched_lane(sched, rank, channel);
			sched_step(sched, channel);
			from_all(sched);
			sched_to(sched, sched_place(SCHED_OUT, rank, 0));
		}
	}
}

/* To all that have an output, each rank beginning with another, so that they do not all write to
 * one at a time. */
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

	sched->pieces = request->ranks * request->channels;
	for (int rank = 0; rank < request->ranks; rank++) {
		for (int channel = 0; channel < request->channels; channel++) {
			sched_lane(sched, rank, channel);
			sched_step(sched, rank * request->channels + channel);
			if (request->coll == SCHED_BCAST)
				sched_from(sched, sched_place(SCHED_IN, request->root, 0));
			else
				from_all(sched);
			to_all(sched, rank);
		}
	}
}
