/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_path.h"

#include <string.h>
#include <stdbool.h>
static const struct {
	const char *name;
	double latency;
} classes[TOPO_NUM_CLASSES] = {
	[TOPO_LOC] = {"LOC", 0},   [TOPO_NVL] = {"NVL", 0.7}, [TOPO_PIX] = {"PIX", 1},
	[TOPO_PXB] = {"PXB", 1.2}, [TOPO_PHB] = {"PHB", 1.5}, [TOPO_SYS] = {"SYS", 2},
};

const char *topo_class_name(enum topo_class class)
{
	return classes[class].name;
}

static struct topo_path path(enum topo_class class, double rate)
{
	return (struct topo_path){class, rate, classes[class].latency};
}

/* The slower of two; what is not known is no limit. */
static double slower(double a, double b)
{
	if (a <= 0 || b <= 0)
		return a > b ? a : b;
	return a < b ? a : b;
}

/* ---- links ---- */

double topo_path_linked(const struct topo_machine *machine, int a, int b)
{
	double rate = 0;

	for (int i = 0; i < machine->num_links; i++) {
		const struct topo_link *link = &machine->links[i];

		if ((link->a == a && link->b == b) || (link->a == b && link->b == a))
			rate += link->rate;
	}
	return rate;
}

/* Directly, and through each NVSwitch as much as its narrower end takes. */
static double nvlinked(const struct topo_machine *machine, int a, int b)
{
	double rate = topo_path_linked(machine, a, b);

	for (int i = 0; i < machine->num_objects; i++) {
		double from, to;

		if (machine->objects[i].kind != TOPO_NVSWITCH)
			continue;
		from = topo_path_linked(machine, a, i);
		to = topo_path_linked(machine, i, b);
		rate += from < to ? from : to;
	}
	return rate;
}

/* ---- the tree ---- */

static bool is_above(const struct topo_machine *machine, int above, int below)
{
	for (; below >= 0; below = machine->objects[below].parent) {
		if (below == above)
			return true;
	}
	return false;
}

int topo_path_common(const struct topo_machine *machine, int a, int b)
{
	while (a >= 0 && !is_above(machine, a, b))
		a = machine->objects[a].parent;
	return a;
}

/* The slowest of the way up; `*steps` of it. */
static double climb(const struct topo_machine *machine, int from, int to, int *steps)
{
	double rate = 0;

	for (*steps = 0; from != to; from = machine->objects[from].parent, ++*steps)
		rate = slower(rate, machine->objects[from].rate);
	return rate;
}

int topo_path_numa(const struct topo_machine *machine, int object)
{
	while (object >= 0 && machine->objects[object].kind != TOPO_NUMA)
		object = machine->objects[object].parent;
	return object;
}

/* Above all NUMA nodes. What hides where it is counts as near if there is but one node. */
static enum topo_class class_of_root(const struct topo_machine *machine, int a, int b)
{
	bool several = topo_machine_nth(machine, TOPO_NUMA, 1) >= 0;

	return several || (topo_path_numa(machine, a) >= 0 && topo_path_numa(machine, b) >= 0)
		       ? TOPO_SYS
		       : TOPO_PHB;
}

static enum topo_class class_of(const struct topo_machine *machine, int a, int b, int common,
				int steps)
{
	if (common < 0)
		return class_of_root(machine, a, b);
	if (machine->objects[common].kind == TOPO_SWITCH)
		return steps <= 2 ? TOPO_PIX : TOPO_PXB;
	return TOPO_PHB;
}

struct topo_path topo_path_between(const struct topo_machine *machine, int a, int b)
{
	int common, up, down;
	double rate;

	if (a == b)
		return path(TOPO_LOC, 0);
	rate = machine->objects[a].kind == TOPO_GPU && machine->objects[b].kind == TOPO_GPU
		       ? nvlinked(machine, a, b)
		       : 0;
	if (rate > 0)
		return path(TOPO_NVL, rate);
	common = topo_path_common(machine, a, b);
	rate = slower(climb(machine, a, common, &up), climb(machine, b, common, &down));
	if (common < 0)
		rate = slower(rate, topo_path_linked(machine, topo_path_numa(machine, a),
						     topo_path_numa(machine, b)));
	return path(class_of(machine, a, b, common, up + down), rate);
}

