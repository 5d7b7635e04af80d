/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What no allreduce, or other collective, on a fabric can be faster than, in the model of alpha and
 * beta: a message takes alpha and its bytes' time, and a rank's host sends one after the other.
 */
#ifndef SIM_BOUND_H
#define SIM_BOUND_H

#include "sim-net.h"

struct sim_bound {
	const struct sched_fabric *fabric;
	int ranks, nodes, nics; /* NICs used of each node */
	double hop;             /* us, of a link of the network, of which there are two at least */
	int num_levels;         /* of the network, see sim_net_levels */
	struct sim_level levels[SIM_MOST_LEVELS];
	double bisection; /* bytes/us, in one direction; 0: there is no network */
	double nic_rate;  /* bytes/us */
};

/* us, for blocks of so many bytes. */
double sim_bound_time(const struct sim_bound *bound, enum sched_coll coll, double bytes);

#endif
