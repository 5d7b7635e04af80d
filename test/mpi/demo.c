/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The demonstration: three collectives on device buffers, every value checked, one row for each
 * size.
 */
#include "test.h"

#include <dlfcn.h>

enum { ALLREDUCE, BCAST, ALLTOALL, NUM_COLLS };
static const char *const names[] = {"MPI_Allreduce", "MPI_Bcast", "MPI_Alltoall"};
static const char *const paths[] = {"pass", "stage", "accel"};

/*
 * How the library did the last call; the program runs without it too, and then there is nobody to
 * ask.
 */
static const char *last_path(void)
{
	int (*ask)(void);

	*(void **)&ask = dlsym(RTLD_DEFAULT, "gpucoll_last_path");
	return ask ? paths[ask()] : "none";
}

static int input(int coll, int from, size_t index)
{
	return coll == BCAST ? (int)index * 3 + 1 : (int)(index % 1000) + from * 7;
}

static int expected(int coll, size_t index, size_t block)
{
	if (coll == BCAST)
		return input(coll, 0, index);
	if (coll == ALLTOALL)
		return input(coll, (int)(index / block), (size_t)test_rank * block + index % block);
	return (int)(index % 1000) * test_size + 7 * test_size * (test_size - 1) / 2;
}

static void call(int coll, int *send, int *recv, size_t count)
{
	int block = (int)count / test_size;

	if (coll == ALLREDUCE)
		MPI_Allreduce(send, recv, (int)count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	else if (coll == BCAST)
		MPI_Bcast(recv, (int)count, MPI_INT, 0, MPI_COMM_WORLD);
	else
		MPI_Alltoall(send, block, MPI_INT, recv, block, MPI_INT, MPI_COMM_WORLD);
}

static long row(int coll, size_t bytes)
{
	size_t count = bytes / sizeof(int), block = count / (size_t)test_size;
	int *host = malloc(bytes), *send, *recv, calls = bytes > (1 << 20) ? 3 : 20;
	long wrong = 0, all_wrong = 0;
	double seconds;

	cuda_check(cudaMalloc((void **)&send, bytes), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, bytes), "cudaMalloc");
	for (size_t i = 0; i < count; i++)
		host[i] = input(coll, test_rank, i);
	cuda_check(cudaMemcpy(send, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
	cuda_check(cudaMemset(recv, POISON, bytes), "cudaMemset");
	if (coll == BCAST && test_rank == 0)
		cuda_check(cudaMemcpy(recv, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
	call(coll, send, recv, count);
	const char *path = last_path();
	cuda_check(cudaMemcpy(host, recv, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
	for (size_t i = 0; i < count; i++)
		wrong += host[i] != expected(coll, i, block);
	MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime();
	for (int i = 0; i < calls; i++)
		call(coll, send, recv, count);
	seconds = (MPI_Wtime() - seconds) / calls;
	if (test_rank == 0)
		printf("%-14s %10zu %12.1f %10.3f  %-6s %8ld\n", names[coll], bytes, 1e6 * seconds,
		       1e-9 * (double)bytes / seconds, path, all_wrong);
	fflush(stdout);
	cuda_check(cudaFree(send), "cudaFree");
	cuda_check(cudaFree(recv), "cudaFree");
	free(host);
	return all_wrong;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20};
	long wrong = 0;

	MPI_Init(&argc, &argv);
	test_start();
	if (test_rank == 0)
		printf("%-14s %10s %12s %10s  %-6s %8s\n", "collective", "size (B)", "time (us)",
		       "algbw GB/s", "path", "#wrong");
	for (int coll = 0; coll < NUM_COLLS; coll++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			wrong += row(coll, sizes[i]);
	}
	MPI_Finalize();
	return wrong ? 1 : 0;
}
