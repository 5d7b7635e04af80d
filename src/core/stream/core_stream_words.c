/* SPDX-License-Identifier: BSD-3-Clause */
/* How a stream tells the engine how far it has come, and waits for it. */
#include "core/job/core_mpi_drive.h"
#include "core/stream/core_stream_parts.h"
#include "gpu/gpu_launch.h"
#include "gpu/gpu_word.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <time.h>

static uint64_t word_at(const struct core_stream *stream, size_t offset)
{
	return stream->address + offset;
}

enum util_status core_stream_put_wait(struct core_stream *stream, struct gpu_stream *on,
				      uint64_t number)
{
	uint64_t arrived = word_at(stream, offsetof(struct core_stream_words, arrived));
	uint64_t released = word_at(stream, offsetof(struct core_stream_words, released));
	enum util_status status;

	if (stream->by_kernel)
		return gpu_word_pass(on, arrived, released, number);
	status = gpu_word_store(on, arrived, number);
	return status == UTIL_OK ? gpu_word_await(on, released, number) : status;
}

enum util_status core_stream_put_end(struct core_stream *stream, struct gpu_stream *on,
				     uint64_t number)
{
	uint64_t left = word_at(stream, offsetof(struct core_stream_words, left));

	return stream->by_kernel ? gpu_word_pass(on, left, 0, number)
				 : gpu_word_store(on, left, number);
}

void core_stream_let_pass(struct core_stream *stream)
{
	__atomic_store_n(&stream->spoilt, true, __ATOMIC_RELAXED);
	/* The driver compares what counters differ by, as numbers with signs. */
	__atomic_store_n(&stream->words->released, INT64_MAX, __ATOMIC_RELEASE);
}

/* False: the device does not do it. */
static bool wait_for_word(const struct core_stream *stream, const uint64_t *word, uint64_t number)
{
	struct core_wait wait = {0};

	while (!core_stream_has_come(word, number)) {
		if (gpu_stream_poll(stream->own) != UTIL_IN_PROGRESS &&
		    !core_stream_has_come(word, number))
			return false;
		core_mpi_drive(&wait);
	}
	return true;
}

/*
 * Once, on a stream of ours, which waits for a while already when it is released: ns from then on,
 * or the most where it can't be.
 */
static uint64_t try_once(struct core_stream *stream)
{
	static const struct timespec while_it_waits = {0, 300000};
	uint64_t number = ++stream->number, since;

	if (core_stream_put_wait(stream, stream->own, number) != UTIL_OK ||
	    core_stream_put_end(stream, stream->own, number) != UTIL_OK ||
	    !wait_for_word(stream, &stream->words->arrived, number)) {
		core_stream_let_pass(stream);
		return UINT64_MAX;
	}
	nanosleep(&while_it_waits, NULL);
	since = util_now();
	__atomic_store_n(&stream->words->released, number, __ATOMIC_RELEASE);
	if (!wait_for_word(stream, &stream->words->left, number)) {
		core_stream_let_pass(stream);
		return UINT64_MAX;
	}
	return util_now() - since;
}

/* The one in the middle of three: the others may have found nobody else waiting, or no core. */
static uint64_t try_to_wait(struct core_stream *stream, bool by_kernel)
{
	uint64_t least = UINT64_MAX, most = 0, sum = 0;

	stream->by_kernel = by_kernel;
	for (int i = 0; i < 3; i++) {
		uint64_t time = try_once(stream);

		if (stream->spoilt)
			return UINT64_MAX;
		least = time < least ? time : least;
		most = time > most ? time : most;
		sum += time;
	}
	return sum - least - most;
}

/* What the driver does in passing takes some microseconds; where it is put aside, milliseconds. */
static void try_both(struct core_stream *stream)
{
	static const uint64_t quick = 100000; /* ns */
	uint64_t by_word, by_kernel;

	by_word = try_to_wait(stream, false);
	if (by_word < quick || stream->spoilt)
		return;
	by_kernel = try_to_wait(stream, true);
	stream->by_kernel = by_kernel < by_word / 2;
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE,
		 "a stream's wait takes %.0f us, a kernel's %.0f: streams wait by %s",
		 1e-3 * (double)by_word, 1e-3 * (double)by_kernel,
		 stream->by_kernel ? "kernels" : "words");
}

/* NULL: a kernel may wait for what the host does next. */
static const char *why_no_kernel(const struct core_stream *stream)
{
	/* A launch comes back when its kernel has ended. */
	if (gpu_launch_is_blocking())
		return "with CUDA_LAUNCH_BLOCKING";
	if (gpu_device_limits_kernels(gpu_stream_where(stream->stream)->device))
		return "on a device with a display, where the driver ends kernels that take long";
	return NULL;
}

enum util_status core_stream_choose_wait(struct core_stream *stream)
{
	bool wants_kernel = util_config.stream_wait == UTIL_STREAM_WAIT_KERNEL;
	const char *why_not = why_no_kernel(stream);

	if (why_not) {
		if (wants_kernel)
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "GPUCOLL_STREAM_WAIT=kernel is not possible %s: streams wait by "
				 "words",
				 why_not);
		return UTIL_OK;
	}
	stream->by_kernel = wants_kernel;
	if (util_config.stream_wait == UTIL_STREAM_WAIT_AUTO)
		try_both(stream);
	return stream->spoilt ? UTIL_ERR_CUDA : UTIL_OK;
}
