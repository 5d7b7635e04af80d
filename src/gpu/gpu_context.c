/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_context.h"
#include "util/util_config.h"
#include "util/util_hash.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * cuMemcpy2D refuses a larger pitch (CU_DEVICE_ATTRIBUTE_MAX_PITCH is this on every device so far).
 */
static const size_t max_pitch = 0x7fffffff;

struct gpu_stream {
	struct gpu_stream *next;
	struct gpu_pointer
		where; /* a buffer in the stream's context: context and device are read */
	unsigned long long context_id;
	CUstream stream;
	CUevent legacy_mark; /* on the legacy stream of the context; NULL: not made */
	bool marked;         /* since it was taken */
	bool marks_pending;  /* ... while its context had something pending, see is_pending */
};

enum { MAX_DEVICES = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_stream *idle;        /* under the lock */
static CUcontext primary[MAX_DEVICES]; /* under the lock: retained by us, NULL where not */

static enum util_status primary_context(int ordinal, CUcontext *out)
{
	CUresult result = CUDA_SUCCESS;
	CUdevice device;

	if (ordinal < 0 || ordinal >= MAX_DEVICES)
		return UTIL_ERR_UNSUPPORTED;
	pthread_mutex_lock(&lock);
	if (!primary[ordinal]) {
		result = gpu_driver.cuDeviceGet(&device, ordinal);
		if (result == CUDA_SUCCESS)
			result = gpu_driver.cuDevicePrimaryCtxRetain(&primary[ordinal], device);
		if (result != CUDA_SUCCESS)
			primary[ordinal] = NULL;
	}
	*out = primary[ordinal];
	pthread_mutex_unlock(&lock);
	return result == CUDA_SUCCESS ? UTIL_OK
				      : gpu_driver_error(result, "cuDevicePrimaryCtxRetain");
}

static enum util_status enter(struct gpu_scope *scope, const struct gpu_pointer *pointer,
			      CUresult *result)
{
	CUcontext context = pointer->context;
	enum util_status status;

	if (!context) {
		status = primary_context(pointer->device, &context);
		if (status != UTIL_OK)
			return status;
	}
	*result = gpu_driver.cuCtxPushCurrent(context);
	if (*result != CUDA_SUCCESS)
		return UTIL_ERR_CUDA;
	scope->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	gpu_driver.cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	return UTIL_OK;
}

enum util_status gpu_scope_enter(struct gpu_scope *scope, const struct gpu_pointer *pointer)
{
	CUresult result = CUDA_SUCCESS;
	enum util_status status = enter(scope, pointer, &result);

