/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_carry.h"

#include <stdlib.h>
#include <string.h>

/* What the rank's steps do with something. Lanes: + 1; 0: none; SEVERAL. */
struct uses {
	uint32_t user, writer; /* lanes that touch it, and that write it */
	uint32_t step;         /* that writes it last */
};

#define SEVERAL UINT32_MAX

struct finder {
	const struct sched *sched;
	uint8_t *levels;
	bool mapped;     /* ranks write to, or read, others' buffers */
	uint32_t *order; /* of the lanes: those of one rank after those of another */
	/* Of the rank that is looked at. */
	int rank;
	uint32_t first, end; /* in the order */
	struct uses *chunks; /* of OUT: by block, and by piece of it */
	struct uses buffers[SCHED_NUM_BUFFERS];
};

static bool is_far(const struct finder *f, const struct sched_operand *o)
{
	return o->fifo && sched_is_far(f->sched, &f->sched->connections[o->at]);
}

static bool is_own_buffer(const struct finder *f, const struct sched_operand *o)
{
	return !o->fifo && o->at == f->rank && (o->buffer == SCHED_IN || o->buffer == SCHED_OUT);
}

/* ---- uses ---- */

static struct uses *chunk_of(const struct finder *f, int block, int piece)
{
	return &f->chunks[(size_t)block * (size_t)f->sched->pieces + (size_t)piece];
}

static uint32_t with_lane(uint32_t lanes, uint32_t lane)
{
	return lanes && lanes != lane + 1 ? SEVERAL : lane + 1;
}

static void note_use(struct uses *uses, bool writes, uint32_t lane, uint32_t step)
{
	uses->user = with_lane(uses->user, lane);
	if (!writes)
		return;
	uses->writer = with_lane(uses->writer, lane);
	uses->step = step;
}

static void note_step(struct finder *f, uint32_t lane, uint32_t number)
{
	const struct sched_step *step = &f->sched->steps[number];
	const struct sched_operand *o = sched_sources(f->sched, step);

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		bool writes = step->swap || i >= step->num_sources;

		if (!is_own_buffer(f, &o[i]))
			continue;
		note_use(&f->buffers[o[i].buffer], writes, lane, number);
		for (int j = 0; o[i].buffer == SCHED_OUT && j < step->span; j++)
			note_use(chunk_of(f, o[i].block, step->piece + j), writes, lane, number);
	}
}

/*
 * Whether nothing writes it after the step, which may do so itself, has sent it in this round: in
 * the next one it is the next slice. The order of lanes is not looked at.
 */
static bool stays(const struct uses *uses, uint32_t lane, uint32_t step)
{
	return !uses->writer || (uses->writer == lane + 1 && uses->step <= step);
}

/* Whether other lanes have nothing to do with it. */
static bool is_alone(const struct uses *uses, uint32_t lane)
{
	return !uses->user || uses->user == lane + 1;
}

/* ---- steps ---- */

/*
 * When the place keeps what the step sends of it. Which block of OUT is which one of IN, where they
 * are one memory, is not looked at.
 */
static uint8_t levels_of_place(const struct finder *f, const struct sched_operand *place,
			       uint32_t lane, uint32_t number)
{
	const struct sched_step *step = &f->sched->steps[number];
	enum sched_buffer other = place->buffer == SCHED_IN ? SCHED_OUT : SCHED_IN;
	bool apart = !f->mapped || place->buffer == SCHED_IN;

	/* Of IN, who writes what does not matter: only swaps do. */
	if (place->buffer == SCHED_IN)
		apart &= stays(&f->buffers[SCHED_IN], lane, number);
	for (int i = 0; place->buffer == SCHED_OUT && i < step->span; i++)
		apart &= stays(chunk_of(f, place->block, step->piece + i), lane, number);
	if (!apart)
		return 0;
	return f->mapped || !stays(&f->buffers[other], lane, number)
		       ? SCHED_CARRY_APART
		       : SCHED_CARRY_APART | SCHED_CARRY_ALWAYS;
}

/*
 * When the place can be written before the lane comes to the step, also as far as other ranks are
 * concerned.
 */
static uint8_t levels_before(const struct finder *f, const struct sched_operand *place,
			     uint32_t lane, const struct sched_step *step)
{
	bool alone = !f->mapped && place->buffer == SCHED_OUT;

	for (int i = 0; alone && i < step->span; i++)
		alone = is_alone(chunk_of(f, place->block, step->piece + i), lane);
	if (!alone)
		return 0;
	return is_alone(&f->buffers[SCHED_IN], lane)
		       ? SCHED_CARRY_EARLY_APART | SCHED_CARRY_EARLY_ALWAYS
		       : SCHED_CARRY_EARLY_APART;
}

static uint8_t levels_of(const struct finder *f, uint32_t lane, uint32_t number)
{
	const struct sched_step *step = &f->sched->steps[number];
	const struct sched_operand *o = sched_sources(f->sched, step);
	bool receives = is_far(f, &o[0]);
	int num = step->num_sources + step->num_targets;
	uint8_t early;

	if (step->num_sources != 1 || num < 2 || !is_own_buffer(f, &o[receives]))
		return 0;
	for (int i = receives + 1; i < num; i++) {
		if (!is_far(f, &o[i]))
			return 0;
	}
	early = receives ? levels_before(f, &o[1], lane, step) : 0;
	if (receives && num == 2)
		return early | SCHED_CARRY_APART | SCHED_CARRY_ALWAYS;
	return early | levels_of_place(f, &o[receives], lane, number);
}

/* ---- ranks ---- */

static void for_steps(struct finder *f,
		      void (*look)(struct finder *f, uint32_t lane, uint32_t step))
{
	for (uint32_t i = f->first; i < f->end; i++) {
		const struct sched_lane *lane = &f->sched->lanes[f->order[i]];

		for (uint32_t j = 0; lane->phase == 0 && j < lane->num; j++)
			look(f, f->order[i], lane->first + j);
	}
}

static void judge(struct finder *f, uint32_t lane, uint32_t step)
{
	f->levels[step] = levels_of(f, lane, step);
}

static size_t num_chunks(const struct sched *sched)
{
	return (size_t)sched_num_blocks(&sched->request) * (size_t)sched->pieces;
}

/* The one whose lanes come next. */
static void look_at_rank(struct finder *f)
{
	f->first = f->end;
	f->rank = f->sched->lanes[f->order[f->first]].rank;
	while (f->end < f->sched->num_lanes && f->sched->lanes[f->order[f->end]].rank == f->rank)
		f->end++;
	memset(f->buffers, 0, sizeof(f->buffers));
	memset(f->chunks, 0, num_chunks(f->sched) * sizeof(*f->chunks));
	for_steps(f, note_step);
	for_steps(f, judge);
}

bool sched_find_carried(const struct sched *sched, uint8_t *levels)
{
	struct finder f = {.sched = sched, .levels = levels};
	bool enough;

	memset(levels, 0, sched->num_steps);
	if (!sched->request.num_nodes)
		return true;
	f.order = sched_sort_lanes(sched);
	f.chunks = calloc(num_chunks(sched), sizeof(*f.chunks));
	enough = f.order && f.chunks;
	for (uint32_t i = 0; i < sched->num_lanes; i++)
		f.mapped |= sched_is_remote(sched, &sched->lanes[i]);
	while (enough && f.end < sched->num_lanes)
		look_at_rank(&f);
	free(f.order);
	free(f.chunks);
	return enough;
}
