/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's own types, for the files core_mpi_*.c, which are all of src/core that knows MPI and are
 * compiled once for each. No other file there may include this one. Every MPI call in them is PMPI
 * and made under the door's guard (pmpi_call.c), so it reaches the real MPI even where the library
 * wraps it.
 */
#ifndef CORE_MPI_HANDLE_H
#define CORE_MPI_HANDLE_H

#include "core/call/core_call.h"

#include <mpi.h>

static inline MPI_Comm core_mpi_as_comm(core_handle handle)
{
	return (MPI_Comm)handle;
}

static inline MPI_Datatype core_mpi_as_type(core_handle handle)
{
	return (MPI_Datatype)handle;
}

/*
 * The whole library's copy of MPI_COMM_WORLD, which returns errors. MPI_COMM_NULL before
 * core_mpi_start and after core_mpi_stop.
 */
extern MPI_Comm core_mpi_private_comm;

#endif
