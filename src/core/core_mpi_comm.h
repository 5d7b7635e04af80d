/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of the real MPI, which have a state (core_comm.h) if they have an identity. */
#ifndef CORE_MPI_COMM_H
#define CORE_MPI_COMM_H

#include "core/call/core_call.h"

struct core_comm;

/*
 * Before the first communicator gets a state, and after the last, but MPI_COMM_WORLD's, has lost
 * it.
 */
void core_mpi_comm_start(void);
void core_mpi_comm_stop(void);

/*
 * Give a communicator that was just made an identity: its lowest rank draws it, one broadcast
 * spreads it; and, if it has a topology, tell all its ranks who is whose neighbour. Collective over
 * it. Intercommunicators and MPI_COMM_NULL get none.
 */
void core_mpi_comm_identify(core_handle comm);

/* The communicator's state, or NULL when it has no identity. See core_comm.h. Any thread. */
struct core_comm *core_mpi_comm_find(core_handle comm);

#endif
