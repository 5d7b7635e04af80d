/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * revoked blocking|nonblocking|persistent|enqueued: all but the last rank wait for it in such a
 * call. It takes the communicator back instead, and does nothing more on it.
 */
#include <mpi.h>
/* These look at what it has. */
#include "gpucoll/gpucoll.h"
#include <mpi-ext.h>

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The library is preloaded. */
#pragma weak gpucoll_stream_comm
#pragma weak gpucoll_allreduce_enqueue
#pragma weak gpucoll_stream_error

enum { COUNT = 5000 };

static int *in, *out, rank, size;

static const char *name_of(int error)
{
	int class;

	MPI_Error_class(error, &class);
	return class == MPI_SUCCESS ? "SUCCESS" : class == MPIX_ERR_REVOKED ? "REVOKED" : "other";
}

static void take_back(MPI_Comm comm)
{
	usleep(300000);
	MPIX_Comm_revoke(comm);
}

static int waiting(MPI_Comm comm, bool blocking)
{
	MPI_Request request;

	MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	if (rank == size - 1) {
		take_back(comm);
		return MPI_SUCCESS;
	}
	if (blocking)
		return MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm, &request);
	return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Also the next round, which begins after it. */
static int persistent(MPI_Comm comm)
{
	int error = MPI_SUCCESS;
	MPI_Request request;

	MPI_Allreduce_init(in, out, COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
	MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (rank == size - 1)
		take_back(comm);
	for (int i = 0; i < 2 && rank < size - 1; i++) {
		error = MPI_Start(&request);
		if (!error)
			error = MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (strcmp(name_of(error), "REVOKED"))
			break;
	}
	MPI_Request_free(&request);
	return error;
}

static int enqueued(MPI_Comm comm)
{
	MPI_Comm on_stream = MPI_COMM_NULL;
	int error = MPI_SUCCESS, again;
	cudaStream_t stream;

	cudaStreamCreate(&stream);
	gpucoll_stream_comm(comm, stream, &on_stream);
	MPI_Comm_set_errhandler(on_stream, MPI_ERRORS_RETURN);
	gpucoll_allreduce_enqueue(in, out, COUNT, MPI_INT, MPI_SUM, on_stream, stream);
	cudaStreamSynchronize(stream);
	if (rank == size - 1)
		take_back(on_stream);
	else
		gpucoll_allreduce_enqueue(in, out, COUNT, MPI_INT, MPI_SUM, on_stream, stream);
	cudaStreamSynchronize(stream);
	if (rank < size - 1)
		gpucoll_stream_error(on_stream, &error);
	again = gpucoll_allreduce_enqueue(in, out, COUNT, MPI_INT, MPI_SUM, on_stream, stream);
	cudaStreamSynchronize(stream);
	if (!again)
		gpucoll_stream_error(on_stream, &again);
	if (strcmp(name_of(again), "REVOKED"))
		error = again;
	MPI_Comm_free(&on_stream);
	return error;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	MPI_Comm comm;
	int error, level;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	cudaMalloc((void **)&in, COUNT * sizeof(*in));
	cudaMalloc((void **)&out, COUNT * sizeof(*out));
	cudaMemset(in, 0, COUNT * sizeof(*in));
	error = !strcmp(way, "persistent") ? persistent(comm)
		: !strcmp(way, "enqueued") ? enqueued(comm)
					   : waiting(comm, !strcmp(way, "blocking"));
	printf("rank %d: class %s\n", rank, name_of(error));
	fflush(stdout);
	MPI_Comm_free(&comm);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
