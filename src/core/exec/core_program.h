/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a schedule to the program of one rank (gpu_program.h): its lanes, with connections as
 * numbered links and blocks of buffers as numbered places, in device memory.
 */
#ifndef CORE_PROGRAM_H
#define CORE_PROGRAM_H

#include "algos/algo.h"
#include "core/call/core_reason.h"
#include "gpu/gpu_scratch.h"
#include "gpu/gpu_staging.h"
#include "gpu/kernels/gpu_program.h"

enum { CORE_MAX_PHASES = 2 };

/* A block of a buffer that the rank's steps touch. */
struct core_place {
	enum sched_buffer buffer;
	int rank, block;
};

static inline bool core_program_is_link(const struct gpu_operand *o)
{
	return o->kind == GPU_OPERAND_RECEIVE || o->kind == GPU_OPERAND_SEND;
}

/* A link of the rank's: what its host must know to carry its messages. */
struct core_link {
	uint16_t peer, theirs; /* the rank at its other end, and its number there */
	uint32_t per_round;    /* messages; 0: there is no such link */
	uint32_t first;        /* of core_program.messages */
};

struct core_program {
	/* Of the rank. */
	uint32_t num_lanes[CORE_MAX_PHASES];
	struct gpu_work lanes[CORE_MAX_PHASES][GPU_MAX_LANES];
	bool spreads[CORE_MAX_PHASES]; /* a lane's steps may be done at the same time */
	int num_places;
	struct core_place *places;
	uint32_t num_steps, num_operands;
	struct gpu_step *steps;
	struct gpu_operand *operands; /* in one piece of memory with the steps */
	struct core_link incoming[GPU_MAX_LINKS], outgoing[GPU_MAX_LINKS];
	uint32_t *messages; /* of the links' messages of a round: the step that has it */
	/*
	 * The bits of sched_carry.h: of each step; of each message in `messages` that a step
	 * receives, that step's; and the union of all.
	 */
	uint8_t *carries, *carried;
	unsigned can_carry;
	/* Over all ranks, so all have the same numbers. */
	uint32_t most_lanes;    /* of a rank at a time */
	uint32_t most_links;    /* of a rank, in either direction */
	uint32_t most_messages; /* of a link, in a round */
	bool has_links;
	bool is_mapped; /* ranks reach into others' buffers */
	/*
	 * Where kernels in the context find it; 0: not uploaded. In device memory, or, where there
	 * is none left, in pinned memory of the host.
	 */
	uint64_t address;
	unsigned long long context_id;
	struct gpu_scratch *memory;
	struct gpu_staging_block *pinned;
	/*
	 * Of more places than fit a launch's arguments: where a call writes them, else NULL, and
	 * where kernels find them, behind the program.
	 */
	struct gpu_place *entries;
	uint64_t table;
};

/*
 * Make the program of a rank; `peers`: what kernels know each rank as (gpu_operand.peer), NULL: by
 * its number. NULL: the executor can't do it, to which all ranks come alike, for the reason `why`;
 * or there is no memory, with CORE_REASON_NONE there.
 */
struct core_program *core_program_make(const struct sched *sched, int rank, const int *peers,
				       enum core_reason *why);

/* Free a program; NULL: there is none. */
void core_program_free(struct core_program *program);

/* The link that the operand is. */
const struct core_link *core_program_link(const struct core_program *program,
					  const struct gpu_operand *o);

/* Whether the step has messages. */
static inline bool core_program_has_links(const struct core_program *program,
					  const struct gpu_step *step)
{
	const struct gpu_operand *o = &program->operands[step->first];

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		if (core_program_is_link(&o[i]))
			return true;
	}
	return false;
}

/* Whether it goes with each launch's arguments, and need not be brought anywhere. */
static inline bool core_program_is_short(const struct core_program *program)
{
	return program->num_steps <= GPU_FEW_STEPS && program->num_operands <= GPU_FEW_OPERANDS;
}

/* Whether kernels in the stream's context find it, or need not. */
bool core_program_is_there(const struct core_program *program, const struct gpu_stream *stream);

/*
 * Bring it into the device memory of the stream's context, in stream order, unless it is there, or
 * is short.
 */
enum util_status core_program_upload(struct core_program *program, struct gpu_stream *stream);

/*
 * Have kernels that follow in the stream find the program's entries, if it has any. None of its
 * kernels is running.
 */
enum util_status core_program_fill(const struct core_program *program, struct gpu_stream *stream);

#endif
