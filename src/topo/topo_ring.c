/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_ring.h"
#include "topo/topo_way.h"

#include <stdlib.h>
#include <string.h>

static const double slack = 1e-6; /* sums of shares are not exact */

struct search {
	const struct topo_machine *machine;
	int gpus[TOPO_MOST_RING_GPUS], num_gpus;
	struct topo_hop *hops; /* from GPU i to GPU j: i num_gpus + j */
	double *capacity;      /* of each way */
	double *used;          /* by the rings so far */
	double *rates;
	double rate;
	enum topo_class worst;       /* that hops may have */
	long steps;                  /* that are left */
	struct topo_rings now, best; /* of this rate; in numbers of `gpus` */
};

/* ---- the search ---- */

static void extend(struct search *s, int length);

/* The hop's part of a ring, or, `sign` being -1, of one no more. False: it is too much. */
static bool take_hop(struct search *s, const struct topo_hop *hop, int sign)
{
	bool well = true;

	for (int i = 0; i < hop->num; i++) {
		double *used = &s->used[hop->parts[i].way];

		*used += sign * s->rate * hop->parts[i].share;
		well &= *used <= s->capacity[hop->parts[i].way] + slack;
	}
	return well;
}

static bool is_in(const int *order, int length, int gpu)
{
	for (int i = 0; i < length; i++) {
		if (order[i] == gpu)
			return true;
	}
	return false;
}

/* The ring is closed: begin another one. */
static void close_ring(struct search *s)
{
	s->now.num++;
	if (s->now.num > s->best.num)
		s->best = s->now;
	if (s->now.num < TOPO_MOST_RINGS)
		extend(s, 1);
	s->now.num--;
}

static void try_hop(struct search *s, int length, int to)
{
	int *order = s->now.order[s->now.num];
	const struct topo_hop *hop = &s->hops[order[length - 1] * s->num_gpus + to];

	if (hop->path.class > s->worst)
		return;
	s->steps--;
	if (take_hop(s, hop, 1)) {
		if (length == s->num_gpus) {
			close_ring(s);
		} else {
			order[length] = to;
			extend(s, length + 1);
		}
	}
	take_hop(s, hop, -1);
}

/* Go on with the ring, which has so many GPUs, of which the first is 0. */
static void extend(struct search *s, int length)
{
	const int *order = s->now.order[s->now.num];

	if (length == s->num_gpus) {
		try_hop(s, length, 0);
		return;
	}
	for (int i = 1; i < s->num_gpus; i++) {
		if (s->steps <= 0 || s->best.num == TOPO_MOST_RINGS)
			return;
		if (!is_in(order, length, i))
			try_hop(s, length, i);
	}
}

/* ---- rates ---- */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x < y) - (x > y);
}

/*
 * What a ring may have: the rates of ways, and of paths, of which some have several ways side by
 * side. The largest first.
 */
static int list_rates(struct search *s)
{
	int num = 0;

	for (int i = 0; i < topo_way_count(s->machine); i++)
		s->rates[num++] = s->capacity[i];
	for (int i = 0; i < s->num_gpus; i++) {
		for (int j = 0; j < i; j++)
			s->rates[num++] =
				topo_path_between(s->machine, s->gpus[i], s->gpus[j]).rate;
	}
	qsort(s->rates, (size_t)num, sizeof(*s->rates), by_size);
	return num;
}

static void try_rate(struct search *s, double rate, struct topo_rings *best)
{
	enum { STEPS = 20000 };

	s->rate = rate;
	s->steps = STEPS;
	s->now.num = s->best.num = 0;
	memset(s->used, 0, (size_t)topo_way_count(s->machine) * sizeof(*s->used));
	extend(s, 1);
	if (s->best.num * rate <= best->num * best->rate + slack)
		return;
	*best = s->best;
	best->rate = rate;
}

/* ---- all ---- */

static bool prepare_search(struct search *s)
{
	size_t ways = (size_t)topo_way_count(s->machine), n = (size_t)s->num_gpus;
	bool well;

	s->hops = calloc(n * n, sizeof(*s->hops));
	s->capacity = calloc(ways + 1, sizeof(*s->capacity));
	s->used = calloc(ways + 1, sizeof(*s->used));
	s->rates = calloc(ways + n * n, sizeof(*s->rates));
	well = s->hops && s->capacity && s->used && s->rates;
	if (well)
		topo_way_rates(s->machine, s->capacity);
	for (size_t i = 0; i < n * n && well; i++) {
		if (i / n != i % n)
			well = topo_way_hop(s->machine, s->gpus[i / n], s->gpus[i % n],
					    &s->hops[i]);
	}
	return well;
}

static void release_search(struct search *s)
{
	for (int i = 0; s->hops && i < s->num_gpus * s->num_gpus; i++)
		topo_way_free(&s->hops[i]);
	free(s->hops);
	free(s->capacity);
	free(s->used);
	free(s->rates);
}

static bool has_class(const struct search *s, enum topo_class class)
{
	for (int i = 0; i < s->num_gpus * s->num_gpus; i++) {
		if (s->hops[i].num && s->hops[i].path.class == class)
			return true;
	}
	return false;
}

/* First with the nearest hops only: others are to bring more. */
static void find_rings(struct search *s, struct topo_rings *rings)
{
	int num = list_rates(s);

	for (s->worst = TOPO_NVL; s->worst < TOPO_NUM_CLASSES; s->worst++) {
		if (!has_class(s, s->worst))
			continue;
		for (int i = 0; i < num && s->rates[i] > 0; i++) {
			if (i == 0 || s->rates[i] < s->rates[i - 1])
				try_rate(s, s->rates[i], rings);
		}
	}
	rings->num_gpus = s->num_gpus;
	for (int i = 0; i < rings->num; i++) {
		for (int j = 0; j < s->num_gpus; j++)
			rings->order[i][j] = s->gpus[rings->order[i][j]];
	}
}

bool topo_ring_find(const struct topo_machine *machine, const int *gpus, int num_gpus,
		    struct topo_rings *rings)
{
	struct search *s;
	bool well;

	rings->num = rings->num_gpus = 0;
	rings->rate = 0;
	if (num_gpus < 2 || num_gpus > TOPO_MOST_RING_GPUS)
		return true;
	s = calloc(1, sizeof(*s));
	if (!s)
		return false;
	s->machine = machine;
	s->num_gpus = num_gpus;
	memcpy(s->gpus, gpus, (size_t)num_gpus * sizeof(*gpus));
	well = prepare_search(s);
	if (well)
		find_rings(s, rings);
	release_search(s);
	free(s);
	return well;
}

bool topo_ring_find_all(const struct topo_machine *machine, struct topo_rings *rings)
{
	int gpus[TOPO_MOST_RING_GPUS + 1], num = 0;

	while (num <= TOPO_MOST_RING_GPUS && topo_machine_nth(machine, TOPO_GPU, num) >= 0) {
		gpus[num] = topo_machine_nth(machine, TOPO_GPU, num);
		num++;
	}
	return topo_ring_find(machine, gpus, num, rings);
}
