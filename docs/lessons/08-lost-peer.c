/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 8: a rank dies. `right` as argument: it does not. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000, STEPS = 10 };

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank, error;
	float *values;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	cudaMalloc((void **)&values, COUNT * sizeof(*values));
	cudaMemset(values, 0, COUNT * sizeof(*values));
	for (int i = 0; i < STEPS; i++) {
		if (i == 5 && rank == 1 && !right)
			raise(SIGKILL); /* as the kernel does where there is no memory left */
		error = MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM,
				      MPI_COMM_WORLD);
		if (error != MPI_SUCCESS) {
			printf("rank %d: step %d has failed\n", rank, i);
			fflush(stdout);
			sleep(2); /* the first that ends ends the others */
			exit(EXIT_FAILURE);
		}
	}
	printf("rank %d is through\n", rank);
	cudaFree(values);
	MPI_Finalize();
	return 0;
}
