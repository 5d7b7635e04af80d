/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 1: the order of the calls depends on the rank. `right` as argument: the cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1000 };

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank;
	float *energy, *limits;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	cudaMalloc((void **)&energy, COUNT * sizeof(*energy));
	cudaMalloc((void **)&limits, COUNT * sizeof(*limits));
	cudaMemset(energy, 0, COUNT * sizeof(*energy));
	cudaMemset(limits, 0, COUNT * sizeof(*limits));
	if (rank == 0 || right) {
		MPI_Allreduce(MPI_IN_PLACE, energy, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		MPI_Bcast(limits, COUNT, MPI_FLOAT, 0, MPI_COMM_WORLD);
	} else {
		MPI_Bcast(limits, COUNT, MPI_FLOAT, 0, MPI_COMM_WORLD);
		MPI_Allreduce(MPI_IN_PLACE, energy, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	}
	printf("rank %d is through\n", rank);
	cudaFree(limits);
	cudaFree(energy);
	MPI_Finalize();
	return 0;
}
