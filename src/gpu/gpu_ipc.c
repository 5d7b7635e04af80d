/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_ipc.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_shm.h"
#include "util/util_config.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CUipcMemHandle) == GPU_EXPORT_HANDLE_BYTES &&
		       sizeof(CUmemPoolPtrExportData) == GPU_EXPORT_HANDLE_BYTES,
	       "a handle travels as it is");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- exports ---- */

/* By buffer id, one in each place: an id that meets another's place takes it. */
enum { EXPORT_PLACES = 1024 };
static struct gpu_export exports[EXPORT_PLACES]; /* under the lock */

/*
 * What the allocation is known by to others. Where it is memory of a pool or of the virtual memory
 * API, the driver does not say whether its id is its own or that of a reservation, in which others
 * are mapped as well, so its place counts too.
 */
static uint64_t id_of(const struct gpu_pointer *pointer)
{
	uint64_t id = pointer->buffer_id;

	if (id && !pointer->context)
		id ^= (uint64_t)pointer->start * UTIL_GOLDEN;
	return id;
}

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

/*
 * In the scope of the memory's context. Handles are of whole allocations, whatever part is asked
 * for.
 */
static bool export_handle(uint64_t address, struct gpu_export *export)
{
	CUdeviceptr start;
	size_t bytes;
	CUipcMemHandle handle;

	if (gpu_driver.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address) != CUDA_SUCCESS ||
	    gpu_driver.cuIpcGetMemHandle(&handle, start) != CUDA_SUCCESS)
		return false;
	export->kind = GPU_EXPORT_HANDLE;
	export->start = start;
	export->bytes = bytes;
	memcpy(export->handle, &handle, sizeof(handle));
	return true;
}

/*
 * In the scope. Memory that is no allocation of the virtual memory API is refused at the first
 * step.
 */
static int export_fd(uint64_t address)
{
	CUmemGenericAllocationHandle allocation;
	CUresult result;
	int fd = -1;

	if (gpu_driver.cuMemRetainAllocationHandle(&allocation, (void *)address) != CUDA_SUCCESS)
		return -1;
	result = gpu_driver.cuMemExportToShareableHandle(
		&fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	gpu_driver.cuMemRelease(allocation);
	return result == CUDA_SUCCESS ? fd : -1;
}

/*
 * In the scope. The descriptor stands for the whole physical allocation, which the mapping around
 * the address begins with.
 */
static bool export_mapping(uint64_t address, struct gpu_export *export)
{
	CUdeviceptr start;
	size_t bytes;
	int fd;

	if (gpu_driver.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address) != CUDA_SUCCESS)
		return false;
	fd = export_fd(start);
	if (fd < 0)
		return false;
	close(fd);
	export->kind = GPU_EXPORT_FD;
	export->start = start;
	export->bytes = bytes;
	return true;
}

