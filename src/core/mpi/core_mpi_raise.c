/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_raise.h"
#include "core/call/core_mpi_handle.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif

core_handle core_mpi_world(void)
{
	return (core_handle)MPI_COMM_WORLD;
}

bool core_mpi_has_world(void)
{
	int begun = 0, ended = 0;

	PMPI_Initialized(&begun);
	PMPI_Finalized(&ended);
	return begun && !ended;
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

bool core_mpi_leaves_pending(int error)
{
	int class = MPI_SUCCESS;

	if (error == MPI_SUCCESS || PMPI_Error_class(error, &class) != MPI_SUCCESS)
		return false;
#if defined(MPIX_ERR_PROC_FAILED_PENDING)
	if (class == MPIX_ERR_PROC_FAILED_PENDING)
		return true;
#elif defined(MPI_ERR_PROC_FAILED_PENDING)
	if (class == MPI_ERR_PROC_FAILED_PENDING)
		return true;
#endif
	return class == MPI_ERR_PENDING;
}

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
static const int error_of_revoked = MPIX_ERR_REVOKED;

bool core_mpi_is_revoked(core_handle comm)
{
	int revoked = 0;

	return PMPIX_Comm_is_revoked(core_mpi_as_comm(comm), &revoked) == MPI_SUCCESS && revoked;
}

void core_mpi_revoke_real(core_handle comm)
{
	PMPIX_Comm_revoke(core_mpi_as_comm(comm));
}
#else
static const int error_of_revoked = MPI_ERR_OTHER;

bool core_mpi_is_revoked(core_handle comm)
{
	(void)comm;
	return false;
}

void core_mpi_revoke_real(core_handle comm)
{
	(void)comm;
}
#endif

int core_mpi_error_of(enum util_status status)
{
	return status == UTIL_ERR_NO_MEMORY  ? MPI_ERR_NO_MEM
	       : status == UTIL_ERR_TRUNCATE ? MPI_ERR_TRUNCATE
	       : status == UTIL_ERR_TYPE     ? MPI_ERR_TYPE
	       : status == UTIL_ERR_LOST     ? error_of_loss()
	       : status == UTIL_ERR_REVOKED  ? error_of_revoked
					     : MPI_ERR_OTHER;
}

enum util_status core_mpi_status_of(int error)
{
	int class = MPI_ERR_OTHER;

	PMPI_Error_class(error, &class);
	if (class == MPI_ERR_OTHER)
		return UTIL_ERR_MPI;
	return class == MPI_ERR_TRUNCATE   ? UTIL_ERR_TRUNCATE
	       : class == MPI_ERR_NO_MEM   ? UTIL_ERR_NO_MEMORY
	       : class == MPI_ERR_TYPE     ? UTIL_ERR_TYPE
	       : class == error_of_revoked ? UTIL_ERR_REVOKED
	       : class == error_of_loss()  ? UTIL_ERR_LOST
					   : UTIL_ERR_MPI;
}

int core_mpi_raise_error(core_handle comm, int error)
{
	if (comm != core_mpi_world() || core_mpi_has_world())
		PMPI_Comm_call_errhandler(core_mpi_as_comm(comm), error);
	return error;
}

int core_mpi_raise_on(core_handle comm, enum util_status status)
{
	int error = core_mpi_error_of(status);

	/* Others may know more of a loss or failure, and have revoked it since. */
	if ((status == UTIL_ERR_LOST || status == UTIL_ERR_PEER) && core_mpi_is_revoked(comm))
		error = error_of_revoked;
	return core_mpi_raise_error(comm, error);
}

int core_mpi_raise(const struct core_call *call, enum util_status status)
{
	return core_mpi_raise_on(call->coll == CORE_REDUCE_LOCAL ? core_mpi_world() : call->comm,
				 status);
}
