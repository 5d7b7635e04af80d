/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tool that has calls refused, as an MPI that finds an error: the first MPI_Iallreduce on all
 * ranks but 0, and each MPI_Allreduce of 4,321 elements.
 */
#include <mpi.h>

static int refuse(MPI_Comm comm)
{
	PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}

int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		   MPI_Comm comm, MPI_Request *request)
{
	static int calls;
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!rank || calls++)
		return PMPI_Iallreduce(send, recv, count, type, op, comm, request);
	return refuse(comm);
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		  MPI_Comm comm)
{
	if (count != 4321)
		return PMPI_Allreduce(send, recv, count, type, op, comm);
	return refuse(comm);
}
