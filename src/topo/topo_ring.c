/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_ring.h"
#include "topo/topo_path.h"

#include <stdlib.h>
#include <string.h>

static const double unknown = 12; /* GB/s, of what 16 lanes of PCI Express 3 carry in practice */
static const double slack = 1e-6; /* sums of shares are not exact */

/*
 * Ways of a machine, by number: an object's to its parent, and from there; then a link's from its
 * first end to the other, and back.
 */
static int num_ways(const struct topo_machine *machine)
{
	return 2 * (machine->num_objects + machine->num_links);
}

static int up(int object)
{
	return 2 * object;
}

static int down(int object)
{
	return 2 * object + 1;
}

static int along(const struct topo_machine *machine, int link, int from)
{
	return 2 * (machine->num_objects + link) + (machine->links[link].a != from);
}

/* A hop from GPU to GPU: which ways it takes, and what part of it goes there. */
struct part {
	int way;
	double share;
};
struct hop {
	enum topo_class class;
	int num;
	struct part *parts;
};

struct search {
	const struct topo_machine *machine;
	int gpus[TOPO_MOST_RING_GPUS], num_gpus;
	struct hop *hops; /* from GPU i to GPU j: i num_gpus + j */
	double *capacity; /* of each way */
	double *used;     /* by the rings so far; and, before the search, shares of a hop */
	double *rates;
	double rate;
	enum topo_class worst;       /* that hops may have */
	long steps;                  /* that are left */
	struct topo_rings now, best; /* of this rate; in numbers of `gpus` */
};

/* ---- hops ---- */

static bool joins(const struct topo_link *link, int a, int b)
{
	return (link->a == a && link->b == b) || (link->a == b && link->b == a);
}

/* Over the links between two ends, in proportion to their rates. */
static void go_over_links(struct search *s, int from, int to, double amount)
{
	double total = topo_path_linked(s->machine, from, to);

	for (int i = 0; i < s->machine->num_links; i++) {
		const struct topo_link *link = &s->machine->links[i];

		if (joins(link, from, to))
			s->used[along(s->machine, i, from)] += amount * link->rate / total;
	}
}

/* Directly and over NVSwitches, as topo_path_between adds them up to `total`. */
static void go_over_nvlinks(struct search *s, int from, int to, double total)
{
	const struct topo_machine *machine = s->machine;
	double direct = topo_path_linked(machine, from, to);

	if (direct > 0)
		go_over_links(s, from, to, direct / total);
	for (int i = 0; i < machine->num_objects; i++) {
		double in, out, least;

		if (machine->objects[i].kind != TOPO_NVSWITCH)
			continue;
		in = topo_path_linked(machine, from, i);
		out = topo_path_linked(machine, i, to);
		least = in < out ? in : out;
		if (least <= 0)
			continue;
		go_over_links(s, from, i, least / total);
		go_over_links(s, i, to, least / total);
	}
}

static void go_over_tree(struct search *s, int from, int to)
{
	const struct topo_object *objects = s->machine->objects;
	int common = topo_path_common(s->machine, from, to), a, b;

	for (int i = from; i != common; i = objects[i].parent)
		s->used[up(i)] += 1;
	for (int i = to; i != common; i = objects[i].parent)
		s->used[down(i)] += 1;
	a = topo_path_numa(s->machine, from);
	b = topo_path_numa(s->machine, to);
	if (common < 0 && a >= 0 && b >= 0 && topo_path_linked(s->machine, a, b) > 0)
		go_over_links(s, a, b, 1);
}

/* False: no memory. */
static bool make_hop(struct search *s, int from, int to, struct hop *hop)
{
	const struct topo_path path = topo_path_between(s->machine, from, to);
	int ways = num_ways(s->machine);

	memset(s->used, 0, (size_t)ways * sizeof(*s->used));
	if (path.class == TOPO_NVL)
		go_over_nvlinks(s, from, to, path.rate);
	else
		go_over_tree(s, from, to);
	hop->class = path.class;
	for (int i = 0; i < ways; i++)
		hop->num += s->used[i] > 0;
	hop->parts = calloc((size_t)hop->num + 1, sizeof(*hop->parts));
	if (!hop->parts)
		return false;
	hop->num = 0;
	for (int i = 0; i < ways; i++) {
		if (s->used[i] > 0)
			hop->parts[hop->num++] = (struct part){i, s->used[i]};
	}
	return true;
}

