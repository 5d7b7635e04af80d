/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_rings.h"
#include "topo/topo_ring.h"

#include <stdlib.h>
#include <string.h>

struct maker {
	int ranks, num_nodes, num;
	const struct core_seat *seats;
	struct topo_rings *nodes; /* of each */
	int *rings;
};

/*
 * The GPUs that ranks of the node are on. Returns their number; -1: one is not known, or they are
 * too many.
 */
static int list_gpus(const struct maker *m, int node, int *gpus)
{
	int num = 0;

	for (int rank = 0; rank < m->ranks; rank++) {
		int i = 0;

		if (m->seats[rank].node != node)
			continue;
		if (m->seats[rank].gpu < 0)
			return -1;
		while (i < num && gpus[i] != m->seats[rank].gpu)
			i++;
		if (i == TOPO_MOST_RING_GPUS)
			return -1;
		gpus[i] = m->seats[rank].gpu;
		num = i == num ? num + 1 : num;
	}
	return num;
}

/* Nodes of a cluster mostly are alike, and are searched once. */
static bool is_like_last(const struct maker *m, int node,
			 const struct topo_machine *const *machines, const int *gpus, int num)
{
	int last[TOPO_MOST_RING_GPUS];

	return node > 0 && num > 0 && machines[node] == machines[node - 1] &&
	       list_gpus(m, node - 1, last) == num &&
	       !memcmp(gpus, last, (size_t)num * sizeof(*gpus));
}

/* A node of which nothing is known has one ring without GPUs. False: no memory. */
static bool find_rings(struct maker *m, int node, const struct topo_machine *const *machines)
{
	const struct topo_machine *machine = machines[node];
	struct topo_rings *rings = &m->nodes[node];
	int gpus[TOPO_MOST_RING_GPUS];
	int num = machine ? list_gpus(m, node, gpus) : -1;

	if (is_like_last(m, node, machines, gpus, num)) {
		*rings = m->nodes[node - 1];
		return true;
	}
	rings->num = rings->num_gpus = 0;
	if (num > 1 && !topo_ring_find(machine, gpus, num, rings))
		return false;
	if (rings->num)
		return true;
	rings->num = 1;
	rings->num_gpus = num == 1 ? 1 : 0;
	rings->order[0][0] = gpus[0];
	return true;
}

/* Append the node's ranks on the GPU; -1: all. */
static int append(const struct maker *m, int node, int gpu, int *order, int length)
{
	for (int rank = 0; rank < m->ranks; rank++) {
		if (m->seats[rank].node == node && (gpu < 0 || m->seats[rank].gpu == gpu))
			order[length++] = rank;
	}
	return length;
}

/* The ring of that number; it enters each node at another GPU than the others do. */
static void lay_out(const struct maker *m, int number)
{
	int *order = &m->rings[number * m->ranks], length = 0;

	for (int node = 0; node < m->num_nodes; node++) {
		const struct topo_rings *rings = &m->nodes[node];
		int gpus = rings->num_gpus, first = m->num_nodes > 1 ? number : 0;

		if (!gpus)
			length = append(m, node, -1, order, length);
		for (int i = 0; i < gpus; i++)
			length = append(m, node,
					rings->order[number % rings->num][(first + i) % gpus],
					order, length);
	}
}

static bool find_all(struct maker *m, const struct topo_machine *const *machines)
{
	bool known = m->num_nodes > 1;

	for (int node = 0; node < m->num_nodes; node++) {
		const struct topo_rings *rings = &m->nodes[node];
		int num;

		if (!find_rings(m, node, machines))
			return false;
		known |= rings->num_gpus > 1;
		/* Between nodes, as many as there are GPUs that may have NICs of their own. */
		num = m->num_nodes > 1 && rings->num_gpus > rings->num ? rings->num_gpus
								       : rings->num;
		m->num = num > m->num ? num : m->num;
	}
	m->num = !known ? 0 : m->num < TOPO_MOST_RINGS ? m->num : TOPO_MOST_RINGS;
	return true;
}

int core_rings_find(int ranks, const struct core_seat *seats, int num_nodes,
		    const struct topo_machine *const *machines, int **rings)
{
	struct maker m = {.ranks = ranks, .num_nodes = num_nodes, .seats = seats};
	bool found;

	m.nodes = calloc((size_t)num_nodes, sizeof(*m.nodes));
	found = m.nodes && find_all(&m, machines);
	if (found && m.num)
		m.rings = malloc((size_t)m.num * (size_t)ranks * sizeof(*m.rings));
	for (int i = 0; m.rings && i < m.num; i++)
		lay_out(&m, i);
	free(m.nodes);
	*rings = m.rings;
	return found && (m.rings || !m.num) ? m.num : -1;
}
