/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 3: a buffer that has been freed. `right` as argument: the cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1 << 20 };

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank;
	float *halo;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	cudaMalloc((void **)&halo, COUNT * sizeof(*halo));
	cudaMemset(halo, 0, COUNT * sizeof(*halo));
	MPI_Bcast(halo, COUNT, MPI_FLOAT, 0, MPI_COMM_WORLD);
	if (!right)
		cudaFree(halo); /* "not needed any more" */
	MPI_Bcast(halo, COUNT, MPI_FLOAT, 0, MPI_COMM_WORLD);
	printf("rank %d is through\n", rank);
	if (right)
		cudaFree(halo);
	MPI_Finalize();
	return 0;
}
