/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies and fills. All of them run in the stream's thread; what differs is whether the call waits
 * for it, and here it waits no more than the hardware's driver promises: fills, copies inside the
 * device and small copies from pageable memory return before they are done, unless the allocation
 * or the context has SYNC_MEMOPS.
 */
#include "emu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_COPY = 64 << 10 };

/* An operation of a call that returned before it was done. Under the lock. */
struct early {
	struct early *next;
	uintptr_t starts[2]; /* of what it writes and reads */
	size_t sizes[2];
};
static struct early *all_early;
static pthread_mutex_t early_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t early_ended = PTHREAD_COND_INITIALIZER;

static struct early *early_new(uintptr_t to, size_t to_size, uintptr_t from, size_t from_size)
{
	struct early *early = malloc(sizeof(*early));

	*early = (struct early){.starts = {to, from}, .sizes = {to_size, from_size}};
	pthread_mutex_lock(&early_lock);
	early->next = all_early;
	all_early = early;
	pthread_mutex_unlock(&early_lock);
	return early;
}

static void early_end(struct early *early)
{
	struct early **link = &all_early;

	if (!early)
		return;
	pthread_mutex_lock(&early_lock);
	while (*link != early)
		link = &(*link)->next;
	*link = early->next;
	pthread_cond_broadcast(&early_ended);
	pthread_mutex_unlock(&early_lock);
	free(early);
}

static bool is_pending(uintptr_t start, size_t size)
{
	for (const struct early *early = all_early; early; early = early->next) {
		for (int i = 0; i < 2; i++) {
			if (early->starts[i] < start + size &&
			    start < early->starts[i] + early->sizes[i])
				return true;
		}
	}
	return false;
}

void emu_copy_wait(uintptr_t start, size_t size)
{
	pthread_mutex_lock(&early_lock);
	while (is_pending(start, size))
		pthread_cond_wait(&early_ended, &early_lock);
	pthread_mutex_unlock(&early_lock);
}

struct copy {
	struct early *early; /* NULL: the call waits, or is asynchronous */
	char *to;
	const char *from;
	void *owned; /* a snapshot of pageable memory, freed after the copy */
	size_t width, height, to_pitch, from_pitch;
};

static void run_copy(void *argument)
{
	struct copy *copy = argument;

	for (size_t row = 0; row < copy->height; row++)
		memmove(copy->to + row * copy->to_pitch, copy->from + row * copy->from_pitch,
			copy->width);
	free(copy->owned);
	early_end(copy->early);
}

struct side {
	bool device, pinned, sync;
};

static bool look_at(uintptr_t address, size_t size, struct side *side)
{
	struct emu_alloc alloc;
	bool known = emu_find(address, &alloc);

	side->device = emu_in_arena(address);
	if (side->device && !emu_range_is_valid(address, size))
		return false;
	side->pinned = known && !side->device;
	side->sync = known && alloc.sync_memops;
	return true;
}

/*
 * Take the source as it is now, as the driver does with pageable memory that it copies away first.
 */
static void snapshot(struct copy *copy)
{
	char *owned = malloc(copy->width * copy->height);

	for (size_t row = 0; row < copy->height; row++)
		memcpy(owned + row * copy->width, copy->from + row * copy->from_pitch, copy->width);
	copy->owned = owned;
	copy->from = owned;
	copy->from_pitch = copy->width;
}

static size_t span(size_t width, size_t height, size_t pitch)
{
	return height ? (height - 1) * pitch + width : 0;
}

/* Whether the call returns only when the copy is done. */
static bool must_wait(const struct copy *copy, const struct side *to, const struct side *from,
		      bool async)
{
	bool pageable =
		(!to->device && !to->pinned) || (!from->device && !from->pinned && !copy->owned);

	if (pageable)
		return true;
	if (async || copy->owned)
		return !async && (to->sync || from->sync);
	return to->sync || from->sync || !to->device || !from->device;
}

static CUresult copy_2d(struct copy copy, struct emu_stream *stream, bool async)
{
	uintptr_t to_address = (uintptr_t)copy.to, from_address = (uintptr_t)copy.from;
	struct side to, from;
	struct copy *argument;
	bool wait, captured;

	if (!copy.width || !copy.height)
		return CUDA_SUCCESS;
	if (!look_at(to_address, span(copy.width, copy.height, copy.to_pitch), &to) ||
	    !look_at(from_address, span(copy.width, copy.height, copy.from_pitch), &from))
		return CUDA_ERROR_INVALID_VALUE;
	copy.to = emu_copy_place(to_address);
	copy.from = emu_copy_place(from_address);
	captured = emu_capture_is_on(stream);
	if (!captured && !from.device && !from.pinned && to.device &&
	    copy.width * copy.height <= SMALL_COPY)
		snapshot(&copy);
	wait = (!captured && must_wait(&copy, &to, &from, async)) ||
	       (!async && emu_stream_context(stream)->sync_memops);
	if (!wait && !async)
		copy.early =
			early_new(to_address, span(copy.width, copy.height, copy.to_pitch),
				  from_address, span(copy.width, copy.height, copy.from_pitch));
	argument = malloc(sizeof(*argument));
	*argument = copy;
	emu_submit(stream, run_copy, argument);
	if (!wait)
		return CUDA_SUCCESS;
	emu_stream_wait(stream);
	return emu_lost();
}

