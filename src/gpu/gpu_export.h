/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory as other processes are told of it. */
#ifndef GPU_EXPORT_H
#define GPU_EXPORT_H

#include <stdint.h>

enum { GPU_EXPORT_HANDLE_BYTES = 64 };

/*
 * How it is mapped: by a handle of legacy IPC; or by a file descriptor, which the owner passes to
 * each process: of an allocation of the virtual memory API; of a pool, in which a handle then
 * stands for the allocation; or of host memory (gpu_shm.h).
 */
enum gpu_export_kind {
	GPU_EXPORT_NONE,
	GPU_EXPORT_HANDLE,
	GPU_EXPORT_FD,
	GPU_EXPORT_POOL,
	GPU_EXPORT_SHM
};

/* An allocation, for those who are to map it. Plain bytes: it travels through shared memory. */
struct gpu_export {
	uint64_t buffer_id; /* 0: nothing is exported */
	uint32_t kind;
	uint64_t start, bytes;
	unsigned char handle[GPU_EXPORT_HANDLE_BYTES];
};

#endif
