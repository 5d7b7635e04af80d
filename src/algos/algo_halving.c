/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive halving. The ranks whose numbers differ in the highest bit exchange halves of what they
 * have and reduce the half that they keep; then the same with the next bit. An allreduce then goes
 * back by recursive doubling (Rabenseifner's algorithm).
 *
 * When: middle and large messages of an allreduce, where a ring's n steps are too many. Cost:
 * log2(n) messages, and as many again for the allreduce's way back; S (n - 1) / n bytes each way.
 * An allreduce over another number of ranks than a power of two folds (algo_cube.h): two messages
 * of S bytes more.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos/algo.h"
#include "algos/algo_cube.h"

/* One rank on one channel. An allreduce halves pieces of one block, a reduce_scatter blocks. */
struct seat {
	struct sched *sched;
	struct algo_cube cube;
	int channel, rank, number;
	bool fresh; /* nothing has been received: the sums are the input */
};

static bool has_blocks(const struct seat *seat)
{
	return seat->sched->request.coll == SCHED_REDUCE_SCATTER;
}

static int piece_of(const struct seat *seat, int part)
{
	return has_blocks(seat) ? seat->channel : seat->channel * seat->cube.size + part;
}

/* The sum of a part so far. */
static struct sched_operand sum_of(const struct seat *seat, int part)
{
	if (has_blocks(seat))
		return sched_place(seat->fresh ? SCHED_IN : SCHED_SCRATCH, seat->rank, part);
	return sched_place(seat->fresh ? SCHED_IN : SCHED_OUT, seat->rank, 0);
}

/* Where the next sum goes, and the last. */
static struct sched_operand target_of(const struct seat *seat, int part, bool last)
{
	enum sched_buffer result = seat->sched->request.in_place ? SCHED_HOLD : SCHED_OUT;

	if (has_blocks(seat))
		return sched_place(last ? result : SCHED_SCRATCH, seat->rank, part);
	return sched_place(SCHED_OUT, seat->rank, 0);
}

/* Send a part, and reduce one of those that are kept. */
static void trade(const struct seat *seat, int level, int sent, int kept)
{
	struct sched *s = seat->sched;
	int peer = seat->number ^ 1 << level;

	sched_copy(s, piece_of(seat, sent), sum_of(seat, sent),
		   algo_cube_fifo(&seat->cube, level, seat->number));
	sched_reduce(s, piece_of(seat, kept), algo_cube_fifo(&seat->cube, level, peer),
		     sum_of(seat, kept), target_of(seat, kept, level == 0));
}

static void halve(struct seat *seat)
{
	for (int level = seat->cube.levels - 1; level >= 0; level--) {
		int half = 1 << level, mine = seat->number >> level << level;
		int theirs = mine ^ half;

		for (int i = 0; i < half; i++)
			trade(seat, level, theirs + i, mine + i);
		seat->fresh = false;
	}
}

static void double_back(const struct seat *seat)
{
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);

	for (int level = 0; level < seat->cube.levels; level++) {
		int half = 1 << level, mine = seat->number >> level << level;
		int theirs = mine ^ half, peer = seat->number ^ half;

		for (int i = 0; i < half; i++) {
			sched_copy(seat->sched, piece_of(seat, mine + i), out,
				   algo_cube_fifo(&seat->cube, level, seat->number));
			sched_copy(seat->sched, piece_of(seat, theirs + i),
				   algo_cube_fifo(&seat->cube, level, peer), out);
		}
	}
}

/* Of a pair that folds, the odd rank takes part, for both. */
static void take_part(struct seat *seat)
{
	struct sched *s = seat->sched;
	struct sched_operand in = sched_place(SCHED_IN, seat->rank, 0);
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);
	bool folds = algo_cube_folds(&seat->cube, seat->rank);

	for (int part = 0; folds && part < seat->cube.size; part++)
		sched_reduce(s, piece_of(seat, part), algo_cube_fold(&seat->cube, seat->rank), in,
			     out);
	seat->fresh = !folds;
	halve(seat);
	if (!has_blocks(seat))
		double_back(seat);
	for (int part = 0; folds && part < seat->cube.size; part++)
		sched_copy(s, piece_of(seat, part), out, algo_cube_unfold(&seat->cube, seat->rank));
}

static void fold(const struct seat *seat)
{
	for (int part = 0; part < seat->cube.size; part++)
		sched_copy(seat->sched, piece_of(seat, part), sched_place(SCHED_IN, seat->rank, 0),
			   algo_cube_fold(&seat->cube, seat->rank));
	for (int part = 0; part < seat->cube.size; part++)
		sched_copy(seat->sched, piece_of(seat, part),
			   algo_cube_unfold(&seat->cube, seat->rank),
			   sched_place(SCHED_OUT, seat->rank, 0));
}

static void run_channel(struct sched *sched, int channel)
{
	struct seat seat = {sched, algo_cube_connect(sched), channel, 0, 0, false};

	/* Parts are blocks, or pieces, of which each channel has some. */
	sched->pieces = sched->request.channels * (has_blocks(&seat) ? 1 : seat.cube.size);
	for (; seat.rank < sched->request.ranks; seat.rank++) {
		seat.number = algo_cube_number(&seat.cube, seat.rank);
		sched_lane(sched, seat.rank, channel);
		if (seat.number < 0)
			fold(&seat);
		else
			take_part(&seat);
	}
}

void algo_halving(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	bool blocks = request->coll == SCHED_REDUCE_SCATTER;

	sched->scratch_blocks = blocks ? request->ranks : 0;
	for (int channel = 0; channel < request->channels; channel++)
		run_channel(sched, channel);
	if (blocks && request->in_place)
		algo_move_results(sched);
}
