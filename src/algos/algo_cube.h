/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hypercube of the recursive algorithms: ranks numbered 0 to 2^levels - 1, of which two that
 * differ in one bit are connected. Of 2^levels + r ranks the first r pairs fold: the odd rank of a
 * pair takes part for both, and is connected with the even one, there and back.
 */
#ifndef ALGO_CUBE_H
#define ALGO_CUBE_H

#include "algos/sched.h"

struct algo_cube {
	int size, levels, folded; /* size = 2^levels; pairs that fold */
	int first;                /* connection */
};

/* Connect the schedule's ranks, once more. */
struct algo_cube algo_cube_connect(struct sched *sched);

/* The rank's number; -1: the other of its pair takes part for it. */
int algo_cube_number(const struct algo_cube *cube, int rank);
/* Whether the rank takes part for another, too. */
bool algo_cube_folds(const struct algo_cube *cube, int rank);

/* The connection from the number to the one that differs in bit `level`. */
struct sched_operand algo_cube_fifo(const struct algo_cube *cube, int level, int number);
/* Between the ranks of the pair that this one is of: to the odd rank, and back. */
struct sched_operand algo_cube_fold(const struct algo_cube *cube, int rank);
struct sched_operand algo_cube_unfold(const struct algo_cube *cube, int rank);

#endif
