/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of the real MPI, which have a state (core_comm.h) if they have an identity. */
#ifndef CORE_MPI_COMM_H
#define CORE_MPI_COMM_H

#include "core/call/core_call.h"

#include <stdbool.h>

struct core_comm;

/* Before the first communicator gets a state. */
void core_mpi_comm_start(void);

/* After the last, but MPI_COMM_WORLD's, has lost it. */
void core_mpi_comm_stop(void);

/*
 * Give a communicator that was just made an identity: its lowest rank draws it, one broadcast
 * spreads it; and, if it has a topology, tell all its ranks who is whose neighbour. Collective over
 * it. Intercommunicators and MPI_COMM_NULL get none.
 */
void core_mpi_comm_identify(core_handle comm);

/*
 * The state of one more communicator of the same processes, which the real MPI knows nothing of;
 * with the same neighbours, if it needs them; ends by core_comm_life_end. Collective over the
 * communicator. NULL, on all ranks alike: a board is half full, of which the other half is left to
 * communicators.
 */
struct core_comm *core_mpi_comm_draw(core_handle comm, bool needs_neighbors);

/* The communicator's state, or NULL when it has no identity. See core_comm.h. Any thread. */
struct core_comm *core_mpi_comm_find(core_handle comm);

#endif
