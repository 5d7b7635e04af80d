/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths between two objects of a machine: of what class, and how fast.
 *
 * Classes are in the words that nvidia-smi and NCCL use, the nearest first.
 */
#ifndef TOPO_PATH_H
#define TOPO_PATH_H

#include "topo/topo_machine.h"

enum topo_class {
	TOPO_LOC, /* itself */
	TOPO_NVL, /* NVLinks, also through an NVSwitch */
	TOPO_PIX, /* one PCI switch at most */
	TOPO_PXB, /* several, but no host bridge */
	TOPO_PHB, /* host bridges of one NUMA node */
	TOPO_SYS, /* from one NUMA node to another */
	TOPO_NUM_CLASSES
};

struct topo_path {
	enum topo_class class;
	double rate;    /* GB/s in each direction; 0: not known */
	double latency; /* us: the order of magnitude for the class, not measured */
};

/* "NVL" and so on. */
const char *topo_class_name(enum topo_class class);

/* Between two objects of the machine. */
struct topo_path topo_path_between(const struct topo_machine *machine, int a, int b);

/*
 * How far apart GPUs may be for one to use the other's memory, unless the user says otherwise: as
 * in NCCL, no host bridge may be between them, but on AMD's processors with two GPUs at most.
 */
enum topo_class topo_path_usual_reach(const struct topo_machine *machine);

/*
 * Whether one of the two GPUs may use the other's memory within that reach. A GPU of which nobody
 * knows where it is counts as far (`hidden_are_far`), or nothing is against it.
 */
bool topo_path_may_reach(const struct topo_machine *machine, int a, int b, enum topo_class reach,
			 bool hidden_are_far);

/* ---- for topo_way.c ---- */

/* Of all links between the two, GB/s; 0: there is none. */
double topo_path_linked(const struct topo_machine *machine, int a, int b);
/* The lowest object that is above both; -1: the root. */
int topo_path_common(const struct topo_machine *machine, int a, int b);

/* The NUMA node that the object is in; -1: not known. */
int topo_path_numa(const struct topo_machine *machine, int object);

/* ---- */

/*
 * The NIC that a GPU is to use: of those that are not much slower than others the nearest class, of
 * these the fastest; where there are several the GPUs take them in turn. -1: there is none.
 */
int topo_path_nic_of(const struct topo_machine *machine, int gpu);

#endif
