/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffer-pairs: what a short MPI_Allreduce takes, median of 2,000 calls, in a program that uses 1,
 * 2, 4 ... 128 pairs of buffers in turn, each an allocation of its own of 4 MiB: as codes with an
 * allocation for each of their fields do. A library that keeps what it knows of each buffer takes
 * the same for any number.
 */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 128, CALLS = 2000, COUNT = 16, BYTES = 4 << 20 };

static int *sends[MOST], *recvs[MOST];

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void must(cudaError_t error)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "buffer-pairs: %s\n", cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double time_call(int pair)
{
	double start = MPI_Wtime();

	MPI_Allreduce(sends[pair], recvs[pair], COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	return MPI_Wtime() - start;
}

static double median_of(int pairs)
{
	static double times[CALLS];

	for (int i = 0; i < pairs; i++) {
		must(cudaMalloc((void **)&sends[i], BYTES));
		must(cudaMalloc((void **)&recvs[i], BYTES));
	}
	for (int i = 0; i < 4 * pairs; i++) /* until all buffers are known */
		time_call(i % pairs);
	for (int i = 0; i < CALLS; i++)
		times[i] = time_call(i % pairs);
	for (int i = 0; i < pairs; i++) {
		must(cudaFree(sends[i]));
		must(cudaFree(recvs[i]));
	}
	qsort(times, CALLS, sizeof(times[0]), compare);
	return times[CALLS / 2];
}

int main(int argc, char **argv)
{
	int rank, devices;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	must(cudaGetDeviceCount(&devices));
	must(cudaSetDevice(rank % devices));
	for (int pairs = 1; pairs <= MOST; pairs *= 2) {
		double median = median_of(pairs);

		if (rank == 0)
			printf("%4d pairs: %.2f us\n", pairs, 1e6 * median);
	}
	MPI_Finalize();
	return 0;
}
