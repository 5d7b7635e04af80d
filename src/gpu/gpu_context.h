/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Working in a buffer's context without the application noticing, and streams to do it on.
 *
 * Nothing here creates a context of its own: a buffer's context exists as long as the buffer does.
 * A context may go away between calls (cudaDeviceReset, cuCtxDestroy) and its handle be used again
 * for another, so streams are kept by the context's id, which is unique in a process.
 */
#ifndef GPU_CONTEXT_H
#define GPU_CONTEXT_H

#include "gpu/gpu_pointer.h"

#include <stdint.h>

struct gpu_scope {
	CUstreamCaptureMode capture_mode;
};

/*
 * Make the context of the buffer current in this thread, and its capture mode relaxed, since the
 * application may be capturing a graph on a stream of its own. gpu_scope_leave puts both back; call
 * it when, and only when, this returned UTIL_OK.
 */
enum util_status gpu_scope_enter(struct gpu_scope *scope, const struct gpu_pointer *pointer);
void gpu_scope_leave(struct gpu_scope *scope);

/* The same where the context may have ended in the meantime, which is no error: false. */
bool gpu_scope_enter_again(struct gpu_scope *scope, const struct gpu_pointer *pointer);

/*
 * The same for the device's primary context, if it lives and is the one of this id. Other contexts
 * can't be asked whether they live: false, and what was left in them goes with them or the process.
 */
bool gpu_scope_enter_alive(struct gpu_scope *scope, int device, unsigned long long context_id);

/*
 * Whether the calling thread has a context, that is, uses CUDA. gpu_context_current: as a buffer in
 * it would be, and the context's id.
 */
bool gpu_context_is_current(void);

/*
 * Unpin host memory that was registered, for all contexts (portable), in that one, or in the
 * thread's where nobody knows whether that lives. False where the driver may still hold the pages:
 * then the address must not be used again.
 */
bool gpu_context_unpin(void *base, int device, unsigned long long context_id);

/* The device of the thread's context; without one, the first. */
int gpu_context_current_device(void);
bool gpu_context_current(struct gpu_pointer *where, unsigned long long *id);

/*
 * A number for the GPU, or for the instance of one (MIG), the same in all processes of the machine
 * and never 0; and for the GPU with a PCI address, as a text.
 */
uint64_t gpu_device_identity(int ordinal);
uint64_t gpu_identity_of(const char *bus);

struct gpu_stream; /* a non-blocking stream of ours in some context, in use by one operation */

/* Take a stream in the buffer's context, from the idle ones or new. Thread-safe. */
enum util_status gpu_stream_get(const struct gpu_pointer *pointer, struct gpu_stream **out);

/* Give it back; work that is still on it must be finished. */
void gpu_stream_put(struct gpu_stream *stream);

/* A buffer in the stream's context, the context's id, and the driver's handle, for launches. */
const struct gpu_pointer *gpu_stream_where(const struct gpu_stream *stream);
unsigned long long gpu_stream_context_id(const struct gpu_stream *stream);
CUstream gpu_stream_handle(const struct gpu_stream *stream);

/*
 * Have operations that return before they finish (see gpu_pointer.h) be synchronous in the context
 * of the memory, which has none of its own, and in the thread's: where the driver can (CUDA 12.1),
 * once for each context. What is pending then the next gpu_stream_poll_legacy there waits for, on
 * whatever stream it is that the legacy one waits for. Thread-safe.
 */
void gpu_context_make_synchronous(const struct gpu_pointer *pointer);

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

/* Destroy the idle streams of contexts that still exist, and let the primary contexts go. */
void gpu_context_finalize(void);

#endif
