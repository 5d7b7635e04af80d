/* SPDX-License-Identifier: BSD-3-Clause */
/* A small tool as profilers are: wraps some calls and MPI_Finalize, calls PMPI, and counts. */
#include <mpi.h>
#include <stdio.h>

static int calls, nonblocking, starts, completions;

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		  MPI_Comm comm)
{
	calls++;
	return PMPI_Allreduce(send, recv, count, type, op, comm);
}

int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		   MPI_Comm comm, MPI_Request *request)
{
	nonblocking++;
	return PMPI_Iallreduce(send, recv, count, type, op, comm, request);
}

int MPI_Start(MPI_Request *request)
{
	starts++;
	return PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request requests[])
{
	starts += count;
	return PMPI_Startall(count, requests);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
	completions++;
	return PMPI_Wait(request, status);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
{
	return PMPI_Comm_dup(comm, newcomm);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request)
{
	return PMPI_Comm_idup(comm, newcomm, request);
}

int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *errhandler)
{
	return PMPI_Comm_create_errhandler(function, errhandler);
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
	     MPI_Status *status)
{
	return PMPI_Recv(buffer, count, type, source, tag, comm, status);
}

int MPI_Finalize(void)
{
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		printf("tool saw %d calls, %d nonblocking ones, %d starts, %d completions\n", calls,
		       nonblocking, starts, completions);
	return PMPI_Finalize();
}