/* In the scope. Memory of no pool, or of one that is not made to be shared, is refused. */
static int export_pool_fd(uint64_t address)
{
	CUmemoryPool pool = NULL;
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
	void *data[] = {&pool};
	int fd = -1;

	if (gpu_driver.cuPointerGetAttributes(1, wanted, data, (CUdeviceptr)address) !=
		    CUDA_SUCCESS ||
	    !pool ||
	    gpu_driver.cuMemPoolExportToShareableHandle(
		    &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
		return -1;
	return fd;
}

static bool export_of_pool(uint64_t address, struct gpu_export *export)
{
	CUmemPoolPtrExportData pointer;
	CUdeviceptr start;
	size_t bytes;
	int fd;

	if (gpu_driver.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address) != CUDA_SUCCESS)
		return false;
	fd = export_pool_fd(start);
	if (fd < 0)
		return false;
	close(fd);
	if (gpu_driver.cuMemPoolExportPointer(&pointer, start) != CUDA_SUCCESS)
		return false;
	export->kind = GPU_EXPORT_POOL;
	export->start = start;
	export->bytes = bytes;
	memcpy(export->handle, &pointer, sizeof(pointer));
	return true;
}

bool gpu_export_has_fd(const struct gpu_export *export)
{
	return export->kind == GPU_EXPORT_FD || export->kind == GPU_EXPORT_POOL ||
	       export->kind == GPU_EXPORT_SHM;
}

int gpu_ipc_export_fd(const struct gpu_export *export, const struct gpu_pointer *pointer)
{
	struct gpu_scope scope;
	int fd;

	if (export->kind == GPU_EXPORT_SHM)
		return gpu_shm_fd(export->buffer_id);
	if (gpu_scope_enter(&scope, pointer) != UTIL_OK)
		return -1;
	fd = export->kind == GPU_EXPORT_FD ? export_fd(export->start)
					   : export_pool_fd(export->start);
	gpu_scope_leave(&scope);
	return fd;
}

enum util_status gpu_ipc_export(uint64_t address, const struct gpu_pointer *pointer,
				struct gpu_export *out)
{
	uint64_t id = id_of(pointer);
	struct gpu_scope scope;

	if (!id)
		return UTIL_ERR_UNSUPPORTED;
	if (!find_export(id, out)) {
		*out = (struct gpu_export){.kind = GPU_EXPORT_NONE};
		if (gpu_scope_enter(&scope, pointer) != UTIL_OK)
			return UTIL_ERR_CUDA;
		out->buffer_id = id;
		if (!export_handle(address, out) && !export_of_pool(address, out))
			export_mapping(address, out);
		gpu_scope_leave(&scope);
		keep_export(out);
	}
	return out->kind != GPU_EXPORT_NONE ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

/* Whether the allocation is still the one that was exported. */
static bool is_live(const struct gpu_export *export)
{
	struct gpu_pointer where;

	gpu_pointer_classify((void *)export->start, &where);
	if (where.memory == GPU_MEMORY_LOST) /* others can only fail, too */
		return true;
	return where.memory != GPU_MEMORY_HOST && id_of(&where) == export->buffer_id;
}

/*
 * A program that brings one new buffer after the other has a look in each call, of as many driver
 * calls as there are buffers: it is to take a small part of the time.
 */
int gpu_ipc_find_freed(uint64_t *ids, int most)
{
	enum { PART = 20 };
	static uint64_t next_look; /* ns; under the lock */
	uint64_t start;
	int found = 0;

	pthread_mutex_lock(&lock);
	start = util_now();
	if (start < next_look) {
		pthread_mutex_unlock(&lock);
		return 0;
	}
	for (int i = 0; i < EXPORT_PLACES && found < most; i++) {
		if (!exports[i].bytes || is_live(&exports[i]))
			continue;
		ids[found++] = exports[i].buffer_id;
	}
	if (found < most) /* else there is more to be told at once */
		next_look = util_now() + PART * (util_now() - start);
	pthread_mutex_unlock(&lock);
	return found + gpu_shm_find_freed(ids + found, most - found);
}

void gpu_ipc_forget_exports(const uint64_t *ids, int num)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < num; i++) {
		if (exports[ids[i] % EXPORT_PLACES].buffer_id == ids[i])
			exports[ids[i] % EXPORT_PLACES] = (struct gpu_export){0};
	}
	pthread_mutex_unlock(&lock);
	gpu_shm_forget_freed(ids, num);
}

/* ---- mappings ---- */

