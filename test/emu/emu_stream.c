/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and events: a thread for each stream, one lock for all, and a condition for each. */
#include "emu.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

struct mark { /* a point in a stream's order */
	struct emu_stream *stream;
	unsigned long long sequence;
	struct mark *next;
};

struct operation {
	struct operation *next;
	void (*function)(void *);
	void *argument;
	struct mark *after; /* points of other streams that must have been reached */
};

struct emu_stream {
	struct emu_stream *next;
	CUcontext context;
	bool blocking; /* orders with the legacy stream */
	bool stop;
	bool busy; /* its operation runs in the thread that submitted it */
	pthread_t thread;
	bool has_thread;
	unsigned number; /* of those that were ever made, from 1 on */
	unsigned long long submitted, completed;
	struct operation *first, **last;
	struct mark *wait_for; /* events that the next operation waits for */
	pthread_cond_t work;   /* for its thread: an operation, or what one waits for, or the end */
	bool held;             /* it waits for what another stream has to do */
	unsigned long long awaited; /* of those that callers wait for, the first */
};

struct CUevent_st {
	struct mark mark;
	struct timespec time;
	bool recorded;
	struct emu_captured captured;
};

/* All below is under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reached_one = PTHREAD_COND_INITIALIZER; /* for callers: what one awaits */
static struct emu_stream *streams;
static unsigned num_created;

/*
 * Wakes only those for whom it is news: there are many streams, each with a thread, and few cores.
 */
static void complete_one(struct emu_stream *stream)
{
	stream->completed++;
	for (struct emu_stream *other = streams; other; other = other->next) {
		if (other->held)
			pthread_cond_signal(&other->work);
	}
	if (stream->completed < stream->awaited)
		return;
	stream->awaited = ULLONG_MAX;
	pthread_cond_broadcast(&reached_one);
}

/* To be told of that one, among others: a caller then waits, and looks again. */
static void await(struct emu_stream *stream, unsigned long long sequence)
{
	if (stream->completed < sequence && sequence < stream->awaited)
		stream->awaited = sequence;
}

static bool reached(const struct mark *mark)
{
	for (struct emu_stream *stream = streams; stream; stream = stream->next) {
		if (stream == mark->stream)
			return stream->completed >= mark->sequence;
	}
	return true; /* the stream was drained before it was freed */
}

static void sleep_us(unsigned us)
{
	struct timespec time = {us / 1000000, (long)(us % 1000000) * 1000};

	if (us)
		nanosleep(&time, NULL);
}

static void run_operation(struct operation *operation)
{
	sleep_us(emu_config.delay_us);
	operation->function(operation->argument);
	free(operation->argument);
	while (operation->after) {
		struct mark *mark = operation->after;

		operation->after = mark->next;
		free(mark);
	}
}

static bool may_run(const struct operation *operation)
{
	for (const struct mark *mark = operation->after; mark; mark = mark->next) {
		if (!reached(mark))
			return false;
	}
	return true;
}

static void *stream_main(void *argument)
{
	struct emu_stream *stream = argument;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&lock);
	while (!stream->stop || stream->first) {
		struct operation *operation = stream->first;

		if (!operation || stream->busy || !may_run(operation)) {
			stream->held = operation != NULL;
			pthread_cond_wait(&stream->work, &lock);
			stream->held = false;
			continue;
		}
		stream->first = operation->next;
		if (!stream->first)
			stream->last = &stream->first;
		pthread_mutex_unlock(&lock);
		run_operation(operation);
		free(operation);
		pthread_mutex_lock(&lock);
		complete_one(stream);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

struct emu_stream *emu_stream_create(CUcontext context, bool blocking)
{
	struct emu_stream *stream = calloc(1, sizeof(*stream));

	stream->context = context;
	stream->blocking = blocking;
	stream->last = &stream->first;
	stream->awaited = ULLONG_MAX;
	pthread_cond_init(&stream->work, NULL);
	pthread_mutex_lock(&lock);
	stream->next = streams;
	stream->number = ++num_created;
	streams = stream;
	pthread_mutex_unlock(&lock);
	return stream;
}

void emu_stream_free(struct emu_stream *stream)
{
	struct emu_stream **link = &streams;

	if (!stream)
		return;
	pthread_mutex_lock(&lock);
	stream->stop = true;
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&lock);
	if (stream->has_thread)
		pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&lock);
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&stream->work);
	while (stream->wait_for) {
		struct mark *mark = stream->wait_for;

		stream->wait_for = mark->next;
		free(mark);
	}
	free(stream);
}

