/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of calls on a stream (core_stream.h) share. */
#ifndef CORE_STREAM_PARTS_H
#define CORE_STREAM_PARTS_H

#include "gpu/gpu_staging.h"
#include "gpu/gpu_stream.h"

#include <pthread.h>

/*
 * Pinned. Writer of the first and the last: the stream, for its copies before; reader: the engine.
 * The other way round for `released`. Each in a line of its own.
 */
struct core_stream_words {
	_Alignas(64) uint64_t arrived;
	_Alignas(64) uint64_t released;
	_Alignas(64) uint64_t left;
};

struct core_enqueued; /* core_stream.h */

/* `lists`: the lock of core_stream_engine.c. */

struct core_stream {
	struct core_stream *next;     /* under `lists` */
	uint64_t id;                  /* grows from one to the next */
	unsigned long long number_of; /* the driver's number of the application's stream */
	struct gpu_stream *stream;    /* it, to put work on */
	struct gpu_stream *own; /* one of ours in its context, by which that is known to live */
	struct gpu_staging_block *block;
	struct core_stream_words *words;    /* in it */
	uint64_t address;                   /* of them, for the device */
	pthread_mutex_t order;              /* calls are put on the stream one after the other */
	uint64_t number;                    /* atomic: of the last call; set under `order` */
	bool by_kernel;                     /* the stream waits so */
	struct core_enqueued *head, **tail; /* under `lists` */
	struct core_enqueued *aside;        /* sends that are under way. The engine's */
	int num_calls;                      /* in both. Under `lists` */
	size_t held;                        /* bytes of the stages of all. Under `lists` */
	int error;                          /* atomic */
	bool lost;                          /* atomic: the device does no more for it */
	bool spoilt; /* the device may yet touch the words, for a call that was given up. Atomic */
};

static inline bool core_stream_is_lost(const struct core_stream *stream)
{
	return __atomic_load_n(&stream->lost, __ATOMIC_RELAXED);
}

/* Acquire: what the stream's copies have written before is seen. */
static inline bool core_stream_has_come(const uint64_t *word, uint64_t number)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= number;
}

/* ---- words, in the order of a stream ---- */

/* Say that the stream has come to the call of the number, and wait for the engine. */
enum util_status core_stream_put_wait(struct core_stream *stream, struct gpu_stream *on,
				      uint64_t number);

/* Say that it has come past it. */
enum util_status core_stream_put_end(struct core_stream *stream, struct gpu_stream *on,
				     uint64_t number);

/* Of a trial: what was put on a stream in part waits for nobody, and keeps its words for ever. */
void core_stream_let_pass(struct core_stream *stream);

/* ---- the engine's lists ---- */

/* Have it among the streams that are driven; and no longer, when it has no calls. */
void core_stream_know(struct core_stream *stream);
void core_stream_forget(const struct core_stream *stream);

/* Start the engine, unless it has been. False: it can't be. */
bool core_stream_start_engine(void);

/* The engine has the call, and looks at it. */
void core_stream_append(struct core_stream *stream, struct core_enqueued *enqueued);

/* The bytes that its calls hold. */
size_t core_stream_held(struct core_stream *stream);

#endif
