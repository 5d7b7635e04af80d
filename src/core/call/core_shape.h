/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call as the accelerated path takes it: buffers that are solid bytes in blocks, and an operation
 * on a type that kernels know. core_mpi_shape.c makes it from the call.
 */
#ifndef CORE_SHAPE_H
#define CORE_SHAPE_H

#include "core/call/core_call.h"
#include "gpu/kernels/gpu_program.h"
#include "gpu/kernels/gpu_types.h"

/* For so many ranks a shape has room for the blocks in itself. */
enum { CORE_FEW_BLOCKS = 64 };

/* Some bytes of a buffer, whose offset is from the address that the program gave to MPI. */
struct core_block {
	int64_t offset;
	uint64_t bytes;
};

/*
 * What this rank reads (in) or writes (out). One block for the whole communicator, which begins at
 * the address, or one for each rank.
 */
struct core_buffer {
	uintptr_t address;
	int num_blocks; /* 0: the rank has no such buffer */
	/* The bytes of all blocks lie in [address + lo, address + hi); equal: there are none. */
	int64_t lo, hi;
	struct core_block *blocks;
};

struct core_shape {
	enum core_coll coll;
	int root;           /* 0 where there is none */
	bool in_place;      /* one buffer is both */
	enum gpu_type type; /* of reductions */
	/* Of any call: pairs with padding, which is not to be written; or GPU_TYPE_NONE. */
	enum gpu_type padded;
	enum gpu_op op;  /* of reductions */
	uint64_t bytes;  /* of the block that all ranks must give alike; 0: sizes differ */
	uint64_t counts; /* a hash of the counts that all must give alike; 0: there are none */
	/*
	 * Of the input: whose result is this rank's, where it has one of its own (reduce_scatter,
	 * scan).
	 */
	struct core_block own;
	struct core_buffer in, out;
	struct core_block few[2 * CORE_FEW_BLOCKS];
	struct core_block *many; /* owned; NULL: there are few */
};

/*
 * Make it one of nothing, with room for the blocks of `size` ranks. It must not move in memory, and
 * is to be released. False: no memory.
 */
bool core_shape_clear(struct core_shape *shape, int size);
void core_shape_release(struct core_shape *shape);

/* The bytes of the longest block; 0: there is none. */
uint64_t core_buffer_longest(const struct core_buffer *buffer);

/* Whether its sums are to be in the order of ranks (GPUCOLL_REPRODUCIBLE). */
bool core_shape_is_ordered(const struct core_shape *shape);

static inline bool core_shape_has_data(const struct core_shape *shape)
{
	return shape->in.lo != shape->in.hi || shape->out.lo != shape->out.hi;
}

/* Bytes of all blocks of this rank's buffers. */
uint64_t core_shape_bytes(const struct core_shape *shape);

#endif