static void add_mark(struct mark **list, struct emu_stream *stream, unsigned long long sequence)
{
	struct mark *mark = malloc(sizeof(*mark));

	*mark = (struct mark){stream, sequence, *list};
	*list = mark;
}

/* The legacy stream waits for all blocking streams of its context, and they for it. */
static void add_legacy_order(struct emu_stream *stream, struct mark **after)
{
	struct emu_stream *legacy = stream->context->legacy;

	if (stream != legacy) {
		if (stream->blocking && legacy)
			add_mark(after, legacy, legacy->submitted);
		return;
	}
	for (struct emu_stream *other = streams; other; other = other->next) {
		if (other != stream && other->context == stream->context && other->blocking)
			add_mark(after, other, other->submitted);
	}
}

/* What was put into the stream's hardware queue before, by whichever stream. */
static void add_connection_order(struct emu_stream *stream, struct mark **after)
{
	unsigned num = (unsigned)emu_config.connections;

	for (struct emu_stream *other = streams; num && other; other = other->next) {
		if (other != stream && other->number % num == stream->number % num)
			add_mark(after, other, other->submitted);
	}
}

/*
 * Without a thread to wake, where nothing comes before the operation: for benchmarks. Under the
 * lock, which is given up meanwhile.
 */
static void run_in_caller(struct emu_stream *stream, struct operation *operation)
{
	stream->busy = true;
	pthread_mutex_unlock(&lock);
	run_operation(operation);
	pthread_mutex_lock(&lock);
	stream->busy = false;
	complete_one(stream);
	pthread_cond_signal(&stream->work);
}

static void submit(struct emu_stream *stream, void (*function)(void *), void *argument, bool waits)
{
	struct operation now = {.function = function, .argument = argument}, *operation;

	if (emu_capture_take(stream, function, argument, waits))
		return;
	pthread_mutex_lock(&lock);
	now.after = stream->wait_for;
	stream->wait_for = NULL;
	add_legacy_order(stream, &now.after);
	add_connection_order(stream, &now.after);
	bool idle = stream->completed == stream->submitted++;
	if (emu_config.in_caller && !waits && idle && may_run(&now)) {
		run_in_caller(stream, &now);
		pthread_mutex_unlock(&lock);
		return;
	}
	operation = malloc(sizeof(*operation));
	*operation = now;
	*stream->last = operation;
	stream->last = &operation->next;
	if (!stream->has_thread) {
		stream->has_thread = true;
		if (pthread_create(&stream->thread, NULL, stream_main, stream))
			emu_die("no thread for a stream");
	}
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&lock);
}

void emu_submit(struct emu_stream *stream, void (*function)(void *), void *argument)
{
	submit(stream, function, argument, false);
}

void emu_submit_waiting(struct emu_stream *stream, void (*function)(void *), void *argument)
{
	submit(stream, function, argument, true);
}

static void wait_locked(struct emu_stream *stream, unsigned long long sequence)
{
	while (stream->completed < sequence) {
		await(stream, sequence);
		pthread_cond_wait(&reached_one, &lock);
	}
}

/*
 * A wait for the legacy stream is one for the blocking streams too, whose work comes before its
 * next.
 */
