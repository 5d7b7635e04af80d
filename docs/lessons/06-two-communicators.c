/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 6: two communicators, used in opposite orders. `right` as argument: the cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1000 };

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank;
	MPI_Comm first, second;
	float *values;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_dup(MPI_COMM_WORLD, rank == 0 || right ? &first : &second);
	MPI_Comm_dup(MPI_COMM_WORLD, rank == 0 || right ? &second : &first);
	cudaMalloc((void **)&values, COUNT * sizeof(*values));
	cudaMemset(values, 0, COUNT * sizeof(*values));
	MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, first);
	MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_MAX, second);
	printf("rank %d is through\n", rank);
	cudaFree(values);
	MPI_Comm_free(&first);
	MPI_Comm_free(&second);
	MPI_Finalize();
	return 0;
}
