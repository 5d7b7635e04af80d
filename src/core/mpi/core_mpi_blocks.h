/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocks of a buffer, one for each process or neighbour, as the arguments of a call tell them.
 */
#ifndef CORE_MPI_BLOCKS_H
#define CORE_MPI_BLOCKS_H

#include "core/call/core_call.h"

struct core_mpi_blocks {
	int num;
	const void *counts; /* NULL: `count` each */
	const void *displs; /* NULL: one after the other */
	bool wide_counts, wide_displs;
	int64_t count;
	core_handle type;
	const void *types;           /* where each block has its type, else NULL */
	bool each_type;              /* it has; `types` may be NULL where there are no blocks */
	const unsigned char *absent; /* NULL, or not 0 where the block is not communicated */
};

/* `num` blocks of the call's send buffer. The arrays stay the call's. */
struct core_mpi_blocks core_mpi_sent_blocks(const struct core_call *call, int num);

/* The same of its receive buffer. */
struct core_mpi_blocks core_mpi_received_blocks(const struct core_call *call, int num);

/* The elements of block i; they may be negative, as the caller checks. */
int64_t core_mpi_block_count(const struct core_mpi_blocks *blocks, int i);

/* Of the call's receive buffer. */
int64_t core_mpi_received_count(const struct core_call *call, int i);

/* The type of its elements. */
core_handle core_mpi_block_type(const struct core_mpi_blocks *blocks, int i);

/* Where it begins, in bytes from the buffer's address, given its type's extent. */
int64_t core_mpi_block_offset(const struct core_mpi_blocks *blocks, int i, int64_t extent);

/* Whether the arrays that such a collective needs are missing: to be refused by the real MPI. */
bool core_mpi_lacks_arrays(const struct core_mpi_blocks *blocks);

/* The same of the types, where each block has its own. */
bool core_mpi_lacks_types(const struct core_mpi_blocks *blocks);

/* As the first, of one among neighbours. */
bool core_mpi_neighbors_lack_arrays(enum core_coll coll, const struct core_mpi_blocks *from,
				    const struct core_mpi_blocks *to);

#endif
