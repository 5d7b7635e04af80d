/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of ours as errors of MPI. */
#ifndef CORE_MPI_RAISE_H
#define CORE_MPI_RAISE_H

#include "core/call/core_call.h"
#include "util/util_status.h"

#include <stdbool.h>

/*
 * Raise MPI's error code on the communicator, unless it is an MPI_COMM_WORLD that is not there.
 * Returns the code.
 */
int core_mpi_raise_error(core_handle comm, int error);

/*
 * Turn a status into the MPI error of the same meaning, raised on the communicator. Returns MPI's
 * code.
 */
int core_mpi_raise_on(core_handle comm, enum util_status status);

/* The same on the call's communicator. */
int core_mpi_raise(const struct core_call *call, enum util_status status);

/* The same, not raised. */
int core_mpi_error_of(enum util_status status);

/* The status that means the same as the real MPI's code; UTIL_ERR_MPI: there is none. */
enum util_status core_mpi_status_of(int error);

/*
 * Whether a request whose completion gave this error is still active: others failed before it was
 * looked at, or, by ULFM, a receive from anybody may have been one from a process that is lost.
 */
bool core_mpi_leaves_pending(int error);

/*
 * Have the real MPI revoke the communicator; nothing where it has no ULFM. And whether this process
 * knows that it is revoked.
 */
void core_mpi_revoke_real(core_handle comm);
bool core_mpi_is_revoked(core_handle comm);

/* MPI_COMM_WORLD. */
core_handle core_mpi_world(void);

/* Whether that is there: not in a program of sessions alone. Any thread. */
bool core_mpi_has_world(void);

#endif
