/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network of many nodes, simulated by SimGrid. Its hosts are NICs; messages share links as
 * fluids do, and take a fixed time for each link on their way.
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "algos/sched_time.h"

/*
 * rails: a fat tree whose leaves each join NICs of one number of many nodes. fat-tree: a fat tree
 * whose leaves join all NICs of a few nodes. Both have switches of 64 ports and as much bandwidth
 * at each level. dragonfly: groups of 32 routers with 8 NICs, each joined with each, in which a
 * node's NICs are at several routers, and each of which is joined with each other by one router.
 */
enum sim_shape { SIM_RAILS, SIM_FAT_TREE, SIM_DRAGONFLY, SIM_NUM_SHAPES };

struct sim_network {
	enum sim_shape shape;
	int nodes, nics;         /* of each node */
	double rate;             /* of a link, in each direction, bytes/us */
	double hop;              /* us, of a link */
	const int *node_of_site; /* for what sched_net calls sites */
	const int *nic_of_site;  /* its number on the node */
};

#ifdef __cplusplus
extern "C" {
#endif

/* There can't be more of them. */
int sim_net_most_nics(enum sim_shape shape);

/*
 * The fewest links between two NICs; and what goes from one half of the network to the other,
 * bytes/us in one direction.
 */
enum { SIM_LEAST_HOPS = 2 };
double sim_net_bisection(const struct sim_network *network);

/*
 * Of the network's levels but the last: how many nodes are together there, and how many links, at
 * least, are between NICs of nodes that are not. Returns how many levels there are, for which that
 * is the same wherever one looks.
 */
enum { SIM_MOST_LEVELS = 2 };
struct sim_level {
	int nodes, hops;
};
int sim_net_levels(const struct sim_network *network, struct sim_level levels[SIM_MOST_LEVELS]);

/* Call `run` with the network. Once in a process: SimGrid can't be started again. */
void sim_net_run(const struct sim_network *network,
		 void (*run)(const struct sched_net *net, void *argument), void *argument);

#ifdef __cplusplus
}
#endif

#endif
