/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The virtual topology of a communicator, by which its neighbour collectives go: this rank's
 * neighbours, and which ranks have something for which, that all plan alike. Asked for once, when
 * the communicator is made (core_mpi_graph.c).
 */
#ifndef CORE_GRAPH_H
#define CORE_GRAPH_H

#include "algos/sched_pairs.h"
#include "core/call/core_call.h"
#include "core/call/core_reason.h"
#include "core/comm/core_comm.h"

struct core_graph {
	/* Whom this rank's blocks are from, and for, in MPI's order; -1: nobody, at a border. */
	int num_in, num_out;
	int *in, *out;
	struct sched_pairs *pairs; /* of all; NULL: its calls can't be accelerated, and why: */
	enum core_reason why;
};

/* With room for so many neighbours. NULL: no memory. */
struct core_graph *core_graph_new(int num_in, int num_out);
void core_graph_free(struct core_graph *graph); /* NULL is allowed */

/*
 * How many ranks this one has blocks for, of the communicator's `size`, and which: into `to`, which
 * has room for num_out. Negative: its neighbours can't be those of an exchange of pairs.
 */
int core_graph_list(const struct core_graph *graph, int size, int *to);

/*
 * Set the pairs, by what all ranks say: `counts`, and `to`, one rank's after the other's. False: no
 * memory.
 */
bool core_graph_set_pairs(struct core_graph *graph, int size, const int *counts, const int *to);

/*
 * Who has something for whom in such a call of the communicator, where that is not all. NULL: all
 * for all, or as the collective says.
 */
const struct sched_pairs *core_graph_pairs(const struct core_comm *comm, enum core_coll coll);

#endif
