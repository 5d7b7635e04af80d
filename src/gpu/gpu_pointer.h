/* SPDX-License-Identifier: BSD-3-Clause */
/* What an address is: ordinary memory, or memory that the CUDA driver owns. */
#ifndef GPU_POINTER_H
#define GPU_POINTER_H

#include "gpu/gpu_where.h"

/*
 * Classify an address, which need not be valid. One driver call, and where that fails a look at
 * what the CPU may read, and a log line; creates no context; any thread. To be called only after
 * gpu_driver_present() was true.
 */
void gpu_pointer_classify(const void *address, struct gpu_pointer *out);

/*
 * Whether the address is device or managed memory, or was before the context was lost: the question
 * asked for each buffer of each call, so it asks the driver for no more than that. To be called
 * only after gpu_driver_present() was true.
 */
bool gpu_pointer_is_device(const void *address);

/*
 * Whether it is device memory, which the host can't read or write: a longer look, for what is told
 * of once.
 */
bool gpu_pointer_is_out_of_reach(const void *address);

/*
 * Whether kernels in the context of `by` can read and write it: memory of their device, managed, or
 * pinned.
 */
bool gpu_pointer_is_reached(const void *address, const struct gpu_pointer *by);

/* Whether [address, address + bytes) lies in the allocation. */
bool gpu_pointer_covers(const struct gpu_pointer *pointer, const void *address, size_t bytes);

/*
 * Whether both are in the same context, as far as is known: memory of pools, and of the virtual
 * memory API, has none, and is its device's.
 */
bool gpu_pointer_in_one_context(const struct gpu_pointer *a, const struct gpu_pointer *b);

#endif
