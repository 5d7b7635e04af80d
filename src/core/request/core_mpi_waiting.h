/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for requests of the application's, while calls of ours are to be driven. */
#ifndef CORE_MPI_WAITING_H
#define CORE_MPI_WAITING_H

#include "core/call/core_mpi_handle.h"
#include "core/job/core_mpi_drive.h"

#include <stdbool.h>

/* Of zeroes at its beginning. It is reported when it takes long. */
struct core_mpi_waiting {
	struct core_wait wait;
	uint64_t since; /* util_now */
	bool reported;
};

/* Drive what is ours, and the real MPI, once. */
void core_mpi_waiting_go_on(struct core_mpi_waiting *waiting);

/*
 * The real MPI waits without driving what is ours. As long as there is such a thing, its waits are
 * tests over and over: not MPI_Request_get_status, by which some requests make no progress
 * (MPICH's of files), and some errors are raised that come again. True: it is complete, or has
 * failed, as `*result` says. False: nothing has to be driven any more, and it is as it was.
 */
bool core_mpi_waiting_drive(MPI_Request *request, MPI_Status *status, int *result);

#endif
