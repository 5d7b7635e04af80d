/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct: blocks that have one place to go to are read from where they are, or written there, over
 * mapped memory.
 *
 * When: all ranks reach each other's memory. Cost: no message; each byte is read once and written
 * once, but for prefix sums, of which rank r reads r + 1 inputs. What is reduced in place (a rank's
 * block of all inputs in a reduce_scatter, the inputs up to the rank's own in a scan) is somebody's
 * input, so the result waits in HOLD until all are done. A gather pushes, all others pull; an
 * alltoall in place swaps: of each pair, either exchanges a half of their two blocks. Of ranks that
 * share a GPU one does what others there would, where it reaches all that they do. If that is all
 * ranks, results in place need no HOLD: one lane goes through them in an order in which each
 * overwrites only inputs that are no longer needed.
 */
#include "algos/algo.h"

/* What waits in HOLD only its own rank reaches. */
static bool has_workers(const struct sched_request *request)
{
	return request->all_mapped && !(request->in_place && sched_coll_reduces(request->coll));
}

static void lane(struct sched *sched, int rank)
{
	const struct sched_request *request = &sched->request;

	sched_lane(sched, has_workers(request) ? sched_worker(request, rank) : rank, 0);
}

static bool has_one_worker(const struct sched_request *request)
{
	for (int rank = 0; rank < request->ranks; rank++) {
		if (sched_worker(request, rank) > 0)
			return false;
	}
	return request->all_mapped;
}

static bool holds(const struct sched_request *request)
{
	return request->in_place && !has_one_worker(request);
}

/* The block of the inputs of ranks [0, end), as the lane's next step. */
static void reduce(struct sched *sched, int rank, int end, int block)
{
	bool in_place = holds(&sched->request);

	if (!end)
		return;
	sched_step(sched, 0);
	for (int i = 0; i < end; i++)
		sched_from(sched, sched_place(SCHED_IN, i, block));
	sched_to(sched, sched_place(in_place ? SCHED_HOLD : SCHED_OUT, rank, block));
}

static void pull(struct sched *sched, int rank, int from, int in_block, int out_block)
{
	/* In place the rank's own block is where it belongs, and others may be reading it. */
	if (from == rank && sched_is_in_place(&sched->request, rank))
		return;
	sched_copy(sched, 0, sched_place(SCHED_IN, from, in_block),
		   sched_place(SCHED_OUT, rank, out_block));
}

/* Each rank begins with another peer, so that they do not all read from one at a time. */
static void pull_from_all(struct sched *sched, int rank)
{
	int n = sched->request.ranks;

	lane(sched, rank);
	for (int i = 0; i < n; i++) {
		int peer = (rank + i) % n;

		if (!sched_has_block(&sched->request, rank, SCHED_OUT, peer))
			continue;
		pull(sched, rank, peer, sched->request.coll == SCHED_ALLGATHER ? peer : rank, peer);
	}
}

static void pull_from_root(struct sched *sched, int rank)
{
	int block = sched->request.coll == SCHED_BCAST ? 0 : rank;

	lane(sched, rank);
	if (sched_has_block(&sched->request, rank, SCHED_OUT, block))
		pull(sched, rank, sched->request.root, block, block);
}

static void push_to_root(struct sched *sched, int rank)
{
	lane(sched, rank);
	sched_copy(sched, 0, sched_place(SCHED_IN, rank, rank),
		   sched_place(SCHED_OUT, sched->request.root, rank));
}

static void swap_with_all(struct sched *sched, int rank)
{
	int n = sched->request.ranks;

	lane(sched, rank);
	for (int i = 1; i < n; i++) {
		int peer = (rank + i) % n;

		sched_swap(sched, rank < peer ? 0 : 1, sched_place(SCHED_OUT, rank, peer),
			   sched_place(SCHED_OUT, peer, rank));
	}
}

static void reduce_for(struct sched *sched, int rank)
{
	switch (sched->request.coll) {
	case SCHED_REDUCE_SCATTER:
		reduce(sched, rank, sched->request.ranks, rank);
		break;
	case SCHED_SCAN:
		reduce(sched, rank, rank + 1, 0);
		break;
	default:
		reduce(sched, rank, rank, 0);
		break;
	}
}

/*
 * All results in place, one after the other. Each block of a kernel has the same part of all
 * blocks, which are of one size, so it waits for nobody. In a reduce_scatter results replace the
 * first blocks of inputs, which the first result needs, so that comes first; in a scan that of rank
 * r replaces an input of all after it, so the last comes first.
 */
static void reduce_in_order(struct sched *sched)
{
	int n = sched->request.ranks;

	sched->uniform = true;
	lane(sched, 0);
	for (int i = 0; i < n; i++)
		reduce_for(sched, sched->request.coll == SCHED_REDUCE_SCATTER ? i : n - 1 - i);
}

static void take_part(struct sched *sched, int rank)
{
	switch (sched->request.coll) {
	case SCHED_REDUCE_SCATTER:
	case SCHED_SCAN:
	case SCHED_EXSCAN:
		lane(sched, rank);
		reduce_for(sched, rank);
		break;
	case SCHED_BCAST:
	case SCHED_SCATTER:
		pull_from_root(sched, rank);
		break;
	case SCHED_GATHER:
		push_to_root(sched, rank);
		break;
	case SCHED_ALLTOALL:
		if (sched->request.in_place) {
			swap_with_all(sched, rank);
			break;
		}
		pull_from_all(sched, rank);
		break;
	default:
		pull_from_all(sched, rank);
		break;
	}
}

void algo_direct(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched->pieces = request->coll == SCHED_ALLTOALL && request->in_place ? 2 : 1;
	if (sched_coll_reduces(request->coll) && request->in_place && has_one_worker(request)) {
		reduce_in_order(sched);
		return;
	}
	for (int rank = 0; rank < request->ranks; rank++)
		take_part(sched, rank);
	if (sched_coll_reduces(request->coll) && request->in_place)
		algo_move_results(sched);
}
