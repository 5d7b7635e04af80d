/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders of ranks in which each is near to the next. */
#ifndef CORE_RINGS_H
#define CORE_RINGS_H

#include "core/choose/core_model.h"

/*
 * Orders as in a sched_request, into `*rings`, which the caller frees. On a node they are the rings
 * of its machine (topo_ring.h), in which ranks that share a GPU follow each other; nodes follow
 * each other, and each ring goes from node to node by another GPU's NIC. Returns their number,
 * which is 0, and `*rings` NULL, where nothing is known that would matter; -1: no memory.
 */
int core_rings_find(int ranks, const struct core_seat *seats, int num_nodes,
		    const struct topo_machine *const *machines, int **rings);

#endif
