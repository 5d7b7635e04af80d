/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * streams [alltoallv]: what an allreduce, or an alltoallv of equal parts, costs that is enqueued on
 * a stream.
 *
 * For each size of a rank's buffers, in us of the slowest rank, the median of some rounds: the
 * call, until the host has it behind itself; a call of many that are enqueued one behind the other;
 * one that the host waits for; and beside that the blocking call, and, with GPUCOLL_ACCEL=0, what
 * it takes when it is staged. Run it under gpucoll-exec, with GPUCOLL_THREADS=multiple.
 */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpucoll/gpucoll.h" /* after mpi.h */
#pragma weak gpucoll_stream_comm
#pragma weak gpucoll_allreduce_enqueue
#pragma weak gpucoll_alltoallv_enqueue
#pragma weak gpucoll_stream_error

enum { ROUNDS = 15, CALLS = 20, MOST_RANKS = 256 };

static cudaStream_t stream;
static MPI_Comm comm;
static void *in, *out;
static bool exchanges;
static int ranks, counts[MOST_RANKS], displs[MOST_RANKS];

static void must(cudaError_t error)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "streams: %s\n", cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void part(int count)
{
	for (int i = 0; i < ranks; i++) {
		counts[i] = count / ranks;
		displs[i] = i * counts[i];
	}
}

static void enqueue(int count)
{
	if (exchanges)
		gpucoll_alltoallv_enqueue(in, counts, displs, MPI_FLOAT, out, counts, displs,
					  MPI_FLOAT, comm, stream);
	else
		gpucoll_allreduce_enqueue(in, out, count, MPI_FLOAT, MPI_SUM, comm, stream);
}

static void block(int count)
{
	if (exchanges)
		MPI_Alltoallv(in, counts, displs, MPI_FLOAT, out, counts, displs, MPI_FLOAT,
			      MPI_COMM_WORLD);
	else
		MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Each returns us for a call. */
static double time_call(int count)
{
	double start = MPI_Wtime(), time;

	for (int i = 0; i < CALLS; i++)
		enqueue(count);
	time = MPI_Wtime() - start;
	must(cudaStreamSynchronize(stream));
	return 1e6 * time / CALLS;
}

static double time_many(int count)
{
	double start = MPI_Wtime();

	for (int i = 0; i < CALLS; i++)
		enqueue(count);
	must(cudaStreamSynchronize(stream));
	return 1e6 * (MPI_Wtime() - start) / CALLS;
}

static double time_one(int count)
{
	double start = MPI_Wtime();

	for (int i = 0; i < CALLS; i++) {
		enqueue(count);
		must(cudaStreamSynchronize(stream));
	}
	return 1e6 * (MPI_Wtime() - start) / CALLS;
}

static double time_blocking(int count)
{
	double start = MPI_Wtime();

	for (int i = 0; i < CALLS; i++)
		block(count);
	return 1e6 * (MPI_Wtime() - start) / CALLS;
}

static double measure(double (*time)(int), int count)
{
	double times[ROUNDS], slowest;

	for (int i = 0; i < ROUNDS; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		times[i] = time(count);
	}
	qsort(times, ROUNDS, sizeof(*times), compare);
	MPI_Allreduce(&times[ROUNDS / 2], &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {32, 64 << 10, 4 << 20};
	int rank, devices, error = MPI_SUCCESS;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	exchanges = argc > 1 && !strcmp(argv[1], "alltoallv");
	if ((argc > 1 && !exchanges) || ranks > MOST_RANKS) {
		fprintf(stderr,
			"streams: '%s' is no collective of its, or there are more than %d ranks\n",
			argc > 1 ? argv[1] : "", MOST_RANKS);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	must(cudaGetDeviceCount(&devices));
	must(cudaSetDevice(rank % devices));
	must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	must(cudaMalloc(&in, 4 << 20));
	must(cudaMalloc(&out, 4 << 20));
	must(cudaMemset(in, 0, 4 << 20));
	must(cudaDeviceSynchronize());
	if (!gpucoll_stream_comm) {
		fprintf(stderr, "streams: not under libgpucoll\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	gpucoll_stream_comm(MPI_COMM_WORLD, stream, &comm);
	if (!rank)
		printf("# %d ranks, us\n# %10s %10s %10s %10s %10s\n", ranks, "bytes", "call",
		       "of many", "one", "blocking");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int count = (int)(sizes[i] / sizeof(float));
		double call, many, one, blocking;

		part(count);
		call = measure(time_call, count);
		many = measure(time_many, count);
		one = measure(time_one, count);
		blocking = measure(time_blocking, count);

		if (!rank)
			printf("  %10zu %10.1f %10.1f %10.1f %10.1f\n", sizes[i], call, many, one,
			       blocking);
	}
	gpucoll_stream_error(comm, &error);
	if (error != MPI_SUCCESS)
		fprintf(stderr, "streams: rank %d: error %d\n", rank, error);
	MPI_Comm_free(&comm);
	must(cudaFree(in));
	must(cudaFree(out));
	MPI_Finalize();
	return error != MPI_SUCCESS;
}
