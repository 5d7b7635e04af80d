/* SPDX-License-Identifier: BSD-3-Clause */
/* Before anything else: whether all processes of the job run under the library. */
#ifndef CORE_MPI_MUSTER_H
#define CORE_MPI_MUSTER_H

#include "core/call/core_mpi_handle.h"

#include <stdbool.h>

/*
 * Make the library's own copy of MPI_COMM_WORLD, in which this process is `rank` of `size`, and for
 * which all processes must come. Those that don't for GPUCOLL_TIMEOUT seconds are missed in one
 * warning, and then the job is ended, or, with GPUCOLL_PARTIAL=sleep, this returns false: there is
 * no copy.
 */
bool core_mpi_muster(int rank, int size, MPI_Comm *copy);

#endif
