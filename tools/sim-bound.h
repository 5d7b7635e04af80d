/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What no allreduce, or other collective, on a fabric can be faster than, in the model of alpha and
 * beta: a rank has one message under way at a time, which takes alpha and its bytes' time.
 */
#ifndef SIM_BOUND_H
#define SIM_BOUND_H

#include "algos/sched_time.h"

struct sim_bound {
	const struct sched_fabric *fabric;
	int ranks, nodes, nics; /* NICs used of each node */
	double net_latency;     /* us, the least of a message from node to node */
	double bisection;       /* bytes/us, in one direction; 0: there is no network */
	double nic_rate;        /* bytes/us */
};

/* us, for blocks of so many bytes. */
double sim_bound_time(const struct sim_bound *bound, enum sched_coll coll, double bytes);

#endif
