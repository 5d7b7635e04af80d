/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a communicator as choices look at them: their fabric and rings, and, where they are
 * so many that looking at all of them takes seconds, those of samples: the first of their nodes, so
 * many, half as many and a quarter (algo_choose.h).
 */
#ifndef CORE_SAMPLES_H
#define CORE_SAMPLES_H

#include "algos/algo_choose.h"
#include "core/choose/core_model.h"

struct core_samples {
	struct algo_sample parts[1 + ALGO_NUM_SAMPLES]; /* the whole, and the samples */
	int num_parts;
	double doublings; /* from the largest sample to the whole */
};

/* Make it, of what core_model_make takes; to be freed in any case. False: no memory. */
bool core_samples_make(int ranks, const struct core_seat *seats, int num_nodes,
		       const struct topo_machine *const *machines, bool sockets,
		       struct core_samples *cluster);
void core_samples_free(struct core_samples *cluster);

/* Have the setting's candidates timed there. */
void core_samples_set(const struct core_samples *cluster, struct algo_setting *setting);

#endif