	return result == CUDA_SUCCESS ? status : gpu_driver_error(result, "cuCtxPushCurrent");
}

bool gpu_scope_enter_again(struct gpu_scope *scope, const struct gpu_pointer *pointer)
{
	CUresult result;

	return enter(scope, pointer, &result) == UTIL_OK;
}

void gpu_scope_leave(struct gpu_scope *scope)
{
	CUcontext ignored;

	gpu_driver.cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	gpu_driver.cuCtxPopCurrent(&ignored);
}

/* Asks nothing of a context that may be gone. */
static bool primary_is_alive(int ordinal)
{
	unsigned flags;
	int active = 0;
	CUdevice device;

	return gpu_driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
	       gpu_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
	       active;
}

bool gpu_scope_enter_alive(struct gpu_scope *scope, int ordinal, unsigned long long context_id)
{
	struct gpu_pointer primary_memory = {.device = ordinal};
	unsigned long long id;

	/* Where the primary context lives, entering it creates nothing. */
	if (!primary_is_alive(ordinal) || gpu_scope_enter(scope, &primary_memory) != UTIL_OK)
		return false;
	if (gpu_driver.cuCtxGetId(NULL, &id) == CUDA_SUCCESS && id == context_id)
		return true;
	gpu_scope_leave(scope);
	return false;
}

bool gpu_context_is_current(void)
{
	CUcontext current = NULL;

	return gpu_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current;
}

bool gpu_context_unpin(void *base, int device, unsigned long long context_id)
{
	struct gpu_scope scope;
	bool entered = gpu_scope_enter_alive(&scope, device, context_id);
	CUresult result;

	/* It is pinned for all contexts. */
	if (!entered && !gpu_context_is_current())
		return false;
	result = gpu_driver.cuMemHostUnregister(base);
	if (entered)
		gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

int gpu_context_current_device(void)
{
	CUdevice device;

	return gpu_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

bool gpu_context_current(struct gpu_pointer *where, unsigned long long *id)
{
	*where = (struct gpu_pointer){.memory = GPU_MEMORY_DEVICE};
	return gpu_driver.cuCtxGetCurrent(&where->context) == CUDA_SUCCESS && where->context &&
	       gpu_driver.cuCtxGetDevice(&where->device) == CUDA_SUCCESS &&
	       gpu_driver.cuCtxGetId(where->context, id) == CUDA_SUCCESS;
}

/* The function is left out by some, and the domain written with more digits. */
uint64_t gpu_identity_of(const char *bus)
{
	unsigned numbers[3];

	if (sscanf(bus, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]) != 3)
		return util_hash_text(UTIL_HASH_START, bus) | 1;
	return UINT64_C(1) << 63 | (uint64_t)numbers[0] << 16 | numbers[1] << 8 | numbers[2];
}

/*
 * The name of an instance of a GPU (MIG) says so. Instances have one PCI address, and kernels,
 * memory and multiprocessors apart.
 */
static bool is_instance(CUdevice device)
{
	char name[256] = "";

	return gpu_driver.cuDeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS &&
	       strstr(name, " MIG ");
}

static uint64_t identity_of(CUdevice device)
{
	CUuuid uuid = {{0}};
	char bus_id[32] = "";

	if (is_instance(device) && gpu_driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS)
		return (util_hash(UTIL_HASH_START, &uuid, sizeof(uuid)) | 1) & INT64_MAX;
	gpu_driver.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device);
	return gpu_identity_of(bus_id);
}

uint64_t gpu_device_identity(int ordinal)
{
	static _Atomic uint64_t known[MAX_DEVICES]; /* every thread would write the same */
	uint64_t hash;
	CUdevice device;

	if (ordinal < 0 || ordinal >= MAX_DEVICES)
		return UINT64_MAX;
	hash = atomic_load_explicit(&known[ordinal], memory_order_relaxed);
	if (hash)
		return hash;
	hash = gpu_driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS ? identity_of(device)
									: gpu_identity_of("");
	atomic_store_explicit(&known[ordinal], hash, memory_order_relaxed);
	return hash;
}

static struct gpu_stream *take_idle(unsigned long long context_id)
{
	struct gpu_stream *stream, **link = &idle;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->context_id != context_id)
		link = &(*link)->next;
	stream = *link;
	if (stream)
		*link = stream->next;
	pthread_mutex_unlock(&lock);
	return stream;
}

/* In the context's scope. */
static enum util_status stream_create(unsigned long long context_id, struct gpu_stream **out)
{
	struct gpu_stream *stream = calloc(1, sizeof(*stream));
	CUresult result;
	int greatest = 0;

	if (!stream)
		return UTIL_ERR_NO_MEMORY;
	/*
	 * Others wait for us: let our blocks go before those of the application's waiting kernels.
	 */
	if (gpu_driver.cuCtxGetStreamPriorityRange(NULL, &greatest) != CUDA_SUCCESS)
		greatest = 0;
	result = gpu_driver.cuStreamCreateWithPriority(&stream->stream, CU_STREAM_NON_BLOCKING,
						       greatest);
	if (result != CUDA_SUCCESS) {
		free(stream);
		return gpu_driver_error(result, "cuStreamCreateWithPriority");
	}
	stream->context_id = context_id;
	*out = stream;
	return UTIL_OK;
}

