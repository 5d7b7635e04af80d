/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operation engine. An operation is one call on its way, a state machine: start, progress until
 * it is no longer in progress, finish. Progress never waits for the device or another process, so
 * whoever drives it (today the calling thread) can drive other things in between.
 *
 *     ACCEL     the accelerated path, to its end; or it is found that the call must be staged
 *     READY     earlier work on the buffers (late memset and such) finishes
 *     COPY_IN   the staging buffers are filled from the device
 *     CALL      the real MPI, on the staging buffers. Blocks as the real call does
 *     COPY_OUT  the device is filled from the staging buffers
 *     DONE
 */
#ifndef CORE_OP_H
#define CORE_OP_H

#include "core/accel/core_accel_call.h"
#include "core/call/core_flags.h"
#include "core/stage/core_staging.h"

enum core_op_state {
	CORE_OP_ACCEL,
	CORE_OP_READY,
	CORE_OP_COPY_IN,
	CORE_OP_CALL,
	CORE_OP_COPY_OUT,
	CORE_OP_DONE
};

struct core_op {
	enum core_op_state state;
	enum core_path path;    /* final once the state is past ACCEL */
	const char *why;        /* as in struct core_stats_call */
	struct core_call call;  /* the application's call with the buffers replaced */
	struct core_comm *comm; /* NULL: has no identity */
	uint64_t number;        /* of the call on it */
	struct core_staging staging;
	int mpi_result; /* what the real MPI returned */
	uint64_t bytes; /* moved through the library by this rank */
	enum util_status accel_status;
	struct core_accel accel; /* initialised by core_accel_start; large, so last */
};

/*
 * Begin call `number` on `comm`. Must be finished. The operation must not move in memory. Whatever
 * comes of it, by the time that progress has ended this process has told the others that it is past
 * the call.
 */
void core_op_start(struct core_op *op, const struct core_call *call, struct core_comm *comm,
		   uint64_t number);

/* Do what can be done now. UTIL_IN_PROGRESS: call again. Anything else is final. */
enum util_status core_op_progress(struct core_op *op);

/* Give back all that the operation holds. */
void core_op_finish(struct core_op *op);

/* Grows as it goes on; not while it only waits. */
uint64_t core_op_moves(const struct core_op *op);

/* What it waits for, in words, into `text`. */
void core_op_describe(const struct core_op *op, char *text, size_t bytes);

#endif
