/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The torus. Ranks stand in a grid of several dimensions, and each is in a ring along each of them.
 * They reduce and scatter along the first, which leaves each a block of the sum over its ring; then
 * that along the second, and so on; and gather on the way back.
 *
 *      0 -> 1 -> 2 -+     along the rows, each rank is left with a third of its row's sum;
 *      3 -> 4 -> 5 -+     along the columns, with a half of that, of all; and back
 *
 * When: large messages of an allreduce over so many ranks that a ring's 2(n - 1) steps are too
 * many, and so long that halving's, which send and reduce in turns, leave the links idle; numbers
 * of ranks that have divisors. Cost: for rings of a, b, c ... ranks 2(a - 1 + b - 1 + c - 1 ...)
 * messages one after the other, and 2 S (n - 1) / n bytes through each link. With rings of two
 * ranks it would be halving.
 *
 * Jain, Sabharwal: Optimal bucket algorithms for large MPI collectives on torus interconnects,
 * 2010; Mikami, Suganuma, U-chupala, Tanaka, Kageyama: Massively distributed SGD:
 * ImageNet/ResNet-50 training in a flash, 2018.
 */
#include "algos/algo.h"

/*
 * Messages of a block that go round at a time: one is on the wire while the other is reduced. Each
 * has a slot, and needs another to go on.
 */
enum { TOGETHER = 2, MOST_DIMS = 16 };

struct torus {
	int dims, sizes[MOST_DIMS];
};

/* One rank on one channel. */
struct seat {
	struct sched *sched;
	const struct torus *torus;
	int channel, rank;
};

/* Pieces that follow on each other. */
struct share {
	int first, num;
};

/* ---- the grid ---- */

static bool is_root(int number, int dims, int of)
{
	long long power = 1;

	for (int i = 0; i < dims && power < of; i++)
		power *= number;
	return power >= of;
}

/* The least divisor that is, to the power of `dims`, as large as the number. */
static int divide(int number, int dims)
{
	int divisor = 1;

	while (number % divisor || !is_root(divisor, dims, number))
		divisor++;
	return divisor;
}

/* Rings of about eight ranks, the longest first. */
static struct torus torus_of(int ranks)
{
	enum { USUAL = 8 };
	struct torus torus = {.dims = 0};
	int dims = 2;

	while (!is_root(USUAL, dims, ranks))
		dims++;
	for (; dims && ranks > 1; dims--) {
		int size = divide(ranks, dims);

		torus.sizes[torus.dims++] = size;
		ranks /= size;
	}
	return torus;
}

static int stride_of(const struct torus *torus, int dim)
{
	int stride = 1;

	for (int i = 0; i < dim; i++)
		stride *= torus->sizes[i];
	return stride;
}

/* In the ring along the dimension. */
static int place_of(const struct seat *seat, int dim)
{
	return seat->rank / stride_of(seat->torus, dim) % seat->torus->sizes[dim];
}

/* Odd channels go round the other way. */
static int ahead(const struct seat *seat)
{
	return seat->channel % 2 ? -1 : 1;
}

static int rank_after(const struct seat *seat, int dim, int steps)
{
	int place = place_of(seat, dim);

	return seat->rank + (algo_wrap(place + steps, seat->torus->sizes[dim]) - place) *
				    stride_of(seat->torus, dim);
}

/* From the rank along the dimension. */
static struct sched_operand fifo_of(const struct seat *seat, int dim, int rank)
{
	return sched_fifo((seat->channel * seat->torus->dims + dim) * seat->sched->request.ranks +
			  rank);
}

static void connect_torus(struct sched *sched, const struct torus *torus)
{
	for (int channel = 0; channel < sched->request.channels; channel++) {
		for (int dim = 0; dim < torus->dims; dim++) {
			for (int rank = 0; rank < sched->request.ranks; rank++) {
				struct seat seat = {sched, torus, channel, rank};

				sched_connect(sched, rank, rank_after(&seat, dim, ahead(&seat)));
			}
		}
	}
}

/* ---- messages ---- */

/* Of a block: what goes round together, or less, as slots need not have room for long blocks. */
static int most_pieces(const struct seat *seat, int pieces)
{
	enum { FEW = 16, PARTS = 64 };
	int most = seat->sched->request.ranks / PARTS, part = (pieces + TOGETHER - 1) / TOGETHER;

	most = most > FEW ? most : FEW;
	return part < most ? part : most;
}

