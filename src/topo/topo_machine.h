/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine model: what of a node matters to collectives, and how it hangs together.
 *
 * A tree, as PCI Express has it, of
 *
 *     NUMA nodes      the memory of some cores; a package has one or more
 *     host bridges    where PCI begins
 *     PCI switches
 *     GPUs and NICs
 *
 * and links beside it: NVLinks between GPUs, or between GPUs and NVSwitches, and what joins NUMA
 * nodes. What firmware or a hypervisor hides hangs at the root, or at the NUMA node.
 *
 * A machine is found (topo_hwloc.h) or read from a text, in which it is recorded:
 *
 *     gpucoll-machine 1
 *     name A workstation
 *     source https://... (where the data come from)
 *     cpu AuthenticAMD
 *     numa numa0
 *       bridge pci0
 *         switch switch0 rate=15.75
 *           gpu gpu0 rate=15.75 bus=0000:07:00.0 cc=8.0 copies=3
 *           nic mlx5_0 rate=7.88 net=12.5
 *     nvswitch nvswitch0
 *     link gpu0 nvswitch0 rate=50
 *     apart gpu0 gpu1
 *
 * Indentation, two spaces a level, is the tree; `#` begins a comment. Rates are GB/s (10^9 bytes)
 * in each direction: `rate` of the way to the parent, or of a link; `net` of the NIC's wire. GPUs
 * that are `apart` do not reach each other's memory (no peer access). What is not said is not
 * known.
 */
#ifndef TOPO_MACHINE_H
#define TOPO_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum topo_kind { TOPO_NUMA, TOPO_BRIDGE, TOPO_SWITCH, TOPO_GPU, TOPO_NIC, TOPO_NVSWITCH, TOPO_NUM };

enum { TOPO_NAME_BYTES = 32 };

/* The name of NVSwitches that a hypervisor hides, of which nobody knows how many they are. */
#define TOPO_HIDDEN_SWITCH "nvswitch-hidden"

struct topo_object {
	enum topo_kind kind;
	int parent; /* -1: the root */
	char name[TOPO_NAME_BYTES];
	double rate;               /* to the parent; 0: not known */
	char bus[TOPO_NAME_BYTES]; /* PCI address; "": not known */
	int cc;                    /* of a GPU: compute capability, times 10; 0: not known */
	int copies;                /* of a GPU: copy engines; 0: not known */
	double net;                /* of a NIC */
};

struct topo_link {
	int a, b; /* objects */
	double rate;
};

/* GPUs without peer access to each other. */
struct topo_apart {
	int a, b;
};

struct topo_machine {
	char *name, *source; /* NULL: not said; a machine that was found has no source */
	char *cpu;           /* who makes its processors, as they say it; NULL: not known */
	int num_objects, num_links, num_apart;
	struct topo_object *objects; /* parents before their children */
	struct topo_link *links;
	struct topo_apart *apart;
};

/* A GPU as CUDA or NVML knows it. */
struct topo_gpu {
	char bus[TOPO_NAME_BYTES]; /* PCI address: domain:bus:device.function, hexadecimal */
	int cc;                    /* compute capability, times 10; 0: not known */
	int copies;                /* copy engines; 0: not known */
};

/*
 * Whether the text is a PCI address of that device, whatever its function and its number of digits.
 */
bool topo_bus_is(const char *text, unsigned domain, unsigned bus, unsigned device);

/* "gpu" and so on, as in the text. */
const char *topo_kind_name(enum topo_kind kind);

/* An empty one. NULL: no memory. The caller frees it. */
struct topo_machine *topo_machine_new(void);

/* Free it. NULL is allowed. */
void topo_machine_free(struct topo_machine *machine);

/* Add an object, whose name must be new. Returns its number; -1: no memory. */
int topo_machine_add(struct topo_machine *machine, enum topo_kind kind, int parent,
		     const char *name);

/* Add a link. Returns 0; -1: no memory. */
int topo_machine_link(struct topo_machine *machine, int a, int b, double rate);

/* Add that two GPUs are apart. Returns 0; -1: no memory. */
int topo_machine_part(struct topo_machine *machine, int a, int b);

/* Whether the two GPUs are apart. */
bool topo_machine_are_apart(const struct topo_machine *machine, int a, int b);

/* The object of the name; -1: there is none. */
int topo_machine_find(const struct topo_machine *machine, const char *name);

/* The `index`-th of a kind, from 0; -1: there are fewer. */
int topo_machine_nth(const struct topo_machine *machine, enum topo_kind kind, int index);

/*
 * Read a text. NULL: it is not one, or there is no memory, and `error` says why in one line, with
 * `file`, which it calls the text, and the line's number. The caller frees the machine.
 */
struct topo_machine *topo_machine_read(FILE *in, const char *file, char *error, size_t bytes);

/* Write the text, which reads as the same machine. */
void topo_machine_write(const struct topo_machine *machine, FILE *out);

#endif
