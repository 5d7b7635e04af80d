/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operation engine. An operation is one call on its way, a state machine: start, progress until
 * it is no longer in progress, finish. Progress never waits for the device or another process, so
 * whoever drives it can drive other things in between: the calling thread of a blocking call; of a
 * nonblocking one any thread of the process (core_queue.h), one at a time.
 *
 *     ACCEL     the accelerated path, to its end; or it is found that the call must be staged
 *     READY     earlier work on the buffers (late memset and such) finishes
 *     COPY_IN   the staging buffers are filled from the device
 *     CALL      the real MPI, on the staging buffers. Blocks as the real call does
 *     ISSUED    until the real MPI's request of a nonblocking call is complete
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
	CORE_OP_ISSUED,
	CORE_OP_COPY_OUT,
	CORE_OP_DONE
};

struct core_op {
	enum core_op_state state;
	enum core_path path; /* final once the state is past ACCEL */
	const char *why;     /* as in struct core_stats_call */
	/*
	 * The application's call with the buffers replaced. If it has a request it is nonblocking.
	 */
	struct core_call call;
	enum util_status (*test)(struct core_op *op); /* of the request. Sets mpi_result */
	struct core_comm *comm;                       /* NULL: has no identity */
	uint64_t number;                              /* of the call on it */
	struct core_note note;
	/* `own`; or that of a persistent call, which its initialisation made, and which stays. */
	struct core_staging *staging;
	struct core_staging own;
	bool ready;     /* earlier work on the buffers is done */
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

/* GPUCOLL_CHECK=streams, of a call that has just been started (core_still.h). */
void core_op_look_still(const struct core_op *op);

/* The started call's note, which follows it from here on. */
void core_op_note(struct core_op *op, const struct core_note *note);

/* The call has ended with this status: its last word to the journal. */
void core_op_note_end(const struct core_op *op, enum util_status status);

/*
 * What may be done in progress: nothing of MPI's; what is local; or also the call itself and tests
 * of its request, in which error handlers of the application may be called.
 */
enum core_op_may { CORE_OP_ALONE, CORE_OP_LOCAL, CORE_OP_ALL };

/* Do what can be done now. UTIL_IN_PROGRESS: call again. Anything else is final. */
enum util_status core_op_progress(struct core_op *op, enum core_op_may may);

/* Whether the next thing is the call or a test. */
static inline bool core_op_is_to_call(const struct core_op *op)
{
	return op->state == CORE_OP_CALL || op->state == CORE_OP_ISSUED;
}

/* Whether the real MPI has it, of a nonblocking call. */
static inline bool core_op_is_issued(const struct core_op *op)
{
	return op->state >= CORE_OP_ISSUED;
}

/* Have it staged, as core_accel_withdraw, if it is not decided. */
void core_op_withdraw(struct core_op *op);

/* Give back all that the operation holds. */
void core_op_finish(struct core_op *op);

/* Grows as it goes on; not while it only waits. */
uint64_t core_op_moves(const struct core_op *op);

/* What it waits for, in words, into `text`. */
void core_op_describe(const struct core_op *op, char *text, size_t bytes);

#endif
