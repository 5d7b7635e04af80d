/* SPDX-License-Identifier: BSD-3-Clause */
/* The network between the job's nodes: up, and down again. */
#ifndef CORE_NETWORK_H
#define CORE_NETWORK_H

/*
 * Where the job has several nodes with CUDA drivers: bring up the network, and the node's service.
 * Collective over the job; all have it or none.
 */
void core_network_start(void);

/* Take it down. Collective over the job; nobody may be in a call. */
void core_network_stop(void);

#endif
