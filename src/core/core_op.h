/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operation engine. An operation is one call on its way, a state machine: start, progress until
 * it is no longer in progress, finish. Progress never waits for the device, so whoever drives it
 * (today the calling thread) can drive other things in between.
 *
 *     READY     earlier work on the buffers (late memset and such) finishes
 *     COPY_IN   the staging buffers are filled from the device
 *     CALL      the real MPI, on the staging buffers. Blocks as the real call does
 *     COPY_OUT  the device is filled from the staging buffers
 *     DONE
 */
#ifndef CORE_OP_H
#define CORE_OP_H

#include "core/core_stage.h"

enum core_op_state { CORE_OP_READY, CORE_OP_COPY_IN, CORE_OP_CALL, CORE_OP_COPY_OUT, CORE_OP_DONE };

struct core_op {
	enum core_op_state state;
	struct core_call call; /* the application's call with the buffers replaced */
	struct core_operand operands[CORE_MAX_OPERANDS];
	size_t num_operands;
	struct core_stage stages[CORE_MAX_OPERANDS];
	size_t num_stages;
	struct core_stage *stage_of[CORE_MAX_OPERANDS]; /* of each operand; NULL: host memory */
	int mpi_result;                                 /* what the real MPI returned */
};

/* Begin. On an error the operation must still be finished. The operation must not move in memory.
 */
enum util_status core_op_start(struct core_op *op, const struct core_call *call);

/* Do what can be done now. UTIL_IN_PROGRESS: call again. Anything else is final. */
enum util_status core_op_progress(struct core_op *op);

/* Give back all that the operation holds. */
void core_op_finish(struct core_op *op);

/* Whether the operation moves any data through the library; false: the real MPI can have the call
 * as it is. */
bool core_op_is_staged(const struct core_op *op);

#endif
