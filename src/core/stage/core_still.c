/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/stage/core_still.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_wait.h"
#include "gpu/gpu_pointer.h"
#include "util/util_log.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 512 << 10 };

/* One look at both samples. */
static bool take_bytes(struct gpu_stream *stream, char *to, const char *from, size_t bytes)
{
	size_t first = bytes < SAMPLE ? bytes : SAMPLE;
	size_t last = bytes - first < SAMPLE ? bytes - first : SAMPLE;

	return gpu_stream_copy(stream, to, from, first) == UTIL_OK &&
	       (!last ||
		gpu_stream_copy(stream, to + first, from + bytes - last, last) == UTIL_OK) &&
	       core_wait_stream(stream) == UTIL_OK;
}

/* The byte at which the looks differ; -1: they don't. */
static int64_t first_change(const char *before, const char *after, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (before[i] != after[i])
			return (int64_t)i;
	}
	return -1;
}

/* Which the call waits for, too. */
static void wait_for_legacy(struct gpu_stream *stream)
{
	struct core_wait wait = {0};

	while (gpu_stream_poll_legacy(stream) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
}

static void compare(struct gpu_stream *stream, const char *from, size_t bytes, const char *name)
{
	size_t looked = bytes < 2 * SAMPLE ? bytes : 2 * SAMPLE;
	char *before = malloc(2 * looked), *after = before + looked;
	int64_t at;

	if (!before)
		return;
	wait_for_legacy(stream);
	if (take_bytes(stream, before, from, bytes) &&
	    gpu_stream_synchronize_context(stream) == UTIL_OK &&
	    take_bytes(stream, after, from, bytes)) {
		at = first_change(before, after, looked);
		if (at >= (int64_t)(bytes < SAMPLE ? bytes : SAMPLE))
			at += (int64_t)(bytes - looked);
		if (at >= 0)
			util_log(
				UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				"GPUCOLL_CHECK: %s was called while its input at %p was still being "
				"written (byte %lld of %zu): synchronise the stream that does so "
				"before the call",
				name, (const void *)from, (long long)at, bytes);
	}
	free(before);
}

void core_still_look(const struct core_shape *shape, const char *name)
{
	const char *from = (const char *)shape->in.address + shape->in.lo;
	struct gpu_pointer pointer;
	struct gpu_stream *stream;

	if (shape->in.lo == shape->in.hi || !gpu_pointer_is_device(from))
		return;
	gpu_pointer_classify(from, &pointer);
	if (gpu_stream_get(&pointer, &stream) != UTIL_OK)
		return;
	compare(stream, from, (size_t)(shape->in.hi - shape->in.lo), name);
	gpu_stream_put(stream);
}