/* ---- how far GPUs may reach ---- */

/* nccl src/graph/paths.cc, ncclTopoCheckP2p. */
enum topo_class topo_path_usual_reach(const struct topo_machine *machine)
{
	enum { FEW_GPUS = 2 };
	bool amd = machine->cpu && !strcmp(machine->cpu, "AuthenticAMD");

	return amd && topo_machine_nth(machine, TOPO_GPU, FEW_GPUS) < 0 ? TOPO_SYS : TOPO_PXB;
}

bool topo_path_may_reach(const struct topo_machine *machine, int a, int b, enum topo_class reach,
			 bool hidden_are_far)
{
	struct topo_path path = topo_path_between(machine, a, b);

	if (topo_machine_are_apart(machine, a, b))
		return false;
	if (path.class != TOPO_NVL &&
	    (machine->objects[a].parent < 0 || machine->objects[b].parent < 0))
		return !hidden_are_far || reach >= TOPO_SYS;
	return path.class <= reach;
}

/* ---- NICs ---- */

static bool is_better(struct topo_path a, double a_net, struct topo_path b, double b_net)
{
	double a_rate = slower(a.rate, a_net), b_rate = slower(b.rate, b_net);

	return a.class != b.class ? a.class < b.class : a_rate > b_rate;
}

/* Not what manages the node, and has less than half of the fastest one's rate. */
static bool is_for_data(const struct topo_machine *machine, int nic)
{
	double fastest = 0, net = machine->objects[nic].net;
	int other;

	for (int i = 0; (other = topo_machine_nth(machine, TOPO_NIC, i)) >= 0; i++) {
		if (machine->objects[other].net > fastest)
			fastest = machine->objects[other].net;
	}
	return net == 0 || net >= fastest / 2;
}

/* The first of those that are nearest, and how many of them there are; -1: there is no NIC. */
static int first_nearest(const struct topo_machine *machine, int gpu, int *alike)
{
	struct topo_path best = {.class = TOPO_NUM_CLASSES};
	double best_net = 0;
	int nearest = -1, nic;

	*alike = 0;
	for (int i = 0; (nic = topo_machine_nth(machine, TOPO_NIC, i)) >= 0; i++) {
		struct topo_path way = topo_path_between(machine, gpu, nic);
		double net = machine->objects[nic].net;

		if (!is_for_data(machine, nic))
			continue;
		if (nearest < 0 || is_better(way, net, best, best_net)) {
			best = way;
			best_net = net;
			nearest = nic;
			*alike = 1;
		} else if (!is_better(best, best_net, way, net)) {
			++*alike;
		}
	}
	return nearest;
}

/* The number-th of those that are as near as the nearest one. */
static int nth_nearest(const struct topo_machine *machine, int gpu, int nearest, int number)
{
	struct topo_path best = topo_path_between(machine, gpu, nearest);
	double best_net = machine->objects[nearest].net;

	for (int i = 0;; i++) {
		int nic = topo_machine_nth(machine, TOPO_NIC, i);

		if (is_for_data(machine, nic) &&
		    !is_better(best, best_net, topo_path_between(machine, gpu, nic),
			       machine->objects[nic].net) &&
		    number-- == 0)
			return nic;
	}
}

int topo_path_nic_of(const struct topo_machine *machine, int gpu)
{
	int alike, others, before = 0, other;
	int nearest = first_nearest(machine, gpu, &alike);

	if (alike < 2)
		return nearest;
	for (int i = 0; (other = topo_machine_nth(machine, TOPO_GPU, i)) != gpu; i++)
		before += first_nearest(machine, other, &others) == nearest;
	return nth_nearest(machine, gpu, nearest, before % alike);
}
