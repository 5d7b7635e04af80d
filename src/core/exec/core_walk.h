/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A walk through a program, in launches (core_steps.h), and what the host does for a launch that
 * waits for messages from other nodes meanwhile (core_proxy.h).
 */
#ifndef CORE_WALK_H
#define CORE_WALK_H

#include "core/comm/core_comm.h"
#include "core/exec/core_program.h"
#include "gpu/gpu_launch.h"

/* A link to another node. Its messages go through one state after the other, in order. */
struct core_carried {
	const struct core_link *link;
	uint16_t index;
	bool sends;
	uint32_t part;  /* whose word is looked at next: those before it are there */
	uint64_t moved; /* messages that were handed to the network, or to the kernel */
	uint64_t freed; /* whose slots can be used again */
	uint64_t total;
};

struct core_proxy {
	uint32_t num;
	uint64_t moved_at; /* ns: when a message last went on */
	struct core_carried links[2 * GPU_MAX_LINKS];
};

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
	uint64_t ended_at; /* util_now: the last launch was seen to have ended; if it notes times */
	uint64_t moves;    /* counts what has been done: launches, steps, messages */
	bool truncates;    /* a message from another node was longer than what it is for */
	struct {
		uint32_t round, step; /* the next one to do */
		uint32_t launched;    /* steps that are running */
		uint32_t placed;      /* of the network's, from the next one on: see place_next */
	} lanes[GPU_MAX_LANES];
	struct core_proxy proxy;
};

/* What the step is about in the round, of each of its places. See context_of in gpu_execute.cu. */
struct sched_span core_walk_span(const struct core_steps *steps, const struct gpu_step *step,
				 uint32_t round);

/* What the step moves to each of its targets in the round. */
uint64_t core_walk_bytes(const struct core_steps *steps, const struct gpu_step *step,
			 uint32_t round);

#endif
