/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent collectives that may be accelerated. */
#ifndef CORE_MPI_PERSISTENT_H
#define CORE_MPI_PERSISTENT_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "util/util_status.h"

/*
 * Initialise the call, on a communicator with the state `parent`. `looks`: its buffers may be in
 * device memory. Collective over the communicator. UTIL_OK: `*result` is what the call is to
 * return, and its request is there. Else, on all ranks alike, nothing was done, and the call is to
 * be the real MPI's, on stages. Thread-safe.
 */
enum util_status core_mpi_persistent_run(const struct core_call *call, struct core_comm *parent,
					 bool looks, int *result);

#endif
