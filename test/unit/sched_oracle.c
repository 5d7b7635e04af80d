/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_oracle.h"
#include "../draw.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, MOST_SLOTS = 8, MOST_AHEAD = 8 };

/* A sum, or the function x -> a x + b. */
struct number {
	uint64_t a, b;
};

/* A chunk of a buffer. */
struct chunk {
	const struct sched_operand *place;
	int round, piece, num;
};

struct message {
	struct number *pieces;
	int num;
	bool lent; /* it is still where it comes from */
	bool put;  /* it is already where it goes */
	struct chunk from;
};

struct fifo {
	struct message slots[MOST_SLOTS];
	unsigned written, read;
};

/* What a lane is in the middle of. */
struct lane {
	const struct sched_lane *plan;
	uint32_t step, round;
	int operand;                    /* of the step; -1: it has not begun */
	struct number *values[2], *sum; /* of each piece */
	bool put;                       /* what the step receives is there */
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
	const uint8_t *levels; /* by step; NULL: no step is the network's */
	unsigned carry, early;
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
	if (w->op == ORACLE_FOLD)
		return (struct number){(31 * x.a + y.a * y.a + 1) % modulus,
				       (17 * x.b + y.b * y.b + 1) % modulus};
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

static bool is_carried(const struct world *w, const struct sched_step *step)
{
	return w->levels && w->levels[step - w->sched->steps] & w->carry;
}

static struct chunk chunk_of(const struct sched_operand *place, uint32_t round,
			     const struct sched_step *step)
{
	return (struct chunk){place, (int)round, step->piece, step->span};
}

static void read_chunk(struct world *w, const struct chunk *c, struct number *values)
{
	for (int i = 0; i < c->num; i++) {
		const struct number *from = cell(w, c->place->at, c->place->buffer, c->place->block,
						 c->round, c->piece + i);

		w->wrong |= !from;
		if (from)
			values[i] = *from;
	}
}

static void write_chunk(struct world *w, const struct chunk *c, const struct number *values)
{
	for (int i = 0; i < c->num; i++) {
		struct number *to = cell(w, c->place->at, c->place->buffer, c->place->block,
					 c->round, c->piece + i);

		w->wrong |= !to;
		if (to)
			*to = values[i];
	}
}

/*
 * The message that is next, or `ahead` of that, as long as the step is. NULL: there is none such.
 */
static struct message *next_message(struct world *w, struct fifo *fifo, unsigned ahead,
				    const struct sched_step *step)
{
	struct message *message = &fifo->slots[(fifo->read + ahead) % MOST_SLOTS];

	if (fifo->written - fifo->read <= ahead || message->num != step->span)
		return NULL;
	if (message->lent)
		read_chunk(w, &message->from, message->pieces);
	message->lent = false;
	return message;
}

static void read_message(struct world *w, struct lane *lane, const struct sched_step *step,
			 struct fifo *fifo, struct number *values)
{
	struct message *message = next_message(w, fifo, 0, step);

	w->wrong |= !message;
	if (!message)
		return;
	lane->put = message->put;
	memcpy(values, message->pieces, (size_t)step->span * sizeof(*values));
	fifo->read++;
}

static void read_operand(struct world *w, struct lane *lane, const struct sched_step *step,
			 const struct sched_operand *o, struct number *values)
{
	struct chunk chunk = chunk_of(o, lane->round, step);

	memset(values, 0, (size_t)w->sched->most_span * sizeof(*values));
	if (o->fifo)
		read_message(w, lane, step, &w->fifos[o->at], values);
	else
		read_chunk(w, &chunk, values);
}

/* What is sent by the network, which the step's first place has. */
static struct chunk source_of(const struct world *w, const struct lane *lane,
			      const struct sched_step *step)
{
	const struct sched_operand *o = &w->sched->operands[step->first];

	return chunk_of(o->fifo ? o + 1 : o, lane->round, step);
}

static void write_message(struct world *w, const struct lane *lane, const struct sched_step *step,
			  struct fifo *fifo, const struct number *values)
{
	struct message *message = &fifo->slots[fifo->written % MOST_SLOTS];

	if (fifo->written - fifo->read == (unsigned)w->slots) {
		w->wrong = true;
		return;
	}
	free(message->pieces);
	*message = (struct message){.pieces = malloc((size_t)step->span * sizeof(*values)),
				    .num = step->span,
				    .lent = is_carried(w, step)};
	memcpy(message->pieces, values, (size_t)step->span * sizeof(*values));
	if (message->lent)
		message->from = source_of(w, lane, step);
	fifo->written++;
}

static void write_operand(struct world *w, const struct lane *lane, const struct sched_step *step,
			  const struct sched_operand *o, const struct number *values)
{
	struct chunk chunk = chunk_of(o, lane->round, step);

	if (o->fifo)
		write_message(w, lane, step, &w->fifos[o->at], values);
	else if (!lane->put)
		write_chunk(w, &chunk, values);
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
	lane->put = false;
	if (++lane->step < lane->plan->num)
		return;
	lane->step = 0;
	if (++lane->round == ROUNDS)
		lane->done = true;
}

/* A message that has come may be put where it goes. */
static void put(struct world *w, const struct sched_step *step, uint32_t round, unsigned ahead)
{
	const struct sched_operand *o = &w->sched->operands[step->first];
	struct chunk to = chunk_of(o + 1, round, step);
	struct message *message;

	if (oracle_draw(w->state) % 2)
		return;
	message = next_message(w, &w->fifos[o->at], ahead, step);
	if (!message || message->put)
		return;
	write_chunk(w, &to, message->pieces);
	message->put = true;
}

/* What the network receives for the lane's next steps, as long as they are all the network's. */
static void put_early(struct world *w, const struct lane *lane)
{
	unsigned ahead[MOST_AHEAD] = {0};
	uint32_t at = lane->step, round = lane->round;
	int fifos[MOST_AHEAD] = {0}, num = 0;

	for (int i = 0; i < MOST_AHEAD && round < ROUNDS; i++) {
		const struct sched_step *step = &w->sched->steps[lane->plan->first + at];
		const struct sched_operand *o = &w->sched->operands[step->first];
		int j = 0;

		if (!is_carried(w, step) ||
		    (o->fifo && i && !(w->levels[step - w->sched->steps] & w->early)))
			return;
		while (j < num && fifos[j] != o->at)
			j++;
		if (o->fifo) {
			fifos[j] = o->at;
			num += j == num;
			put(w, step, round, ahead[j]++);
		}
		round += at + 1 == lane->plan->num;
		at = (at + 1) % lane->plan->num;
	}
}

/* One thing. False: the lane waits, or is done. */
static bool advance(struct world *w, struct lane *lane)
{
	const struct sched_step *step = &w->sched->steps[lane->plan->first + lane->step];

	if (lane->done)
		return false;
	if (lane->operand < 0 && w->levels)
		put_early(w, lane);
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

/*
 * Lanes of the phase in random order; now one runs on, now each does one thing. False: they wait
 * for ever.
 */
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
	return oracle_run_carried(sched, slots, op, NULL, 0, 0, state);
}

enum oracle_verdict oracle_run_carried(const struct sched *sched, int slots, enum oracle_op op,
				       const uint8_t *levels, unsigned carry, unsigned early,
				       uint64_t *state)
{
	struct world w = {.sched = sched,
			  .request = &sched->request,
			  .op = op,
			  .slots = slots,
			  .state = state,
			  .levels = levels,
			  .carry = carry,
			  .early = early};
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
