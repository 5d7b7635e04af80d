/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_slots.h"

#include <stdlib.h>
#include <strings.h>

static const char *const names[SCHED_NUM_PROTOS] = {"simple", "ll", "ll128"};

const char *sched_proto_name(enum sched_proto proto)
{
	return names[proto];
}

int sched_proto_of(const char *name)
{
	for (int i = 0; i < SCHED_NUM_PROTOS; i++) {
		if (!strcasecmp(names[i], name))
			return i;
	}
	return -1;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

uint32_t sched_most_links(const struct sched *sched)
{
	uint32_t *links = calloc(2 * (size_t)sched->request.ranks, sizeof(*links)), most = 0;

	for (uint32_t i = 0; links && i < sched->num_connections; i++) {
		const struct sched_connection *c = &sched->connections[i];

		most = larger(most, ++links[2 * c->to]);
		most = larger(most, ++links[2 * c->from + 1]);
	}
	free(links);
	return links ? most : UINT32_MAX;
}

uint32_t sched_most_lanes(const struct sched *sched)
{
	size_t ranks = (size_t)sched->request.ranks;
	uint32_t *lanes = calloc(ranks * (size_t)sched->phases, sizeof(*lanes)), most = 0;

	for (uint32_t i = 0; lanes && i < sched->num_lanes; i++) {
		const struct sched_lane *lane = &sched->lanes[i];

		if (lane->num)
			most = larger(most,
				      ++lanes[(size_t)lane->phase * ranks + (size_t)lane->rank]);
	}
	free(lanes);
	return lanes ? most : UINT32_MAX;
}

uint32_t sched_most_operands(const struct sched *sched)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < sched->num_steps; i++)
		most = larger(most, (uint32_t)(sched->steps[i].num_sources +
					       sched->steps[i].num_targets));
	return most;
}

/*
 * Those of a lane that its rank, in other lanes, has not been seen to touch; `seen`, by place: the
 * last rank that has, + 1.
 */
static uint32_t count_places(const struct sched *sched, const struct sched_lane *lane,
			     size_t blocks, uint32_t *seen)
{
	const struct sched_step *step = &sched->steps[lane->first];
	uint32_t first = step->first, end, num = 0;

	/* A lane's operands follow each other. */
	step += lane->num - 1;
	end = step->first + (uint32_t)(step->num_sources + step->num_targets);
	for (uint32_t i = first; i < end; i++) {
		const struct sched_operand *o = &sched->operands[i];
		size_t place =
			((size_t)o->at * SCHED_NUM_BUFFERS + o->buffer) * blocks + (size_t)o->block;

		if (o->fifo || seen[place] == (uint32_t)lane->rank + 1)
			continue;
		seen[place] = (uint32_t)lane->rank + 1;
		num++;
	}
	return num;
}

uint32_t sched_most_places(const struct sched *sched)
{
	size_t ranks = (size_t)sched->request.ranks, blocks;
	uint32_t most = 0, num = 0, *seen, *order = sched_sort_lanes(sched);
	int rank = -1;

	blocks = (size_t)sched_num_blocks(&sched->request);
	if (blocks < (size_t)sched->scratch_blocks)
		blocks = (size_t)sched->scratch_blocks;
	seen = calloc(ranks * SCHED_NUM_BUFFERS * blocks, sizeof(*seen));
	for (uint32_t i = 0; seen && order && i < sched->num_lanes; i++) {
		const struct sched_lane *lane = &sched->lanes[order[i]];

		if (lane->rank != rank)
			num = 0;
		rank = lane->rank;
		if (lane->num)
			num += count_places(sched, lane, blocks, seen);
		most = larger(most, num);
	}
	most = seen && order ? most : UINT32_MAX;
	free(seen);
	free(order);
	return most;
}

double sched_proto_parts(enum sched_proto proto)
{
	static const double parts[SCHED_NUM_PROTOS] = {1, 2, 128.0 / 120};

	return parts[proto];
}

/*
 * The scratch blocks of a round, which are as long as all their pieces together, stand behind the
 * Simple slots, which messages to other nodes go through in any case, as do all where hosts wait
 * for them.
 */
static uint64_t bytes_of_slot(const struct sched *sched, uint64_t slots,
			      const struct sched_room *room, enum sched_proto proto)
{
	uint64_t span = (uint64_t)sched->most_span, most = room->most * span;
	uint64_t scratch = (uint64_t)sched->scratch_blocks * (uint64_t)sched->pieces, bytes;
	uint64_t unit = sched_unit(sched) > room->unit ? sched_unit(sched) : room->unit;

	unit *= span;

	bytes = room->bytes[SCHED_SIMPLE] / (slots + scratch);
	if (proto != SCHED_SIMPLE && bytes > room->bytes[proto] / 2 / slots)
		bytes = room->bytes[proto] / 2 / slots;
	bytes = bytes < most ? bytes : most;
	return bytes / unit * unit;
}

bool sched_slots_fit(const struct sched *sched, uint32_t links, uint32_t least,
		     const struct sched_room *room, enum sched_proto proto,
		     struct sched_slots *slots)
{
	enum { USUAL = 4 }; /* one is read, one written, two are on their way */

	links = links ? links : 1;
	slots->num = least > USUAL ? least : USUAL;
	slots->bytes = bytes_of_slot(sched, (uint64_t)links * slots->num, room, proto);
	if (!slots->bytes) {
		slots->num = least;
		slots->bytes = bytes_of_slot(sched, (uint64_t)links * least, room, proto);
	}
	slots->width = slots->bytes / (uint64_t)sched->most_span * (uint64_t)sched->pieces;
	return slots->bytes > 0;
}

uint64_t sched_longest_chunk(const struct sched *sched, uint64_t bytes)
{
	uint64_t unit = sched_unit(sched), pieces = (uint64_t)sched->pieces;
	uint64_t units = (bytes + unit - 1) / unit * (uint64_t)sched->most_span;
	uint64_t chunk = (units + pieces - 1) / pieces * unit;

	return chunk < bytes ? chunk : bytes;
}
