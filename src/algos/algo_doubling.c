/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling. In step k the ranks whose numbers differ in bit k exchange all they have.
 *
 * When: small messages, where the number of steps counts. Cost: log2(n) messages; allreduce sends S
 * bytes in each, allgather 1, 2, 4 ... blocks. An allreduce over another number of ranks than a
 * power of two folds (algo_cube.h): two messages of S bytes more. Contributions keep the order of
 * the ranks, so all ranks compute the same bits.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos/algo.h"
#include "algos/algo_cube.h"

/* One rank on one channel. */
struct seat {
	struct sched *sched;
	struct algo_cube cube;
	int channel, rank, number;
};

/* The sum of two, the lower ranks' first. */
static void add_in_order(const struct seat *seat, struct sched_operand lower,
			 struct sched_operand higher)
{
	sched_reduce(seat->sched, seat->channel, lower, higher,
		     sched_place(SCHED_OUT, seat->rank, 0));
}

static void exchange_with_partners(const struct seat *seat)
{
	struct sched_operand sum = sched_place(SCHED_IN, seat->rank, 0);
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);

	if (algo_cube_folds(&seat->cube, seat->rank)) {
		add_in_order(seat, algo_cube_fold(&seat->cube, seat->rank), sum);
		sum = out;
	}
	for (int level = 0; level < seat->cube.levels; level++) {
		int peer = seat->number ^ 1 << level;
		struct sched_operand theirs = algo_cube_fifo(&seat->cube, level, peer);

		sched_copy(seat->sched, seat->channel, sum,
			   algo_cube_fifo(&seat->cube, level, seat->number));
		if (peer < seat->number)
			add_in_order(seat, theirs, sum);
		else
			add_in_order(seat, sum, theirs);
		sum = out;
	}
	if (algo_cube_folds(&seat->cube, seat->rank))
		sched_copy(seat->sched, seat->channel, out,
			   algo_cube_unfold(&seat->cube, seat->rank));
}

static void fold(const struct seat *seat)
{
	sched_copy(seat->sched, seat->channel, sched_place(SCHED_IN, seat->rank, 0),
		   algo_cube_fold(&seat->cube, seat->rank));
	sched_copy(seat->sched, seat->channel, algo_cube_unfold(&seat->cube, seat->rank),
		   sched_place(SCHED_OUT, seat->rank, 0));
}

/* Blocks of one exchange are sent and received in turn, so that one slot is enough. */
static void gather_group(const struct seat *seat, int level)
{
	int peer = seat->rank ^ 1 << level, group = 1 << level;
	int mine = seat->rank / group * group, theirs = peer / group * group;

	for (int i = 0; i < group; i++) {
		sched_copy(seat->sched, seat->channel, sched_place(SCHED_OUT, seat->rank, mine + i),
			   algo_cube_fifo(&seat->cube, level, seat->rank));
		sched_copy(seat->sched, seat->channel, algo_cube_fifo(&seat->cube, level, peer),
			   sched_place(SCHED_OUT, seat->rank, theirs + i));
	}
}

static void gather(const struct seat *seat)
{
	sched_copy(seat->sched, seat->channel, sched_place(SCHED_IN, seat->rank, seat->rank),
		   sched_place(SCHED_OUT, seat->rank, seat->rank));
	for (int level = 0; level < seat->cube.levels; level++)
		gather_group(seat, level);
}

void algo_doubling(struct sched *sched)
{
	sched->pieces = sched->request.channels;
	for (int channel = 0; channel < sched->request.channels; channel++) {
		struct seat seat = {sched, algo_cube_connect(sched), channel, 0, 0};

		for (; seat.rank < sched->request.ranks; seat.rank++) {
			seat.number = algo_cube_number(&seat.cube, seat.rank);
			sched_lane(sched, seat.rank, channel);
			if (sched->request.coll == SCHED_ALLGATHER)
				gather(&seat);
			else if (seat.number < 0)
				fold(&seat);
			else
				exchange_with_partners(&seat);
		}
	}
}
