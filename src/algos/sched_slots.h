/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a schedule's messages fit the memory that there is for them: the slots of its FIFOs, and with
 * them how much of each block goes through the schedule in a round.
 */
#ifndef SCHED_SLOTS_H
#define SCHED_SLOTS_H

#include "algos/sched.h"

/* Memory of a rank for messages. */
struct sched_room {
	uint64_t simple, ll; /* bytes, for each protocol */
	uint64_t unit;       /* slots are multiples of it */
};

struct sched_slots {
	uint32_t num;   /* of each FIFO */
	uint64_t bytes; /* of each; that of LL has flags besides */
	uint64_t width; /* of a block, in a round */
};

/* The FIFOs of the rank that has most, in either direction; and the lanes, in one phase. */
uint32_t sched_most_links(const struct sched *sched);
uint32_t sched_most_lanes(const struct sched *sched);

/*
 * The largest slots that fit, where a rank has `links` FIFOs in each direction at most and each
 * needs `least` slots. False: there is no room.
 */
bool sched_slots_fit(const struct sched *sched, uint32_t links, uint32_t least,
		     const struct sched_room *room, bool ll, struct sched_slots *slots);

/* The longest chunk of a block of as many bytes. */
uint64_t sched_longest_chunk(const struct sched *sched, uint64_t bytes);

#endif
