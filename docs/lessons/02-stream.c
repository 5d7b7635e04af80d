/* SPDX-License-Identifier: BSD-3-Clause */
/* Lesson 2: a stream that nobody has waited for writes the input yet. `right` as argument: the
 * cure. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000 };

/* Stands for a kernel that takes its time. */
static void compute(void *nothing)
{
	(void)nothing;
	usleep(200000);
}

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank, ranks;
	double *host, *values, sum;
	cudaStream_t stream;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	cudaMallocHost((void **)&host, COUNT * sizeof(*host));
	cudaMalloc((void **)&values, COUNT * sizeof(*values));
	cudaMemset(values, 0, COUNT * sizeof(*values));
	cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	for (int i = 0; i < COUNT; i++)
		host[i] = 1;
	cudaLaunchHostFunc(stream, compute, NULL);
	cudaMemcpyAsync(values, host, COUNT * sizeof(*values), cudaMemcpyHostToDevice, stream);
	if (right)
		cudaStreamSynchronize(stream);
	MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	cudaMemcpy(&sum, values, sizeof(sum), cudaMemcpyDeviceToHost);
	printf("rank %d: the sum is %g, and is to be %d\n", rank, sum, ranks);
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
	cudaFree(values);
	cudaFreeHost(host);
	MPI_Finalize();
	return 0;
}
