/* SPDX-License-Identifier: BSD-3-Clause */
/* The network between the job's nodes: up, and down again. */
#ifndef CORE_NETWORK_H
#define CORE_NETWORK_H

#include <stdbool.h>

/*
 * Where the job has several nodes with CUDA drivers: bring up the network, and the node's service.
 * Collective over the job; all have it or none.
 */
void core_network_start(void);

/*
 * Take it down. Collective over the job; nobody may be in a call, but those who say that it
 * `goes_on`, in calls with each other, and keep it until they end.
 */
void core_network_stop(bool goes_on);

#endif
