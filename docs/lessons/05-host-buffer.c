/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 5: one rank's buffer is on the host. `right` as argument: the cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1 << 20, STEPS = 20 };

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank;
	float *field = NULL;
	double start;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	/* Rank 0 "only reads files", and was never ported. */
	if (rank == 0 && !right)
		field = calloc(COUNT, sizeof(*field));
	else
		cudaMalloc((void **)&field, COUNT * sizeof(*field));
	if (rank > 0 || right)
		cudaMemset(field, 0, COUNT * sizeof(*field));
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int i = 0; i < STEPS; i++)
		MPI_Allreduce(MPI_IN_PLACE, field, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d: %.2f ms for each sum\n", rank, 1e3 * (MPI_Wtime() - start) / STEPS);
	if (rank > 0 || right)
		cudaFree(field);
	else
		free(field);
	MPI_Finalize();
	return 0;
}
