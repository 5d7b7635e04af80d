/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_scratch.h"

#include <pthread.h>
#include <stdlib.h>

/* Sizes are rounded up to powers of two, so that the next call's fits the last one's. */
enum { MIN_BYTES = 64 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_scratch *idle; /* under the lock */

/* Memory of contexts that have ended is gone; its blocks wait for the end of the process. */
static struct gpu_scratch *take_idle(unsigned long long context_id, size_t bytes)
{
	struct gpu_scratch *scratch, **link = &idle;

	pthread_mutex_lock(&lock);
	while (*link && ((*link)->context_id != context_id || (*link)->bytes != bytes))
		link = &(*link)->next;
	scratch = *link;
	if (scratch)
		*link = scratch->next;
	pthread_mutex_unlock(&lock);
	return scratch;
}

static struct gpu_scratch *allocate(unsigned long long context_id, size_t bytes,
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
	size_t rounded = MIN_BYTES;

	while (rounded < bytes)
		rounded *= 2;
	*out = take_idle(context_id, rounded);
	if (!*out)
		*out = allocate(context_id, rounded, gpu_stream_where(stream));
	return *out ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

void gpu_scratch_put(struct gpu_scratch *scratch)
{
	pthread_mutex_lock(&lock);
	scratch->next = idle;
	idle = scratch;
	pthread_mutex_unlock(&lock);
}

void gpu_scratch_finalize(void)
{
	while (idle) {
		struct gpu_scratch *scratch = idle;
		struct gpu_scope scope;

		idle = scratch->next;
		if (gpu_scope_enter_alive(&scope, scratch->device, scratch->context_id)) {
			gpu_driver.cuMemFree(scratch->address);
			gpu_scope_leave(&scope);
		}
		free(scratch);
	}
}
