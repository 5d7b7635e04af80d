/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_slots.h"

#include <stdlib.h>
#include <string.h>
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

uint32_t sched_most_links(const struct sched *sched)
{
	uint32_t most = 0;

	for (int rank = 0; rank < sched->request.ranks; rank++) {
		uint32_t in = 0, out = 0;

		for (uint32_t i = 0; i < sched->num_connections; i++) {
			in += sched->connections[i].to == rank;
			out += sched->connections[i].from == rank;
		}
		most = in > most ? in : most;
		most = out > most ? out : most;
	}
	return most;
}

uint32_t sched_most_lanes(const struct sched *sched)
{
	uint32_t most = 0;

	for (int rank = 0; rank < sched->request.ranks; rank++) {
		for (int phase = 0; phase < sched->phases; phase++) {
			uint32_t lanes = 0;

			for (uint32_t i = 0; i < sched->num_lanes; i++)
				lanes += sched->lanes[i].rank == rank &&
					 sched->lanes[i].phase == phase && sched->lanes[i].num;
			most = lanes > most ? lanes : most;
		}
	}
	return most;
}

/* The places of one rank's lanes. A place has a bit in `seen`, which is clear. */
static uint32_t count_places(const struct sched *sched, int rank, size_t blocks, uint64_t *seen)
{
	uint32_t num = 0;

	for (uint32_t i = 0; i < sched->num_lanes; i++) {
		const struct sched_lane *lane = &sched->lanes[i];
		const struct sched_step *step = &sched->steps[lane->first];
		uint32_t first, end;

		if (lane->rank != rank || !lane->num)
			continue;
		/* A lane's operands follow each other. */
		first = step->first;
		step += lane->num - 1;
		end = step->first + (uint32_t)(step->num_sources + step->num_targets);
		for (uint32_t j = first; j < end; j++) {
			const struct sched_operand *o = &sched->operands[j];
			size_t bit = ((size_t)o->at * SCHED_NUM_BUFFERS + o->buffer) * blocks +
				     (size_t)o->block;

			if (o->fifo || seen[bit / 64] >> bit % 64 & 1)
				continue;
			seen[bit / 64] |= UINT64_C(1) << bit % 64;
			num++;
		}
	}
	return num;
}

uint32_t sched_most_places(const struct sched *sched)
{
	size_t ranks = (size_t)sched->request.ranks, blocks, words;
	uint32_t most = 0;
	uint64_t *seen;

	blocks = (size_t)sched_num_blocks(&sched->request);
	if (blocks < (size_t)sched->scratch_blocks)
		blocks = (size_t)sched->scratch_blocks;
	words = ranks * SCHED_NUM_BUFFERS * blocks / 64 + 1;
	seen = malloc(words * sizeof(*seen));
	for (int rank = 0; seen && rank < sched->request.ranks; rank++) {
		uint32_t num;

		memset(seen, 0, words * sizeof(*seen));
		num = count_places(sched, rank, blocks, seen);
		most = num > most ? num : most;
	}
	free(seen);
	return seen ? most : UINT32_MAX;
}

double sched_proto_parts(enum sched_proto proto)
{
	static const double parts[SCHED_NUM_PROTOS] = {1, 2, 128.0 / 120};

	return parts[proto];
}

/* The scratch blocks of a round, which are as long as all their pieces together, stand behind the
 * Simple slots. */
static uint64_t bytes_of_slot(const struct sched *sched, uint64_t slots,
			      const struct sched_room *room, enum sched_proto proto)
{
	enum { MOST = 512 << 10 }; /* of a piece: larger ones only make pipelines slow to fill */
	uint64_t span = (uint64_t)sched->most_span, most = MOST * span;
	uint64_t scratch = (uint64_t)sched->scratch_blocks * (uint64_t)sched->pieces, bytes;
	uint64_t unit = sched_unit(sched) > room->unit ? sched_unit(sched) : room->unit;

	unit *= span;

	bytes = room->bytes[SCHED_SIMPLE] / (slots + scratch);
	if (proto != SCHED_SIMPLE) {
		bytes = room->bytes[proto] / 2 / slots;
		if (scratch && bytes > room->bytes[SCHED_SIMPLE] / scratch)
			bytes = room->bytes[SCHED_SIMPLE] / scratch;
	}
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
