/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_staging.h"
#include "gpu/gpu_context.h"
#include "gpu/gpu_stream.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MIN_SHIFT = 16, NUM_CLASSES = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_staging_block *idle[NUM_CLASSES]; /* under the lock */
static size_t pooled;                               /* under the lock: bytes idle and in use */

static int size_class(size_t bytes)
{
	int class = 0;

	while (class < NUM_CLASSES && ((size_t)1 << (class + MIN_SHIFT)) < bytes)
		class ++;
	return class;
}

static struct gpu_staging_block *take_idle(int class)
{
	pthread_mutex_lock(&lock);
	struct gpu_staging_block *block = idle[class];
	if (block)
		idle[class] = block->next;
	pthread_mutex_unlock(&lock);
	return block;
}

static void block_free(struct gpu_staging_block *block)
{
	if (!block->registered ||
	    gpu_context_unpin(block->base, block->device, block->registered_in))
		munmap(block->base, block->bytes);
	free(block);
}

/*
 * Reserve room in the pool, giving idle blocks of other sizes back to the system where that helps;
 * or `beyond` it, giving nothing back, for which the driver may wait.
 */
static bool reserve(size_t bytes, bool beyond)
{
	struct gpu_staging_block *victims = NULL;
	bool fits;

	pthread_mutex_lock(&lock);
	for (int i = NUM_CLASSES - 1; i >= 0 && !beyond && bytes <= util_config.staging_pool; i--) {
		while (idle[i] && pooled + bytes > util_config.staging_pool) {
			struct gpu_staging_block *victim = idle[i];

			idle[i] = victim->next;
			pooled -= victim->bytes;
			victim->next = victims;
			victims = victim;
		}
	}
	fits = beyond ||
	       (bytes <= util_config.staging_pool && pooled <= util_config.staging_pool - bytes);
	if (fits)
		pooled += bytes;
	pthread_mutex_unlock(&lock);
	while (victims) {
		struct gpu_staging_block *victim = victims;

		victims = victim->next;
		block_free(victim);
	}
	return fits;
}

static void unreserve(size_t bytes)
{
	pthread_mutex_lock(&lock);
	pooled -= bytes;
	pthread_mutex_unlock(&lock);
}

static struct gpu_staging_block *block_map(size_t bytes, int class)
{
	struct gpu_staging_block *block = calloc(1, sizeof(*block));

	if (!block)
		return NULL;
	block->bytes = bytes;
	block->size_class = class;
	block->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block->base == MAP_FAILED) {
		free(block);
		return NULL;
	}
	/* A fork makes pages copy-on-write, and the device may go on with the old ones. */
	madvise(block->base, bytes, MADV_DONTFORK);
	return block;
}

/* Failing to pin costs speed, not correctness. */
static void block_register(struct gpu_staging_block *block, const struct gpu_pointer *pointer)
{
	struct gpu_scope scope;
	CUresult result;

	if (gpu_scope_enter(&scope, pointer) != UTIL_OK)
		return;
	result = gpu_driver.cuMemHostRegister(block->base, block->bytes,
					      CU_MEMHOSTREGISTER_PORTABLE |
						      CU_MEMHOSTREGISTER_DEVICEMAP);
	gpu_driver.cuCtxGetId(NULL, &block->registered_in);
	gpu_scope_leave(&scope);
	block->registered =
		result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	block->context_id = 0;
	block->device = pointer->device;
	if (!block->registered)
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_GPU,
			 "%zu bytes for staging can't be pinned (%d)", block->bytes, (int)result);
}

static enum util_status get(size_t bytes, const struct gpu_pointer *pointer, bool beyond,
			    struct gpu_staging_block **out)
{
	int class = size_class(bytes);
	size_t rounded = (size_t)1 << (class + MIN_SHIFT);
	bool pool = class < NUM_CLASSES;

	if (pool && (*out = take_idle(class))) {
		if (!(*out)->registered)
			block_register(*out, pointer);
		return UTIL_OK;
	}
	pool = pool && reserve(rounded, beyond);
	*out = block_map(pool ? rounded : bytes, pool ? class : -1);
	if (!*out) {
		if (pool)
			unreserve(rounded);
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_GPU, "no memory for %zu bytes of staging",
			 bytes);
		return UTIL_ERR_NO_MEMORY;
	}
	if (pool)
		block_register(*out, pointer);
	return UTIL_OK;
}

enum util_status gpu_staging_get(size_t bytes, const struct gpu_pointer *pointer,
				 struct gpu_staging_block **out)
{
	return get(bytes, pointer, false, out);
}

enum util_status gpu_staging_get_pinned(size_t bytes, const struct gpu_pointer *pointer,
					struct gpu_staging_block **out)
{
	enum util_status status = get(bytes, pointer, true, out);

	if (status != UTIL_OK || (*out)->registered)
		return status;
	gpu_staging_put(*out);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_GPU, "%zu bytes for staging can't be pinned", bytes);
	return UTIL_ERR_NO_MEMORY;
}

uint64_t gpu_staging_device_address(struct gpu_staging_block *block,
				    const struct gpu_stream *stream)
{
	unsigned long long context_id = gpu_stream_context_id(stream);
	CUdeviceptr address = 0;
	struct gpu_scope scope;

	if (!block->registered)
		return 0;
	if (block->context_id == context_id)
		return block->device_address;
	if (gpu_scope_enter(&scope, gpu_stream_where(stream)) != UTIL_OK)
		return 0;
	/*
	 * Fails after a reset of the device, which undoes the registration: whoever takes the block
	 * next makes it again.
	 */
	block->registered =
		gpu_driver.cuMemHostGetDevicePointer(&address, block->base, 0) == CUDA_SUCCESS;
	gpu_scope_leave(&scope);
	block->context_id = block->registered ? context_id : 0;
	block->device_address = block->registered ? address : 0;
	return block->device_address;
}

void gpu_staging_put(struct gpu_staging_block *block)
{
	if (block->size_class < 0) {
		block_free(block);
		return;
	}
	pthread_mutex_lock(&lock);
	block->next = idle[block->size_class];
	idle[block->size_class] = block;
	pthread_mutex_unlock(&lock);
}

void gpu_staging_finalize(void)
{
	for (int i = 0; i < NUM_CLASSES; i++) {
		while (idle[i]) {
			struct gpu_staging_block *block = idle[i];

			idle[i] = block->next;
			pooled -= block->bytes;
			block_free(block);
		}
	}
}
