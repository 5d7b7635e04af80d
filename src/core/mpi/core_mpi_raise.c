/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_raise.h"
#include "core/call/core_mpi_handle.h"

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
	int error = core_mpi_error_of(status);

	PMPI_Comm_call_errhandler(core_mpi_as_comm(comm), error);
	return error;
}

int core_mpi_raise(const struct core_call *call, enum util_status status)
{
	return core_mpi_raise_on(call->coll == CORE_REDUCE_LOCAL ? core_mpi_world() : call->comm,
				 status);
}
