/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_way.h"

#include <stdlib.h>

static const double unknown = 12; /* GB/s, of what 16 lanes of PCI Express 3 carry in practice */

/*
 * Ways of a machine, by number: an object's to its parent, and from there; then a link's from its
 * first end to the other, and back.
 */
int topo_way_up(int object)
{
	return 2 * object;
}

int topo_way_down(int object)
{
	return 2 * object + 1;
}

static int along(const struct topo_machine *machine, int link, int from)
{
	return 2 * (machine->num_objects + link) + (machine->links[link].a != from);
}

int topo_way_count(const struct topo_machine *machine)
{
	return 2 * (machine->num_objects + machine->num_links);
}

void topo_way_rates(const struct topo_machine *machine, double *rates)
{
	for (int i = 0; i < machine->num_objects; i++) {
		double rate = machine->objects[i].rate;

		rates[topo_way_up(i)] = rates[topo_way_down(i)] = rate > 0 ? rate : unknown;
	}
	for (int i = 0; i < machine->num_links; i++) {
		const struct topo_link *link = &machine->links[i];

		rates[along(machine, i, link->a)] = link->rate;
		rates[along(machine, i, link->b)] = link->rate;
	}
}

/* ---- hops ---- */

/* What of a hop's bytes goes over each way. */
struct usage {
	const struct topo_machine *machine;
	double *shares;
};

static bool joins(const struct topo_link *link, int a, int b)
{
	return (link->a == a && link->b == b) || (link->a == b && link->b == a);
}

/* Over the links between two ends, in proportion to their rates. */
static void go_over_links(const struct usage *u, int from, int to, double amount)
{
	double total = topo_path_linked(u->machine, from, to);

	for (int i = 0; i < u->machine->num_links; i++) {
		const struct topo_link *link = &u->machine->links[i];

		if (joins(link, from, to))
			u->shares[along(u->machine, i, from)] += amount * link->rate / total;
	}
}

/* Directly and over NVSwitches, as topo_path_between adds them up to `total`. */
static void go_over_nvlinks(const struct usage *u, int from, int to, double total)
{
	const struct topo_machine *machine = u->machine;
	double direct = topo_path_linked(machine, from, to);

	if (direct > 0)
		go_over_links(u, from, to, direct / total);
	for (int i = 0; i < machine->num_objects; i++) {
		double in, out, least;

		if (machine->objects[i].kind != TOPO_NVSWITCH)
			continue;
		in = topo_path_linked(machine, from, i);
		out = topo_path_linked(machine, i, to);
		least = in < out ? in : out;
		if (least <= 0)
			continue;
		go_over_links(u, from, i, least / total);
		go_over_links(u, i, to, least / total);
	}
}

static void go_over_tree(const struct usage *u, int from, int to)
{
	const struct topo_object *objects = u->machine->objects;
	int common = topo_path_common(u->machine, from, to), a, b;

	for (int i = from; i != common; i = objects[i].parent)
		u->shares[topo_way_up(i)] += 1;
	for (int i = to; i != common; i = objects[i].parent)
		u->shares[topo_way_down(i)] += 1;
	a = topo_path_numa(u->machine, from);
	b = topo_path_numa(u->machine, to);
	if (common < 0 && a >= 0 && b >= 0 && topo_path_linked(u->machine, a, b) > 0)
		go_over_links(u, a, b, 1);
}

static bool collect(const double *shares, int ways, struct topo_hop *hop)
{
	hop->num = 0;
	for (int i = 0; i < ways; i++)
		hop->num += shares[i] > 0;
	hop->parts = calloc((size_t)hop->num + 1, sizeof(*hop->parts));
	if (!hop->parts)
		return false;
	hop->num = 0;
	for (int i = 0; i < ways; i++) {
		if (shares[i] > 0)
			hop->parts[hop->num++] = (struct topo_part){i, shares[i]};
	}
	return true;
}

bool topo_way_hop(const struct topo_machine *machine, int from, int to, struct topo_hop *hop)
{
	int ways = topo_way_count(machine);
	struct usage usage = {machine, calloc((size_t)ways + 1, sizeof(double))};
	bool well;

	if (!usage.shares)
		return false;
	hop->path = topo_path_between(machine, from, to);
	if (hop->path.class == TOPO_NVL)
		go_over_nvlinks(&usage, from, to, hop->path.rate);
	else if (from != to)
		go_over_tree(&usage, from, to);
	well = collect(usage.shares, ways, hop);
	free(usage.shares);
	return well;
}

void topo_way_free(struct topo_hop *hop)
{
	free(hop->parts);
	*hop = (struct topo_hop){0};
}
