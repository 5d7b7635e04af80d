/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Working in a buffer's context without the application noticing.
 *
 * Nothing here creates a context of its own: a buffer's context exists as long as the buffer does.
 * A context may go away between calls (cudaDeviceReset, cuCtxDestroy) and its handle be used again
 * for another, so what is kept for it is kept by its id, which is unique in a process.
 */
#ifndef GPU_CONTEXT_H
#define GPU_CONTEXT_H

#include "gpu/gpu_where.h"

#include <stdint.h>

struct gpu_scope {
	CUstreamCaptureMode capture_mode;
};

/*
 * Make the context of the buffer current in this thread, and its capture mode relaxed, since the
 * application may be capturing a graph on a stream of its own. UTIL_OK: gpu_scope_leave must
 * follow.
 */
enum util_status gpu_scope_enter(struct gpu_scope *scope, const struct gpu_pointer *pointer);

/* Put back both as they were. */
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
 * Whether nothing more can be done in the buffer's context: one more event is asked for, and
 * refused with an error that cuda.h says every later call gives.
 */
bool gpu_context_is_lost(const struct gpu_pointer *pointer);

/*
 * Unpin host memory that was registered, for all contexts (portable), in that one, or in the
 * thread's where nobody knows whether that lives. False where the driver may still hold the pages:
 * then the address must not be used again.
 */
bool gpu_context_unpin(void *base, int device, unsigned long long context_id);

/* The device of the thread's context; without one, the first. */
int gpu_context_current_device(void);

/* The thread's context, as a pointer into it, and its id. False: it has none. */
bool gpu_context_current(struct gpu_pointer *where, unsigned long long *id);

/*
 * Whether the host may touch managed memory, any that the process has, while a kernel is at work on
 * the device. Where it may not (WSL, Tegra) it would get SIGSEGV or SIGBUS.
 */
bool gpu_device_leaves_managed(int ordinal);

/*
 * Whether the driver ends kernels that take long, some seconds, as on a device with a display: the
 * process's context is lost with such a kernel.
 */
bool gpu_device_limits_kernels(int ordinal);

/*
 * A number for the GPU, or for the instance of one (MIG), the same in all processes of the machine
 * and never 0.
 */
uint64_t gpu_device_identity(int ordinal);

/* The number of the GPU with the PCI address, a text. */
uint64_t gpu_identity_of(const char *bus);

/* Let the primary contexts go. */
void gpu_context_finalize(void);

#endif
