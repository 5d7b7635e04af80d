/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When things happen in a schedule if every step takes one unit of time: for drawing it, and for
 * counting what it costs.
 */
#ifndef SCHED_LEVELS_H
#define SCHED_LEVELS_H

#include "algos/sched.h"

#define SCHED_NO_STEP UINT32_MAX

struct sched_levels {
	uint32_t *level;  /* by step: the time at which it can run, from 0 on */
	uint32_t *sender; /* by operand, where it is a FIFO that is read: the step that sent it */
	uint32_t levels;  /* of all */
	uint32_t hops;    /* messages that wait for each other, on the longest way */
};

/* Of a schedule that is proved. False: no memory. The caller frees it. */
bool sched_levels_new(const struct sched *sched, struct sched_levels *trace);
void sched_levels_free(struct sched_levels *trace);

/* What a schedule costs, by term; bytes are those of the rank that has most. */
struct sched_cost {
	uint32_t hops;    /* messages one after the other */
	int waits;        /* of all for all, where ranks touch each other's buffers */
	uint64_t sent;    /* into FIFOs */
	uint64_t remote;  /* read from, and written to, other ranks' buffers */
	uint64_t local;   /* read from, and written to, its own memory, FIFOs too */
	uint64_t scratch; /* bytes of SCRATCH and HOLD */
};

/* For blocks of `bytes` bytes in one round; `trace` is the schedule's. */
struct sched_cost sched_cost_of(const struct sched *sched, const struct sched_levels *trace,
				uint64_t bytes);

#endif
