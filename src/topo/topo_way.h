/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways: what bytes travel on in a machine, each in one direction and with a rate. A hop from one
 * object to another takes several of them, of some only a part of its bytes goes over each.
 */
#ifndef TOPO_WAY_H
#define TOPO_WAY_H

#include "topo/topo_path.h"

struct topo_part {
	int way;
	double share; /* of the hop's bytes */
};

struct topo_hop {
	struct topo_path path;
	int num;
	struct topo_part *parts;
};

/* How many ways there are, by number from 0 on. */
int topo_way_count(const struct topo_machine *machine);

/*
 * The rate of each, GB/s, into `rates`. Ways of unknown rate count as those of PCI Express 3.
 */
void topo_way_rates(const struct topo_machine *machine, double *rates);

/* The way from an object to its parent. */
int topo_way_up(int object);

/* The way back. */
int topo_way_down(int object);

/* The hop between two objects, which is empty if they are one. False: no memory. */
bool topo_way_hop(const struct topo_machine *machine, int from, int to, struct topo_hop *hop);

/* Free what a hop holds. */
void topo_way_free(struct topo_hop *hop);

#endif
