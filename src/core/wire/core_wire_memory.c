/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_wire_memory.h"
#include "net/net_port.h"
#include "util/util_config.h"

#include <pthread.h>

static void close_arena(struct core_wire_arena *arena)
{
	if (arena->host)
		gpu_shm_free(arena->host);
	if (arena->device)
		gpu_scratch_put(arena->device);
	*arena = (struct core_wire_arena){0};
}

void core_wire_memory_close(struct core_wire_arena *arenas)
{
	for (int i = 0; i < CORE_WIRE_NUM_PLACES; i++)
		close_arena(&arenas[i]);
}

enum util_status core_wire_memory_open_host(struct gpu_shm **shm, size_t bytes,
					    struct gpu_stream *stream, uint64_t *address)
{
	if (!*shm && gpu_shm_create(bytes, false, shm) != UTIL_OK)
		return UTIL_ERR_UNSUPPORTED;
	*address = gpu_shm_address(*shm, stream);
	return *address ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

/* The context of all arenas in device memory, in which UCX is called. */
static struct {
	pthread_mutex_t lock;          /* of the first two */
	unsigned long long context_id; /* 0: there is none yet */
	struct gpu_pointer where;
	struct gpu_scope scope; /* with the main port's lock held */
	bool inside;
} context = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void enter_context(void)
{
	context.inside = gpu_scope_enter_again(&context.scope, &context.where);
}

static void leave_context(void)
{
	if (context.inside)
		gpu_scope_leave(&context.scope);
}

/* Whether arenas can be in the stream's context. The first one asked for is the one. */
static bool is_our_context(const struct gpu_stream *stream)
{
	unsigned long long id = gpu_stream_context_id(stream);
	bool first, ours;

	pthread_mutex_lock(&context.lock);
	first = !context.context_id;
	if (first) {
		context.context_id = id;
		context.where = *gpu_stream_where(stream);
		net_set_context(enter_context, leave_context);
	}
	ours = context.context_id == id;
	pthread_mutex_unlock(&context.lock);
	return ours;
}

static bool open_device(struct core_wire_arena *arena, size_t bytes, struct gpu_stream *stream)
{
	if (util_config.net_gdr == UTIL_GDR_OFF || !net_takes_device_memory() ||
	    !is_our_context(stream))
		return false;
	if (!arena->device && gpu_scratch_get(bytes, stream, &arena->device) != UTIL_OK)
		return false;
	arena->address = arena->device->address;
	arena->base = (char *)arena->address;
	return true;
}

enum util_status core_wire_memory_open(struct core_wire_arena *in, struct core_wire_arena *out,
				       size_t bytes, struct gpu_stream *stream, bool *has_device)
{
	struct core_wire_arena *hosts[] = {&in[CORE_WIRE_ON_HOST], &out[CORE_WIRE_ON_HOST]};

	for (int i = 0; i < 2; i++) {
		enum util_status status = core_wire_memory_open_host(&hosts[i]->host, bytes, stream,
								     &hosts[i]->address);

		if (status != UTIL_OK)
			return status;
		hosts[i]->base = gpu_shm_host(hosts[i]->host);
	}
	*has_device = open_device(&in[CORE_WIRE_ON_DEVICE], bytes, stream) &&
		      open_device(&out[CORE_WIRE_ON_DEVICE], bytes, stream);
	return UTIL_OK;
}

void core_wire_memory_swap(struct core_wire_arena *a, struct core_wire_arena *b)
{
	for (int i = 0; i < CORE_WIRE_NUM_PLACES; i++) {
		struct core_wire_arena swap = a[i];

		a[i] = b[i];
		b[i] = swap;
	}
}
