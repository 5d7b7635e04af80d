/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_oracle.h"
#include "../draw.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, MOST_SLOTS = 8 };

/* A sum, or the function x -> a x + b. */
struct number {
	uint64_t a, b;
};

struct fifo {
	struct {
		struct number *pieces;
		int num;
	} slots[MOST_SLOTS];
	unsigned written, read;
};

/* What a lane is in the middle of. */
struct lane {
	const struct sched_lane *plan;
	uint32_t step, round;
	int operand;                    /* of the step; -1: it has not begun */
	struct number *values[2], *sum; /* of each piece */
	bool done;
};

struct memory { /* of a rank: blocks, of rounds, of pieces */
	struct number *buffers[SCHED_NUM_BUFFERS];
	struct number *owned[SCHED_NUM_BUFFERS];
};

struct world {
	const struct sched *sched;
	const struct sched_request *request;
	enum oracle_op op;
	int slots;
	uint64_t *state;
	bool wrong;
	struct memory *memory;
	struct number *input; /* a copy of all ranks' */
	struct fifo *fifos;
	struct lane *lanes;
	struct number *values; /* of lanes */
};

static const uint64_t modulus = 2147483647;

uint64_t oracle_draw(uint64_t *state)
{
	return draw(state);
}

static struct number any_number(struct world *w)
{
	return (struct number){oracle_draw(w->state) % (modulus - 1) + 1,
			       oracle_draw(w->state) % modulus};
}

static struct number combine(const struct world *w, struct number x, struct number y)
{
	if (w->op == ORACLE_SUM)
		return (struct number){(x.a + y.a) % modulus, (x.b + y.b) % modulus};
	return (struct number){x.a * y.a % modulus, (y.a * x.b + y.b) % modulus};
}

static bool equal(struct number x, struct number y)
{
	return x.a == y.a && x.b == y.b;
}

/* ---- memory ---- */

static size_t cells(const struct world *w, int blocks)
{
	return (size_t)blocks * ROUNDS * (size_t)w->sched->pieces;
}

static bool has_blocks(const struct world *w)
{
	return sched_num_blocks(w->request) > 1;
}

static bool has_one_of_many(const struct world *w, int buffer)
{
	enum sched_coll coll = w->request->coll;

	if (!has_blocks(w))
		return false;
	if (buffer == SCHED_HOLD)
		return true;
	return buffer == SCHED_IN ? coll == SCHED_ALLGATHER || coll == SCHED_GATHER
				  : buffer == SCHED_OUT &&
					    (coll == SCHED_SCATTER || coll == SCHED_REDUCE_SCATTER);
}

/* NULL: there is no such place. */
static struct number *cell(struct world *w, int rank, int buffer, int block, int round, int piece)
{
	int index = block;

	if (rank < 0 || rank >= w->request->ranks || piece < 0 || piece >= w->sched->pieces)
		return NULL;
	if (buffer == SCHED_SCRATCH) {
		/* One for all rounds. */
		if (block < 0 || block >= w->sched->scratch_blocks)
			return NULL;
		round = 0;
	} else if (buffer == SCHED_HOLD) {
		if (!w->sched->holds || block != (has_blocks(w) ? rank : 0))
			return NULL;
		index = 0;
	} else {
		if (!sched_has_block(w->request, rank, (enum sched_buffer)buffer, block))
			return NULL;
		if (has_one_of_many(w, buffer))
			index = 0;
	}
	return &w->memory[rank].buffers[buffer][((size_t)index * ROUNDS + (size_t)round) *
							(size_t)w->sched->pieces +
						(size_t)piece];
}

