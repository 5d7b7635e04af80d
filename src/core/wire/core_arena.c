/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_arena.h"
#include "core/wire/core_arena_layout.h"

#include <string.h>

static enum util_status clear(const struct core_arena *arena, size_t from, size_t to,
			      struct gpu_stream *stream)
{
	return gpu_stream_clear(stream, (void *)(arena->device->address + from), to - from);
}

static enum util_status clear_flags(struct core_arena *arena, struct gpu_stream *stream)
{
	size_t bytes = core_arena_layout_flags(arena->bytes);

	if (arena->shm)
		memset((char *)gpu_shm_host(arena->shm) + GPU_ARENA_SLOTS, 0, bytes);
	return clear(arena, GPU_ARENA_SLOTS, GPU_ARENA_SLOTS + bytes, stream);
}

/* Those of other contexts keep old flags, and are not used again. */
enum util_status core_arena_clear_flags(struct core_arena *arena, struct gpu_stream *stream)
{
	memset(arena->others, 0, sizeof(arena->others));
	return clear_flags(arena, stream);
}

/*
 * Put the arena away for another context's, if there is one. What there is no place for is left
 * alone: others may yet say in it what they have read.
 */
static void change_context(struct core_arena *arena, unsigned long long context_id)
{
	struct gpu_scratch *old = arena->device;

	arena->device = NULL;
	for (int i = 0; i < CORE_ARENA_OTHERS && !arena->device; i++) {
		if (arena->others[i] && arena->others[i]->context_id == context_id) {
			arena->device = arena->others[i];
			arena->others[i] = NULL;
		}
	}
	for (int i = 0; i < CORE_ARENA_OTHERS && old; i++) {
		if (!arena->others[i]) {
			arena->others[i] = old;
			old = NULL;
		}
	}
}

static enum util_status open_device(struct core_arena *arena, struct gpu_stream *stream,
				    bool *clearing)
{
	enum util_status status;

	if (arena->device && arena->device->context_id != gpu_stream_context_id(stream))
		change_context(arena, gpu_stream_context_id(stream));
	if (arena->device)
		return UTIL_OK;
	status = gpu_scratch_get(arena->bytes, stream, &arena->device);
	if (status != UTIL_OK)
		return status;
	*clearing = true;
	status = clear(arena, 0, GPU_ARENA_SLOTS, stream);
	if (status == UTIL_OK)
		status = clear_flags(arena, stream);
	if (status != UTIL_OK)
		arena->device = NULL;
	return status;
}

/* To larger ones, if they can be had. Those in device memory are left alone, as above. */
static bool grow_arena(struct core_arena *arena, size_t bytes, bool with_shm,
		       struct gpu_stream *stream, bool *clearing)
{
	struct core_arena larger = {.bytes = bytes, .cards = arena->cards};

	if (with_shm && gpu_shm_create(bytes, true, &larger.shm) != UTIL_OK)
		return false;
	if (open_device(&larger, stream, clearing) != UTIL_OK) {
		if (larger.shm)
			gpu_shm_free(larger.shm);
		return false;
	}
	if (arena->shm)
		gpu_shm_free(arena->shm);
	*arena = larger;
	return true;
}

/* What can't be had is not asked for again, as that costs all calls. */
static bool is_to_grow(const struct core_arena *arena, size_t bytes)
{
	return bytes > arena->bytes && bytes != arena->refused;
}

/* The first ones may be smaller. */
static void open_largest(struct core_arena *arena, size_t bytes, bool with_shm,
			 struct gpu_stream *stream, bool *clearing)
{
	bool first = !arena->bytes, well = false;

	if (!is_to_grow(arena, bytes))
		return;
	for (size_t some = bytes; some && !well; some = first ? core_arena_layout_half(some) : 0)
		well = grow_arena(arena, some, with_shm, stream, clearing);
	if (arena->bytes)
		arena->refused = bytes;
}

enum util_status core_arena_open(struct core_arena *arena, size_t bytes, bool with_shm,
				 struct gpu_stream *stream, bool *clearing)
{
	enum util_status status;

	with_shm |= arena->shm != NULL;
	open_largest(arena, bytes, with_shm, stream, clearing);
	if (!arena->bytes)
		return UTIL_ERR_UNSUPPORTED;
	status = open_device(arena, stream, clearing);
	if (status == UTIL_OK && with_shm && !arena->shm)
		status = gpu_shm_create(arena->bytes, true, &arena->shm);
	if (status == UTIL_OK && arena->shm && !gpu_shm_address(arena->shm, stream))
		status = UTIL_ERR_UNSUPPORTED;
	return status;
}

bool core_arena_would_grow(const struct core_arena *arena, size_t bytes,
			   const struct gpu_stream *stream)
{
	return !arena->device || arena->device->context_id != gpu_stream_context_id(stream) ||
	       is_to_grow(arena, bytes);
}

bool core_arena_is_open(const struct core_arena *arena)
{
	return arena->bytes || arena->cards;
}

void core_arena_close(struct core_arena *arena, bool idle)
{
	if (arena->device && idle)
		gpu_scratch_put(arena->device);
	if (arena->cards && idle)
		gpu_scratch_put(arena->cards);
	for (int i = 0; i < CORE_ARENA_OTHERS && idle; i++) {
		if (arena->others[i])
			gpu_scratch_put(arena->others[i]);
	}
	if (arena->shm)
		gpu_shm_free(arena->shm);
	*arena = (struct core_arena){0};
}
