/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the application that return before they finish: cudaMemset, copies inside the
 * device, copies from pageable memory. They are made synchronous, as UCX and Open MPI do.
 */
#ifndef GPU_SYNCHRONOUS_H
#define GPU_SYNCHRONOUS_H

#include "gpu/gpu_where.h"

/*
 * Make such operations on the allocation synchronous from now on
 * (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), the first time that it is seen. Memory from pools and VMM,
 * which has no context of its own, refuses that: then all of its device's context, and of the
 * thread's, are, once for each context, where the driver can (CUDA 12.1). What is pending then the
 * next gpu_stream_poll_legacy there waits for, on whatever stream it is that the legacy one waits
 * for. Thread-safe.
 */
void gpu_synchronous_make(const void *address, const struct gpu_pointer *pointer);

/*
 * Whether something may be pending in a context that was made synchronous; `waited`: no more.
 * Thread-safe.
 */
bool gpu_synchronous_is_pending(unsigned long long context_id, bool waited);

#endif
