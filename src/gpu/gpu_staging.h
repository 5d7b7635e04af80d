/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory to stage device buffers through: pinned blocks in sizes of powers of two, kept for
 * reuse up to GPUCOLL_STAGING_POOL bytes. What would exceed that comes as ordinary memory, used
 * once.
 *
 * Blocks are mapped by us and registered with CUDA, rather than allocated by it: cudaDeviceReset
 * then takes the pinning away (later copies are slower) but never the memory under a running
 * operation.
 */
#ifndef GPU_STAGING_H
#define GPU_STAGING_H

#include "gpu/gpu_stream.h"

#include <stddef.h>
#include <stdint.h>

struct gpu_staging_block {
	void *base;   /* page-aligned */
	size_t bytes; /* at least what was asked for */
	struct gpu_staging_block *next;
	int size_class; /* -1: not from the pool */
	bool registered;
	/* What kernels in the context of this id know it as; 0: not asked. */
	unsigned long long context_id;
	uint64_t device_address;
	int device; /* and the context, that it was registered in */
	unsigned long long registered_in;
};

/*
 * Take a block of at least `bytes` bytes, pinned in the context of `pointer` (portable to all
 * others). Thread-safe. The contents are undefined. Returns UTIL_ERR_NO_MEMORY when the system has
 * none.
 */
enum util_status gpu_staging_get(size_t bytes, const struct gpu_pointer *pointer,
				 struct gpu_staging_block **out);

/*
 * The same, but always pinned, also where that exceeds the pool, which then stays larger until
 * blocks of it are wanted in other sizes. UTIL_ERR_NO_MEMORY also where no more can be pinned.
 */
enum util_status gpu_staging_get_pinned(size_t bytes, const struct gpu_pointer *pointer,
					struct gpu_staging_block **out);

/*
 * The address under which kernels in the stream's context reach the block, which the caller has
 * taken; 0 when they can't (not pinned).
 */
uint64_t gpu_staging_device_address(struct gpu_staging_block *block,
				    const struct gpu_stream *stream);

/* Give the block back, for others to have. Thread-safe. */
void gpu_staging_put(struct gpu_staging_block *block);

/* Free what is idle. No operation may be under way. */
void gpu_staging_finalize(void);

#endif