enum util_status gpu_stream_get(const struct gpu_pointer *pointer, struct gpu_stream **out)
{
	unsigned long long context_id = 0;
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, pointer);
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuCtxGetId(NULL, &context_id);
	if (result != CUDA_SUCCESS)
		status = gpu_driver_error(result, "cuCtxGetId");
	else if (!(*out = take_idle(context_id)))
		status = stream_create(context_id, out);
	if (status == UTIL_OK) {
		(*out)->where = *pointer;
		(*out)->marked = false;
	}
	gpu_scope_leave(&scope);
	return status;
}

void gpu_stream_put(struct gpu_stream *stream)
{
	pthread_mutex_lock(&lock);
	stream->next = idle;
	idle = stream;
	pthread_mutex_unlock(&lock);
}

const struct gpu_pointer *gpu_stream_where(const struct gpu_stream *stream)
{
	return &stream->where;
}

unsigned long long gpu_stream_context_id(const struct gpu_stream *stream)
{
	return stream->context_id;
}

CUstream gpu_stream_handle(const struct gpu_stream *stream)
{
	return stream->stream;
}

static enum util_status query_status(CUresult result)
{
	if (result == CUDA_ERROR_NOT_READY)
		return UTIL_IN_PROGRESS;
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuStreamQuery");
}

enum util_status gpu_stream_poll(struct gpu_stream *stream)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, &stream->where);
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuStreamQuery(stream->stream);
	gpu_scope_leave(&scope);
	return query_status(result);
}

bool gpu_stream_is_lost(struct gpu_stream *stream)
{
	struct gpu_scope scope;
	CUresult result;

	if (!gpu_scope_enter_again(&scope, &stream->where))
		return true;
	result = gpu_driver.cuStreamQuery(stream->stream);
	gpu_scope_leave(&scope);
	return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

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

/* Whether something may be pending there; `waited`: no more. */
static bool is_pending(unsigned long long context_id, bool waited)
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

void gpu_context_make_synchronous(const struct gpu_pointer *pointer)
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

/*
 * While some thread captures a graph on a blocking stream, the application can have put no work on
 * the legacy stream, and looking at that would break the capture; asking this does not.
 */
static bool legacy_is_captured(void)
{
	CUstreamCaptureStatus status;

	return gpu_driver.cuStreamIsCapturing(CU_STREAM_LEGACY, &status) != CUDA_SUCCESS;
}

/*
 * In the scope. What is on the legacy stream now, and on the blocking streams before it: not what
 * is put there later, which may never end.
 */
static CUresult mark_legacy(struct gpu_stream *stream)
{
	CUresult result = CUDA_ERROR_NOT_READY;

	stream->marks_pending = is_pending(stream->context_id, false);
	if (!stream->marks_pending)
		result = gpu_driver.cuStreamQuery(CU_STREAM_LEGACY);
	if (result != CUDA_ERROR_NOT_READY)
		return result;
	if (!stream->legacy_mark)
		result = gpu_driver.cuEventCreate(&stream->legacy_mark, CU_EVENT_DISABLE_TIMING);
	else
		result = CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		result = gpu_driver.cuEventRecord(stream->legacy_mark, CU_STREAM_LEGACY);
	stream->marked = result == CUDA_SUCCESS;
	return stream->marked ? CUDA_ERROR_NOT_READY : result;
}

static CUresult ask_legacy(struct gpu_stream *stream)
{
	CUresult result;

	if (stream->marked) {
		result = gpu_driver.cuEventQuery(stream->legacy_mark);
		if (result == CUDA_SUCCESS && stream->marks_pending)
			is_pending(stream->context_id, true);
		return result;
	}
	return legacy_is_captured() ? CUDA_SUCCESS : mark_legacy(stream);
}

/*
 * Of the calling thread's own context, where that is another one: a thread without a context, or
 * with one that was destroyed, has put no work on its legacy stream.
 */
static bool thread_legacy_is_busy(const struct gpu_stream *stream)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext current = NULL;
	bool busy = false;

	if (gpu_driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current ||
	    current == stream->where.context)
		return false;
	gpu_driver.cuThreadExchangeStreamCaptureMode(&mode);
	if (!legacy_is_captured())
		busy = gpu_driver.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY;
	gpu_driver.cuThreadExchangeStreamCaptureMode(&mode);
	return busy;
}