/* In place, one buffer is the other, or a block of it. */
static void overlay(struct world *w, int rank)
{
	struct memory *m = &w->memory[rank];
	size_t own = has_blocks(w) ? cells(w, rank) : 0;

	if (!sched_is_in_place(w->request, rank))
		return;
	switch (w->request->coll) {
	case SCHED_ALLGATHER:
	case SCHED_GATHER:
		m->buffers[SCHED_IN] = m->buffers[SCHED_OUT] + own;
		break;
	case SCHED_SCATTER:
		m->buffers[SCHED_OUT] = m->buffers[SCHED_IN] + own;
		break;
	case SCHED_BCAST:
		break;
	default:
		m->buffers[SCHED_OUT] = m->buffers[SCHED_IN];
		break;
	}
}

static void allocate(struct world *w, int rank)
{
	struct memory *m = &w->memory[rank];
	int blocks = sched_num_blocks(w->request);

	for (int i = 0; i < SCHED_NUM_BUFFERS; i++) {
		size_t num = cells(w, i == SCHED_SCRATCH ? w->sched->scratch_blocks : blocks);

		m->owned[i] = m->buffers[i] = malloc((num + 1) * sizeof(struct number));
		for (size_t j = 0; j < num; j++)
			m->owned[i][j] = any_number(w);
	}
	overlay(w, rank);
}

static size_t input_index(const struct world *w, int rank, int block, int round, int piece)
{
	size_t blocks = (size_t)sched_num_blocks(w->request);

	return (((size_t)rank * blocks + (size_t)block) * ROUNDS + (size_t)round) *
		       (size_t)w->sched->pieces +
	       (size_t)piece;
}

static void remember_input(struct world *w, int rank)
{
	for (int block = 0; block < sched_num_blocks(w->request); block++) {
		for (int i = 0; i < ROUNDS * w->sched->pieces; i++) {
			int round = i / w->sched->pieces, piece = i % w->sched->pieces;
			struct number *from = cell(w, rank, SCHED_IN, block, round, piece);

			if (from)
				w->input[input_index(w, rank, block, round, piece)] = *from;
		}
	}
}

/* ---- running ---- */

static int num_operands(const struct sched_step *step)
{
	return step->num_sources + (step->swap ? step->num_sources : step->num_targets);
}

static bool is_ready(struct world *w, const struct sched_step *step)
{
	const struct sched_operand *o = &w->sched->operands[step->first];

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		const struct fifo *fifo = o[i].fifo ? &w->fifos[o[i].at] : NULL;

		if (!fifo)
			continue;
		if (i < step->num_sources ? fifo->written == fifo->read
					  : fifo->written - fifo->read == (unsigned)w->slots)
			return false;
	}
	return true;
}

/* The message that is next, as long as the step is. NULL: there is none such. */
static const struct number *next_message(const struct fifo *fifo, const struct sched_step *step)
{
	unsigned slot = fifo->read % MOST_SLOTS;

	return fifo->read < fifo->written && fifo->slots[slot].num == step->span
		       ? fifo->slots[slot].pieces
		       : NULL;
}

static void read_operand(struct world *w, const struct lane *lane, const struct sched_step *step,
			 const struct sched_operand *o, struct number *values)
{
	const struct number *message = NULL;

	memset(values, 0, (size_t)w->sched->most_span * sizeof(*values));
	if (o->fifo) {
		message = next_message(&w->fifos[o->at], step);
		w->wrong |= !message;
		if (message)
			memcpy(values, message, (size_t)step->span * sizeof(*values));
		w->fifos[o->at].read += message != NULL;
		return;
	}
	for (int i = 0; i < step->span; i++) {
		const struct number *from =
			cell(w, o->at, o->buffer, o->block, (int)lane->round, step->piece + i);

		w->wrong |= !from;
		if (from)
			values[i] = *from;
	}
}

static void write_operand(struct world *w, const struct lane *lane, const struct sched_step *step,
			  const struct sched_operand *o, const struct number *values)
{
	struct fifo *fifo = o->fifo ? &w->fifos[o->at] : NULL;
	unsigned slot = fifo ? fifo->written % MOST_SLOTS : 0;

	if (fifo && fifo->written - fifo->read == (unsigned)w->slots) {
		w->wrong = true;
		return;
	}
	if (fifo) {
		free(fifo->slots[slot].pieces);
		fifo->slots[slot].pieces = malloc((size_t)step->span * sizeof(*values));
		fifo->slots[slot].num = step->span;
		memcpy(fifo->slots[slot].pieces, values, (size_t)step->span * sizeof(*values));
		fifo->written++;
		return;
	}
	for (int i = 0; i < step->span; i++) {
		struct number *to =
			cell(w, o->at, o->buffer, o->block, (int)lane->round, step->piece + i);

		w->wrong |= !to;
		if (to)
			*to = values[i];
	}
}

