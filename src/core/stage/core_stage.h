/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: a host buffer that stands for a device buffer in a call of the real MPI.
 *
 * Operands that begin at the same address share one stage, so the real MPI sees the aliasing that
 * the application made (in place, or an error that it is to report). An address in the stage is the
 * address in the device buffer plus a constant shift.
 */
#ifndef CORE_STAGE_H
#define CORE_STAGE_H

#include "core/call/core_layout.h"
#include "gpu/gpu_staging.h"
#include "gpu/gpu_stream.h"

struct core_stage {
	void *address;    /* the application's, as in the operands */
	ptrdiff_t lo, hi; /* the bytes that any of its operands touches */
	bool single;  /* those bytes are in one allocation, which kernels and wide copies need */
	bool copying; /* copies are on the stream, and were not seen to end */
	struct gpu_pointer where; /* of the first byte found in device memory */
	struct gpu_staging_block *block;
	struct gpu_stream *stream;        /* while something is copied; else NULL */
	bool ordered;                     /* the stream is the application's */
	bool borrowed;                    /* the stream is another stage's, or the application's */
	struct gpu_staging_block *tables; /* of runs, which kernels on the stream read */
	void *host_address;               /* what the real MPI is given for `address` */
};

/*
 * Prepare a stage for bytes [lo, hi) around an address, some of which are device or managed memory
 * as `where` says. `on`: the stream of the application's on which all copies are to be ordered, by
 * which earlier work on the buffers is, too, and which must live until they are put there; NULL:
 * the stage has streams of ours. On an error the stage holds nothing.
 */
enum util_status core_stage_open(struct core_stage *stage, void *address, ptrdiff_t lo,
				 ptrdiff_t hi, const struct gpu_pointer *where,
				 struct gpu_stream *on);

/*
 * Have a stream for copies, unless the stage has one: that of `first`, a stage of the same call
 * which rests later, if that is of the same context (NULL: there is none).
 */
enum util_status core_stage_take_stream(struct core_stage *stage, const struct core_stage *first);

/* UTIL_IN_PROGRESS while what was on the legacy streams when this was first asked is. */
enum util_status core_stage_poll_legacy(struct core_stage *stage);

/* Put on the stage's stream the copies of the bytes that the operand reads (in) or writes (out). */
enum util_status core_stage_copy_in(struct core_stage *stage, const struct core_operand *operand);
enum util_status core_stage_copy_out(struct core_stage *stage, const struct core_operand *operand);

/* UTIL_IN_PROGRESS while copies are. */
enum util_status core_stage_poll(struct core_stage *stage);

/* The copies have ended, as the caller knows. */
void core_stage_settle(struct core_stage *stage);

/* Wait for what was begun to be copied, and give the stream back: nothing is copied for a while. */
void core_stage_rest(struct core_stage *stage);

/* The same, and give back all that it holds. */
void core_stage_close(struct core_stage *stage);

#endif
