/* SPDX-License-Identifier: BSD-3-Clause */
/* MPIX_Comm_revoke of ULFM (User Level Failure Mitigation). */
#ifndef CORE_MPI_REVOKE_H
#define CORE_MPI_REVOKE_H

#include "core/call/core_mpi_handle.h"

/*
 * The communicator is about to be revoked: what waits for its calls in the library, on any rank,
 * ends with UTIL_ERR_REVOKED, and later calls do at once: blocking, nonblocking, persistent and
 * enqueued ones, and GPUCOLL_CHECK's. Local: it waits, for a moment, for messages to other nodes to
 * leave. Under the door's guard.
 */
void core_mpi_revoke(core_handle comm);

/* Meanwhile no communicator is revoked that core_comm_draw_for was told of. */
void core_mpi_revoke_hold(void);
void core_mpi_revoke_release(void);

#endif
