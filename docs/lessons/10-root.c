/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 10: ranks disagree who the root is. `right` as argument: the cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1000 };

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank, ranks, root;
	int *table;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	/* "Whoever has the table": rank 0 has read it, and the last rank believes that it has. */
	root = right || rank + 1 < ranks ? 0 : rank;
	cudaMalloc((void **)&table, COUNT * sizeof(*table));
	cudaMemset(table, 0, COUNT * sizeof(*table));
	MPI_Bcast(table, COUNT, MPI_INT, root, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("rank %d is through\n", rank);
	cudaFree(table);
	MPI_Finalize();
	return 0;
}
