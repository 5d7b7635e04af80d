/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_levels.h"

#include <stdlib.h>
#include <string.h>

/* Messages of a connection that were sent and not yet received, in order. */
struct line {
	uint32_t *steps;
	uint32_t num, most, read;
};

struct run {
	const struct sched *sched;
	struct sched_levels *trace;
	struct line *lines; /* by connection */
	uint32_t *next;     /* by lane: steps done */
	uint32_t *hops;     /* by step */
	uint32_t start;     /* of the phase */
};

static bool send_step(struct line *line, uint32_t step)
{
	if (line->num == line->most) {
		uint32_t more = line->most ? 2 * line->most : 4;
		uint32_t *larger = realloc(line->steps, more * sizeof(*larger));

		if (!larger)
			return false;
		line->steps = larger;
		line->most = more;
	}
	line->steps[line->num++] = step;
	return true;
}

static uint32_t larger_of(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static bool has_messages(const struct run *run, const struct sched_step *step)
{
	const struct sched_operand *from = sched_sources(run->sched, step);

	for (int i = 0; i < step->num_sources; i++) {
		if (from[i].fifo && run->lines[from[i].at].read == run->lines[from[i].at].num)
			return false;
	}
	return true;
}

/* False: no memory. */
static bool run_step(struct run *run, uint32_t index, bool first)
{
	const struct sched_step *step = &run->sched->steps[index];
	const struct sched_operand *o = sched_sources(run->sched, step);
	struct sched_levels *trace = run->trace;
	uint32_t level = first ? run->start : trace->level[index - 1] + 1;
	uint32_t hops = first ? 0 : run->hops[index - 1];

	for (int i = 0; i < step->num_sources; i++) {
		struct line *line = o[i].fifo ? &run->lines[o[i].at] : NULL;
		uint32_t sender;

		if (!line)
			continue;
		sender = line->steps[line->read++];
		trace->sender[step->first + (uint32_t)i] = sender;
		level = larger_of(level, trace->level[sender] + 1);
		hops = larger_of(hops, run->hops[sender] + 1);
	}
	trace->level[index] = level;
	trace->levels = larger_of(trace->levels, level + 1);
	run->hops[index] = hops;
	trace->hops = larger_of(trace->hops, hops);
	o = sched_targets(run->sched, step);
	for (int i = 0; i < step->num_targets; i++) {
		if (o[i].fifo && !send_step(&run->lines[o[i].at], index))
			return false;
	}
	return true;
}

/* As far as the lane gets. False: no memory. */
static bool run_lane(struct run *run, uint32_t index, bool *moved)
{
	const struct sched_lane *lane = &run->sched->lanes[index];

	while (run->next[index] < lane->num) {
		uint32_t step = lane->first + run->next[index];

		if (!has_messages(run, &run->sched->steps[step]))
			break;
		if (!run_step(run, step, run->next[index] == 0))
			return false;
		run->next[index]++;
		*moved = true;
	}
	return true;
}

static bool run_phase(struct run *run, int phase)
{
	bool moved = true;

	run->start = run->trace->levels;
	while (moved) {
		moved = false;
		for (uint32_t i = 0; i < run->sched->num_lanes; i++) {
			if (run->sched->lanes[i].phase == phase && !run_lane(run, i, &moved))
				return false;
		}
	}
	return true;
}

static bool run_all(struct run *run)
{
	if (!run->lines || !run->next || !run->hops || !run->trace->level || !run->trace->sender)
		return false;
	memset(run->trace->sender, 0xff, run->sched->num_operands * sizeof(uint32_t));
	for (int phase = 0; phase < run->sched->phases; phase++) {
		if (!run_phase(run, phase))
			return false;
	}
	return true;
}

bool sched_levels_new(const struct sched *sched, struct sched_levels *trace)
{
	struct run run = {.sched = sched, .trace = trace};
	bool done;

	*trace = (struct sched_levels){0};
	trace->level = calloc(sched->num_steps + 1, sizeof(uint32_t));
	trace->sender = calloc(sched->num_operands + 1, sizeof(uint32_t));
	run.lines = calloc(sched->num_connections + 1, sizeof(*run.lines));
	run.next = calloc(sched->num_lanes + 1, sizeof(uint32_t));
	run.hops = calloc(sched->num_steps + 1, sizeof(uint32_t));
	done = run_all(&run);
	for (uint32_t i = 0; run.lines && i < sched->num_connections; i++)
		free(run.lines[i].steps);
	free(run.lines);
	free(run.next);
	free(run.hops);
	if (!done)
		sched_levels_free(trace);
	return done;
}

void sched_levels_free(struct sched_levels *trace)
{
	free(trace->level);
	free(trace->sender);
	*trace = (struct sched_levels){0};
}

/* ---- cost ---- */

/* What a rank's lanes move. */
struct traffic {
	uint64_t sent, remote, local;
};

/*
 * Places and FIFOs are read and written once for each operand; of a FIFO's two ends, the sender
 * writes the receiver's memory.
 */
static void add_step(const struct sched *sched, int rank, const struct sched_step *step,
		     uint64_t bytes, struct traffic *traffic)
{
	const struct sched_operand *o = sched_sources(sched, step);
	int num = step->num_sources + step->num_targets;
	uint64_t times = step->swap ? 2 : 1;

	for (int i = 0; i < num; i++) {
		if (o[i].fifo && i >= step->num_sources)
			traffic->sent += bytes;
		else if (o[i].fifo || o[i].at == rank)
			traffic->local += times * bytes;
		else
			traffic->remote += times * bytes;
	}
}

static uint64_t more_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

struct sched_cost sched_cost_of(const struct sched *sched, const struct sched_levels *trace,
				uint64_t bytes)
{
	uint64_t scratch = (uint64_t)sched->scratch_blocks + (sched->holds ? 1 : 0);
	struct sched_cost cost = {
		.hops = trace->hops, .waits = sched->phases - 1, .scratch = scratch * bytes};

	for (int rank = 0; rank < sched->request.ranks; rank++) {
		struct traffic traffic = {0};

		for (uint32_t i = 0; i < sched->num_lanes; i++) {
			const struct sched_lane *lane = &sched->lanes[i];

			for (uint32_t j = 0; lane->rank == rank && j < lane->num; j++) {
				const struct sched_step *step = &sched->steps[lane->first + j];

				add_step(sched, rank, step, sched_chunk(sched, bytes, step).bytes,
					 &traffic);
			}
		}
		cost.sent = more_of(cost.sent, traffic.sent);
		cost.remote = more_of(cost.remote, traffic.remote);
		cost.local = more_of(cost.local, traffic.local);
	}
	/* The last phase ends when nobody touches this rank's buffers any more. */
	cost.waits += cost.remote > 0;
	return cost;
}
