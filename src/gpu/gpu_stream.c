/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_stream.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_synchronous.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdlib.h>

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
	bool marks_pending; /* ... while its context had something pending, see gpu_synchronous.h */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_stream *idle; /* under the lock */

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

/* The context of the stream, as of a buffer in it. */
static CUresult find_context(CUstream handle, struct gpu_pointer *where)
{
	CUresult result = gpu_driver.cuStreamGetCtx(handle, &where->context);
	CUcontext ignored;
	CUdevice device = 0;

	if (result != CUDA_SUCCESS)
		return result;
	result = gpu_driver.cuCtxPushCurrent(where->context);
	if (result != CUDA_SUCCESS)
		return result;
	result = gpu_driver.cuCtxGetDevice(&device);
	where->memory = GPU_MEMORY_DEVICE;
	where->device = device;
	gpu_driver.cuCtxPopCurrent(&ignored);
	return result;
}

enum util_status gpu_stream_adopt(CUstream handle, struct gpu_stream **out)
{
	struct gpu_stream *stream = calloc(1, sizeof(*stream));
	CUresult result;

	if (!stream)
		return UTIL_ERR_NO_MEMORY;
	stream->stream = handle;
	result = find_context(handle, &stream->where);
	if (result == CUDA_SUCCESS)
		result = gpu_driver.cuCtxGetId(stream->where.context, &stream->context_id);
	if (result != CUDA_SUCCESS) {
		free(stream);
		return gpu_driver_error(result, "cuStreamGetCtx");
	}
	*out = stream;
	return UTIL_OK;
}

void gpu_stream_let_go(struct gpu_stream *stream)
{
	free(stream);
}

unsigned long long gpu_stream_id(CUstream handle)
{
	unsigned long long id = 0;

	return gpu_driver.cuStreamGetId(handle, &id) == CUDA_SUCCESS ? id : 0;
}

enum gpu_capture gpu_stream_capture(const struct gpu_stream *stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct gpu_scope scope;
	CUresult result;

	if (!gpu_scope_enter_again(&scope, &stream->where))
		return GPU_CAPTURE_NONE;
	result = gpu_driver.cuStreamIsCapturing(stream->stream, &status);
	gpu_scope_leave(&scope);
	if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return GPU_CAPTURE_ACTIVE;
	return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
			       (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
		       ? GPU_CAPTURE_BROKEN
		       : GPU_CAPTURE_NONE;
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

	stream->marks_pending = gpu_synchronous_is_pending(stream->context_id, false);
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
			gpu_synchronous_is_pending(stream->context_id, true);
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

enum util_status gpu_stream_synchronize_context(struct gpu_stream *stream)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, &stream->where);
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuCtxSynchronize();
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuCtxSynchronize");
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

enum util_status gpu_stream_call(struct gpu_stream *stream, void (*function)(void *), void *data)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, &stream->where);
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuLaunchHostFunc(stream->stream, function, data);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuLaunchHostFunc");
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

void gpu_stream_finalize(void)
{
	while (idle) {
		struct gpu_stream *stream = idle;

		idle = stream->next;
		stream_destroy(stream);
	}
}