static bool waits_for(const struct emu_stream *stream, const struct emu_stream *other)
{
	return other == stream || (stream == stream->context->legacy &&
				   other->context == stream->context && other->blocking);
}

static bool idle_locked(struct emu_stream *stream)
{
	for (struct emu_stream *other = streams; other; other = other->next) {
		if (waits_for(stream, other) && other->completed < other->submitted)
			return false;
	}
	return true;
}

void emu_stream_wait(struct emu_stream *stream)
{
	pthread_mutex_lock(&lock);
	while (!idle_locked(stream)) {
		for (struct emu_stream *other = streams; other; other = other->next) {
			if (waits_for(stream, other))
				await(other, other->submitted);
		}
		pthread_cond_wait(&reached_one, &lock);
	}
	pthread_mutex_unlock(&lock);
}

CUcontext emu_stream_context(const struct emu_stream *stream)
{
	return stream->context;
}

bool emu_stream_is_idle(struct emu_stream *stream)
{
	pthread_mutex_lock(&lock);
	bool idle = emu_config.legacy_alone ? stream->completed == stream->submitted
					    : idle_locked(stream);
	pthread_mutex_unlock(&lock);
	return idle;
}

void emu_context_wait(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (struct emu_stream *stream = streams; stream; stream = stream->next) {
		if (stream->context == context)
			wait_locked(stream, stream->submitted);
	}
	pthread_mutex_unlock(&lock);
}

/* Made by whichever thread asks first: there is one of a context, in whose order all is. */
static struct emu_stream *default_stream(struct emu_stream **slot, CUcontext context, bool blocking)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
	struct emu_stream *stream;

	pthread_mutex_lock(&making);
	if (!*slot)
		*slot = emu_stream_create(context, blocking);
	stream = *slot;
	pthread_mutex_unlock(&making);
	return stream;
}

struct emu_stream *emu_stream_of(CUstream handle)
{
	CUcontext context = emu_current();
	struct emu_stream *found = (struct emu_stream *)handle, *stream;

	if (!context)
		return NULL;
	if (handle == CU_STREAM_PER_THREAD)
		return default_stream(&context->per_thread, context, true);
	if (!handle || handle == CU_STREAM_LEGACY)
		return default_stream(&context->legacy, context, false);
	pthread_mutex_lock(&lock);
	for (stream = streams; stream && stream != found; stream = stream->next)
		;
	pthread_mutex_unlock(&lock);
	return stream;
}

bool emu_stream_is_blocking(const struct emu_stream *stream)
{
	return stream->blocking;
}

CUresult emu_stream_use(CUstream handle, struct emu_stream **stream)
{
	*stream = emu_stream_of(handle);
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!*stream)
		return CUDA_ERROR_INVALID_HANDLE;
	return emu_capture_use(*stream, emu_current());
}

/* The stream to wait for or to ask, which a capture allows less than to use it. */
static CUresult stream_to_wait_for(CUstream handle, struct emu_stream **stream)
{
	CUresult result = emu_capture_unsafe();

	if (result == CUDA_SUCCESS)
		result = emu_stream_use(handle, stream);
	return result == CUDA_SUCCESS ? emu_capture_wait(*stream) : result;
}

/* ---- the API ---- */

EMU_API CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned flags)
{
	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	emu_stream_of(CU_STREAM_LEGACY);
	*out = (CUstream)emu_stream_create(emu_current(), !(flags & CU_STREAM_NON_BLOCKING));
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	(void)priority;
	return cuStreamCreate(out, flags);
}