static int num_messages(const struct seat *seat, int pieces)
{
	int most = most_pieces(seat, pieces);

	return (pieces + most - 1) / most;
}

static struct share message(const struct seat *seat, struct share block, int number)
{
	int most = most_pieces(seat, block.num), left = block.num - number * most;

	return (struct share){block.first + number * most, left < most ? left : most};
}

static struct share block_of(struct share share, int blocks, int number)
{
	int num = share.num / blocks;

	return (struct share){share.first + algo_wrap(number, blocks) * num, num};
}

/* ---- along one ring ---- */

/* What a step of the ring is about, in the order in which blocks come. */
struct turn {
	int dim, number, last; /* of the turns, each of which brings another block */
	struct share part;
};

/* The first block is sent as it is; sums of others go on; the last one's is left here. */
static void scatter(const struct seat *seat, const struct turn *turn, struct sched_operand data)
{
	struct sched_operand prev =
		fifo_of(seat, turn->dim, rank_after(seat, turn->dim, -ahead(seat)));
	struct sched_operand next = fifo_of(seat, turn->dim, seat->rank);
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);

	if (!turn->number)
		sched_copy(seat->sched, turn->part.first, data, next);
	else
		sched_reduce(seat->sched, turn->part.first, prev, data,
			     turn->number == turn->last ? out : next);
	sched_widen(seat->sched, turn->part.num);
}

/* The own block is sent; others are kept, and go on, but for the last. */
static void gather(const struct seat *seat, const struct turn *turn)
{
	struct sched_operand prev =
		fifo_of(seat, turn->dim, rank_after(seat, turn->dim, -ahead(seat)));
	struct sched_operand next = fifo_of(seat, turn->dim, seat->rank);
	struct sched_operand out = sched_place(SCHED_OUT, seat->rank, 0);

	if (!turn->number) {
		sched_copy(seat->sched, turn->part.first, out, next);
	} else {
		sched_copy(seat->sched, turn->part.first, prev, out);
		if (turn->number != turn->last)
			sched_to(seat->sched, next);
	}
	sched_widen(seat->sched, turn->part.num);
}

/*
 * Few messages at a time go round, or all ranks would wait for each other with full slots. Blocks
 * of `share` come from `first` on backwards; `data`: NULL to gather.
 */
static void go_round(const struct seat *seat, int dim, struct share share, int first,
		     const struct sched_operand *data)
{
	int size = seat->torus->sizes[dim], num = num_messages(seat, share.num / size);

	for (int begin = 0; begin < num; begin += TOGETHER) {
		int end = begin + TOGETHER < num ? begin + TOGETHER : num;

		for (int i = 0; i < size * (end - begin); i++) {
			int number = i / (end - begin);
			struct share block = block_of(share, size, first - number);
			struct turn turn = {dim, number, size - 1,
					    message(seat, block, begin + i % (end - begin))};

			if (data)
				scatter(seat, &turn, *data);
			else
				gather(seat, &turn);
		}
	}
}

/* Which block of a ring the rank sends first, counted as ranks come. The one after that is left. */
static int own_place(const struct seat *seat, int dim)
{
	return ahead(seat) * place_of(seat, dim);
}

static void take_part(const struct seat *seat)
{
	struct sched_operand data = sched_place(SCHED_IN, seat->rank, 0);
	int ranks = seat->sched->request.ranks;
	struct share shares[MOST_DIMS + 1] = {{seat->channel * ranks, ranks}};

	sched_lane(seat->sched, seat->rank, seat->channel);
	for (int dim = 0; dim < seat->torus->dims; dim++) {
		int place = own_place(seat, dim);

		go_round(seat, dim, shares[dim], place, &data);
		shares[dim + 1] = block_of(shares[dim], seat->torus->sizes[dim], place + 1);
		data = sched_place(SCHED_OUT, seat->rank, 0);
	}
	for (int dim = seat->torus->dims - 1; dim >= 0; dim--)
		go_round(seat, dim, shares[dim], own_place(seat, dim) + 1, NULL);
}

void algo_torus(struct sched *sched)
{
	const struct sched_request *request = &sched->request;
	struct torus torus = torus_of(request->ranks);

	sched->pieces = request->channels * request->ranks;
	connect_torus(sched, &torus);
	for (int channel = 0; channel < request->channels; channel++) {
		for (int rank = 0; rank < request->ranks; rank++) {
			struct seat seat = {sched, &torus, channel, rank};

			take_part(&seat);
		}
	}
}
