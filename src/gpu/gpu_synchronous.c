/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_synchronous.h"
#include "gpu/gpu_context.h"
#include "util/util_hash.h"

#include <pthread.h>
#include <string.h>

/* ---- contexts ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The contexts that were made synchronous, by id; under the lock. What was pending then is waited
 * for once by an event on the legacy stream, which comes after the blocking streams' work whatever
 * a query of that stream tells. Beyond so many contexts it is done again each time, which is
 * harmless.
 */
enum { MOST_SYNCHRONOUS = 64 };
static struct {
	unsigned long long context_id;
	bool pending;
} synchronous[MOST_SYNCHRONOUS];
static unsigned num_synchronous;

static bool is_synchronous(unsigned long long context_id)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < num_synchronous; i++)
		found |= synchronous[i].context_id == context_id;
	pthread_mutex_unlock(&lock);
	return found;
}

static void note_synchronous(unsigned long long context_id)
{
	pthread_mutex_lock(&lock);
	if (num_synchronous < MOST_SYNCHRONOUS) {
		synchronous[num_synchronous].context_id = context_id;
		synchronous[num_synchronous++].pending = true;
	}
	pthread_mutex_unlock(&lock);
}

bool gpu_synchronous_is_pending(unsigned long long context_id, bool waited)
{
	bool pending = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < num_synchronous; i++) {
		if (synchronous[i].context_id != context_id)
			continue;
		synchronous[i].pending &= !waited;
		pending |= synchronous[i].pending;
	}
	pthread_mutex_unlock(&lock);
	return pending;
}

/* The current one. */
static void make_current_synchronous(void)
{
	unsigned long long id;
	unsigned flags;

	if (gpu_driver.cuCtxGetId(NULL, &id) != CUDA_SUCCESS || is_synchronous(id) ||
	    gpu_driver.cuCtxGetFlags(&flags) != CUDA_SUCCESS)
		return;
	/*
	 * First this: what comes later is not pending. Another thread may do the same, and note the
	 * context twice, each of which is waited for.
	 */
	if (!(flags & CU_CTX_SYNC_MEMOPS))
		gpu_driver.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
	note_synchronous(id);
}

static void make_contexts_synchronous(const struct gpu_pointer *pointer)
{
	struct gpu_scope scope;

	if (!gpu_driver.cuCtxGetFlags || !gpu_driver.cuCtxSetFlags)
		return;
	if (gpu_context_is_current())
		make_current_synchronous();
	if (gpu_scope_enter(&scope, pointer) != UTIL_OK)
		return;
	make_current_synchronous();
	gpu_scope_leave(&scope);
}

/* ---- allocations ---- */

/*
 * The allocations that were made synchronous, by buffer id: a hash set with open addressing. Ids of
 * freed memory stay in it, harmlessly; when it is full it is emptied, which costs each live
 * allocation one more call.
 */
enum { SEEN_SLOTS = 1 << 14 };
static unsigned long long seen[SEEN_SLOTS];
static unsigned num_seen;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock: the slot that holds the id, or the free one where it belongs. */
static unsigned long long *seen_find(unsigned long long id)
{
	size_t slot = (size_t)(id * UTIL_GOLDEN >> 50) % SEEN_SLOTS;

	while (seen[slot] && seen[slot] != id)
		slot = (slot + 1) % SEEN_SLOTS;
	return &seen[slot];
}

static bool seen_contains(unsigned long long id)
{
	pthread_mutex_lock(&seen_lock);
	bool found = *seen_find(id) == id;
	pthread_mutex_unlock(&seen_lock);
	return found;
}

static void seen_insert(unsigned long long id)
{
	pthread_mutex_lock(&seen_lock);
	if (num_seen > SEEN_SLOTS / 2) {
		memset(seen, 0, sizeof(seen));
		num_seen = 0;
	}
	unsigned long long *slot = seen_find(id);
	num_seen += *slot != id;
	*slot = id;
	pthread_mutex_unlock(&seen_lock);
}

void gpu_synchronous_make(const void *address, const struct gpu_pointer *pointer)
{
	unsigned on = 1;
	struct gpu_scope scope;

	if (pointer->memory == GPU_MEMORY_MANAGED || !pointer->buffer_id ||
	    seen_contains(pointer->buffer_id))
		return;
	if (!pointer->context) {
		make_contexts_synchronous(pointer);
		seen_insert(pointer->buffer_id);
		return;
	}
	if (pointer->memory != GPU_MEMORY_DEVICE || gpu_scope_enter(&scope, pointer) != UTIL_OK)
		return;
	gpu_driver.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
					 (CUdeviceptr)address);
	seen_insert(pointer->buffer_id);
	gpu_scope_leave(&scope);
}
