/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory of our own, for results that must not yet be written where they belong. Kept by
 * context and size for reuse, as allocating it may wait for the device.
 */
#ifndef GPU_SCRATCH_H
#define GPU_SCRATCH_H

#include "gpu/gpu_stream.h"

#include <stdint.h>

struct gpu_scratch {
	struct gpu_scratch *next;
	unsigned long long context_id;
	int device;
	uint64_t address; /* 512-byte aligned at least */
	size_t bytes;     /* at least what was asked for */
};

/* UTIL_ERR_UNSUPPORTED, without a warning, when the device has no memory left. Thread-safe. */
enum util_status gpu_scratch_get(size_t bytes, const struct gpu_stream *stream,
				 struct gpu_scratch **out);

/* Give the memory back, for others to have. Thread-safe. */
void gpu_scratch_put(struct gpu_scratch *scratch);

/* Free what is idle. No operation may be under way. */
void gpu_scratch_finalize(void);

#endif
