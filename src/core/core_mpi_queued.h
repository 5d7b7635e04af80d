/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonblocking collectives that may be accelerated, as MPI's generalized requests. */
#ifndef CORE_MPI_QUEUED_H
#define CORE_MPI_QUEUED_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "util/util_status.h"

/*
 * Queue call `number` of the communicator. UTIL_OK: `*result` is what the call is to return, and
 * its request is there. Else nothing was done, and the call is to be staged, for the reason `*why`.
 * Thread-safe.
 */
enum util_status core_mpi_queued_run(const struct core_call *call, struct core_comm *comm,
				     uint64_t number, int *result, const char **why);

#endif
