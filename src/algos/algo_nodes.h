/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a request by nodes, for hierarchical algorithms. There is a rail for each rank of
 * the largest node; on each node a rail has a carrier: the rank of its number, or, where there are
 * fewer, of what is left of that.
 */
#ifndef ALGO_NODES_H
#define ALGO_NODES_H

#include "algos/sched.h"

struct algo_nodes {
	int num, rails;
	int *order, *first; /* ranks by node; where a node's begin, and the last one's end */
};

/* False: no memory. To be freed in any case. */
bool algo_nodes_sort(struct algo_nodes *nodes, const struct sched_request *request);
void algo_nodes_free(struct algo_nodes *nodes);

static inline int algo_nodes_size(const struct algo_nodes *nodes, int node)
{
	return nodes->first[node + 1] - nodes->first[node];
}

/* The node's rank of the number, from 0 on. */
static inline int algo_nodes_rank(const struct algo_nodes *nodes, int node, int number)
{
	return nodes->order[nodes->first[node] + number];
}

static inline int algo_nodes_carrier(const struct algo_nodes *nodes, int node, int rail)
{
	return algo_nodes_rank(nodes, node, rail % algo_nodes_size(nodes, node));
}

/*
 * Give the rail's carriers the connections of a schedule among nodes. Returns the first one's
 * number.
 */
int algo_nodes_connect(const struct algo_nodes *nodes, struct sched *sched,
		       const struct sched *inner, int rail);

#endif
