/* SPDX-License-Identifier: BSD-3-Clause */
/* A wait for the device, in which the real MPI goes on. */
#ifndef CORE_WAIT_H
#define CORE_WAIT_H

#include "gpu/gpu_stream.h"

/*
 * Wait for all that was put on a stream of ours, as all waits of ours do (core_mpi_drive).
 * UTIL_OK, or the error that stopped it.
 */
enum util_status core_wait_stream(struct gpu_stream *stream);

#endif
