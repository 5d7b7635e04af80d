/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prefix sums.
 *
 * Chain: each rank adds its input to what comes from the rank before and sends that on. When: large
 * messages, as rounds follow each other like in a pipeline. Cost: n - 1 messages, S bytes through
 * each link.
 *
 * Doubling: in step k rank r sends the sum of its last 2^k ranks to r + 2^k. When: small messages.
 * Cost: log2(n) messages of S bytes. Hillis, Steele: Data parallel algorithms, 1986.
 */
#include "algos/algo.h"

static struct sched_operand in_of(int rank)
{
	return sched_place(SCHED_IN, rank, 0);
}

static struct sched_operand out_of(int rank)
{
	return sched_place(SCHED_OUT, rank, 0);
}

static void chain_scan(struct sched *sched, int piece, int rank, int first)
{
	bool last = rank == sched->request.ranks - 1;

	if (rank == 0)
		sched_copy(sched, piece, in_of(0), out_of(0));
	else
		sched_reduce(sched, piece, sched_fifo(first + rank - 1), in_of(rank), out_of(rank));
	if (!last)
		sched_to(sched, sched_fifo(first + rank));
}

/* In place, the result may be written only when the input has been added to what is sent on. */
static void chain_exscan(struct sched *sched, int piece, int rank, int first)
{
	struct sched_operand sum = sched_place(SCHED_SCRATCH, rank, 0);
	struct sched_operand prev = sched_fifo(first + rank - 1), next = sched_fifo(first + rank);

	if (rank == 0) {
		sched_copy(sched, piece, in_of(0), next);
	} else if (rank == sched->request.ranks - 1) {
		sched_copy(sched, piece, prev, out_of(rank));
	} else {
		sched_copy(sched, piece, prev, sum);
		sched_reduce(sched, piece, sum, in_of(rank), next);
		sched_copy(sched, piece, sum, out_of(rank));
	}
}

void algo_scan_chain(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->channels;
	sched->scratch_blocks = request->coll == SCHED_EXSCAN;
	for (int channel = 0; channel < request->channels; channel++) {
		int first = (int)sched->num_connections;

		for (int rank = 0; rank < request->ranks - 1; rank++)
			sched_connect(sched, rank, rank + 1);
		for (int rank = 0; rank < request->ranks; rank++) {
			sched_lane(sched, rank, channel);
			if (request->coll == SCHED_SCAN)
				chain_scan(sched, channel, rank, first);
			else
				chain_exscan(sched, channel, rank, first);
		}
	}
}

/* Connections: from each rank at each level, also those that nobody uses. */
static int from_rank(const struct sched *sched, int first, int level, int rank)
{
	return first + level * sched->request.ranks + rank;
}

static void doubling_scan(struct sched *sched, int piece, int rank, int first)
{
	int n = sched->request.ranks;

	sched_copy(sched, piece, in_of(rank), out_of(rank));
	for (int level = 0; 1 << level < n; level++) {
		int from = rank - (1 << level);

		if (rank + (1 << level) < n)
			sched_copy(sched, piece, out_of(rank),
				   sched_fifo(from_rank(sched, first, level, rank)));
		if (from >= 0)
			sched_reduce(sched, piece, sched_fifo(from_rank(sched, first, level, from)),
				     out_of(rank), out_of(rank));
	}
}

/*
 * The sum with this rank's input, which is sent, in one block of the scratch; what comes, which
 * both that and the result need, in the other.
 */
static void doubling_exscan(struct sched *sched, int piece, int rank, int first)
{
	struct sched_operand sum = sched_place(SCHED_SCRATCH, rank, 0);
	struct sched_operand came = sched_place(SCHED_SCRATCH, rank, 1);
	int n = sched->request.ranks;

	sched_copy(sched, piece, in_of(rank), sum);
	for (int level = 0; 1 << level < n; level++) {
		int from = rank - (1 << level);

		if (rank + (1 << level) < n)
			sched_copy(sched, piece, sum,
				   sched_fifo(from_rank(sched, first, level, rank)));
		if (from < 0)
			continue;
		sched_copy(sched, piece, sched_fifo(from_rank(sched, first, level, from)), came);
		if (level == 0)
			sched_copy(sched, piece, came, out_of(rank));
		else
			sched_reduce(sched, piece, came, out_of(rank), out_of(rank));
		sched_reduce(sched, piece, came, sum, sum);
	}
}

void algo_scan_doubling(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	int n = request->ranks;

	sched->pieces = request->channels;
	sched->scratch_blocks = request->coll == SCHED_EXSCAN ? 2 : 0;
	for (int channel = 0; channel < request->channels; channel++) {
		int first = (int)sched->num_connections;

		for (int level = 0; 1 << level < n; level++) {
			for (int rank = 0; rank < n; rank++)
				sched_connect(sched, rank, (rank + (1 << level)) % n);
		}
		for (int rank = 0; rank < n; rank++) {
			sched_lane(sched, rank, channel);
			if (request->coll == SCHED_SCAN)
				doubling_scan(sched, channel, rank, first);
			else
				doubling_exscan(sched, channel, rank, first);
		}
	}
}
