/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The buffers of a collective as solid memory that kernels reach: what has gaps where it lies, or
 * is where kernels don't come to, is packed and unpacked in the order of a stream. Both are this
 * rank's own matter, of which others know nothing.
 */
#ifndef CORE_MPI_PACKED_H
#define CORE_MPI_PACKED_H

#include "core/call/core_call.h"
#include "core/p2p/core_mpi_side.h"

struct core_mpi_packed {
	struct core_mpi_packed *next;
	uint64_t number; /* both are the caller's */
	struct core_mpi_side send, recv;
	bool packs_recv;   /* the call reads it, or leaves some of it */
	bool unpacks_recv; /* the call writes it */
	/* Of a group of messages, instead: one for each that needs it. */
	struct core_mpi_side *sides;
	int num_sides;
};

/* One for a group of so many messages. NULL: no memory. */
struct core_mpi_packed *core_mpi_packed_new_group(int num);

/* Bytes that it holds. */
size_t core_mpi_packed_bytes(const struct core_mpi_packed *packed);

/*
 * Take stages for the buffers, and put those into the call, of what is not reduced as bytes; of a
 * zeroed one, to be closed also after an error. `rank`, of `size`, is the process's.
 */
enum util_status core_mpi_packed_open(struct core_mpi_packed *packed, struct core_call *call,
				      int rank, int size, struct gpu_stream *on);

/*
 * The same of `count` elements of one message: its data, in a stage, are put in the place of
 * `*buffer`, `*bytes` of them. `side`, zeroed, stays where it is.
 */
enum util_status core_mpi_packed_open_side(struct core_mpi_side *side, void **buffer, int64_t count,
					   core_handle type, struct gpu_stream *on,
					   uint64_t *bytes);

/* Put on the stream what is copied between such a stage and the program's memory. */
enum util_status core_mpi_packed_put_side(struct core_mpi_side *side, struct gpu_stream *on,
					  bool unpacks);

/* Put on the stream what is copied before, or behind, the call. */
enum util_status core_mpi_packed_pack(struct core_mpi_packed *packed, struct gpu_stream *on);
enum util_status core_mpi_packed_unpack(struct core_mpi_packed *packed, struct gpu_stream *on);

/* Free it, once the stream is past it. */
void core_mpi_packed_free(struct core_mpi_packed *packed);

#endif
