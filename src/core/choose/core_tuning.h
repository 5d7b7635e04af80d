/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times that were measured, by gpucoll-tune, on the user's machine. A text:
 *
 *     gpucoll-tuning 1
 *     time 9a01c2d3e4f50617 ranks=8 nodes=1 gpus=8 allreduce 65536 ring ll 2 25.1
 *
 * with a line for each measurement: the machine's fingerprint; how many ranks, on how many nodes
 * and GPUs; the collective; the bytes of each block; algorithm, protocol and channels; us. `#`
 * begins a comment. The job's first process reads the file and tells the others.
 */
#ifndef CORE_TUNING_H
#define CORE_TUNING_H

#include "algos/algo_choose.h"
#include "topo/topo_machine.h"

/* The first line. */
#define CORE_TUNING_HEAD "gpucoll-tuning 1"

/* What times are comparable on. */
struct core_tuning_key {
	uint64_t machine;
	int ranks, nodes, gpus;
};

/* Read and spread the file, GPUCOLL_TUNING_FILE or the default one. Collective over the job. */
void core_tuning_start(void);
void core_tuning_stop(void);

/*
 * The fingerprint of the nodes' machines, of which NULL is one that nothing is known of, and of
 * what is between them (core_model_make).
 */
uint64_t core_tuning_fingerprint(int num_nodes, const struct topo_machine *const *machines,
				 bool sockets);

/* Have the table use the times of its collective. False: no memory. */
bool core_tuning_apply(const struct core_tuning_key *key, enum sched_coll coll,
		       struct algo_table *table);

/* The words of a line that come before the time. */
void core_tuning_describe(const struct core_tuning_key *key, enum sched_coll coll, uint64_t bytes,
			  const struct algo_choice *way, char *text, size_t size);

#endif
