/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_ipc.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(CUipcMemHandle) == GPU_EXPORT_HANDLE_BYTES, "a handle travels as it is");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- exports ---- */

/* By buffer id, one in each place: an id that meets another's place takes it. */
enum { EXPORT_PLACES = 1024 };
static struct gpu_export exports[EXPORT_PLACES]; /* under the lock; bytes == 0: has no handle */

static bool find_export(uint64_t id, struct gpu_export *out)
{
	pthread_mutex_lock(&lock);
	*out = exports[id % EXPORT_PLACES];
	pthread_mutex_unlock(&lock);
	return out->buffer_id == id;
}

static void keep_export(const struct gpu_export *export)
{
	pthread_mutex_lock(&lock);
	exports[export->buffer_id % EXPORT_PLACES] = *export;
	pthread_mutex_unlock(&lock);
}

/* In the scope of the memory's context. Handles are of whole allocations, whatever part is asked
 * for. */
static bool make_export(uint64_t address, struct gpu_export *export)
{
	CUdeviceptr start;
	size_t bytes;
	CUipcMemHandle handle;

	if (gpu_driver.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address) != CUDA_SUCCESS ||
	    gpu_driver.cuIpcGetMemHandle(&handle, start) != CUDA_SUCCESS)
		return false;
	export->start = start;
	export->bytes = bytes;
	memcpy(export->handle, &handle, sizeof(handle));
	return true;
}

enum util_status gpu_ipc_export(uint64_t address, const struct gpu_pointer *pointer,
				struct gpu_export *out)
{
	struct gpu_scope scope;

	if (!pointer->buffer_id)
		return UTIL_ERR_UNSUPPORTED;
	if (!find_export(pointer->buffer_id, out)) {
		if (gpu_scope_enter(&scope, pointer) != UTIL_OK)
			return UTIL_ERR_CUDA;
		*out = (struct gpu_export){.buffer_id = pointer->buffer_id};
		make_export(address, out);
		gpu_scope_leave(&scope);
		keep_export(out);
	}
	return out->bytes ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

/* ---- mappings ---- */

struct gpu_mapping {
	struct gpu_mapping *next; /* in its chain */
	int owner, device;
	uint64_t buffer_id;
	unsigned long long context_id;
	uint64_t start, bytes; /* in the owner */
	uint64_t base;         /* here; 0: it could not be mapped */
	unsigned uses;
	uint64_t last_use;
};

/* All under the lock. */
enum { CHAINS = 256 };
static struct gpu_mapping *chains[CHAINS];
static size_t mapped_bytes;
static uint64_t uses, dropped;
static unsigned calls_inside;

void gpu_ipc_enter(void)
{
	pthread_mutex_lock(&lock);
	calls_inside++;
	pthread_mutex_unlock(&lock);
}

void gpu_ipc_leave(void)
{
	pthread_mutex_lock(&lock);
	calls_inside--;
	pthread_mutex_unlock(&lock);
}

uint64_t gpu_ipc_dropped(void)
{
	pthread_mutex_lock(&lock);
	uint64_t count = dropped;
	pthread_mutex_unlock(&lock);
	return count;
}

static struct gpu_mapping **chain_of(int owner, uint64_t buffer_id)
{
	return &chains[((unsigned)owner * 31 + buffer_id) % CHAINS];
}

static struct gpu_mapping *find(int owner, uint64_t buffer_id, unsigned long long context_id)
{
	struct gpu_mapping *mapping = *chain_of(owner, buffer_id);

	while (mapping && (mapping->owner != owner || mapping->buffer_id != buffer_id ||
			   mapping->context_id != context_id))
		mapping = mapping->next;
	return mapping;
}

/* A context that has ended took its mappings along. */
static void unmap(const struct gpu_mapping *mapping)
{
	struct gpu_scope scope;

	if (!mapping->base || !gpu_scope_enter_alive(&scope, mapping->device, mapping->context_id))
		return;
	gpu_driver.cuIpcCloseMemHandle(mapping->base);
	gpu_scope_leave(&scope);
}

static void drop(struct gpu_mapping **link)
{
	struct gpu_mapping *mapping = *link;

	*link = mapping->next;
	unmap(mapping);
	mapped_bytes -= mapping->base ? mapping->bytes : 0;
	dropped++;
	free(mapping);
}

/* A mapping that the new one may replace: of memory that its owner has freed, or which is too much.
 */
typedef bool (*drop_test)(const struct gpu_mapping *mapping, int owner,
			  const struct gpu_export *export);

static bool is_stale(const struct gpu_mapping *mapping, int owner, const struct gpu_export *export)
{
	return mapping->owner == owner && mapping->buffer_id != export->buffer_id &&
	       mapping->start < export->start + export->bytes &&
	       export->start < mapping->start + mapping->bytes;
}

static bool is_unused(const struct gpu_mapping *mapping, int owner, const struct gpu_export *export)
{
	(void)owner;
	(void)export;
	return mapping->base != 0;
}

static void drop_all(drop_test test, int owner, const struct gpu_export *export)
{
	if (calls_inside > 1)
		return;
	for (int i = 0; i < CHAINS; i++) {
		for (struct gpu_mapping **link = &chains[i]; *link;) {
			if (!(*link)->uses && test(*link, owner, export))
				drop(link);
			else
				link = &(*link)->next;
		}
	}
}

static struct gpu_mapping **least_recently_used(void)
{
	struct gpu_mapping **oldest = NULL;

