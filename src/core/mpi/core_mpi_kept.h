/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call's arguments refer to, kept beyond the call: the application may free datatypes, and
 * Open MPI's Fortran bindings free their arrays, as soon as a nonblocking call has returned.
 */
#ifndef CORE_MPI_KEPT_H
#define CORE_MPI_KEPT_H

#include "core/call/core_mpi_handle.h"
#include "core/comm/core_comm.h"
#include "util/util_status.h"

struct core_mpi_kept {
	void *arrays[6]; /* counts, displacements and types of both sides */
	int num_arrays;
	MPI_Datatype *types;
	int num_types;
};

/*
 * Put copies in place of the arrays and the derived types of a call on the communicator. Of a
 * zeroed one, to be released also after an error, which is UTIL_ERR_NO_MEMORY or UTIL_ERR_MPI.
 * Calls MPI functions that are local, and none of the application's callbacks.
 */
enum util_status core_mpi_keep(struct core_mpi_kept *kept, struct core_call *call,
			       const struct core_comm *comm);

/* Free the copies. */
void core_mpi_kept_release(struct core_mpi_kept *kept);

#endif
