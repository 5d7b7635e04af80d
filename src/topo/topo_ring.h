/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings over the GPUs of a machine: orders in which each sends to the next, and the last to the
 * first, so that several rings side by side use what the machine has without getting into each
 * other's way. Ways carry as much in one direction as in the other at the same time, so there are
 * rings both ways round.
 *
 * For a rate, rings are made one after the other of what is left of each way, going back where none
 * can be closed; of all rates that ways have the best is taken.
 */
#ifndef TOPO_RING_H
#define TOPO_RING_H

#include "topo/topo_machine.h"

#include <stdbool.h>

enum { TOPO_MOST_RINGS = 16, TOPO_MOST_RING_GPUS = 64 };

struct topo_rings {
	int num, num_gpus;
	double rate;                                     /* GB/s of each ring */
	int order[TOPO_MOST_RINGS][TOPO_MOST_RING_GPUS]; /* objects of the machine */
};

/*
 * The rings over the GPUs, which are objects of the machine, whose rates come to most; of those
 * that come to the same the ones with the nearest hops (topo_path.h), and of these the fewest. The
 * search is bounded in steps, not in time, and so finds the same everywhere. Ways of unknown rate
 * count as those of PCI Express 3. No rings: there are fewer than two GPUs, or more than
 * TOPO_MOST_RING_GPUS. False: no memory.
 */
bool topo_ring_find(const struct topo_machine *machine, const int *gpus, int num_gpus,
		    struct topo_rings *rings);

/* The same over all GPUs of the machine. */
bool topo_ring_find_all(const struct topo_machine *machine, struct topo_rings *rings);

#endif
