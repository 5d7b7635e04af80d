/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Going through a program: which steps are launched when.
 *
 * Fused, all lanes and rounds are one launch, in which blocks wait for messages themselves; those
 * between nodes this process carries meanwhile (core_proxy.h).
 * Stepped, a launch has from each lane the steps for which all is there, and this file waits for
 * messages and passes them on, with words on the board; kernels then wait for nobody. Steps without
 * messages wait for nothing, so a direct algorithm is one launch either way. Steps that the network
 * can do alone (sched_carry.h) are in no launch.
 */
#ifndef CORE_STEPS_H
#define CORE_STEPS_H

#include "core/core_comm.h"
#include "core/core_program.h"
#include "core/core_proxy.h"
#include "gpu/gpu_launch.h"

struct core_steps {
	/*
	 * Given by the caller: what is to be done, and the launches' arguments, but for what
	 * gpu_launch_execute sets.
	 */
	const struct core_comm *comm;
	uint64_t call; /* its number */
	const struct core_program *program;
	struct gpu_launch *launch;
	struct gpu_execute_args args;
	struct gpu_place *places; /* the program's: in the arguments, or its entries */
	uint64_t bytes;           /* that the largest part of a step moves to each of its targets */
	uint32_t rounds;          /* within a launch, or several launches */
	uint32_t phase;
	/*
	 * At which level of sched_carry.h steps are the network's, and before their turn; 0: no
	 * step is.
	 */
	unsigned carry, early;
	/* Where it is. */
	bool running;
	uint64_t moves; /* counts what has been done: launches, steps, messages */
	bool truncates; /* a message from another node was longer than what it is for */
	struct {
		uint32_t round, step; /* the next one to do */
		uint32_t launched;    /* steps that are running */
		uint32_t placed;      /* of the network's, from the next one on: see place_next */
	} lanes[GPU_MAX_LANES];
	struct core_proxy proxy;
};

/* From the beginning of the phase. Nothing may be running. */
void core_steps_begin(struct core_steps *steps);

/*
 * Do what can be done now. UTIL_OK: all is done. UTIL_IN_PROGRESS. An error: no more is launched;
 * what is running must be waited for still, by core_steps_settle.
 */
enum util_status core_steps_progress(struct core_steps *steps);

/* UTIL_OK: nothing is running. UTIL_IN_PROGRESS. */
enum util_status core_steps_settle(struct core_steps *steps);

/* What the step moves to each of its targets in the round. */
uint64_t core_steps_bytes(const struct core_steps *steps, const struct gpu_step *step,
			  uint32_t round);

/* What is waited for, for people. Ranks are the communicator's. */
void core_steps_describe(const struct core_steps *steps, char *text, size_t bytes);

#endif
