/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_pairs.h"

#include <stdlib.h>
#include <string.h>

static struct sched_pairs *allocate_pairs(int ranks, int num)
{
	struct sched_pairs *pairs =
		malloc(sizeof(*pairs) + ((size_t)ranks + (size_t)num) * sizeof(int));

	if (!pairs)
		return NULL;
	pairs->ranks = ranks;
	pairs->ends = (int *)(pairs + 1);
	pairs->to = pairs->ends + ranks;
	return pairs;
}

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

struct sched_pairs *sched_pairs_new(int ranks, const int *counts, const int *to)
{
	struct sched_pairs *pairs;
	int num = 0;

	for (int i = 0; i < ranks; i++)
		num += counts[i];
	pairs = allocate_pairs(ranks, num);
	if (!pairs)
		return NULL;
	if (num)
		memcpy(pairs->to, to, (size_t)num * sizeof(*to));
	num = 0;
	for (int i = 0; i < ranks; i++) {
		qsort(pairs->to + num, (size_t)counts[i], sizeof(*to), compare);
		num += counts[i];
		pairs->ends[i] = num;
	}
	return pairs;
}

struct sched_pairs *sched_pairs_copy(const struct sched_pairs *pairs)
{
	int num = sched_pairs_num(pairs);
	struct sched_pairs *copy = allocate_pairs(pairs->ranks, num);

	/* Both arrays are in one piece. */
	if (copy)
		memcpy(copy->ends, pairs->ends, ((size_t)pairs->ranks + (size_t)num) * sizeof(int));
	return copy;
}

void sched_pairs_free(struct sched_pairs *pairs)
{
	free(pairs);
}

bool sched_pairs_have(const struct sched_pairs *pairs, int from, int to)
{
	int first = from ? pairs->ends[from - 1] : 0;

	return bsearch(&to, pairs->to + first, (size_t)(pairs->ends[from] - first), sizeof(to),
		       compare) != NULL;
}

int sched_pairs_num(const struct sched_pairs *pairs)
{
	return pairs->ends[pairs->ranks - 1];
}

bool sched_pairs_equal(const struct sched_pairs *a, const struct sched_pairs *b)
{
	if (!a || !b)
		return a == b;
	return a->ranks == b->ranks && sched_pairs_num(a) == sched_pairs_num(b) &&
	       !memcmp(a->ends, b->ends,
		       ((size_t)a->ranks + (size_t)sched_pairs_num(a)) * sizeof(int));
}
