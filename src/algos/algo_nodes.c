/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo_nodes.h"

#include <stdlib.h>

bool algo_nodes_sort(struct algo_nodes *nodes, const struct sched_request *request)
{
	int *next;

	*nodes = (struct algo_nodes){.num = request->num_nodes};
	nodes->order = calloc((size_t)request->ranks, sizeof(*nodes->order));
	nodes->first = calloc((size_t)request->num_nodes + 2, sizeof(*nodes->first));
	if (!nodes->order || !nodes->first)
		return false;
	/*
	 * Counts, two further on; then where each node's next rank goes to, which in the end is
	 * where the next node's begin.
	 */
	next = nodes->first + 1;
	for (int rank = 0; rank < request->ranks; rank++)
		next[request->nodes[rank] + 1]++;
	for (int node = 0; node < nodes->num; node++) {
		int size = next[node + 1];

		nodes->rails = size > nodes->rails ? size : nodes->rails;
		next[node + 1] += next[node];
	}
	for (int rank = 0; rank < request->ranks; rank++)
		nodes->order[next[request->nodes[rank]]++] = rank;
	return true;
}

void algo_nodes_free(struct algo_nodes *nodes)
{
	free(nodes->order);
	free(nodes->first);
}

int algo_nodes_connect(const struct algo_nodes *nodes, struct sched *sched,
		       const struct sched *inner, int rail)
{
	int first = (int)sched->num_connections;

	for (uint32_t i = 0; i < inner->num_connections; i++)
		sched_connect(sched, algo_nodes_carrier(nodes, inner->connections[i].from, rail),
			      algo_nodes_carrier(nodes, inner->connections[i].to, rail));
	return first;
}
