/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Enqueued calls of a communicator as kernels (core_standing.h), in MPI's terms: what its ranks
 * agree on at its beginning and its end, and buffers that kernels do not take as they lie.
 */
#ifndef CORE_MPI_FUSED_H
#define CORE_MPI_FUSED_H

#include "core/accel/core_standing.h"
#include "core/call/core_mpi_handle.h"

/* Of one communicator. */
struct core_fused {
	MPI_Comm hidden;       /* the same processes' */
	struct gpu_stream *on; /* the application's stream */
	struct core_comm *own; /* the standing's; NULL: there is none */
	struct core_standing *standing;
	struct core_mpi_packed *packed_calls; /* of calls that may not have ended, the last first */
	bool drained;                         /* at the end: this rank's have ended, ... */
	MPI_Request barrier;                  /* ... all ranks' have */
	uint64_t groups; /* of its collectives, those that are groups of messages */
	bool left;       /* `hidden` is: it, or calls, may go on for ever */
};

/* The worst of what the ranks of a communicator have found. Collective. */
enum util_status core_fused_agree(MPI_Comm comm, enum util_status status);

/* Where that can be, have the stream's calls be kernels. Collective; no error if they can't. */
void core_fused_open(struct core_fused *fused, MPI_Comm hidden, struct gpu_stream *on);

static inline bool core_fused_is_open(const struct core_fused *fused)
{
	return fused->standing != NULL;
}

/*
 * Put a call on the stream. `apart`: its output may lie where its input is. UTIL_STAGE: it is to go
 * by the host, for `done->reason`, as on all ranks; other errors are this rank's.
 */
enum util_status core_fused_put(struct core_fused *fused, const struct core_call *call, bool apart,
				bool captured, struct core_standing_call *done);

/*
 * For what goes with other kernels of the standing's: memory that belongs to the calls from now on,
 * once there is room for more (GPUCOLL_STAGING_POOL); and, when something was put behind the kernel
 * that uses it, its number.
 */
void core_fused_keep_packed(struct core_fused *fused, struct core_mpi_packed *packed);
enum util_status core_fused_follow(const struct core_fused *fused, bool captured, uint64_t *number);

/* Wait for this rank's kernels, and begin to wait for all ranks'. Also where there are none. */
void core_fused_drain(struct core_fused *fused, const char *name);

/* Wait for those, and give back all. */
void core_fused_close(struct core_fused *fused);

/* When all are closed. */
void core_fused_stop(void);

#endif
