/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for the links between nodes, pinned and, where UCX takes that, on the device. */
#ifndef CORE_WIRE_MEMORY_H
#define CORE_WIRE_MEMORY_H

#include "gpu/gpu_scratch.h"
#include "gpu/gpu_shm.h"

enum { CORE_WIRE_MAX_SLOTS = 4 }; /* of a link */

/* Where arenas are. */
enum core_wire_place { CORE_WIRE_ON_HOST, CORE_WIRE_ON_DEVICE, CORE_WIRE_NUM_PLACES };

struct core_wire_arena {
	struct gpu_shm *host;
	struct gpu_scratch *device;
	uint64_t address; /* for kernels */
	char *base;       /* for UCX */
};

/* Pinned memory of zeros, unless there is some already, and its address for kernels. */
enum util_status core_wire_memory_open_host(struct gpu_shm **shm, size_t bytes,
					    struct gpu_stream *stream, uint64_t *address);

/*
 * Open arenas of so many bytes, by enum core_wire_place, for what comes in and what goes out,
 * unless they are open, and have kernels in the stream's context reach them; those on the device if
 * that can be: `*has_device`. UTIL_ERR_UNSUPPORTED: there is no memory, or no way to it.
 */
enum util_status core_wire_memory_open(struct core_wire_arena *in, struct core_wire_arena *out,
				       size_t bytes, struct gpu_stream *stream, bool *has_device);

/* Give back arenas of one direction; those that are not open stay so. */
void core_wire_memory_close(struct core_wire_arena *arenas);

/* Exchange the arenas of two directions. */
void core_wire_memory_swap(struct core_wire_arena *a, struct core_wire_arena *b);

#endif