/* ---- the search ---- */

static void extend(struct search *s, int length);

/* The hop's part of a ring, or, `sign` being -1, of one no more. False: it is too much. */
static bool take(struct search *s, const struct hop *hop, int sign)
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
	const struct hop *hop = &s->hops[order[length - 1] * s->num_gpus + to];

	if (hop->class > s->worst)
		return;
	s->steps--;
	if (take(s, hop, 1)) {
		if (length == s->num_gpus) {
			close_ring(s);
		} else {
			order[length] = to;
			extend(s, length + 1);
		}
	}
	take(s, hop, -1);
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

/* What a ring may have: the rates of ways, and of paths, of which some have several ways side by
 * side. The largest first. */
static int list_rates(struct search *s)
{
	int num = 0;

	for (int i = 0; i < num_ways(s->machine); i++)
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
	memset(s->used, 0, (size_t)num_ways(s->machine) * sizeof(*s->used));
	extend(s, 1);
	if (s->best.num * rate <= best->num * best->rate + slack)
		return;
	*best = s->best;
	best->rate = rate;
}

/* ---- all ---- */

static bool prepare(struct search *s)
{
	size_t ways = (size_t)num_ways(s->machine), n = (size_t)s->num_gpus;
	bool well;

	s->hops = calloc(n * n, sizeof(*s->hops));
	s->capacity = calloc(ways + 1, sizeof(*s->capacity));
	s->used = calloc(ways + 1, sizeof(*s->used));
	s->rates = calloc(ways + n * n, sizeof(*s->rates));
	well = s->hops && s->capacity && s->used && s->rates;
	for (int i = 0; well && i < s->machine->num_objects; i++) {
		double rate = s->machine->objects[i].rate;

		s->capacity[up(i)] = s->capacity[down(i)] = rate > 0 ? rate : unknown;
	}
	for (int i = 0; well && i < s->machine->num_links; i++) {
		const struct topo_link *link = &s->machine->links[i];

		s->capacity[along(s->machine, i, link->a)] = link->rate;
		s->capacity[along(s->machine, i, link->b)] = link->rate;
	}
	for (size_t i = 0; i < n * n && well; i++) {
		if (i / n != i % n)
			well = make_hop(s, s->gpus[i / n], s->gpus[i % n], &s->hops[i]);
	}
	return well;
}

static void release(struct search *s)
{
	for (int i = 0; s->hops && i < s->num_gpus * s->num_gpus; i++)
		free(s->hops[i].parts);
	free(s->hops);
	free(s->capacity);
	free(s->used);
	free(s->rates);
}

static bool has_class(const struct search *s, enum topo_class class)
{
	for (int i = 0; i < s->num_gpus * s->num_gpus; i++) {
		if (s->hops[i].num && s->hops[i].class == class)
			return true;
	}
	return false;
}

/* First with the nearest hops only: others are to bring more. */
static void find(struct search *s, struct topo_rings *rings)
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

bool topo_ring_find(const struct topo_machine *machine, struct topo_rings *rings)
{
	struct search *s = calloc(1, sizeof(*s));
	int gpu;
	bool well;

	rings->num = rings->num_gpus = 0;
	rings->rate = 0;
	if (!s)
		return false;
	s->machine = machine;
	while (s->num_gpus < TOPO_MOST_RING_GPUS &&
	       (gpu = topo_machine_nth(machine, TOPO_GPU, s->num_gpus)) >= 0)
		s->gpus[s->num_gpus++] = gpu;
	well = prepare(s);
	if (well && s->num_gpus > 1 && topo_machine_nth(machine, TOPO_GPU, s->num_gpus) < 0)
		find(s, rings);
	release(s);
	free(s);
	return well;
}
