/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonblocking and persistent collectives. */
#ifndef CORE_MPI_ASYNC_H
#define CORE_MPI_ASYNC_H

#include "core/call/core_call.h"

/*
 * Carry out the call, one of whose buffers may be in device memory. Returns what MPI returns, with
 * the request in *call->request. Under the door's guard. Thread-safe.
 */
int core_async_run(const struct core_call *call);

/* The same of a call of which none is. */
int core_async_run_host(const struct core_call *call);

#endif
