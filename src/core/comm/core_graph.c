/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/comm/core_graph.h"
#include "core/call/core_shape.h"

#include <stdlib.h>

struct core_graph *core_graph_new(int num_in, int num_out)
{
	size_t num = (size_t)num_in + (size_t)num_out;
	struct core_graph *graph = malloc(sizeof(*graph) + num * sizeof(int));

	if (!graph)
		return NULL;
	*graph = (struct core_graph){.num_in = num_in,
				     .num_out = num_out,
				     .in = (int *)(graph + 1),
				     .out = (int *)(graph + 1) + num_in};
	return graph;
}

void core_graph_free(struct core_graph *graph)
{
	if (!graph)
		return;
	sched_pairs_free(graph->pairs);
	free(graph);
}

/* Blocks are told apart by the ranks that they are from or for, so none may be there twice. */
static bool all_differ(const int *ranks, int num)
{
	for (int i = 0; i < num; i++) {
		for (int j = 0; j < i; j++) {
			if (ranks[i] >= 0 && ranks[i] == ranks[j])
				return false;
		}
	}
	return true;
}

int core_graph_list(const struct core_graph *graph, int size, int *to)
{
	/* That a call's shape has room for. */
	int most = size > CORE_FEW_BLOCKS ? size : CORE_FEW_BLOCKS, num = 0;

	if (graph->num_in > most || graph->num_out > most ||
	    !all_differ(graph->in, graph->num_in) || !all_differ(graph->out, graph->num_out))
		return -1;
	for (int i = 0; i < graph->num_out; i++) {
		if (graph->out[i] >= 0)
			to[num++] = graph->out[i];
	}
	return num;
}

bool core_graph_set_pairs(struct core_graph *graph, int size, const int *counts, const int *to)
{
	for (int i = 0; i < size; i++) {
		if (counts[i] < 0) {
			graph->why = CORE_REASON_NEIGHBORS;
			return true;
		}
	}
	graph->pairs = sched_pairs_new(size, counts, to);
	return graph->pairs != NULL;
}

const struct sched_pairs *core_graph_pairs(const struct core_comm *comm, enum core_coll coll)
{
	return core_coll_is_neighbor(coll) ? comm->graph->pairs : NULL;
}
