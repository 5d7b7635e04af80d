/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The picture of the job's machines, the same in all its processes: one process of each node looks
 * at the node, and tells all the others, once, at MPI_Init. No CUDA is needed for it.
 */
#ifndef CORE_MACHINES_H
#define CORE_MACHINES_H

#include "topo/topo_machine.h"

#include <stdint.h>

/* Take it. Collective over the job. */
void core_machines_start(void);

/* Free the pictures. */
void core_machines_stop(void);

/* The machine of a node of the job; NULL: nothing is known of it. */
const struct topo_machine *core_machines_of(int node);

/* Its GPU of an identity (gpu_context.h); -1: it shows none such. */
int core_machines_gpu(const struct topo_machine *machine, uint64_t identity);

/*
 * How far apart GPUs of this node may be for one to use the other's memory: GPUCOLL_P2P_LEVEL, an
 * enum topo_class, and whether the user has said so.
 */
int core_machines_reach(void);

/* The least that two processes say of that. */
int core_machines_least_reach(int a, int b);

/*
 * Whether two GPUs, by their identities, may use each other's memory within the limit: what the
 * picture does not show counts as far where the user has set one, and else is no reason against it.
 */
bool core_machines_may_reach(uint64_t a, uint64_t b, int limit);

#endif
