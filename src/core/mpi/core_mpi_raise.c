/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_raise.h"
#include "core/call/core_mpi_handle.h"
#include "util/util_time.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif

core_handle core_mpi_world(void)
{
	return (core_handle)MPI_COMM_WORLD;
}

/* Of an MPI that has ULFM's error classes (User Level Failure Mitigation). */
static int error_of_loss(void)
{
#if defined(MPIX_ERR_PROC_FAILED)
	return MPIX_ERR_PROC_FAILED;
#elif defined(MPI_ERR_PROC_FAILED)
	return MPI_ERR_PROC_FAILED;
#else
	return MPI_ERR_OTHER;
#endif
}

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
/*
 * Who revokes a communicator has the library's calls end first, and then the MPI tell the others:
 * where nobody is known to have failed that is waited for, for a moment.
 */
static int error_if_revoked(MPI_Comm comm, enum util_status status, int error)
{
	static const uint64_t moment = UTIL_SECONDS(1) / 5; /* ns */
	uint64_t since = util_now();
	int revoked = 0, there;

	if (status != UTIL_ERR_PEER && status != UTIL_ERR_LOST)
		return error;
	while (PMPIX_Comm_is_revoked(comm, &revoked) == MPI_SUCCESS && !revoked &&
	       status == UTIL_ERR_PEER && util_now() - since < moment)
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, core_mpi_private_comm, &there,
			    MPI_STATUS_IGNORE);
	return revoked ? MPIX_ERR_REVOKED : error;
}
#else
static int error_if_revoked(MPI_Comm comm, enum util_status status, int error)
{
	(void)comm;
	(void)status;
	return error;
}
#endif

int core_mpi_error_of(enum util_status status)
{
	return status == UTIL_ERR_NO_MEMORY  ? MPI_ERR_NO_MEM
	       : status == UTIL_ERR_TRUNCATE ? MPI_ERR_TRUNCATE
	       : status == UTIL_ERR_TYPE     ? MPI_ERR_TYPE
	       : status == UTIL_ERR_LOST     ? error_of_loss()
					     : MPI_ERR_OTHER;
}

int core_mpi_raise_on(core_handle comm, enum util_status status)
{
	int error = error_if_revoked(core_mpi_as_comm(comm), status, core_mpi_error_of(status));

	PMPI_Comm_call_errhandler(core_mpi_as_comm(comm), error);
	return error;
}

int core_mpi_raise(const struct core_call *call, enum util_status status)
{
	return core_mpi_raise_on(call->coll == CORE_REDUCE_LOCAL ? core_mpi_world() : call->comm,
				 status);
}
