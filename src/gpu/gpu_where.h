/* SPDX-License-Identifier: BSD-3-Clause */
/* What kind of memory an address is in, and where. */
#ifndef GPU_WHERE_H
#define GPU_WHERE_H

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
	/*
	 * Not the host's, as the CPU can't read it, and no more is known: the process's CUDA
	 * context has failed, and with it all that would be asked of it or done to the memory.
	 */
	GPU_MEMORY_LOST,
};

struct gpu_pointer {
	enum gpu_memory memory;
	int device;        /* ordinal, valid unless host or lost */
	CUcontext context; /* NULL: none recorded (pool and VMM memory); use the primary one */
	unsigned long long buffer_id; /* unique to the allocation in this process, never reused */
	uintptr_t start;              /* the allocation's first byte, and how many it has; */
	size_t bytes;                 /* 0 where the driver does not say */
};

#endif