EMU_API CUresult CUDAAPI cuStreamDestroy(CUstream handle)
{
	struct emu_stream *stream = emu_stream_of(handle);

	EMU_ENTER();
	if (!stream || stream == stream->context->legacy || stream == stream->context->per_thread)
		return CUDA_ERROR_INVALID_HANDLE;
	emu_capture_drop(stream);
	emu_stream_free(stream);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
	struct emu_stream *stream;
	CUresult result;

	EMU_ENTER();
	result = stream_to_wait_for(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	return emu_stream_is_idle(stream) ? emu_lost() : CUDA_ERROR_NOT_READY;
}

EMU_API CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
	struct emu_stream *stream;
	CUresult result;

	EMU_ENTER();
	result = stream_to_wait_for(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	emu_stream_wait(stream);
	return emu_lost();
}

static void do_nothing(void *argument)
{
	(void)argument;
}

EMU_API CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
	struct emu_stream *stream = emu_stream_of(handle);

	EMU_ENTER();
	(void)flags;
	if (!stream || !event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->captured.number)
		return emu_capture_follow(stream, &event->captured);
	pthread_mutex_lock(&lock);
	if (event->recorded)
		add_mark(&stream->wait_for, event->mark.stream, event->mark.sequence);
	pthread_mutex_unlock(&lock);
	/* Who waits for the stream then waits for that, too. */
	emu_submit(stream, do_nothing, NULL);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	struct emu_stream *stream = emu_stream_of(handle);

	EMU_ENTER();
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	*context = stream->context;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long *id)
{
	struct emu_stream *stream = emu_stream_of(handle);

	EMU_ENTER();
	if (!stream || !id)
		return CUDA_ERROR_INVALID_HANDLE;
	*id = stream->number;
	return emu_capture_wait(stream); /* as hardware's driver does, which breaks the capture */
}

struct host_call {
	CUhostFn function;
	void *data;
};

static void run_host_call(void *argument)
{
	struct host_call *call = argument;

	call->function(call->data);
}

EMU_API CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	struct emu_stream *stream = emu_stream_of(handle);
	struct host_call *call;

	EMU_ENTER();
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	call = malloc(sizeof(*call));
	*call = (struct host_call){function, data};
	emu_submit(stream, run_host_call, call);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
	EMU_ENTER();
	(void)flags;
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*event = calloc(1, sizeof(**event));
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuEventDestroy(CUevent event)
{
	EMU_ENTER();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	cuEventSynchronize(event);
	free(event);
	return CUDA_SUCCESS;
}

static void stamp(void *argument)
{
	clock_gettime(CLOCK_MONOTONIC, &(*(CUevent *)argument)->time);
}

EMU_API CUresult CUDAAPI cuEventRecord(CUevent event, CUstream handle)
{
	struct emu_stream *stream;
	CUevent *argument;
	CUresult result;

	EMU_ENTER();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	result = emu_stream_use(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	event->captured = emu_capture_record(stream);
	if (event->captured.number)
		return CUDA_SUCCESS;
	argument = malloc(sizeof(*argument));
	*argument = event;
	emu_submit(stream, stamp, argument);
	pthread_mutex_lock(&lock);
	event->mark = (struct mark){stream, stream->submitted, NULL};
	event->recorded = true;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuEventQuery(CUevent event)
{
	EMU_ENTER();
	EMU_UNSAFE();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	bool done = !event->recorded || reached(&event->mark);
	pthread_mutex_unlock(&lock);
	return done ? emu_lost() : CUDA_ERROR_NOT_READY;
}

EMU_API CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
	EMU_ENTER();
	EMU_UNSAFE();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	while (event->recorded && !reached(&event->mark)) {
		await(event->mark.stream, event->mark.sequence);
		pthread_cond_wait(&reached_one, &lock);
	}
	pthread_mutex_unlock(&lock);
	return emu_lost();
}

EMU_API CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	EMU_ENTER();
	if (cuEventQuery(start) != CUDA_SUCCESS || cuEventQuery(end) != CUDA_SUCCESS)
		return CUDA_ERROR_NOT_READY;
	*milliseconds = (float)((double)(end->time.tv_sec - start->time.tv_sec) * 1e3 +
				(double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
	return CUDA_SUCCESS;
}
