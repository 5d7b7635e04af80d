/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory of other processes: telling them what ours is, and mapping theirs.
 *
 * Everything is kept by the allocation's buffer id, which the driver never gives out twice in a
 * process; addresses are used again after a free, and nobody tells us of the free. A mapping pins
 * its exporter's memory, so mappings are bounded (GPUCOLL_IPC_CACHE) and the one not used for
 * longest goes first.
 *
 * An agreement on a call counts on the mappings that were made for earlier ones (core_accel.c). So
 * a call is bracketed by gpu_ipc_enter and gpu_ipc_leave, and no mapping is dropped while any other
 * call of the process is inside.
 */
#ifndef GPU_IPC_H
#define GPU_IPC_H

#include "gpu/gpu_export.h"
#include "gpu/gpu_stream.h"

#include <stdint.h>

/*
 * Export the allocation that holds `address`. UTIL_ERR_UNSUPPORTED, without a warning, for memory
 * that can't be exported (pools, VMM not made for it). Cached. Thread-safe.
 */
enum util_status gpu_ipc_export(uint64_t address, const struct gpu_pointer *pointer,
				struct gpu_export *out);

/* Whether mapping it takes a descriptor. */
bool gpu_export_has_fd(const struct gpu_export *export);

/* The descriptor of an export of such a kind, the caller's to close; -1: there is none any more. */
int gpu_ipc_export_fd(const struct gpu_export *export, const struct gpu_pointer *pointer);

/*
 * Ids, `most` at most, of allocations that were exported and have been freed since. One driver call
 * for each export: not for warm calls, and not where too little time has gone by since the last
 * look: then none are found. Returns how many.
 */
int gpu_ipc_find_freed(uint64_t *ids, int most);

/* The others have been told of these. */
void gpu_ipc_forget_exports(const uint64_t *ids, int num);

/* A call begins: what is mapped stays so while it counts on that. */
void gpu_ipc_enter(void);

/* It has ended. */
void gpu_ipc_leave(void);

/*
 * How many mappings have been dropped so far. Does not change under the other calls that are
 * inside.
 */
uint64_t gpu_ipc_dropped(void);

struct gpu_mapping; /* an allocation of another process, mapped in a context of this one */

/*
 * What was mapped of process `owner` by that id, as gpu_ipc_map would have it, which says what
 * comes back; but UTIL_IN_PROGRESS: it was not mapped before.
 */
enum util_status gpu_ipc_find(int owner, uint64_t buffer_id, const struct gpu_stream *stream,
			      struct gpu_mapping **out);

/*
 * Map what process `owner` (any number that stands for it) exported, in the stream's context. That
 * two devices can't reach each other is remembered, so that asking again costs nothing:
 * UTIL_ERR_UNSUPPORTED, as of what the owner could not export. UTIL_ERR_CUDA: it failed now, and
 * may not later. UTIL_IN_PROGRESS: it takes a descriptor, and `fd` is -1. `fd` stays the caller's.
 * Inside the brackets; thread-safe.
 */
enum util_status gpu_ipc_map(int owner, const struct gpu_export *export, int fd,
			     const struct gpu_stream *stream, struct gpu_mapping **out);

/* Where this process finds the byte that the owner knows as `address`. */
uint64_t gpu_mapping_address(const struct gpu_mapping *mapping, uint64_t address);

/* Done with it; it stays mapped for the next call. */
void gpu_mapping_put(struct gpu_mapping *mapping);

/* Drop the mappings of memory that its owner has freed, where no call is using them. */
void gpu_ipc_drop_freed(int owner, uint64_t buffer_id, const struct gpu_stream *stream);

/* Drop all mappings. No call may be inside. */
void gpu_ipc_finalize(void);

#endif
