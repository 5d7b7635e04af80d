/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies of communicators: who is whose neighbour. */
#include "core/comm/core_mpi_graph.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_graph.h"

#include <stdlib.h>

static struct core_graph *read_cart(MPI_Comm comm)
{
	struct core_graph *graph;
	int dims;

	PMPI_Cartdim_get(comm, &dims);
	graph = core_graph_new(2 * dims, 2 * dims);
	for (int i = 0; graph && i < dims; i++)
		PMPI_Cart_shift(comm, i, 1, &graph->in[2 * i], &graph->in[2 * i + 1]);
	for (int i = 0; graph && i < 2 * dims; i++) {
		graph->in[i] = graph->in[i] == MPI_PROC_NULL ? -1 : graph->in[i];
		graph->out[i] = graph->in[i];
	}
	return graph;
}

static struct core_graph *read_old_graph(MPI_Comm comm, int rank)
{
	struct core_graph *graph;
	int num;

	PMPI_Graph_neighbors_count(comm, rank, &num);
	graph = core_graph_new(num, num);
	if (graph) {
		PMPI_Graph_neighbors(comm, rank, num, graph->in);
		PMPI_Graph_neighbors(comm, rank, num, graph->out);
	}
	return graph;
}

static struct core_graph *read_dist_graph(MPI_Comm comm)
{
	int num_in, num_out, weighted, *weights;
	struct core_graph *graph;

	PMPI_Dist_graph_neighbors_count(comm, &num_in, &num_out, &weighted);
	graph = core_graph_new(num_in, num_out);
	weights = malloc(((size_t)num_in + (size_t)num_out + 1) * sizeof(int));
	if (graph && weights)
		PMPI_Dist_graph_neighbors(comm, num_in, graph->in, weights, num_out, graph->out,
					  weights + num_in);
	if (!weights) {
		core_graph_free(graph);
		graph = NULL;
	}
	free(weights);
	return graph;
}

/* `counts`: of all ranks; negative: theirs can't be had. NULL: no memory. */
static int *gather_neighbors(MPI_Comm comm, int size, const int *mine, int num, const int *counts)
{
	int *lengths = malloc(2 * (size_t)size * sizeof(int)), *starts, *all, total = 0;

	if (!lengths)
		return NULL;
	starts = lengths + size;
	for (int i = 0; i < size; i++) {
		starts[i] = total;
		lengths[i] = counts[i] > 0 ? counts[i] : 0;
		total += lengths[i];
	}
	all = malloc(((size_t)total + 1) * sizeof(int));
	if (all)
		PMPI_Allgatherv(mine, num > 0 ? num : 0, MPI_INT, all, lengths, starts, MPI_INT,
				comm);
	free(lengths);
	return all;
}

/* Tell all whom this rank has blocks for. False: no memory, where the others wait. */
static bool exchange_neighbors(MPI_Comm comm, int size, struct core_graph *graph)
{
	int *counts = malloc((size_t)size * sizeof(int)), *all = NULL;
	int *mine = malloc(((size_t)graph->num_out + 1) * sizeof(int)), num;
	bool well = counts && mine;

	if (well) {
		num = core_graph_list(graph, size, mine);
		PMPI_Allgather(&num, 1, MPI_INT, counts, 1, MPI_INT, comm);
		all = gather_neighbors(comm, size, mine, num, counts);
		well = all && core_graph_set_pairs(graph, size, counts, all);
	}
	free(counts);
	free(mine);
	free(all);
	return well;
}

bool core_mpi_find_graph(MPI_Comm comm, struct core_comm *state)
{
	int topology = MPI_UNDEFINED;

	PMPI_Topo_test(comm, &topology);
	if (topology == MPI_CART)
		state->graph = read_cart(comm);
	else if (topology == MPI_GRAPH)
		state->graph = read_old_graph(comm, state->rank);
	else if (topology == MPI_DIST_GRAPH)
		state->graph = read_dist_graph(comm);
	else
		return true;
	return state->graph && exchange_neighbors(comm, state->size, state->graph);
}
