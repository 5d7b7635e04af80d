/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive halving. The ranks whose numbers differ in one bit exchange halves of what they have
 * and reduce the half that they keep; then the same with the next bit. An allreduce then goes back
 * by recursive doubling (Rabenseifner's algorithm).
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
};

static bool has_blocks(const struct seat *seat)
{
	return seat->sched->request.coll == SCHED_REDUCE_SCATTER;
}

/* ---- pieces of a block, which are sent as many as there are at a time ---- */

/* Pieces of the channel: a power of two of them. */
struct share {
	int first, num;
};

static struct share half_of(struct share share, bool upper)
{
	share.num /= 2;
	share.first += upper ? share.num : 0;
	return share;
}

static void copy_share(const struct seat *seat, struct share share, struct sched_operand from,
		       struct sched_operand to)
{
	sched_copy(seat->sched, seat->channel * seat->cube.size + share.first, from, to);
	sched_widen(seat->sched, share.num);
}

static void reduce(const struct seat *seat, struct share share, struct sched_operand from,
		   struct sched_operand with, struct sched_operand to)
{
	sched_reduce(seat->sched, seat->channel * seat->cube.size + share.first, from, with, to);
	sched_widen(seat->sched, share.num);
}

/*
 * Of the sums so far, send one half, and reduce the other. Bit after bit, the lowest first: the
 * most goes to the nearest. Returns what is left.
 */
static struct share halve(const struct seat *seat, struct sched_operand sum)
{
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);
	struct share share = {0, seat->cube.size};

	for (int level = 0; level < seat->cube.levels; level++) {
		bool upper = seat->number >> level & 1;

		copy_share(seat, half_of(share, !upper), sum,
			   algo_cube_fifo(&seat->cube, level, seat->number));
		share = half_of(share, upper);
		reduce(seat, share, algo_cube_fifo(&seat->cube, level, seat->number ^ 1 << level),
		       sum, out);
		sum = out;
	}
	return share;
}

static void double_back(const struct seat *seat, struct share share)
{
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);

	for (int level = seat->cube.levels - 1; level >= 0; level--) {
		struct share theirs = {share.first ^ share.num, share.num};

		copy_share(seat, share, out, algo_cube_fifo(&seat->cube, level, seat->number));
		copy_share(seat, theirs,
			   algo_cube_fifo(&seat->cube, level, seat->number ^ 1 << level), out);
		share.first &= ~share.num;
		share.num *= 2;
	}
}

/* ---- blocks: the highest bit first, so that those of a half follow on each other ---- */

/* The sum of a block so far: at the highest level, the first, it is the input. */
static struct sched_operand sum_of(const struct seat *seat, int level, int block)
{
	bool fresh = level == seat->cube.levels - 1;

	return sched_place(fresh ? SCHED_IN : SCHED_SCRATCH, seat->rank, block);
}

/* Where the next sum goes, and the last. */
static struct sched_operand target_of(const struct seat *seat, int block, bool last)
{
	enum sched_buffer result = seat->sched->request.in_place ? SCHED_HOLD : SCHED_OUT;

	return sched_place(last ? result : SCHED_SCRATCH, seat->rank, block);
}

/* Send a block, and reduce one of those that are kept. */
static void trade(const struct seat *seat, int level, int sent, int kept)
{
	struct sched *s = seat->sched;
	int peer = seat->number ^ 1 << level;

	sched_copy(s, seat->channel, sum_of(seat, level, sent),
		   algo_cube_fifo(&seat->cube, level, seat->number));
	sched_reduce(s, seat->channel, algo_cube_fifo(&seat->cube, level, peer),
		     sum_of(seat, level, kept), target_of(seat, kept, level == 0));
}

static void halve_blocks(const struct seat *seat)
{
	for (int level = seat->cube.levels - 1; level >= 0; level--) {
		int half = 1 << level, mine = seat->number >> level << level;
		int theirs = mine ^ half;

		for (int i = 0; i < half; i++)
			trade(seat, level, theirs + i, mine + i);
	}
}

/* ---- ranks ---- */

/* Of a pair that folds, the odd rank takes part, for both. */
static void take_part(const struct seat *seat)
{
	struct sched_operand in = sched_place(SCHED_IN, seat->rank, 0);
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);
	struct share all = {0, seat->cube.size};
	bool folds = algo_cube_folds(&seat->cube, seat->rank);

	if (folds)
		reduce(seat, all, algo_cube_fold(&seat->cube, seat->rank), in, out);
	double_back(seat, halve(seat, folds ? out : in));
	if (folds)
		copy_share(seat, all, out, algo_cube_unfold(&seat->cube, seat->rank));
}

static void fold(const struct seat *seat)
{
	struct share all = {0, seat->cube.size};

	copy_share(seat, all, sched_place(SCHED_IN, seat->rank, 0),
		   algo_cube_fold(&seat->cube, seat->rank));
	copy_share(seat, all, algo_cube_unfold(&seat->cube, seat->rank),
		   sched_place(SCHED_OUT, seat->rank, 0));
}

static void run_channel(struct sched *sched, int channel)
{
	struct seat seat = {sched, algo_cube_connect(sched), channel, 0, 0};

	/* Parts are blocks, or pieces, of which each channel has some. */
	sched->pieces = sched->request.channels * (has_blocks(&seat) ? 1 : seat.cube.size);
	for (; seat.rank < sched->request.ranks; seat.rank++) {
		seat.number = algo_cube_number(&seat.cube, seat.rank);
		sched_lane(sched, seat.rank, channel);
		if (has_blocks(&seat))
			halve_blocks(&seat);
		else if (seat.number < 0)
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