static CUresult copy_1d(uintptr_t to, uintptr_t from, size_t size, CUstream handle, bool async)
{
	struct emu_stream *stream;
	struct copy copy = {
		.to = (char *)to, .from = (const char *)from, .width = size, .height = 1};
	CUresult result = emu_stream_use(handle, &stream);

	return result == CUDA_SUCCESS ? copy_2d(copy, stream, async) : result;
}

EMU_API CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	EMU_ENTER();
	return copy_1d(to, from, size, CU_STREAM_LEGACY, false);
}

EMU_API CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size,
				       CUstream stream)
{
	EMU_ENTER();
	return copy_1d(to, from, size, stream, true);
}

EMU_API CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size)
{
	EMU_ENTER();
	return copy_1d(to, (uintptr_t)from, size, CU_STREAM_LEGACY, false);
}

EMU_API CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size)
{
	EMU_ENTER();
	return copy_1d((uintptr_t)to, from, size, CU_STREAM_LEGACY, false);
}

EMU_API CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	EMU_ENTER();
	return copy_1d(to, from, size, CU_STREAM_LEGACY, false);
}

EMU_API CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size,
					   CUstream stream)
{
	EMU_ENTER();
	return copy_1d(to, (uintptr_t)from, size, stream, true);
}

EMU_API CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	EMU_ENTER();
	return copy_1d((uintptr_t)to, from, size, stream, true);
}

EMU_API CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size,
					   CUstream stream)
{
	EMU_ENTER();
	return copy_1d(to, from, size, stream, true);
}

static uintptr_t place(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
		       size_t pitch)
{
	uintptr_t base = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device;

	return base + y * pitch + x;
}

static CUresult copy_described(const CUDA_MEMCPY2D *d, CUstream handle, bool async)
{
	struct emu_stream *stream;
	struct copy copy = {.width = d->WidthInBytes,
			    .height = d->Height,
			    .to_pitch = d->dstPitch,
			    .from_pitch = d->srcPitch};
	CUresult result = emu_stream_use(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (d->srcPitch < d->WidthInBytes || d->dstPitch < d->WidthInBytes ||
	    d->srcPitch > 0x7fffffff || d->dstPitch > 0x7fffffff)
		return CUDA_ERROR_INVALID_VALUE;
	copy.to = (char *)place(d->dstMemoryType, d->dstHost, d->dstDevice, d->dstXInBytes, d->dstY,
				d->dstPitch);
	copy.from = (const char *)place(d->srcMemoryType, d->srcHost, d->srcDevice, d->srcXInBytes,
					d->srcY, d->srcPitch);
	return copy_2d(copy, stream, async);
}

EMU_API CUresult CUDAAPI cuMemcpy2D(const CUDA_MEMCPY2D *description)
{
	EMU_ENTER();
	return copy_described(description, CU_STREAM_LEGACY, false);
}

EMU_API CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *description, CUstream stream)
{
	EMU_ENTER();
	return copy_described(description, stream, true);
}

/* ---- fills ---- */

struct fill {
	struct early *early;
	char *to;
	size_t count, element;
	unsigned value;
};

static void run_fill(void *argument)
{
	struct fill *fill = argument;

	if (fill->element == 1)
		memset(fill->to, (int)fill->value, fill->count);
	for (size_t i = 0; fill->element > 1 && i < fill->count; i++)
		memcpy(fill->to + i * fill->element, &fill->value, fill->element);
	early_end(fill->early);
}

static CUresult fill(CUdeviceptr to, unsigned value, size_t element, size_t count, CUstream handle,
		     bool async)
{
	struct emu_stream *stream;
	struct fill *argument;
	struct side side;
	bool wait;
	CUresult result = emu_stream_use(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!look_at(to, count * element, &side) || (!side.device && !side.pinned))
		return CUDA_ERROR_INVALID_VALUE;
	if (!count)
		return CUDA_SUCCESS;
	wait = !async && (side.sync || side.pinned || emu_stream_context(stream)->sync_memops);
	argument = malloc(sizeof(*argument));
	*argument = (struct fill){
		.to = emu_copy_place(to), .count = count, .element = element, .value = value};
	if (!wait && !async)
		argument->early = early_new(to, count * element, 0, 0);
	emu_submit(stream, run_fill, argument);
	if (!wait)
		return CUDA_SUCCESS;
	emu_stream_wait(stream);
	return emu_lost();
}

EMU_API CUresult CUDAAPI cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
	EMU_ENTER();
	return fill(to, value, 1, count, CU_STREAM_LEGACY, false);
}

/* As programs have it that are compiled with --default-stream per-thread. */
EMU_API CUresult CUDAAPI cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t count);
EMU_API CUresult CUDAAPI cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t count)
{
	EMU_ENTER();
	return fill(to, value, 1, count, CU_STREAM_PER_THREAD, false);
}

EMU_API CUresult CUDAAPI cuMemsetD32(CUdeviceptr to, unsigned value, size_t count)
{
	EMU_ENTER();
	return fill(to, value, 4, count, CU_STREAM_LEGACY, false);
}

EMU_API CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
					 CUstream stream)
{
	EMU_ENTER();
	return fill(to, value, 1, count, stream, true);
}

EMU_API CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
					  CUstream stream)
{
	EMU_ENTER();
	return fill(to, value, 4, count, stream, true);
}
