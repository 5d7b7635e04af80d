/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of ours in the contexts of buffers, and what was pending on the application's. */
#ifndef GPU_STREAM_H
#define GPU_STREAM_H

#include "gpu/gpu_context.h"

struct gpu_stream; /* a non-blocking stream of ours in some context, in use by one operation */

/* Take a stream in the buffer's context, from the idle ones or new. Thread-safe. */
enum util_status gpu_stream_get(const struct gpu_pointer *pointer, struct gpu_stream **out);

/* Give it back; work that is still on it must be finished. */
void gpu_stream_put(struct gpu_stream *stream);

/*
 * The same type for a stream of the application's own, in its context: work can be put on it, and
 * its legacy streams are not asked about. A handle that stands for a stream of the thread's context
 * (0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) is that one's. The caller frees it with
 * gpu_stream_let_go; the application's stream may have ended by then. An error has been logged.
 */
enum util_status gpu_stream_adopt(CUstream handle, struct gpu_stream **out);
void gpu_stream_let_go(struct gpu_stream *stream);

/* The stream's number in this process, which no other will have, in the calling thread; 0: none. */
unsigned long long gpu_stream_id(CUstream handle);

/*
 * Whether what is put on it now goes into a graph. BROKEN: it can't, as one is captured on another
 * stream, with which the legacy stream may have nothing to do, or as the capture was lost.
 */
enum gpu_capture { GPU_CAPTURE_NONE, GPU_CAPTURE_ACTIVE, GPU_CAPTURE_BROKEN };
enum gpu_capture gpu_stream_capture(const struct gpu_stream *stream);

/* A buffer in the stream's context. */
const struct gpu_pointer *gpu_stream_where(const struct gpu_stream *stream);

/* The id of its context. */
unsigned long long gpu_stream_context_id(const struct gpu_stream *stream);

/* The driver's handle, for launches. */
CUstream gpu_stream_handle(const struct gpu_stream *stream);

/*
 * Whether its context is lost, as after a fault in a kernel: then nothing works there any more.
 * Logs nothing.
 */
bool gpu_stream_is_lost(struct gpu_stream *stream);

/*
 * UTIL_OK when all that was put on the stream is done, UTIL_IN_PROGRESS, or the error that stopped
 * it.
 */
enum util_status gpu_stream_poll(struct gpu_stream *stream);

/*
 * The same for what was on the legacy default streams when this was first asked since the stream
 * was taken: that of the buffer's context, and that of the calling thread's, in which the
 * application may have copied to a buffer of another context.
 */
enum util_status gpu_stream_poll_legacy(struct gpu_stream *stream);

/* Wait for all that was put on streams of its context, the application's too. */
enum util_status gpu_stream_synchronize_context(struct gpu_stream *stream);

/* Have a thread of the driver's call the function, in stream order; it must make no CUDA call. */
enum util_status gpu_stream_call(struct gpu_stream *stream, void (*function)(void *), void *data);

/* Fill device memory with zeros, in stream order. */
enum util_status gpu_stream_clear(struct gpu_stream *stream, void *at, size_t bytes);

/*
 * Copy bytes between device, managed and host memory in stream order. Returns at once or when done.
 */
enum util_status gpu_stream_copy(struct gpu_stream *stream, void *to, const void *from,
				 size_t bytes);

/*
 * The same where the bytes may be in several allocations that lie side by side: a copy of the
 * driver each.
 */
enum util_status gpu_stream_copy_pieces(struct gpu_stream *stream, void *to, const void *from,
					size_t bytes);

/*
 * Copy `rows` runs of `bytes` bytes that stand so many bytes apart on either side, at least
 * `bytes`.
 */
enum util_status gpu_stream_copy_rows(struct gpu_stream *stream, void *to, size_t to_pitch,
				      const void *from, size_t from_pitch, size_t bytes,
				      size_t rows);

/* Destroy the idle streams of contexts that still exist. */
void gpu_stream_finalize(void);

#endif