struct gpu_mapping {
	struct gpu_mapping *next; /* in its chain */
	int owner, device;
	uint32_t kind;
	CUmemoryPool pool; /* imported for it */
	void *host;        /* of host memory: where it is for this process */
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

static struct gpu_mapping *find_mapping(int owner, uint64_t buffer_id,
					unsigned long long context_id)
{
	struct gpu_mapping *mapping = *chain_of(owner, buffer_id);

	while (mapping && (mapping->owner != owner || mapping->buffer_id != buffer_id ||
			   mapping->context_id != context_id))
		mapping = mapping->next;
	return mapping;
}

/* Mappings of the virtual memory API belong to no context. */
static void unmap_fd(CUdeviceptr base, size_t bytes)
{
	gpu_driver.cuMemUnmap(base, bytes);
	gpu_driver.cuMemAddressFree(base, bytes);
}

static CUresult map_at(CUdeviceptr base, size_t bytes, CUmemGenericAllocationHandle allocation,
		       int device)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult result = gpu_driver.cuMemMap(base, bytes, 0, allocation, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = gpu_driver.cuMemSetAccess(base, bytes, &access, 1);
	if (result != CUDA_SUCCESS)
		gpu_driver.cuMemUnmap(base, bytes);
	return result;
}

static CUresult map_fd(const struct gpu_export *export, int fd, int device, CUdeviceptr *base)
{
	CUmemGenericAllocationHandle allocation;
	CUresult result;

	result = gpu_driver.cuMemImportFromShareableHandle(
		&allocation, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return result;
	result = gpu_driver.cuMemAddressReserve(base, export->bytes, 0, 0, 0);
	if (result == CUDA_SUCCESS) {
		result = map_at(*base, export->bytes, allocation, device);
		if (result != CUDA_SUCCESS)
			gpu_driver.cuMemAddressFree(*base, export->bytes);
	}
	gpu_driver.cuMemRelease(allocation); /* the mapping holds it */
	return result;
}

static CUresult map_from_pool(const struct gpu_export *export, int fd, int device,
			      CUmemoryPool *pool, CUdeviceptr *base)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemPoolPtrExportData pointer;
	CUresult result;

	memcpy(&pointer, export->handle, sizeof(pointer));
	result = gpu_driver.cuMemPoolImportFromShareableHandle(
		pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = gpu_driver.cuMemPoolSetAccess(*pool, &access, 1);
	if (result == CUDA_SUCCESS)
		result = gpu_driver.cuMemPoolImportPointer(base, *pool, &pointer);
	if (result != CUDA_SUCCESS)
		gpu_driver.cuMemPoolDestroy(*pool);
	return result;
}

static bool enter(struct gpu_scope *scope, const struct gpu_mapping *mapping,
		  const struct gpu_stream *stream)
{
	if (stream && gpu_stream_context_id(stream) == mapping->context_id)
		return gpu_scope_enter(scope, gpu_stream_where(stream)) == UTIL_OK;
	return gpu_scope_enter_alive(scope, mapping->device, mapping->context_id);
}

/* A context that has ended took the pinning along, but not the memory. */
static void unmap_shm(const struct gpu_mapping *mapping, const struct gpu_stream *stream)
{
	struct gpu_scope scope;
	bool entered = enter(&scope, mapping, stream);

	gpu_shm_unmap(mapping->host, mapping->bytes, entered);
	if (entered)
		gpu_scope_leave(&scope);
}

/*
 * In the context of the stream, which lives, or in a primary one that does. One that has ended took
 * its mappings along. `stream` may be NULL.
 */
static void unmap(const struct gpu_mapping *mapping, const struct gpu_stream *stream)
{
	struct gpu_scope scope;

	if (!mapping->base)
		return;
	if (mapping->kind == GPU_EXPORT_FD) {
		unmap_fd(mapping->base, mapping->bytes);
		return;
	}
	if (mapping->kind == GPU_EXPORT_SHM) {
		unmap_shm(mapping, stream);
		return;
	}
	if (!enter(&scope, mapping, stream))
		return;
	if (mapping->kind == GPU_EXPORT_POOL) {
		gpu_driver.cuMemFree(mapping->base);
		gpu_driver.cuMemPoolDestroy(mapping->pool);
	} else {
		gpu_driver.cuIpcCloseMemHandle(mapping->base);
	}
	gpu_scope_leave(&scope);
}

static void drop(struct gpu_mapping **link, const struct gpu_stream *stream)
{
	struct gpu_mapping *mapping = *link;

	*link = mapping->next;
	unmap(mapping, stream);
	mapped_bytes -= mapping->base ? mapping->bytes : 0;
	free(mapping);
}

/*
 * Whose idle mappings to drop: those of one owner that lie on what it now exports, which are of
 * memory that it has freed; all of an owner; or everybody's.
 */
enum reach { STALE, OF_OWNER, ALL };

static bool is_within(const struct gpu_mapping *mapping, enum reach reach, int owner,
		      const struct gpu_export *export)
{
	if (reach == ALL)
		return true;
	if (mapping->owner != owner || reach == OF_OWNER)
		return mapping->owner == owner;
	return mapping->buffer_id != export->buffer_id &&
	       mapping->start < export->start + export->bytes &&
	       export->start < mapping->start + mapping->bytes;
}

static void drop_idle(enum reach reach, int owner, const struct gpu_export *export,
		      const struct gpu_stream *stream)
{
	if (calls_inside > 1)
		return;
	for (int i = 0; i < CHAINS; i++) {
		for (struct gpu_mapping **link = &chains[i]; *link;) {
			if ((*link)->uses || !is_within(*link, reach, owner, export)) {
				link = &(*link)->next;
				continue;
			}
			dropped += reach != STALE; /* freed memory is not offered again */
			drop(link, stream);
		}
	}
}

void gpu_ipc_drop_freed(int owner, uint64_t buffer_id, const struct gpu_stream *stream)
{
	pthread_mutex_lock(&lock);
	for (struct gpu_mapping **link = chain_of(owner, buffer_id); *link;) {
		if (!(*link)->uses && (*link)->owner == owner && (*link)->buffer_id == buffer_id)
			drop(link, stream);
		else
			link = &(*link)->next;
	}
	pthread_mutex_unlock(&lock);
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

/*
 * Drop old mappings for a new one, as far as the bound wants and other calls allow: what a call
 * needs it gets in any case, since the memory is its owner's and in use.
 */
static void make_room_for_mapping(size_t bytes, const struct gpu_stream *stream)
{
	while (util_config.ipc_cache && mapped_bytes + bytes > util_config.ipc_cache &&
	       calls_inside <= 1) {
		struct gpu_mapping **oldest = least_recently_used();

		if (!oldest)
			return;
		dropped++;
		drop(oldest, stream);
	}
}

/*
 * A mapping that does not hold the whole allocation from its first byte on would be used wrongly.
 * The driver need not know the range of what another process has allocated.
 */
static CUresult check_range(CUdeviceptr base, size_t bytes)
{
	CUdeviceptr start;
	size_t size;

	if (gpu_driver.cuMemGetAddressRange(&start, &size, base) != CUDA_SUCCESS ||
	    start + size - base >= bytes)
		return CUDA_SUCCESS;
	gpu_driver.cuIpcCloseMemHandle(base);
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult open_once(const struct gpu_export *export, CUdeviceptr *base)
{
	CUipcMemHandle handle;
	CUresult result;

	memcpy(&handle, export->handle, sizeof(handle));
	result = gpu_driver.cuIpcOpenMemHandle(base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	return result == CUDA_SUCCESS ? check_range(*base, export->bytes) : result;
}

/*
 * In the context's scope. Mappings that stand in the way are dropped and it is tried again: those
 * of freed memory at the same addresses, or in the same block of the driver's; all when memory is
 * short.
 */
static CUresult open_handle(int owner, const struct gpu_export *export,
			    const struct gpu_stream *stream, CUdeviceptr *base)
{
	CUresult result;

	drop_idle(STALE, owner, export, stream);
	result = open_once(export, base);
	if (result == CUDA_ERROR_ALREADY_MAPPED || result == CUDA_ERROR_OUT_OF_MEMORY) {
		drop_idle(result == CUDA_ERROR_OUT_OF_MEMORY ? ALL : OF_OWNER, owner, export,
			  stream);
		result = open_once(export, base);
	}
	return result;
}

/*
 * Failures that the next call would meet again. That a device is out of reach the virtual memory
 * API says in its own way.
 */
static bool is_permanent(CUresult result, uint32_t kind)
{
	if (kind == GPU_EXPORT_FD &&
	    (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_MAP_FAILED))
		return true;
	return result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || result == CUDA_ERROR_NOT_SUPPORTED ||
	       result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_TOO_MANY_PEERS;
}

/* Under the lock. NULL: it can't be mapped now. */
static struct gpu_mapping *map_new(int owner, const struct gpu_export *export, int fd,
				   const struct gpu_stream *stream)
{
	struct gpu_mapping **chain = chain_of(owner, export->buffer_id), *mapping;
	CUdeviceptr base = 0;
	CUmemoryPool pool = NULL;
	void *host = NULL;
	struct gpu_scope scope;
	CUresult result;

	make_room_for_mapping(export->bytes, stream);
	if (gpu_scope_enter(&scope, gpu_stream_where(stream)) != UTIL_OK)
		return NULL;
	if (export->kind == GPU_EXPORT_FD)
		result = map_fd(export, fd, gpu_stream_where(stream)->device, &base);
	else if (export->kind == GPU_EXPORT_POOL)
		result = map_from_pool(export, fd, gpu_stream_where(stream)->device, &pool, &base);
	else if (export->kind == GPU_EXPORT_SHM)
		result = gpu_shm_map(fd, export->bytes, &host, &base);
	else
		result = open_handle(owner, export, stream, &base);
	gpu_scope_leave(&scope);
	if (result != CUDA_SUCCESS)
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_GPU,
			 "memory of local rank %d can't be mapped (%d)", owner, (int)result);
	else
		util_log(UTIL_LOG_TRACE, UTIL_SUBSYS_GPU, "mapped %llu bytes of local rank %d",
			 (unsigned long long)export->bytes, owner);
	if (result != CUDA_SUCCESS && !is_permanent(result, export->kind))
		return NULL;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return NULL;
	*mapping = (struct gpu_mapping){.next = *chain,
					.owner = owner,
					.device = gpu_stream_where(stream)->device,
					.kind = export->kind,
					.pool = pool,
					.host = host,
					.buffer_id = export->buffer_id,
					.context_id = gpu_stream_context_id(stream),
					.start = export->start,
					.bytes = export->bytes,
					.base = result == CUDA_SUCCESS ? base : 0};
	mapped_bytes += mapping->base ? mapping->bytes : 0;
	*chain = mapping;
	return mapping;
}

/* Use it, where it could be mapped. Under the lock. */
static enum util_status take_mapping(struct gpu_mapping *mapping, struct gpu_mapping **out)
{
	mapping->last_use = ++uses;
	mapping->uses += mapping->base != 0;
	*out = mapping->base ? mapping : NULL;
	return mapping->base ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

enum util_status gpu_ipc_find(int owner, uint64_t buffer_id, const struct gpu_stream *stream,
			      struct gpu_mapping **out)
{
	enum util_status status = UTIL_IN_PROGRESS;
	struct gpu_mapping *mapping;

	*out = NULL;
	pthread_mutex_lock(&lock);
	mapping = find_mapping(owner, buffer_id, gpu_stream_context_id(stream));
	if (mapping)
		status = take_mapping(mapping, out);
	pthread_mutex_unlock(&lock);
	return status;
}

enum util_status gpu_ipc_map(int owner, const struct gpu_export *export, int fd,
			     const struct gpu_stream *stream, struct gpu_mapping **out)
{
	bool lacks_fd = gpu_export_has_fd(export) && fd < 0;
	enum util_status status = lacks_fd ? UTIL_IN_PROGRESS : UTIL_ERR_CUDA;
	struct gpu_mapping *mapping;

	*out = NULL;
	if (export->kind == GPU_EXPORT_NONE)
		return UTIL_ERR_UNSUPPORTED;
	pthread_mutex_lock(&lock);
	mapping = find_mapping(owner, export->buffer_id, gpu_stream_context_id(stream));
	if (!mapping && !lacks_fd)
		mapping = map_new(owner, export, fd, stream);
	if (mapping)
		status = take_mapping(mapping, out);
	pthread_mutex_unlock(&lock);
	return status;
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
			drop(&chains[i], NULL);
	}
	memset(exports, 0, sizeof(exports));
}
