/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From machines and where ranks are on them to the fabric that schedules are timed on. What is not
 * known is taken to be as usual for its kind.
 */
#ifndef CORE_MODEL_H
#define CORE_MODEL_H

#include "algos/algo_choose.h"
#include "topo/topo_machine.h"

/* Where a rank is. */
struct core_seat {
	int node;
	int gpu;         /* object of the node's machine; -1: not known */
	uint64_t device; /* then: the same number for ranks of a node that share a GPU */
};

/*
 * The fabric of ranks on nodes, of which each has a machine; NULL: nothing is known of it.
 * `sockets`: messages between nodes go by them, not by hardware that moves data alone. False: no
 * memory. sched_fabric_free frees it; the machines need not live as long.
 */
bool core_model_make(int ranks, const struct core_seat *seats, int num_nodes,
		     const struct topo_machine *const *machines, bool sockets,
		     struct sched_fabric *fabric);

#endif
