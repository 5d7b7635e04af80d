/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pinned host memory of our own, which is not the staging pool's: what the processes of a node
 * share, for links between devices that can't reach each other, and what the network needs. The
 * first travels as a descriptor, like memory of the virtual memory API: gpu_ipc_map maps
 * it for kernels of another process.
 */
#ifndef GPU_SHM_H
#define GPU_SHM_H

#include "gpu/gpu_export.h"
#include "gpu/gpu_stream.h"

struct gpu_shm;

/*
 * Memory of zeros; `exported`: it is to be (gpu_shm_export). UTIL_ERR_UNSUPPORTED, without a
 * warning: the system has none.
 */
enum util_status gpu_shm_create(size_t bytes, bool exported, struct gpu_shm **out);

/* Free it, here; who has mapped it keeps it. No kernel may be using it. */
void gpu_shm_free(struct gpu_shm *shm);

/* The address under which kernels in the stream's context reach it; 0: they can't. */
uint64_t gpu_shm_address(struct gpu_shm *shm, const struct gpu_stream *stream);

/* Where it is for this process. */
void *gpu_shm_host(const struct gpu_shm *shm);

/* What others need to map it, where `address` is this process's. */
void gpu_shm_export(const struct gpu_shm *shm, struct gpu_export *out);

/* ---- for gpu_ipc.c ---- */

/* The descriptor of one that was exported, the caller's to close; -1: it is gone. Thread-safe. */
int gpu_shm_fd(uint64_t buffer_id);

/*
 * Map one of another process in the current context: `host` in this process, `device` for kernels.
 */
CUresult gpu_shm_map(int fd, size_t bytes, void **host, CUdeviceptr *device);

/* Undo that, in the context in which it was mapped; `pinned` is false when that has ended. */
void gpu_shm_unmap(void *host, size_t bytes, bool pinned);

/* As gpu_ipc_find_freed. */
int gpu_shm_find_freed(uint64_t *ids, int most);

/* As gpu_ipc_forget_exports. */
void gpu_shm_forget_freed(const uint64_t *ids, int num);

#endif