/* The index-th target to be written: places come before messages. */
static const struct sched_operand *target_at(const struct sched_step *step,
					     const struct sched_operand *o, int index)
{
	for (int fifo = 0; fifo < 2; fifo++) {
		for (int i = 0; i < step->num_targets; i++) {
			const struct sched_operand *target = &o[step->num_sources + i];

			if (target->fifo == (fifo == 1) && index-- == 0)
				return target;
		}
	}
	return NULL;
}

/* One operand of the step. */
static void touch(struct world *w, struct lane *lane, const struct sched_step *step)
{
	int i = lane->operand++;
	const struct sched_operand *o = &w->sched->operands[step->first];

	if (step->swap && i < 2) {
		read_operand(w, lane, step, &o[i], lane->values[i]);
	} else if (step->swap) {
		write_operand(w, lane, step, &o[i - 2], lane->values[3 - i]);
	} else if (i < step->num_sources) {
		struct number *sum = i ? lane->values[0] : lane->sum;

		read_operand(w, lane, step, &o[i], sum);
		for (int j = 0; i && j < step->span; j++)
			lane->sum[j] = combine(w, lane->sum[j], sum[j]);
	} else {
		write_operand(w, lane, step, target_at(step, o, i - step->num_sources), lane->sum);
	}
}

static void next_step(struct lane *lane)
{
	lane->operand = -1;
	if (++lane->step < lane->plan->num)
		return;
	lane->step = 0;
	if (++lane->round == ROUNDS)
		lane->done = true;
}

/* One thing. False: the lane waits, or is done. */
static bool advance(struct world *w, struct lane *lane)
{
	const struct sched_step *step = &w->sched->steps[lane->plan->first + lane->step];

	if (lane->done)
		return false;
	if (lane->operand < 0) {
		if (!is_ready(w, step))
			return false;
		lane->operand = 0;
	}
	if (lane->operand < num_operands(step))
		touch(w, lane, step);
	if (lane->operand == num_operands(step))
		next_step(lane);
	return true;
}

/* Lanes of the phase in random order; now one runs on, now each does one thing. False: they wait
 * for ever. */
static bool run_phase(struct world *w, int phase)
{
	uint32_t num = w->sched->num_lanes, *order = malloc((num + 1) * sizeof(*order)), here = 0;
	bool moved = true, all = true;

	for (uint32_t i = 0; i < num; i++) {
		if (w->lanes[i].plan->phase == phase)
			order[here++] = i;
	}
	while (moved && !w->wrong) {
		moved = false;
		for (uint32_t i = here; i > 1; i--) {
			uint32_t j = (uint32_t)(oracle_draw(w->state) % i), swap = order[j];

			order[j] = order[i - 1];
			order[i - 1] = swap;
		}
		for (uint32_t i = 0; i < here; i++) {
			uint64_t times = oracle_draw(w->state) % 8;

			times = times < 5 ? 1 : times * 10;
			while (times-- && advance(w, &w->lanes[order[i]]))
				moved = true;
		}
	}
	for (uint32_t i = 0; i < here; i++)
		all &= w->lanes[order[i]].done;
	free(order);
	return all;
}

/* ---- results ---- */

static struct number input_of(const struct world *w, int rank, int block, int round, int piece)
{
	return w->input[input_index(w, rank, block, round, piece)];
}

static struct number sum_of(const struct world *w, int ranks, int block, int round, int piece)
{
	struct number sum = input_of(w, 0, block, round, piece);

