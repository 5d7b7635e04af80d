/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules carried out with numbers, lanes in random order, one read or write at a time: what the
 * verifier proves, seen from outside. It shares nothing with the verifier but the schedule.
 */
#ifndef SCHED_ORACLE_H
#define SCHED_ORACLE_H

#include "algos/sched.h"

enum oracle_verdict { ORACLE_RIGHT, ORACLE_WRONG, ORACLE_STUCK };

/*
 * What contributions are combined with: sums; functions one after the other, whose order counts; or
 * what is not even associative, as sums of floating point are not.
 */
enum oracle_op { ORACLE_SUM, ORACLE_COMPOSE, ORACLE_FOLD };

/* One run of three rounds, with so many slots in each FIFO; `state` is the random numbers'. */
enum oracle_verdict oracle_run(const struct sched *sched, int slots, enum oracle_op op,
			       uint64_t *state);

/*
 * The same, where the network does some steps alone: of each step `levels` has the bits that
 * sched_find_carried finds, of which `carry` and `early` count. It reads what is sent as late as it
 * can, and writes what is received at any time from when it may.
 */
enum oracle_verdict oracle_run_carried(const struct sched *sched, int slots, enum oracle_op op,
				       const uint8_t *levels, unsigned carry, unsigned early,
				       uint64_t *state);

uint64_t oracle_draw(uint64_t *state);

#endif
