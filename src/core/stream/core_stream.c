/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/stream/core_stream.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_progress.h"
#include "core/report/core_dump.h"
#include "gpu/gpu_module.h"
#include "gpu/gpu_word.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Pinned. Writer of the first and the last: the stream, for its copies before; reader: the engine.
 * The other way round for `released`. Each in a line of its own.
 */
struct words {
	_Alignas(64) uint64_t arrived;
	_Alignas(64) uint64_t released;
	_Alignas(64) uint64_t left;
};

struct core_stream {
	struct core_stream *next;     /* under `lists` */
	uint64_t id;                  /* grows from one to the next */
	unsigned long long number_of; /* the driver's number of the application's stream */
	struct gpu_stream *stream;    /* it, to put work on */
	struct gpu_stream *own; /* one of ours in its context, by which that is known to live */
	struct gpu_staging_block *block;
	struct words *words;                /* in it */
	uint64_t address;                   /* of them, for the device */
	pthread_mutex_t order;              /* calls are put on the stream one after the other */
	uint64_t number;                    /* of the last call, or trial. Under `order` */
	bool by_kernel;                     /* the stream waits so */
	struct core_enqueued *head, **tail; /* under `lists` */
	struct core_enqueued *aside;        /* sends that are under way. The engine's */
	int num_calls;                      /* in both. Under `lists` */
	size_t held;                        /* bytes of the stages of all. Under `lists` */
	int error;                          /* atomic */
	bool lost;                          /* atomic: the device does no more for it */
	bool spoilt; /* the device may yet touch the words, for a call that was given up. Atomic */
};

static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER; /* held for moments */
static struct core_stream *streams;                       /* the oldest first */
static uint64_t num_streams;                              /* ever. Under `lists` */
static atomic_int num_enqueued;
static void (*guard)(void (*inside)(void));

/* ---- the engine ---- */

static bool has_work(void)
{
	return atomic_load(&num_enqueued) > 0;
}

/* Only the engine ends calls, so a stream that has one is there as long as it has it. */
static struct core_stream *next_busy(uint64_t after)
{
	struct core_stream *stream;

	pthread_mutex_lock(&lists);
	for (stream = streams; stream && (stream->id <= after || !stream->num_calls);)
		stream = stream->next;
	pthread_mutex_unlock(&lists);
	return stream;
}

static bool is_lost(const struct core_stream *stream)
{
	return __atomic_load_n(&stream->lost, __ATOMIC_RELAXED);
}

/* Acquire: what the stream's copies have written before is seen. */
static bool has_come(const uint64_t *word, uint64_t number)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= number;
}

