/* SPDX-License-Identifier: BSD-3-Clause */
#include "sim-bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- latency: how long until what one rank has is known to all ---- */

/* Times are counted in these, us, and costs rounded down, so the bound is one still. */
static const double tick = 0.01;

static int ticks(double time)
{
	return time < tick ? 1 : (int)(time / tick + 1e-6);
}

/*
 * In a node all others know it as soon as they can have read it. Each rank that knows it tells
 * ranks of other nodes: its host sends one message after the other, each of which takes alpha_net.
 * No number of ranks know it earlier than where each message is to a node that has not heard of it.
 * Returns when so many do, of all.
 */
static double spread_over_nodes(int ranks, int all, int per_node, double alpha_node,
				double alpha_net, double tell)
{
	/* By doubling all know it then. */
	int most = ticks(alpha_node + alpha_net * ceil(log2(all / per_node)) + 1);
	double *told = calloc((size_t)most, sizeof(*told)),
	       *read = calloc((size_t)most, sizeof(*read));
	double known = 0;
	int now;

	if (!told || !read) {
		fputs("gpucoll-sim: no memory\n", stderr);
		exit(1);
	}
	told[0] = 1;
	for (now = 0; now < most - 1; now++) {
		double more = told[now] + read[now];

		known += more;
		if (known >= ranks)
			break;
		if (now + ticks(alpha_node) < most)
			read[now + ticks(alpha_node)] += told[now] * (per_node - 1);
		for (int at = now + ticks(alpha_net); more > 0 && at < most; at += ticks(tell))
			told[at] += more;
	}
	free(told);
	free(read);
	return now * tick;
}

static double least_latency(const struct sched_fabric *fabric)
{
	double least = INFINITY;

	for (size_t i = 0; i < fabric->num_routes; i++)
		least = fmin(least, fabric->routes[i].latency);
	return least;
}

static double latency(const struct sim_bound *b)
{
	const struct sched_costs *costs = &b->fabric->costs;
	double alpha_node = costs->step + least_latency(b->fabric);
	double alpha_net = costs->step + costs->post + SIM_LEAST_HOPS * b->hop, time;
	int per_node = b->ranks / b->nodes;

	if (b->nodes == 1)
		return alpha_node;
	time = spread_over_nodes(b->ranks, b->ranks, per_node, alpha_node, alpha_net, costs->post);
	/* Who is farther away hears of it by a message, at least, that goes farther. */
	for (int i = 0; i < b->num_levels; i++) {
		int far = b->ranks - b->levels[i].nodes * per_node;

		time = fmax(time, spread_over_nodes(far, b->ranks, per_node, alpha_node, alpha_net,
						    costs->post) +
					  (b->levels[i].hops - SIM_LEAST_HOPS) * b->hop);
	}
	return time;
}

/* ---- bytes ---- */

/* What leaves the first GPU: over ways that are used from nowhere else. */
static double rate_of_gpu(const struct sched_fabric *fabric)
{
	int sites = fabric->nodes[0].num;
	unsigned char *uses = calloc((size_t)fabric->num_ways, 1);
	double rate = 0;

	for (int i = 0; uses && i < sites * sites; i++) {
		const struct sched_route *route =
			&fabric->routes[fabric->nodes[0].first + (size_t)i];

		for (int j = 0; j < route->num; j++)
			uses[route->legs[j].way] |= i < sites ? 1 : 2;
	}
	for (int i = 0; uses && i < fabric->num_ways; i++)
		rate += uses[i] == 1 ? fabric->rates[i] : 0;
	free(uses);
	return rate;
}

/*
 * What a rank sends at least, of all; what a node sends to others; and what crosses the middle of
 * the network, in one direction. Chan, Heimlich, Purkayastha, van de Geijn: Collective
 * communication: theory, practice, and experience, 2007.
 */
struct least {
	double rank, node, middle;
};

static struct least least_bytes(const struct sim_bound *b, enum sched_coll coll, double bytes)
{
	double p = b->ranks, n = b->nodes, g = p / n, rest = (p - 1) / p, far = (n - 1) / n;

	switch (coll) {
	case SCHED_ALLREDUCE:
		return (struct least){2 * rest * bytes, 2 * far * bytes, bytes};
	case SCHED_REDUCE_SCATTER:
	case SCHED_ALLGATHER: /* a block's bytes */
		return (struct least){(p - 1) * bytes, g * (n - 1) * bytes, p / 2 * bytes};
	case SCHED_ALLTOALL:
		return (struct least){(p - 1) * bytes, g * (p - g) * bytes, p / 2 * p / 2 * bytes};
	case SCHED_GATHER:
	case SCHED_SCATTER:
		return (struct least){(p - 1) * bytes, (p - g) * bytes, p / 2 * bytes};
	default:
		return (struct least){bytes, bytes, bytes};
	}
}

double sim_bound_time(const struct sim_bound *b, enum sched_coll coll, double bytes)
{
	const struct sched_costs *costs = &b->fabric->costs;
	struct least least = least_bytes(b, coll, bytes);
	double links = rate_of_gpu(b->fabric), time = latency(b);

	if (b->nodes > 1) {
		links += b->nic_rate;
		time = fmax(time, least.node / (b->nics * b->nic_rate));
		time = fmax(time, least.middle / b->bisection);
	}
	if (links > 0)
		time = fmax(time, least.rank / links);
	return costs->call + costs->launch + time;
}
