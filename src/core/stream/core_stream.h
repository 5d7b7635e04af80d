/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls enqueued on a stream of the application's (docs/decisions/0024-streams.md): the stream
 * waits for them, and the host does not.
 *
 * All that the device does for the n-th call of a communicator is put on the stream when the call
 * is made:
 *
 *     copies into the stage
 *     store n into `arrived`
 *     wait for `released` to be n
 *     copies out of the stage
 *     store n into `left`
 *
 * (by the driver's means, or by kernels: see gpu_word.h)
 *
 * In between an engine makes the real MPI's call on the stage: one thread of the process, which
 * does nothing but call MPI and look at these words, so that no wait of the driver's is in its way.
 *
 *     WAITS    until `arrived` is n
 *     BEGUN    until the real MPI's request is complete; then n is stored into `released`
 *     LEAVES   until `left` is n; then the stage is given back
 *
 * What is sent is in the stage: the stream is released as soon as the send has begun, and the call
 * is put aside until its request is complete.
 */
#ifndef CORE_STREAM_H
#define CORE_STREAM_H

#include "core/stage/core_staging.h"

struct core_stream; /* of a communicator, in this process */

enum core_enqueued_state { CORE_ENQUEUED_WAITS, CORE_ENQUEUED_BEGUN, CORE_ENQUEUED_LEAVES };

/* One call. Zeroed, but for the staging and what is said here. */
struct core_enqueued {
	struct core_enqueued *next;
	uint64_t number; /* of the call on the communicator, from 1 on */
	enum core_enqueued_state state;
	bool given_up; /* atomic: not all could be put on the stream */
	bool waits;    /* ... but the stream comes to it, and waits. Before that */
	bool sent;     /* of one that sends */
	bool sends;    /* the stream need not wait for its end. By the caller, as what follows */
	size_t bytes;  /* of its stages */
	int error;     /* MPI's, for when the device is lost before it has begun */
	struct core_staging staging;
	/* By the engine, inside its guard. The first two return MPI's error code. */
	int (*begin)(struct core_enqueued *enqueued);
	int (*test)(struct core_enqueued *enqueued, bool *done);
	void (*free)(struct core_enqueued *enqueued);
};

/* What the engine calls its work inside of; before the first call is enqueued. */
void core_stream_set_guard(void (*guard)(void (*inside)(void)));

/*
 * For a stream by its handle, in the calling thread. UTIL_ERR_UNSUPPORTED, without a warning: its
 * device can't do it. Other errors have been logged.
 */
enum util_status core_stream_open(CUstream handle, struct core_stream **out);

/*
 * Whether it is to wait by the driver's words or by a kernel of one thread, which takes a trial.
 * Before the first call is enqueued, and by all ranks at the same time: words are slow where others
 * wait on the device, and only then. Each rank chooses for itself. UTIL_ERR_CUDA, which has been
 * logged: the device does neither.
 */
enum util_status core_stream_choose_wait(struct core_stream *stream);

/* Whether it is the stream that the handle is in the calling thread. */
bool core_stream_is(const struct core_stream *stream, CUstream handle);

/* The stream to put work on. */
struct gpu_stream *core_stream_of(const struct core_stream *stream);

/*
 * Wait while the process's calls on the stream, but for sends, hold more memory than
 * GPUCOLL_STAGING_POOL. False: there is no room, and no waiting for it any more, as `*given_up` is
 * not 0, which another thread may store.
 */
bool core_stream_make_room(struct core_stream *stream, const int *given_up);

/*
 * Put a call on the stream, whose staging is open. UTIL_OK: the engine has it, and frees it.
 * Otherwise its results are lost, and the MPI may or may not be called; `*taken`: the engine has it
 * all the same.
 */
enum util_status core_stream_put(struct core_stream *stream, struct core_enqueued *enqueued,
				 bool *taken);

/*
 * Whether the stream is past all its calls, of which sends may be under way, and its device lives.
 * Thread-safe.
 */
bool core_stream_is_past_all(const struct core_stream *stream);

/* Whether all its calls have ended, also sends that it did not wait for. Thread-safe. */
bool core_stream_is_idle(struct core_stream *stream);

/* The error of MPI of the first call that failed since this was last asked, or 0. */
int core_stream_take_error(struct core_stream *stream);

/*
 * Wait until all calls have ended. False: the device is lost, and they have not; the stream must
 * stay. `name` is for people.
 */
bool core_stream_drain(struct core_stream *stream, const char *name);

/* Give back all that it holds; drained. */
void core_stream_close(struct core_stream *stream);

/* End the engine. All streams are drained. */
void core_stream_stop(void);

#endif
