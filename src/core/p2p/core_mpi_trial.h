/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MPI_TRIAL_H
#define CORE_MPI_TRIAL_H

#include "core/call/core_mpi_handle.h"
#include "gpu/gpu_pointer.h"

/* Whether the real MPI says that it is CUDA-aware; set by the door. */
extern bool core_mpi_claims_cuda;

/* Whether messages on such memory go to the real MPI as they are. Thread-safe. */
bool core_mpi_leaves_messages(const struct gpu_pointer *where);

#endif
