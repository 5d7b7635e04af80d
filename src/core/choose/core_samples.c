/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_samples.h"
#include "core/choose/core_rings.h"

#include <stdlib.h>

/*
 * More ranks than this are looked at in samples, of which the largest has no more, if that is so
 * many nodes that something is left of a quarter of them.
 */
enum { MOST_RANKS = 64, LEAST_NODES = 8 };

/* Those of the first nodes, numbered again. Returns how many. */
static int take_seats(int ranks, const struct core_seat *seats, int num_nodes,
		      struct core_seat *taken)
{
	int num = 0;

	for (int rank = 0; rank < ranks; rank++) {
		if (seats[rank].node < num_nodes)
			taken[num++] = seats[rank];
	}
	return num;
}

static bool make_part(int ranks, const struct core_seat *seats, int num_nodes,
		      const struct topo_machine *const *machines, bool sockets,
		      struct algo_sample *part)
{
	struct core_seat *taken = calloc((size_t)ranks, sizeof(*taken));
	struct sched_fabric *fabric = calloc(1, sizeof(*fabric));
	int *nodes = calloc((size_t)ranks, sizeof(*nodes)), *rings = NULL;
	bool made = taken && fabric && nodes;

	if (made) {
		ranks = take_seats(ranks, seats, num_nodes, taken);
		for (int rank = 0; rank < ranks; rank++)
			nodes[rank] = taken[rank].node;
		part->num_rings = core_rings_find(ranks, taken, num_nodes, machines, &rings);
		made = part->num_rings >= 0 &&
		       core_model_make(ranks, taken, num_nodes, machines, sockets, fabric);
	}
	free(taken);
	part->ranks = ranks;
	part->num_nodes = num_nodes;
	part->nodes = nodes;
	part->rings = rings;
	part->fabric = fabric;
	return made;
}

/* As many of the first nodes as have few enough ranks; a multiple of 4. */
static int nodes_of_sample(int ranks, const struct core_seat *seats, int num_nodes)
{
	int num = LEAST_NODES, in = 0;

	do {
		num += 4;
		in = 0;
		for (int rank = 0; rank < ranks; rank++)
			in += seats[rank].node < num;
	} while (num < num_nodes && in <= MOST_RANKS);
	return num - 4;
}

/* With what is left as a part of the next one. */
static double doublings_to(int nodes, int sample)
{
	int doublings = 0;

	while (sample << (doublings + 1) <= nodes)
		doublings++;
	return doublings + (double)nodes / (sample << doublings) - 1;
}

bool core_samples_make(int ranks, const struct core_seat *seats, int num_nodes,
		       const struct topo_machine *const *machines, bool sockets,
		       struct core_samples *cluster)
{
	int sample;

	*cluster = (struct core_samples){.num_parts = 1};
	if (!make_part(ranks, seats, num_nodes, machines, sockets, &cluster->parts[0]))
		return false;
	sample = nodes_of_sample(ranks, seats, num_nodes);
	if (ranks <= MOST_RANKS || sample >= num_nodes)
		return true;
	cluster->doublings = doublings_to(num_nodes, sample);
	for (int i = 0; i < ALGO_NUM_SAMPLES; i++) {
		if (!make_part(ranks, seats, sample >> (ALGO_NUM_SAMPLES - 1 - i), machines,
			       sockets, &cluster->parts[cluster->num_parts++]))
			return false;
	}
	return true;
}

void core_samples_free(struct core_samples *cluster)
{
	for (int i = 0; i < cluster->num_parts; i++) {
		struct algo_sample *part = &cluster->parts[i];

		if (part->fabric)
			sched_fabric_free((struct sched_fabric *)part->fabric);
		free((void *)part->fabric);
		free((void *)part->nodes);
		free((void *)part->rings);
	}
	cluster->num_parts = 0;
}

void core_samples_set(const struct core_samples *cluster, struct algo_setting *setting)
{
	setting->fabric = cluster->parts[0].fabric;
	setting->samples = cluster->num_parts > 1 ? &cluster->parts[1] : NULL;
	setting->doublings = cluster->doublings;
}
