/* SPDX-License-Identifier: BSD-3-Clause */
#include "sim-bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- latency: how long until what one rank has is known to all ---- */

/* Nodes that hear of it at a time. */
struct birth {
	double at, nodes;
};

enum { MOST_BIRTHS = 4096 };

static int compare(const void *a, const void *b)
{
	double x = ((const struct birth *)a)->at, y = ((const struct birth *)b)->at;

	return (x > y) - (x < y);
}

/* Add to those that are waited for, together with what comes at the same time. */
static int add(struct birth *births, int num, int first, double at, double nodes)
{
	for (int i = first; i < num; i++) {
		if (fabs(births[i].at - at) < 1e-9) {
			births[i].nodes += nodes;
			return num;
		}
	}
	if (num < MOST_BIRTHS)
		births[num++] = (struct birth){at, nodes};
	return num;
}

/* In a node all others know it as soon as they can have read it. Each rank that knows it tells
 * other nodes, one after the other. */
static double spread_over_nodes(int nodes, int ranks, double alpha_node, double alpha_net)
{
	struct birth births[MOST_BIRTHS];
	double known = 0, last = 0;
	int num = add(births, 0, 0, 0, 1);

	for (int i = 0; i < num && known < nodes; i++) {
		int first = i + 1;

		known += births[i].nodes;
		last = births[i].at;
		for (int j = 1; j <= 24; j++) {
			num = add(births, num, first, last + j * alpha_net, births[i].nodes);
			num = add(births, num, first, last + alpha_node + j * alpha_net,
				  births[i].nodes * (ranks - 1));
		}
		qsort(births + first, (size_t)(num - first), sizeof(*births), compare);
	}
	return last;
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
	double alpha_net = costs->step + costs->tell + b->net_latency;
	int ranks = b->ranks / b->nodes;

	if (b->nodes == 1)
		return alpha_node;
	return spread_over_nodes(b->nodes, ranks, alpha_node, alpha_net);
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

/* What a rank sends at least, of all; what a node sends to others; and what crosses the middle of
 * the network, in one direction. Chan, Heimlich, Purkayastha, van de Geijn: Collective
 * communication: theory, practice, and experience, 2007. */
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
