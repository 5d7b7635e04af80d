/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of the direct kernels, shared by the host and the kernels. */
#ifndef GPU_DIRECT_H
#define GPU_DIRECT_H

#include "gpu/kernels/gpu_types.h"

#include <stdint.h>

/* Processes of one accelerated call; what their addresses take fits a kernel's parameters. */
enum { GPU_MAX_PEERS = 64 };

/*
 * Every kernel here is given `done`, the address of a row of words in pinned memory that the host
 * cleared: when block b has ended, the b-th is 1. Writer: each block, at its end; reader: the host
 * that launched it.
 */

/* Reduce `count` elements of all sources, in their order, and store the result to all targets. */
struct gpu_reduce_args {
	uint64_t done;
	uint64_t count;
	uint32_t type, op; /* enum gpu_type, gpu_op */
	uint32_t num_sources, num_targets;
	uint64_t sources[GPU_MAX_PEERS], targets[GPU_MAX_PEERS];
};

/* Copy, or exchange, `bytes` bytes between two places that do not overlap. */
struct gpu_copy {
	uint64_t to, from, bytes;
};

struct gpu_copies_args {
	uint64_t done;
	uint32_t num, swap, teams; /* num > 0; teams: a team of blocks for each copy */
	struct gpu_copy copies[GPU_MAX_PEERS];
};

#endif
