/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a schedule's messages fit the memory that there is for them: the slots of its FIFOs, and with
 * them how much of each block goes through the schedule in a round.
 */
#ifndef SCHED_SLOTS_H
#define SCHED_SLOTS_H

#include "algos/sched.h"

/*
 * How messages travel: a counter follows them; or they bring flags, in every packet of 8 bytes, or
 * in every line of 128 (gpu_ll.h).
 */
enum sched_proto { SCHED_SIMPLE, SCHED_LL, SCHED_LL128, SCHED_NUM_PROTOS };

/* "simple", "ll", "ll128". */
const char *sched_proto_name(enum sched_proto proto);

/* The protocol of that name, in any case of letters; -1: it is none. */
int sched_proto_of(const char *name);

/* Bytes that travel for each byte of data. */
double sched_proto_parts(enum sched_proto proto);

/* Memory of a rank for messages. */
struct sched_room {
	uint64_t bytes[SCHED_NUM_PROTOS];
	uint64_t unit; /* slots are multiples of it */
	uint64_t most; /* of a piece */
};

struct sched_slots {
	uint32_t num;   /* of each FIFO */
	uint64_t bytes; /* of each; flags come on top */
	uint64_t width; /* of a block, in a round */
};

/*
 * The FIFOs of the rank that has most, in either direction. UINT32_MAX, here and below: there is no
 * memory to count them.
 */
uint32_t sched_most_links(const struct sched *sched);

/* The lanes of the rank that has most in one phase. */
uint32_t sched_most_lanes(const struct sched *sched);

/* The places that the steps of a rank touch, of the one that touches most. */
uint32_t sched_most_places(const struct sched *sched);

/* The operands of the step that has most. */
uint32_t sched_most_operands(const struct sched *sched);

/*
 * The largest slots that fit, where a rank has `links` FIFOs in each direction at most and each
 * needs `least` slots. False: there is no room.
 */
bool sched_slots_fit(const struct sched *sched, uint32_t links, uint32_t least,
		     const struct sched_room *room, enum sched_proto proto,
		     struct sched_slots *slots);

/* The longest chunk of a block of as many bytes. */
uint64_t sched_longest_chunk(const struct sched *sched, uint64_t bytes);

#endif