enum util_status gpu_stream_poll_legacy(struct gpu_stream *stream)
{
	struct gpu_scope scope;
	enum util_status status;
	CUresult result;

	if (!util_config.wait_default)
		return UTIL_OK;
	if (thread_legacy_is_busy(stream))
		return UTIL_IN_PROGRESS;
	status = gpu_scope_enter(&scope, &stream->where);
	if (status != UTIL_OK)
		return status;
	result = ask_legacy(stream);
	gpu_scope_leave(&scope);
	return query_status(result);
}

enum util_status gpu_stream_copy(struct gpu_stream *stream, void *to, const void *from,
				 size_t bytes)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, &stream->where);
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result =
		gpu_driver.cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream->stream);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuMemcpyAsync");
}

enum util_status gpu_stream_clear(struct gpu_stream *stream, void *at, size_t bytes)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, &stream->where);
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuMemsetD8Async((CUdeviceptr)at, 0, bytes, stream->stream);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuMemsetD8Async");
}

/* How many of `bytes` bytes at the address are in the allocation that holds the first. */
static size_t part_in_allocation(const void *address, size_t bytes)
{
	struct gpu_pointer where;
	size_t part;

	gpu_pointer_classify(address, &where);
	if (!gpu_pointer_covers(&where, address, 1))
		return bytes;
	part = where.bytes - ((uintptr_t)address - where.start);
	return part < bytes ? part : bytes;
}

enum util_status gpu_stream_copy_pieces(struct gpu_stream *stream, void *to, const void *from,
					size_t bytes)
{
	enum util_status status = UTIL_OK;

	while (bytes && status == UTIL_OK) {
		size_t part = part_in_allocation(from, part_in_allocation(to, bytes));

		status = gpu_stream_copy(stream, to, from, part);
		to = (void *)((uintptr_t)to + part);
		from = (const void *)((uintptr_t)from + part);
		bytes -= part;
	}
	return status;
}

enum util_status gpu_stream_copy_rows(struct gpu_stream *stream, void *to, size_t to_pitch,
				      const void *from, size_t from_pitch, size_t bytes,
				      size_t rows)
{
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .srcDevice = (CUdeviceptr)from,
			      .srcPitch = from_pitch,
			      .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .dstDevice = (CUdeviceptr)to,
			      .dstPitch = to_pitch,
			      .WidthInBytes = bytes,
			      .Height = rows};
	struct gpu_scope scope;
	enum util_status status;
	CUresult result;

	if (to_pitch > max_pitch || from_pitch > max_pitch) {
		for (status = UTIL_OK; rows && status == UTIL_OK; rows--) {
			status = gpu_stream_copy(stream, to, from, bytes);
			to = (char *)to + to_pitch;
			from = (const char *)from + from_pitch;
		}
		return status;
	}
	status = gpu_scope_enter(&scope, &stream->where);
	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuMemcpy2DAsync(&copy, stream->stream);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuMemcpy2DAsync");
}

static void stream_destroy(struct gpu_stream *stream)
{
	struct gpu_scope scope;

	if (gpu_scope_enter_alive(&scope, stream->where.device, stream->context_id)) {
		gpu_driver.cuStreamDestroy(stream->stream);
		if (stream->legacy_mark)
			gpu_driver.cuEventDestroy(stream->legacy_mark);
		gpu_scope_leave(&scope);
	}
	free(stream);
}

void gpu_context_finalize(void)
{
	CUdevice device;

	while (idle) {
		struct gpu_stream *stream = idle;

		idle = stream->next;
		stream_destroy(stream);
	}
	for (int i = 0; i < MAX_DEVICES; i++) {
		/* Our reference outlives a reset of the device. */
		if (primary[i] && gpu_driver.cuDeviceGet(&device, i) == CUDA_SUCCESS)
			gpu_driver.cuDevicePrimaryCtxRelease(device);
		primary[i] = NULL;
	}
}
