/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbours that a communicator's topology tells of. */
#ifndef CORE_MPI_GRAPH_H
#define CORE_MPI_GRAPH_H

#include "core/call/core_mpi_handle.h"
#include "core/comm/core_comm.h"

/*
 * Whose neighbour each rank is, into the state of a communicator that may have a topology.
 * Collective over it. False: no memory.
 */
bool core_mpi_find_graph(MPI_Comm comm, struct core_comm *state);

#endif
