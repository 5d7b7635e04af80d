/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 4: one rank gives another count. `right` as argument: the cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* The last rank has what is left over, and takes that for the length of the sum, too. */
static int cells_of(int rank, int ranks, int cells)
{
	return rank + 1 < ranks ? cells / ranks : cells - cells / ranks * (ranks - 1);
}

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank, ranks, count;
	double *forces;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	count = right ? 1001 : cells_of(rank, ranks, 1001);
	cudaMalloc((void **)&forces, 1001 * sizeof(*forces));
	cudaMemset(forces, 0, 1001 * sizeof(*forces));
	MPI_Allreduce(MPI_IN_PLACE, forces, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d is through\n", rank);
	cudaFree(forces);
	MPI_Finalize();
	return 0;
}
