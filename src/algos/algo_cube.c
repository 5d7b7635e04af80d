/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo_cube.h"

static int rank_of(const struct algo_cube *cube, int number)
{
	return number < cube->folded ? 2 * number + 1 : number + cube->folded;
}

struct algo_cube algo_cube_connect(struct sched *sched)
{
	struct algo_cube cube = {.size = 1, .first = (int)sched->num_connections};

	while (2 * cube.size <= sched->request.ranks)
		cube.size *= 2;
	cube.folded = sched->request.ranks - cube.size;
	for (; 1 << cube.levels < cube.size; cube.levels++) {
		for (int i = 0; i < cube.size; i++)
			sched_connect(sched, rank_of(&cube, i),
				      rank_of(&cube, i ^ 1 << cube.levels));
	}
	for (int i = 0; i < cube.folded; i++)
		sched_connect(sched, 2 * i, 2 * i + 1);
	for (int i = 0; i < cube.folded; i++)
		sched_connect(sched, 2 * i + 1, 2 * i);
	return cube;
}

int algo_cube_number(const struct algo_cube *cube, int rank)
{
	if (rank >= 2 * cube->folded)
		return rank - cube->folded;
	return rank % 2 ? rank / 2 : -1;
}

bool algo_cube_folds(const struct algo_cube *cube, int rank)
{
	return rank < 2 * cube->folded && rank % 2;
}

struct sched_operand algo_cube_fifo(const struct algo_cube *cube, int level, int number)
{
	return sched_fifo(cube->first + level * cube->size + number);
}

struct sched_operand algo_cube_fold(const struct algo_cube *cube, int rank)
{
	return sched_fifo(cube->first + cube->levels * cube->size + rank / 2);
}

struct sched_operand algo_cube_unfold(const struct algo_cube *cube, int rank)
{
	return sched_fifo(cube->first + cube->levels * cube->size + cube->folded + rank / 2);
}
