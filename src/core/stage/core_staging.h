/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of a collective, and the stages of those that are in device memory. */
#ifndef CORE_STAGING_H
#define CORE_STAGING_H

#include "core/mpi/core_mpi.h"
#include "core/stage/core_stage.h"

struct core_staging {
	struct core_operand operands[CORE_MAX_OPERANDS];
	size_t num_operands;
	struct core_stage stages[CORE_MAX_OPERANDS];
	size_t num_stages;                              /* 0: all is host memory */
	struct core_stage *stage_of[CORE_MAX_OPERANDS]; /* of each operand; NULL: host memory */
	struct gpu_stream *on; /* see core_stage_open; set before core_staging_open */
	bool apart;            /* buffers at one address are two for the real MPI; the same */
};

/*
 * Find out which of the call's buffers are in device memory, make stages for them, and put these
 * into the call in their place. Arguments that the real MPI will refuse are left to it, without a
 * stage; UTIL_ERR_TYPE where that is seen of the second buffer's type, when the first has one. Of a
 * zeroed staging (but for `on` and `apart`), which must not move in memory, and is to be closed
 * also after an error. Calls MPI functions that are local.
 */
enum util_status core_staging_open(struct core_staging *staging, struct core_call *call);

/* The data in all stages, in bytes. */
size_t core_staging_bytes(const struct core_staging *staging);

/* UTIL_IN_PROGRESS while earlier work on the buffers is, on legacy streams. */
enum util_status core_staging_ready(struct core_staging *staging);

/* Begin to copy what the call reads into the stages, or what it writes out of them. */
enum util_status core_staging_copy_in(struct core_staging *staging);
enum util_status core_staging_copy_out(struct core_staging *staging);

/* UTIL_IN_PROGRESS while copies are. */
enum util_status core_staging_poll(struct core_staging *staging);

/* Whether all that the call reads and writes is in stages. */
bool core_staging_is_whole(const struct core_staging *staging);

/* The copies have ended, as the caller knows. */
void core_staging_settle(struct core_staging *staging);

/* Nothing is copied for a while: wait for copies that were begun, and give streams back. */
void core_staging_rest(struct core_staging *staging);

/* The same, and give back all that it holds. */
void core_staging_close(struct core_staging *staging);

#endif
