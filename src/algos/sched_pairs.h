/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who has something for whom, in an exchange of few: an alltoall in which most ranks have nothing
 * for most others, as those of a grid have only for their neighbours.
 */
#ifndef SCHED_PAIRS_H
#define SCHED_PAIRS_H

#include <stdbool.h>

struct sched_pairs {
	int ranks;
	int *ends; /* of each rank: where its part of `to` ends, and the next one's begins */
	int *to;   /* the ranks that it has something for, in ascending order */
};

/*
 * `counts`: how many ranks each rank has something for; `to`: these, one rank's after the other's,
 * in any order, none twice. NULL: no memory. The caller frees it.
 */
struct sched_pairs *sched_pairs_new(int ranks, const int *counts, const int *to);

/* The same once more. NULL: no memory. The caller frees it. */
struct sched_pairs *sched_pairs_copy(const struct sched_pairs *pairs);

/* Free them. NULL is allowed. */
void sched_pairs_free(struct sched_pairs *pairs);

/* Whether there is one of the two ranks. */
bool sched_pairs_have(const struct sched_pairs *pairs, int from, int to);

/* How many there are. */
int sched_pairs_num(const struct sched_pairs *pairs);

/* Whether they are the same. NULL, all with all, is allowed. */
bool sched_pairs_equal(const struct sched_pairs *a, const struct sched_pairs *b);

#endif