static void keep_error(struct core_stream *stream, int error)
{
	int none = 0;

	__atomic_compare_exchange_n(&stream->error, &none, error, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

/* Release: the stream's copies find what the real MPI has written. Also after an error. */
static void release(struct core_stream *stream, struct core_enqueued *enqueued, int error)
{
	if (error)
		keep_error(stream, error);
	__atomic_store_n(&stream->words->released, enqueued->number, __ATOMIC_RELEASE);
	enqueued->state = CORE_ENQUEUED_LEAVES;
}

static void take_head(struct core_stream *stream)
{
	pthread_mutex_lock(&lists);
	stream->head = stream->head->next;
	if (!stream->head)
		stream->tail = &stream->head;
	pthread_mutex_unlock(&lists);
}

/*
 * The call has ended, and is in no list. What the device, or the real MPI, may yet touch is not
 * used again.
 */
static void end(struct core_stream *stream, struct core_enqueued *enqueued)
{
	size_t bytes = enqueued->bytes;

	if (!is_lost(stream) && !__atomic_load_n(&enqueued->given_up, __ATOMIC_RELAXED)) {
		core_staging_settle(&enqueued->staging);
		enqueued->free(enqueued);
	}
	/* The stream may be gone afterwards. */
	pthread_mutex_lock(&lists);
	stream->held -= bytes;
	stream->num_calls--;
	pthread_mutex_unlock(&lists);
	atomic_fetch_sub(&num_enqueued, 1);
}

static bool begin(struct core_stream *stream, struct core_enqueued *enqueued)
{
	int error = enqueued->error;

	if (has_come(&stream->words->arrived, enqueued->number))
		error = enqueued->begin(enqueued);
	else if (!is_lost(stream) && !__atomic_load_n(&enqueued->given_up, __ATOMIC_ACQUIRE))
		return false;
	enqueued->state = CORE_ENQUEUED_BEGUN;
	if (error) {
		release(stream, enqueued, error);
	} else if (enqueued->sends) {
		release(stream, enqueued, 0);
		take_head(stream);
		enqueued->next = stream->aside;
		stream->aside = enqueued;
	}
	return true;
}

static bool finish(struct core_stream *stream, struct core_enqueued *enqueued)
{
	bool done = false;
	int error = enqueued->test(enqueued, &done);

	if (error || done)
		release(stream, enqueued, error);
	return error || done;
}

static bool has_left(const struct core_stream *stream, const struct core_enqueued *enqueued)
{
	return has_come(&stream->words->left, enqueued->number) || is_lost(stream) ||
	       __atomic_load_n(&enqueued->given_up, __ATOMIC_RELAXED);
}

static bool leave(struct core_stream *stream, struct core_enqueued *enqueued)
{
	if (!has_left(stream, enqueued))
		return false;
	take_head(stream);
	end(stream, enqueued);
	return true;
}

/* Of what was put aside, what has been sent. Whether that is some. */
static bool drive_aside(struct core_stream *stream)
{
	struct core_enqueued **link = &stream->aside, *enqueued;
	bool some = false;

	while ((enqueued = *link)) {
		bool done = false;
		int error = enqueued->sent ? 0 : enqueued->test(enqueued, &done);

		if (error)
			keep_error(stream, error);
		enqueued->sent |= error || done;
		if (!enqueued->sent || !has_left(stream, enqueued)) {
			link = &enqueued->next;
			continue;
		}
		*link = enqueued->next;
		end(stream, enqueued);
		some = true;
	}
	return some;
}

/* The first call's turn; those behind it come to the stream later. Whether it has come nearer. */
static bool drive(struct core_stream *stream)
{
	struct core_enqueued *enqueued;

	pthread_mutex_lock(&lists);
	enqueued = stream->head;
	pthread_mutex_unlock(&lists);
	if (!enqueued)
		return false;
	switch (enqueued->state) {
	case CORE_ENQUEUED_WAITS:
		return begin(stream, enqueued);
	case CORE_ENQUEUED_BEGUN:
		return finish(stream, enqueued);
	case CORE_ENQUEUED_LEAVES:
		return leave(stream, enqueued);
	}
	return false;
}

static bool moved; /* of the engine */

static void drive_all(void)
{
	struct core_stream *stream;
	uint64_t last = 0;

	moved = false;
	while ((stream = next_busy(last))) {
		bool aside = stream->aside != NULL;

		last = stream->id;
		moved |= drive(stream);
		/* The stream is there yet, as these are. */
		if (aside)
			moved |= drive_aside(stream);
	}
}

static bool step(void)
{
	guard(drive_all);
	return moved;
}

static struct core_progress engine = {.name = "gpucoll-stream", .is_there = has_work, .step = step};

void core_stream_set_guard(void (*of)(void (*inside)(void)))
{
	guard = of;
}

void core_stream_stop(void)
{
	core_progress_stop(&engine);
}

/* ---- words, in the order of a stream ---- */

static uint64_t word_at(const struct core_stream *stream, size_t offset)
{
	return stream->address + offset;
}

/* Say that the stream has come to the call of the number, and wait for the engine. */
static enum util_status put_wait(struct core_stream *stream, struct gpu_stream *on, uint64_t number)
{
	uint64_t arrived = word_at(stream, offsetof(struct words, arrived));
	uint64_t released = word_at(stream, offsetof(struct words, released));
	enum util_status status;

	if (stream->by_kernel)
		return gpu_word_pass(on, arrived, released, number);
	status = gpu_word_store(on, arrived, number);
	return status == UTIL_OK ? gpu_word_await(on, released, number) : status;
}

/* Say that it has come past it. */
static enum util_status put_end(struct core_stream *stream, struct gpu_stream *on, uint64_t number)
{
	uint64_t left = word_at(stream, offsetof(struct words, left));

	return stream->by_kernel ? gpu_word_pass(on, left, 0, number)
				 : gpu_word_store(on, left, number);
}

/* What was put on a stream in part waits for nobody, and keeps its words for ever. */
static void let_pass(struct core_stream *stream)
{
	__atomic_store_n(&stream->spoilt, true, __ATOMIC_RELAXED);
	/* The driver compares what counters differ by, as numbers with signs. */
	__atomic_store_n(&stream->words->released, INT64_MAX, __ATOMIC_RELEASE);
}

/* False: the device does not do it. */
static bool wait_for_word(const struct core_stream *stream, const uint64_t *word, uint64_t number)
{
	struct core_wait wait = {0};

	while (!has_come(word, number)) {
		if (gpu_stream_poll(stream->own) != UTIL_IN_PROGRESS && !has_come(word, number))
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

	if (put_wait(stream, stream->own, number) != UTIL_OK ||
	    put_end(stream, stream->own, number) != UTIL_OK ||
	    !wait_for_word(stream, &stream->words->arrived, number)) {
		let_pass(stream);
		return UINT64_MAX;
	}
	nanosleep(&while_it_waits, NULL);
	since = util_now();
	__atomic_store_n(&stream->words->released, number, __ATOMIC_RELEASE);
	if (!wait_for_word(stream, &stream->words->left, number)) {
		let_pass(stream);
		return UINT64_MAX;
	}
	return util_now() - since;
}

static uint64_t try_to_wait(struct core_stream *stream, bool by_kernel)
{
	enum { TRIALS = 3 };
	uint64_t best = UINT64_MAX;

	stream->by_kernel = by_kernel;
	for (int i = 0; i < TRIALS && !stream->spoilt; i++) {
		uint64_t time = try_once(stream);

		best = time < best ? time : best;
	}
	return best;
}

/*
 * All ranks try at the same time, as they will wait. What the driver does in passing takes some
 * microseconds; where it is put aside, milliseconds.
 */
static void choose_wait(struct core_stream *stream)
{
	static const uint64_t quick = 100000; /* ns */
	uint64_t by_word, by_kernel;

	stream->by_kernel = util_config.stream_wait == UTIL_STREAM_WAIT_KERNEL;
	if (util_config.stream_wait != UTIL_STREAM_WAIT_AUTO)
		return;
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
static enum util_status open(struct core_stream *stream, CUstream handle)
{
	enum util_status status = gpu_stream_adopt(handle, &stream->stream);

	if (status != UTIL_OK)
		return status;
	stream->number_of = gpu_stream_id(handle);
	if (!stream->number_of || !gpu_word_is_possible(stream->stream) ||
	    !gpu_module_multiprocessors(stream->stream))
		return UTIL_ERR_UNSUPPORTED;
	status = gpu_stream_get(gpu_stream_where(stream->stream), &stream->own);
	if (status == UTIL_OK)
		status = open_words(stream);
	if (status == UTIL_OK)
		choose_wait(stream);
	return status == UTIL_OK && stream->spoilt ? UTIL_ERR_CUDA : status;
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

static void add(struct core_stream *stream)
{
	struct core_stream **link = &streams;

	pthread_mutex_lock(&lists);
	stream->id = ++num_streams;
	while (*link)
		link = &(*link)->next;
	*link = stream;
	pthread_mutex_unlock(&lists);
}

enum util_status core_stream_open(CUstream handle, struct core_stream **out)
{
	struct core_stream *stream = calloc(1, sizeof(*stream));
	enum util_status status;

	if (!stream)
		return UTIL_ERR_NO_MEMORY;
	pthread_mutex_init(&stream->order, NULL);
	stream->tail = &stream->head;
	status = open(stream, handle);
	if (status != UTIL_OK) {
		release_all(stream);
		return status;
	}
	add(stream);
	*out = stream;
	return UTIL_OK;
}

void core_stream_close(struct core_stream *stream)
{
	struct core_stream **link = &streams;

	pthread_mutex_lock(&lists);
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	pthread_mutex_unlock(&lists);
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

static size_t held(struct core_stream *stream)
{
	size_t bytes;

	pthread_mutex_lock(&lists);
	bytes = stream->held;
	pthread_mutex_unlock(&lists);
	return bytes;
}

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

void core_stream_make_room(struct core_stream *stream)
{
	uint64_t looked = util_now();
	struct core_wait wait = {0};

	while (held(stream) > util_config.staging_pool && !is_lost(stream)) {
		core_mpi_drive(&wait);
		look_whether_lost(stream, &looked);
	}
}

static void append(struct core_stream *stream, struct core_enqueued *enqueued)
{
	enqueued->next = NULL;
	atomic_fetch_add(&num_enqueued, 1);
	pthread_mutex_lock(&lists);
	*stream->tail = enqueued;
	stream->tail = &enqueued->next;
	stream->held += enqueued->bytes;
	stream->num_calls++;
	pthread_mutex_unlock(&lists);
	core_progress_wake(&engine);
}

/*
 * The engine has the call before the stream waits for it: where the driver's queue is full, the
 * rest can't be put there until the stream goes on. It may free it as soon as `left` is stored,
 * which is the last thing.
 */
static enum util_status put(struct core_stream *stream, struct core_enqueued *enqueued)
{
	struct gpu_stream *on = stream->stream;
	struct core_staging *staging = &enqueued->staging;
	uint64_t number = ++stream->number;
	enum util_status status;

	enqueued->number = number;
	append(stream, enqueued);
	status = core_staging_copy_in(staging);
	if (status == UTIL_OK)
		status = put_wait(stream, on, number);
	if (status == UTIL_OK)
		status = core_staging_copy_out(staging);
	if (status == UTIL_OK)
		status = put_end(stream, on, number);
	if (status != UTIL_OK) {
		let_pass(stream);
		__atomic_store_n(&enqueued->given_up, true, __ATOMIC_RELEASE);
	}
	return status;
}

enum util_status core_stream_put(struct core_stream *stream, struct core_enqueued *enqueued,
				 bool *taken)
{
	enum util_status status;

	*taken = core_progress_start(&engine);
	if (!*taken)
		return UTIL_ERR_SYSTEM;
	pthread_mutex_lock(&stream->order);
	status = put(stream, enqueued);
	pthread_mutex_unlock(&stream->order);
	return status;
}

static bool is_idle(struct core_stream *stream)
{
	bool idle;

	pthread_mutex_lock(&lists);
	idle = !stream->num_calls;
	pthread_mutex_unlock(&lists);
	return idle;
}

static void report(const struct core_stream *stream, const char *name)
{
	const struct words *words = stream->words;

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

	while (!is_idle(stream)) {
		core_mpi_drive(&wait);
		look_whether_lost(stream, &looked);
		if (is_lost(stream) && looked - since > patience)
			return false;
		if (reported || looked - since < util_config.timeout * UTIL_SECONDS(1))
			continue;
		report(stream, name);
		reported = true;
	}
	return true;
}
