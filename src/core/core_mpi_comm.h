/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files that give communicators their states. */
#ifndef CORE_MPI_COMM_H
#define CORE_MPI_COMM_H

#include "core/core_comm.h"
#include "core/core_mpi_handle.h"

/*
 * Before the first communicator gets a state, and after the last, but MPI_COMM_WORLD's, has lost
 * it.
 */
void core_mpi_comm_start(void);
void core_mpi_comm_stop(void);

/* Raise an error of ours on the communicator; returns MPI's code. */
int core_mpi_raise_on(MPI_Comm comm, enum util_status status);

/*
 * Whose neighbour each rank is, into the state of a communicator that may have a topology.
 * Collective over it. False: no memory.
 */
bool core_mpi_find_graph(MPI_Comm comm, struct core_comm *state);

#endif
