/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lesson 7: a kernel that fills the GPU until MPI has done something. `right` as argument: the
 * cure.
 */
#include <cuda_runtime.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1000, THREADS = 1024 };

/* A "persistent kernel", which waits for the host's word. */
__global__ void serve(volatile int *stop)
{
	while (!*stop)
		;
}

int main(int argc, char **argv)
{
	int right = argc > 1 && !strcmp(argv[1], "right"), rank, blocks = 0, sms = 0;
	float *values;
	int *stop;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	cudaMalloc((void **)&values, COUNT * sizeof(*values));
	cudaMemset(values, 0, COUNT * sizeof(*values));
	cudaHostAlloc((void **)&stop, sizeof(*stop), cudaHostAllocMapped);
	*(volatile int *)stop = 0;
	cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
	cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, serve, THREADS, 0);
	cudaStream_t stream;
	cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	/* All that there is room for; or one multiprocessor less. */
	serve<<<(right ? sms - 1 : sms) * blocks, THREADS, 0, stream>>>(stop);
	MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	*(volatile int *)stop = 1;
	cudaStreamSynchronize(stream);
	printf("rank %d is through\n", rank);
	cudaStreamDestroy(stream);
	cudaFreeHost(stop);
	cudaFree(values);
	MPI_Finalize();
	return 0;
}