	for (int i = 1; i < ranks; i++)
		sum = combine(w, sum, input_of(w, i, block, round, piece));
	return sum;
}

static struct number expected(const struct world *w, int rank, int block, int round, int piece)
{
	int root = w->request->root;

	switch (w->request->coll) {
	case SCHED_BCAST:
		return input_of(w, root, 0, round, piece);
	case SCHED_SCATTER:
		return input_of(w, root, block, round, piece);
	case SCHED_ALLGATHER:
	case SCHED_GATHER:
		return input_of(w, block, block, round, piece);
	case SCHED_ALLTOALL:
		return input_of(w, block, rank, round, piece);
	case SCHED_SCAN:
		return sum_of(w, rank + 1, 0, round, piece);
	case SCHED_EXSCAN:
		return sum_of(w, rank, 0, round, piece);
	default:
		return sum_of(w, w->request->ranks, block, round, piece);
	}
}

static bool is_right(struct world *w, int rank)
{
	for (int block = 0; block < sched_num_blocks(w->request); block++) {
		for (int i = 0; i < ROUNDS * w->sched->pieces; i++) {
			int round = i / w->sched->pieces, piece = i % w->sched->pieces;
			struct number *result = cell(w, rank, SCHED_OUT, block, round, piece);

			if (result && !equal(*result, expected(w, rank, block, round, piece)))
				return false;
		}
	}
	return true;
}

static void set_up(struct world *w)
{
	size_t ranks = (size_t)w->request->ranks;

	w->memory = calloc(ranks, sizeof(*w->memory));
	w->input = calloc(input_index(w, w->request->ranks, 0, 0, 0) + 1, sizeof(*w->input));
	w->fifos = calloc(w->sched->num_connections + 1, sizeof(*w->fifos));
	w->lanes = calloc(w->sched->num_lanes + 1, sizeof(*w->lanes));
	w->values = calloc((size_t)w->sched->num_lanes * 3 + 1,
			   (size_t)w->sched->most_span * sizeof(*w->values));
	for (int rank = 0; rank < w->request->ranks; rank++) {
		allocate(w, rank);
		remember_input(w, rank);
	}
	for (uint32_t i = 0; i < w->sched->num_lanes; i++) {
		size_t span = (size_t)w->sched->most_span;
		struct number *values = &w->values[3 * i * span];

		w->lanes[i] = (struct lane){.plan = &w->sched->lanes[i],
					    .operand = -1,
					    .values = {values, values + span},
					    .sum = values + 2 * span,
					    .done = !w->sched->lanes[i].num};
	}
}

static void clean_up(struct world *w)
{
	for (int rank = 0; rank < w->request->ranks; rank++) {
		for (int i = 0; i < SCHED_NUM_BUFFERS; i++)
			free(w->memory[rank].owned[i]);
	}
	free(w->memory);
	free(w->input);
	for (uint32_t i = 0; i < w->sched->num_connections; i++) {
		for (int j = 0; j < MOST_SLOTS; j++)
			free(w->fifos[i].slots[j].pieces);
	}
	free(w->fifos);
	free(w->lanes);
	free(w->values);
}

enum oracle_verdict oracle_run(const struct sched *sched, int slots, enum oracle_op op,
			       uint64_t *state)
{
	struct world w = {.sched = sched,
			  .request = &sched->request,
			  .op = op,
			  .slots = slots,
			  .state = state};
	enum oracle_verdict verdict = ORACLE_RIGHT;

	set_up(&w);
	for (int phase = 0; phase < sched->phases && verdict == ORACLE_RIGHT; phase++) {
		if (!run_phase(&w, phase))
			verdict = ORACLE_STUCK;
	}
	for (int rank = 0; rank < w.request->ranks && verdict == ORACLE_RIGHT; rank++) {
		if (!is_right(&w, rank))
			verdict = ORACLE_WRONG;
	}
	if (w.wrong)
		verdict = ORACLE_WRONG;
	clean_up(&w);
	return verdict;
}
