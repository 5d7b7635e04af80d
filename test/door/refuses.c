/* SPDX-License-Identifier: BSD-3-Clause */
/* A tool that has the first MPI_Iallreduce refused on all ranks but 0, as an MPI that finds an
 * error. */
#include <mpi.h>

int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		   MPI_Comm comm, MPI_Request *request)
{
	static int calls;
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!rank || calls++)
		return PMPI_Iallreduce(send, recv, count, type, op, comm, request);
	PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}
