/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/stream/core_stream.h"
#include "core/job/core_mpi_drive.h"
#include "core/report/core_dump.h"
#include "core/stream/core_stream_parts.h"
#include "gpu/gpu_module.h"
#include "gpu/gpu_word.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>
#include <string.h>

/* ---- streams ---- */

static enum util_status open_words(struct core_stream *stream)
{
	enum util_status status = gpu_staging_get_pinned(
		sizeof(*stream->words), gpu_stream_where(stream->stream), &stream->block);

	if (status != UTIL_OK)
		return status;
	stream->words = stream->block->base;
	memset(stream->words, 0, sizeof(*stream->words));
	stream->address = gpu_staging_device_address(stream->block, stream->stream);
	return stream->address ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

/* What may wait for the device, or take memory, is done now, before anything waits there. */
static enum util_status open_stream(struct core_stream *stream, CUstream handle)
{
	enum util_status status = gpu_stream_adopt(handle, &stream->stream);

	if (status != UTIL_OK)
		return status;
	stream->number_of = gpu_stream_id(handle);
	if (!stream->number_of || !gpu_word_is_possible(stream->stream) ||
	    !gpu_module_multiprocessors(stream->stream))
		return UTIL_ERR_UNSUPPORTED;
	status = gpu_stream_get(gpu_stream_where(stream->stream), &stream->own);
	return status == UTIL_OK ? open_words(stream) : status;
}

static void release_all(struct core_stream *stream)
{
	if (stream->block && !stream->spoilt)
		gpu_staging_put(stream->block);
	if (stream->own && !stream->spoilt)
		gpu_stream_put(stream->own);
	if (stream->stream)
		gpu_stream_let_go(stream->stream);
	pthread_mutex_destroy(&stream->order);
	free(stream);
}

enum util_status core_stream_open(CUstream handle, struct core_stream **out)
{
	struct core_stream *stream = calloc(1, sizeof(*stream));
	enum util_status status;

	if (!stream)
		return UTIL_ERR_NO_MEMORY;
	pthread_mutex_init(&stream->order, NULL);
	stream->tail = &stream->head;
	status = open_stream(stream, handle);
	if (status != UTIL_OK) {
		release_all(stream);
		return status;
	}
	core_stream_know(stream);
	*out = stream;
	return UTIL_OK;
}

void core_stream_close(struct core_stream *stream)
{
	core_stream_forget(stream);
	release_all(stream);
}

bool core_stream_is(const struct core_stream *stream, CUstream handle)
{
	return stream->number_of == gpu_stream_id(handle);
}

struct gpu_stream *core_stream_of(const struct core_stream *stream)
{
	return stream->stream;
}

int core_stream_take_error(struct core_stream *stream)
{
	return __atomic_exchange_n(&stream->error, 0, __ATOMIC_RELAXED);
}

/* ---- calls ---- */

/* Now and then, while something is waited for. */
static void look_whether_lost(struct core_stream *stream, uint64_t *looked)
{
	static const uint64_t moment = UTIL_SECONDS(1) / 10; /* ns */

	if (util_now() - *looked < moment)
		return;
	*looked = util_now();
	if (gpu_stream_is_lost(stream->own))
		__atomic_store_n(&stream->lost, true, __ATOMIC_RELAXED);
}

bool core_stream_make_room(struct core_stream *stream, const int *given_up)
{
	uint64_t looked = util_now();
	struct core_wait wait = {0};

	while (core_stream_held(stream) > util_config.staging_pool &&
	       !core_stream_is_lost(stream)) {
		if (__atomic_load_n(given_up, __ATOMIC_RELAXED))
			return false;
		core_mpi_drive(&wait);
		look_whether_lost(stream, &looked);
	}
	return true;
}

/*
 * The engine has the call before the stream waits for it: where the driver's queue is full, the
 * rest can't be put there until the stream goes on. It may free it as soon as `left` is stored,
 * which is the last thing.
 */
static enum util_status put_enqueued(struct core_stream *stream, struct core_enqueued *enqueued)
{
	struct gpu_stream *on = stream->stream;
	struct core_staging *staging = &enqueued->staging;
	uint64_t number = __atomic_add_fetch(&stream->number, 1, __ATOMIC_RELAXED);
	enum util_status status;

	enqueued->number = number;
	core_stream_append(stream, enqueued);
	status = core_staging_copy_in(staging);
	if (status == UTIL_OK)
		status = core_stream_put_wait(stream, on, number);
	enqueued->waits = status == UTIL_OK;
	if (status == UTIL_OK)
		status = core_staging_copy_out(staging);
	if (status == UTIL_OK)
		status = core_stream_put_end(stream, on, number);
	/* The engine ends its wait, if it is there, in its turn: calls before it may wait yet. */
	if (status != UTIL_OK) {
		__atomic_store_n(&stream->spoilt, true, __ATOMIC_RELAXED);
		__atomic_store_n(&enqueued->given_up, true, __ATOMIC_RELEASE);
	}
	return status;
}

enum util_status core_stream_put(struct core_stream *stream, struct core_enqueued *enqueued,
				 bool *taken)
{
	enum util_status status;

	*taken = core_stream_start_engine();
	if (!*taken)
		return UTIL_ERR_SYSTEM;
	pthread_mutex_lock(&stream->order);
	status = put_enqueued(stream, enqueued);
	pthread_mutex_unlock(&stream->order);
	return status;
}

bool core_stream_is_past_all(const struct core_stream *stream)
{
	return core_stream_has_come(&stream->words->left,
				    __atomic_load_n(&stream->number, __ATOMIC_RELAXED)) &&
	       !gpu_stream_is_lost(stream->own);
}

static void report_left(const struct core_stream *stream, const char *name)
{
	const struct core_stream_words *words = stream->words;

	util_log(
		UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		"waiting for calls that are enqueued on communicator %s: of %llu the stream has come "
		"to %llu, the real MPI has ended %llu; goes on waiting",
		name, (unsigned long long)stream->number,
		(unsigned long long)__atomic_load_n(&words->arrived, __ATOMIC_RELAXED),
		(unsigned long long)__atomic_load_n(&words->released, __ATOMIC_RELAXED));
	core_dump("enqueued calls have waited long");
}

bool core_stream_drain(struct core_stream *stream, const char *name)
{
	static const uint64_t patience = UTIL_SECONDS(5); /* ns */
	uint64_t since = util_now(), looked = since;
	bool reported = util_config.timeout == 0;
	struct core_wait wait = {0};

	while (!core_stream_is_idle(stream)) {
		core_mpi_drive(&wait);
		look_whether_lost(stream, &looked);
		if (core_stream_is_lost(stream) && looked - since > patience)
			return false;
		if (reported || looked - since < util_config.timeout * UTIL_SECONDS(1))
			continue;
		report_left(stream, name);
		reported = true;
	}
	return true;
}
