/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mixed [BYTES [CALLS]]: what calls cost to which rank 0 brings device buffers, and others host
 * buffers: us for MPI_Gatherv to rank 0, with a barrier behind it, and for MPI_Allreduce; the
 * median and the mean of so many calls, after some others. With "host" before that rank 0's are on
 * the host, too.
 *
 * Run it under gpucoll-exec, with GPUCOLL_ACCEL=0 and without: the difference is what it costs that
 * rank 0 asks the others.
 */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 200, MOST_RANKS = 64 };

static int rank, size, bytes = 1024, calls = 2500;
static char *in, *out;

static void *allocate(size_t length, int on_device)
{
	void *memory = NULL;

	if (!on_device)
		memory = calloc(1, length);
	else if (cudaMalloc(&memory, length) != cudaSuccess ||
		 cudaMemset(memory, 0, length) != cudaSuccess)
		memory = NULL;
	if (!memory)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return memory;
}

static void gather(void)
{
	int counts[MOST_RANKS], starts[MOST_RANKS];

	for (int i = 0; i < size; i++) {
		counts[i] = bytes;
		starts[i] = i * bytes;
	}
	MPI_Gatherv(in, bytes, MPI_BYTE, out, counts, starts, MPI_BYTE, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void reduce(void)
{
	MPI_Allreduce(in, out, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *name, void (*call)(void))
{
	double *times = malloc((size_t)calls * sizeof(*times)), sum = 0;

	for (int i = -WARMUP; i < calls; i++) {
		double start;

		MPI_Barrier(MPI_COMM_WORLD);
		start = MPI_Wtime();
		call();
		if (i >= 0)
			sum += times[i] = 1e6 * (MPI_Wtime() - start);
	}
	qsort(times, (size_t)calls, sizeof(*times), compare);
	if (rank == 0)
		printf("%s of %d B: median %.1f us, mean %.1f us\n", name, bytes, times[calls / 2],
		       sum / calls);
	free(times);
}

int main(int argc, char **argv)
{
	int on_device = argc < 2 || strcmp(argv[1], "host") != 0, at = on_device ? 1 : 2;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	bytes = argc > at ? atoi(argv[at]) : bytes;
	calls = argc > at + 1 ? atoi(argv[at + 1]) : calls;
	if (bytes < 4 || calls < 1 || size > MOST_RANKS) {
		fprintf(stderr, "mixed: %d bytes, %d calls, %d ranks: 4, 1, and at most %d\n",
			bytes, calls, size, MOST_RANKS);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	in = allocate((size_t)bytes, on_device && !rank);
	out = allocate((size_t)bytes * (size_t)size, on_device && !rank);
	measure("MPI_Gatherv", gather);
	measure("MPI_Allreduce", reduce);
	MPI_Finalize();
	return 0;
}
