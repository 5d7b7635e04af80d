/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * revoked blocking|nonblocking|persistent|enqueued: all but the last rank wait for it in such a
 * call. It takes the communicator back instead, and does nothing more on it. But: freed: it frees
 * its persistent request before; message: the first rank waits for a message of it; again: with 20
 * communicators for streams, one after the other, of which the last is as quick as the first.
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
#pragma weak gpucoll_last_path

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

static int waiting(MPI_Comm comm, const char *way)
{
	MPI_Request request;

	MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	if (rank == size - 1) {
		take_back(comm);
		return MPI_SUCCESS;
	}
	if (!strcmp(way, "message") && rank == 0)
		return MPI_Recv(&size, 1, MPI_INT, size - 1, 0, comm, MPI_STATUS_IGNORE);
	if (strcmp(way, "nonblocking"))
		return MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm, &request);
	return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Also the next round, which begins after it. */
static int persistent(MPI_Comm comm, bool frees)
{
	int error = MPI_SUCCESS;
	MPI_Request request;

	MPI_Allreduce_init(in, out, COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
	MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (rank == size - 1 && frees)
		MPI_Request_free(&request);
	if (rank == size - 1)
		take_back(comm);
	for (int i = 0; i < 2 && rank < size - 1; i++) {
		error = MPI_Start(&request);
		if (!error)
			error = MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (strcmp(name_of(error), "REVOKED"))
			break;
	}
	if (request != MPI_REQUEST_NULL)
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

/* After which the library looks again and again whether it is given up. */
static void run_captured(MPI_Comm comm, cudaStream_t stream)
{
	cudaGraphExec_t ready;
	cudaGraph_t graph;

	cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
	gpucoll_allreduce_enqueue(in, out, COUNT, MPI_INT, MPI_SUM, comm, stream);
	cudaStreamEndCapture(stream, &graph);
	cudaGraphInstantiate(&ready, graph, 0);
	cudaGraphLaunch(ready, stream);
	cudaStreamSynchronize(stream);
	cudaGraphExecDestroy(ready);
	cudaGraphDestroy(graph);
}

static int again(MPI_Comm comm)
{
	MPI_Comm on_stream = MPI_COMM_NULL;
	cudaStream_t stream;

	cudaStreamCreate(&stream);
	for (int i = 0; i < 20; i++) {
		gpucoll_stream_comm(comm, stream, &on_stream);
		MPI_Comm_set_errhandler(on_stream, MPI_ERRORS_RETURN);
		gpucoll_allreduce_enqueue(in, out, COUNT, MPI_INT, MPI_SUM, on_stream, stream);
		if (gpucoll_last_path() != 2)
			return MPI_ERR_OTHER;
		if (i % 2)
			run_captured(on_stream, stream);
		cudaStreamSynchronize(stream);
		if (rank == i % size)
			MPIX_Comm_revoke(on_stream);
		else
			usleep(50000); /* for which the first one waits in MPI_Comm_free */
		MPI_Comm_free(&on_stream);
	}
	return MPIX_ERR_REVOKED;
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
	error = !strcmp(way, "persistent") ? persistent(comm, false)
		: !strcmp(way, "freed")    ? persistent(comm, true)
		: !strcmp(way, "enqueued") ? enqueued(comm)
		: !strcmp(way, "again")    ? again(comm)
					   : waiting(comm, way);
	printf("rank %d: class %s\n", rank, name_of(error));
	fflush(stdout);
	MPI_Comm_free(&comm);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
