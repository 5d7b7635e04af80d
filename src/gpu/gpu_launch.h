/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launching the direct kernels, and noticing that they are done.
 *
 * Done is a row of words in pinned memory, one for each block, which costs a load to look at. A
 * kernel that faulted never writes them, so the stream is asked too, at a slow rate.
 */
#ifndef GPU_LAUNCH_H
#define GPU_LAUNCH_H

#include "gpu/gpu_module.h"
#include "gpu/gpu_staging.h"
#include "gpu/kernels/gpu_direct.h"
#include "gpu/kernels/gpu_types.h"

/* The size of an element; every one divides 16. */
unsigned gpu_type_bytes(enum gpu_type type);

struct gpu_launch {
	struct gpu_stream *stream; /* the caller's */
	struct gpu_staging_block *words;
	uint64_t done; /* the words' address for kernels */
	unsigned multiprocessors;
	unsigned blocks, ended, polls;
};

/*
 * Take what launches on the stream need. UTIL_ERR_UNSUPPORTED, without a warning, where there can
 * be none: no pinned memory, no kernels. gpu_launch_close gives it back, and must be called then
 * only.
 */
enum util_status gpu_launch_open(struct gpu_launch *launch, struct gpu_stream *stream);
void gpu_launch_close(struct gpu_launch *launch);

/*
 * Start one kernel, not before the last one is done. `bytes`: what a reduction writes to each of
 * its targets, whole elements, or what the copies write together. The launch sets `done`, and
 * `count` of a reduction.
 */
enum util_status gpu_launch_reduce(struct gpu_launch *launch, struct gpu_reduce_args *args,
				   uint64_t bytes);
enum util_status gpu_launch_copies(struct gpu_launch *launch, struct gpu_copies_args *args,
				   uint64_t bytes);

/* UTIL_OK when the kernel is done and all that it wrote can be seen, UTIL_IN_PROGRESS, or its
 * error. */
enum util_status gpu_launch_poll(struct gpu_launch *launch);

#endif
