/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_scratch.h"

#include <pthread.h>
#include <stdlib.h>

/* Small sizes are rounded up to powers of two, so that the next call's fits the last one's. */
enum { MIN_BYTES = 64 << 10, LARGE_UNIT = 32 << 20, MOST_IDLE = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_scratch *idle; /* under the lock */

static size_t rounded(size_t bytes)
{
	size_t to = MIN_BYTES;

	while (to < bytes && to < LARGE_UNIT)
		to *= 2;
	return to < bytes ? (bytes + LARGE_UNIT - 1) / LARGE_UNIT * LARGE_UNIT : to;
}

/* Under the lock: the smallest that is large enough and does not waste most of itself. */
static struct gpu_scratch **best_idle(unsigned long long context_id, size_t bytes)
{
	struct gpu_scratch **best = NULL;

	for (struct gpu_scratch **link = &idle; *link; link = &(*link)->next) {
		if ((*link)->context_id == context_id && (*link)->bytes >= bytes &&
		    (*link)->bytes / 2 <= bytes && (!best || (*link)->bytes < (*best)->bytes))
			best = link;
	}
	return best;
}

static struct gpu_scratch *take_idle(unsigned long long context_id, size_t bytes)
{
	struct gpu_scratch *scratch = NULL, **best;

	pthread_mutex_lock(&lock);
	best = best_idle(context_id, bytes);
	if (best) {
		scratch = *best;
		*best = scratch->next;
	}
	pthread_mutex_unlock(&lock);
	return scratch;
}

/* Memory of contexts that have ended is gone with them. */
static void scratch_free(struct gpu_scratch *scratch)
{
	struct gpu_scope scope;

	if (gpu_scope_enter_alive(&scope, scratch->device, scratch->context_id)) {
		gpu_driver.cuMemFree(scratch->address);
		gpu_scope_leave(&scope);
	}
	free(scratch);
}

/* Free what has been idle for longest, beyond `most` blocks. */
static void trim(unsigned most)
{
	struct gpu_scratch *victims, **link = &idle;

	pthread_mutex_lock(&lock);
	while (*link && most--)
		link = &(*link)->next;
	victims = *link;
	*link = NULL;
	pthread_mutex_unlock(&lock);
	while (victims) {
		struct gpu_scratch *victim = victims;

		victims = victim->next;
		scratch_free(victim);
	}
}

static struct gpu_scratch *allocate_scratch(unsigned long long context_id, size_t bytes,
					    const struct gpu_pointer *where)
{
	struct gpu_scratch *scratch = calloc(1, sizeof(*scratch));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr address = 0;
	struct gpu_scope scope;

	if (scratch && gpu_scope_enter(&scope, where) == UTIL_OK) {
		result = gpu_driver.cuMemAlloc(&address, bytes);
		gpu_scope_leave(&scope);
	}
	if (result != CUDA_SUCCESS) {
		free(scratch);
		return NULL;
	}
	*scratch = (struct gpu_scratch){.context_id = context_id,
					.device = where->device,
					.address = address,
					.bytes = bytes};
	return scratch;
}

enum util_status gpu_scratch_get(size_t bytes, const struct gpu_stream *stream,
				 struct gpu_scratch **out)
{
	unsigned long long context_id = gpu_stream_context_id(stream);
	size_t size = rounded(bytes);

	*out = take_idle(context_id, size);
	if (*out)
		return UTIL_OK;
	*out = allocate_scratch(context_id, size, gpu_stream_where(stream));
	if (!*out) {
		trim(0);
		*out = allocate_scratch(context_id, size, gpu_stream_where(stream));
	}
	return *out ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

void gpu_scratch_put(struct gpu_scratch *scratch)
{
	pthread_mutex_lock(&lock);
	scratch->next = idle;
	idle = scratch;
	pthread_mutex_unlock(&lock);
	trim(MOST_IDLE);
}

void gpu_scratch_finalize(void)
{
	trim(0);
}
