/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that makes the real MPI's calls for streams. */
#include "core/job/core_progress.h"
#include "core/stream/core_stream.h"
#include "core/stream/core_stream_parts.h"

#include <stdatomic.h>

static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER; /* held for moments */
static struct core_stream *streams;                       /* the oldest first */
static uint64_t num_streams;                              /* ever. Under `lists` */
static atomic_int num_enqueued;
static void (*guard)(void (*inside)(void));

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

static void keep_error(struct core_stream *stream, int error)
{
	int none = 0;

	__atomic_compare_exchange_n(&stream->error, &none, error, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

/* Release: the stream's copies find what the real MPI has written. Also after an error. */
static void release_enqueued(struct core_stream *stream, struct core_enqueued *enqueued, int error)
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

/* Nobody has its results. Acquire, the pair of put_enqueued: all of it is on the stream by then. */
static bool is_given_up(const struct core_enqueued *enqueued)
{
	return __atomic_load_n(&enqueued->given_up, __ATOMIC_ACQUIRE);
}

/*
 * The call has ended, and is in no list. What the device, or the real MPI, may yet touch is not
 * used again.
 */
static void end_enqueued(struct core_stream *stream, struct core_enqueued *enqueued)
{
	size_t bytes = enqueued->bytes;

	if (!core_stream_is_lost(stream) && !is_given_up(enqueued)) {
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

/* The stream need not wait for its end, which is seen later. */
static void put_aside(struct core_stream *stream, struct core_enqueued *enqueued)
{
	release_enqueued(stream, enqueued, 0);
	take_head(stream);
	enqueued->next = stream->aside;
	stream->aside = enqueued;
}

static bool begin_enqueued(struct core_stream *stream, struct core_enqueued *enqueued)
{
	int error = enqueued->error;

	if (core_stream_has_come(&stream->words->arrived, enqueued->number)) {
		error = enqueued->begin(enqueued);
	} else if (is_given_up(enqueued) && !enqueued->waits) {
		release_enqueued(stream, enqueued, 0); /* its error was returned */
		return true;
	} else if (!core_stream_is_lost(stream)) {
		return false;
	}
	enqueued->state = CORE_ENQUEUED_BEGUN;
	if (error)
		release_enqueued(stream, enqueued, error);
	else if (enqueued->sends)
		put_aside(stream, enqueued);
	return true;
}

static bool finish(struct core_stream *stream, struct core_enqueued *enqueued)
{
	bool done = false;
	int error = enqueued->test(enqueued, &done);

	if (error || done)
		release_enqueued(stream, enqueued, error);
	else if (is_given_up(enqueued)) /* others may not come to it: they may have failed, too */
		put_aside(stream, enqueued);
	else
		return false;
	return true;
}

static bool has_left(const struct core_stream *stream, const struct core_enqueued *enqueued)
{
	return core_stream_has_come(&stream->words->left, enqueued->number) ||
	       core_stream_is_lost(stream) || is_given_up(enqueued);
}

static bool leave_enqueued(struct core_stream *stream, struct core_enqueued *enqueued)
{
	if (!has_left(stream, enqueued))
		return false;
	take_head(stream);
	end_enqueued(stream, enqueued);
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
		end_enqueued(stream, enqueued);
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
		return begin_enqueued(stream, enqueued);
	case CORE_ENQUEUED_BEGUN:
		return finish(stream, enqueued);
	case CORE_ENQUEUED_LEAVES:
		return leave_enqueued(stream, enqueued);
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

static bool step_streams(void)
{
	guard(drive_all);
	return moved;
}

static struct core_progress engine = {
	.name = "gpucoll-stream", .is_there = has_work, .step = step_streams};

void core_stream_set_guard(void (*of)(void (*inside)(void)))
{
	guard = of;
}

void core_stream_stop(void)
{
	core_progress_stop(&engine);
}

void core_stream_know(struct core_stream *stream)
{
	struct core_stream **link = &streams;

	pthread_mutex_lock(&lists);
	stream->id = ++num_streams;
	while (*link)
		link = &(*link)->next;
	*link = stream;
	pthread_mutex_unlock(&lists);
}

void core_stream_forget(const struct core_stream *stream)
{
	struct core_stream **link = &streams;

	pthread_mutex_lock(&lists);
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	pthread_mutex_unlock(&lists);
}

size_t core_stream_held(struct core_stream *stream)
{
	size_t bytes;

	pthread_mutex_lock(&lists);
	bytes = stream->held;
	pthread_mutex_unlock(&lists);
	return bytes;
}

bool core_stream_is_idle(struct core_stream *stream)
{
	bool idle;

	pthread_mutex_lock(&lists);
	idle = !stream->num_calls;
	pthread_mutex_unlock(&lists);
	return idle;
}

void core_stream_append(struct core_stream *stream, struct core_enqueued *enqueued)
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

bool core_stream_start_engine(void)
{
	return core_progress_start(&engine);
}
