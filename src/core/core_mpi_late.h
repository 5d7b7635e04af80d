/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that are being made by calls that do not wait, MPI_Comm_idup. Such a one gets its
 * identity, for which all its ranks wait, when a blocking collective call is first made on it: all
 * make that one, and have made the same nonblocking ones on it before, which are staged.
 */
#ifndef CORE_MPI_LATE_H
#define CORE_MPI_LATE_H

#include "core/call/core_call.h"

/* All are for any thread, but the last. The handle is known as soon as the making has begun. */
void core_mpi_late_expect(core_handle comm);

/* Before a blocking collective call on any communicator: it may be the first. */
void core_mpi_late_look(core_handle comm);

/* Before any communicator is freed: another may get its handle. */
void core_mpi_late_forget(core_handle comm);

/* At the end. */
void core_mpi_late_stop(void);

#endif
