/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's arenas for a communicator: memory in which others leave messages for its kernels (see
 * gpu_program.h for what is where). One in device memory, and, where devices can't reach each
 * other, one in pinned host memory.
 */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include "gpu/gpu_scratch.h"
#include "gpu/gpu_shm.h"
#include "gpu/kernels/gpu_program.h"

enum { CORE_ARENA_OTHERS = 7 };

struct core_arena {
	size_t bytes;   /* of each */
	size_t refused; /* that could not be had, or are there */
	struct gpu_scratch *device;
	struct gpu_shm *shm;       /* NULL: there is none */
	struct gpu_scratch *cards; /* see core_proof.h; NULL: none are shown */
	/* Those that the device had in other contexts, for when a call is in one of them again. */
	struct gpu_scratch *others[CORE_ARENA_OTHERS];
};

/*
 * Make the arenas of `*arena`, of `bytes` bytes, or larger ones where these are smaller and there
 * is memory; or make them again where their context has ended. Without memory the first ones are
 * smaller. A new one of the device is being cleared then, in stream order: `clearing`.
 * UTIL_ERR_UNSUPPORTED, without a warning: there is no memory for any.
 */
enum util_status core_arena_open(struct core_arena *arena, size_t bytes, bool with_shm,
				 struct gpu_stream *stream, bool *clearing);

/*
 * Whether that may take memory of the device. Memory that others touched is best given back before
 * (core_leaving.h).
 */
bool core_arena_would_grow(const struct core_arena *arena, size_t bytes,
			   const struct gpu_stream *stream);

/* Have flags of older messages cleared, in stream order. */
enum util_status core_arena_clear_flags(struct core_arena *arena, struct gpu_stream *stream);

/* Whether there is memory that others may touch. */
bool core_arena_is_open(const struct core_arena *arena);

/*
 * `idle`: no other process's kernel can touch it any more. What may be touched is not used again.
 */
void core_arena_close(struct core_arena *arena, bool idle);

#endif
