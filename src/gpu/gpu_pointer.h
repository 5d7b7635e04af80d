/* SPDX-License-Identifier: BSD-3-Clause */
/* What an address is: ordinary memory, or memory that the CUDA driver owns. */
#ifndef GPU_POINTER_H
#define GPU_POINTER_H

#include "gpu/gpu_driver.h"

enum gpu_memory {
	GPU_MEMORY_HOST, /* unknown to CUDA, or pinned: the real MPI may read and write it */
	GPU_MEMORY_DEVICE,
	GPU_MEMORY_MANAGED, /* both may touch it, but a system call on it (as MPIs use) may fault */
	/*
	 * Of the virtual memory API, on the host's side of the machine (GH200's EGM): the CPU may
	 * touch it only if it was allowed to.
	 */
	GPU_MEMORY_HOST_VMM,
};

struct gpu_pointer {
	enum gpu_memory memory;
	int device;        /* ordinal, valid unless host */
	CUcontext context; /* NULL: none recorded (pool and VMM memory); use the primary one */
	unsigned long long buffer_id; /* unique to the allocation in this process, never reused */
	uintptr_t start;              /* the allocation's first byte, and how many it has; */
	size_t bytes;                 /* 0 where the driver does not say */
};

/*
 * Classify an address, which need not be valid. One driver call; creates no context; any thread.
 * To be called only after gpu_driver_present() was true.
 */
void gpu_pointer_classify(const void *address, struct gpu_pointer *out);

/*
 * Whether the address is device or managed memory: the question asked for each buffer of each call,
 * so it asks the driver for no more than that. To be called only after gpu_driver_present() was
 * true.
 */
bool gpu_pointer_is_device(const void *address);

/*
 * Whether it is device memory, which the host can't read or write: a longer look, for what is told
 * of once.
 */
bool gpu_pointer_is_out_of_reach(const void *address);

/* Whether [address, address + bytes) lies in the allocation. */
bool gpu_pointer_covers(const struct gpu_pointer *pointer, const void *address, size_t bytes);

/*
 * Make operations on the allocation that return before they finish (cudaMemset, copies inside the
 * device, copies from pageable memory) synchronous from now on (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
 * as UCX and Open MPI do), the first time that it is seen. Memory from pools and VMM refuses that:
 * then all such operations of its context are. Thread-safe.
 */
void gpu_pointer_make_synchronous(const void *address, const struct gpu_pointer *pointer);

#endif
