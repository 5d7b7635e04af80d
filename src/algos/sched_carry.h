/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which steps of a schedule need no kernel, as a network that reaches buffers can do them alone:
 * those that only move data from one of the rank's buffers to other nodes, or from there into one,
 * and perhaps on from it.
 *
 * What is sent so may be read at any time until the receiver has it, when the lane has long gone
 * on. So nothing may be written there that late. What is received so is written when the lane comes
 * to the step, as a kernel would, or before, when the lane has nothing but the network's steps left
 * until there: if no other lane has to do with what is written.
 */
#ifndef SCHED_CARRY_H
#define SCHED_CARRY_H

#include "algos/sched.h"

/*
 * When the network may do it: where IN and OUT have no byte in common; and in any case. And when it
 * may do it before its turn.
 */
enum {
	SCHED_CARRY_APART = 1,
	SCHED_CARRY_ALWAYS = 2,
	SCHED_CARRY_EARLY_APART = 4,
	SCHED_CARRY_EARLY_ALWAYS = 8
};

/*
 * Find them: of each step, of all ranks, the bits that hold. Only the first phase has any, as
 * messages do. False: no memory.
 */
bool sched_find_carried(const struct sched *sched, uint8_t *levels);

#endif