	for (int i = 0; i < CHAINS; i++) {
		for (struct gpu_mapping **link = &chains[i]; *link; link = &(*link)->next) {
			if (!(*link)->uses && (*link)->base &&
			    (!oldest || (*link)->last_use < (*oldest)->last_use))
				oldest = link;
		}
	}
	return oldest;
}

/* Whether the bound leaves room for the new mapping, after old ones were dropped where they may be.
 */
static bool make_room(size_t bytes)
{
	while (mapped_bytes + bytes > util_config.ipc_cache) {
		struct gpu_mapping **oldest = calls_inside > 1 ? NULL : least_recently_used();

		if (!oldest)
			return false;
		drop(oldest);
	}
	return true;
}

static CUresult open_once(const struct gpu_export *export, CUdeviceptr *base)
{
	CUipcMemHandle handle;

	memcpy(&handle, export->handle, sizeof(handle));
	return gpu_driver.cuIpcOpenMemHandle(base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* In the context's scope. Mappings that stand in the way (of freed memory at the same addresses, or
 * all when memory is short) are dropped and it is tried again. */
static CUresult open_handle(int owner, const struct gpu_export *export, CUdeviceptr *base)
{
	CUresult result;

	drop_all(is_stale, owner, export);
	result = open_once(export, base);
	if (result == CUDA_ERROR_ALREADY_MAPPED || result == CUDA_ERROR_OUT_OF_MEMORY) {
		drop_all(is_unused, owner, export);
		result = open_once(export, base);
	}
	return result;
}

/* Under the lock. NULL: out of memory. */
static struct gpu_mapping *map_new(int owner, const struct gpu_export *export,
				   const struct gpu_stream *stream)
{
	struct gpu_mapping *mapping = calloc(1, sizeof(*mapping));
	struct gpu_mapping **chain = chain_of(owner, export->buffer_id);
	CUresult result = CUDA_ERROR_UNKNOWN;
	CUdeviceptr base = 0;
	struct gpu_scope scope;

	if (!mapping)
		return NULL;
	if (make_room(export->bytes) &&
	    gpu_scope_enter(&scope, gpu_stream_where(stream)) == UTIL_OK) {
		result = open_handle(owner, export, &base);
		gpu_scope_leave(&scope);
		if (result != CUDA_SUCCESS)
			util_log(UTIL_LOG_INFO, UTIL_SUBSYS_GPU,
				 "memory of local rank %d can't be mapped (cuIpcOpenMemHandle: %d)",
				 owner, (int)result);
	}
	*mapping = (struct gpu_mapping){.next = *chain,
					.owner = owner,
					.device = gpu_stream_where(stream)->device,
					.buffer_id = export->buffer_id,
					.context_id = gpu_stream_context_id(stream),
					.start = export->start,
					.bytes = export->bytes,
					.base = result == CUDA_SUCCESS ? base : 0};
	mapped_bytes += mapping->base ? mapping->bytes : 0;
	*chain = mapping;
	return mapping;
}

enum util_status gpu_ipc_map(int owner, const struct gpu_export *export,
			     const struct gpu_stream *stream, struct gpu_mapping **out)
{
	struct gpu_mapping *mapping;

	pthread_mutex_lock(&lock);
	mapping = find(owner, export->buffer_id, gpu_stream_context_id(stream));
	if (!mapping)
		mapping = map_new(owner, export, stream);
	if (mapping) {
		mapping->last_use = ++uses;
		mapping->uses += mapping->base != 0;
	}
	pthread_mutex_unlock(&lock);
	*out = mapping && mapping->base ? mapping : NULL;
	return *out ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

uint64_t gpu_mapping_address(const struct gpu_mapping *mapping, uint64_t address)
{
	return mapping->base + (address - mapping->start);
}

void gpu_mapping_put(struct gpu_mapping *mapping)
{
	pthread_mutex_lock(&lock);
	mapping->uses--;
	pthread_mutex_unlock(&lock);
}

void gpu_ipc_finalize(void)
{
	for (int i = 0; i < CHAINS; i++) {
		while (chains[i])
			drop(&chains[i]);
	}
	memset(exports, 0, sizeof(exports));
}
