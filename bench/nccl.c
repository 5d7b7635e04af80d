/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl LIBRARY [MAX]: ncclAllReduce of floats, out of place, by the libnccl.so.2 of that name, be
 * it NVIDIA's or ours, from 8 bytes to at most MAX (1M), in factors of 32.
 *
 * Run it with an MPI's launcher; ranks take the devices in turns. Prints a line for each size: the
 * bytes, us for a call of the slowest rank, of some that are enqueued one behind the other, and how
 * many values are wrong. Where the library refuses, it says why and ends with 3.
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpucoll/nccl.h"

enum { WARMUP = 5, CALLS = 20 };

static struct {
	ncclResult_t (*get_version)(int *);
	ncclResult_t (*get_unique_id)(ncclUniqueId *);
	ncclResult_t (*comm_init_rank)(ncclComm_t *, int, ncclUniqueId, int);
	ncclResult_t (*comm_destroy)(ncclComm_t);
	ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
				   ncclComm_t, cudaStream_t);
	const char *(*get_error_string)(ncclResult_t);
	const char *(*get_last_error)(ncclComm_t);
} nccl;

static int rank, size;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "nccl: rank %d: %s: %s\n", rank, what, why);
	MPI_Abort(MPI_COMM_WORLD, 3);
	exit(3);
}

static void must(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		fail(what, cudaGetErrorString(error));
}

static void check(ncclResult_t result, const char *what)
{
	if (result != ncclSuccess)
		fail(what, nccl.get_last_error ? nccl.get_last_error(NULL)
					       : nccl.get_error_string(result));
}

static void *find(void *library, const char *name)
{
	void *function = dlsym(library, name);

	if (!function)
		fail(name, "the library does not have it");
	return function;
}

static void load(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		fail(name, dlerror());
	*(void **)&nccl.get_version = find(library, "ncclGetVersion");
	*(void **)&nccl.get_unique_id = find(library, "ncclGetUniqueId");
	*(void **)&nccl.comm_init_rank = find(library, "ncclCommInitRank");
	*(void **)&nccl.comm_destroy = find(library, "ncclCommDestroy");
	*(void **)&nccl.all_reduce = find(library, "ncclAllReduce");
	*(void **)&nccl.get_error_string = find(library, "ncclGetErrorString");
	*(void **)&nccl.get_last_error = dlsym(library, "ncclGetLastError"); /* since 2.13 */
}

static ncclComm_t make_comm(void)
{
	ncclComm_t comm = NULL;
	ncclUniqueId id;

	if (rank == 0)
		check(nccl.get_unique_id(&id), "ncclGetUniqueId");
	MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
	check(nccl.comm_init_rank(&comm, size, id, rank), "ncclCommInitRank");
	return comm;
}

static void enqueue(const float *in, float *out, size_t count, int calls, ncclComm_t comm,
		    cudaStream_t stream)
{
	for (int i = 0; i < calls; i++)
		check(nccl.all_reduce(in, out, count, ncclFloat, ncclSum, comm, stream),
		      "ncclAllReduce");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static void fill(float *to, size_t count)
{
	float *values = malloc(count * sizeof(*values));

	for (size_t i = 0; i < count; i++)
		values[i] = (float)(i % 1000) + (float)rank;
	must(cudaMemcpy(to, values, count * sizeof(*values), cudaMemcpyHostToDevice), "cudaMemcpy");
	free(values);
}

/* Sums of integers that floats hold exactly. */
static long count_wrong(const float *from, size_t count)
{
	float *values = malloc(count * sizeof(*values));
	float ranks = (float)(size * (size - 1) / 2);
	long wrong = 0;

	must(cudaMemcpy(values, from, count * sizeof(*values), cudaMemcpyDeviceToHost),
	     "cudaMemcpy");
	for (size_t i = 0; i < count; i++)
		wrong += values[i] != (float)size * (float)(i % 1000) + ranks;
	free(values);
	return wrong;
}

static void measure(size_t bytes, float *in, float *out, ncclComm_t comm, cudaStream_t stream)
{
	size_t count = bytes / sizeof(float);
	double start, us, slowest;
	long wrong, all;

	fill(in, count);
	must(cudaMemset(out, 0xff, bytes), "cudaMemset");
	enqueue(in, out, count, WARMUP, comm, stream);
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	enqueue(in, out, count, CALLS, comm, stream);
	us = 1e6 * (MPI_Wtime() - start) / CALLS;
	wrong = count_wrong(out, count);
	MPI_Reduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%zu %.1f %ld\n", bytes, slowest, all);
	fflush(stdout);
}

/* A number with K, M or G. */
static size_t parse_size(const char *text)
{
	char *end;
	size_t value = strtoull(text, &end, 10);

	value <<= *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (!value)
		fail("the size", text);
	return value;
}

int main(int argc, char **argv)
{
	size_t most;
	int devices, version, provided;
	float *in, *out;
	cudaStream_t stream;
	ncclComm_t comm;

	/* Ours is staged by a thread where kernels can't wait. */
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc < 2)
		fail("usage", "nccl LIBRARY [MAX]");
	most = parse_size(argc > 2 ? argv[2] : "1M");
	must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	must(cudaSetDevice(rank % devices), "cudaSetDevice");
	load(argv[1]);
	check(nccl.get_version(&version), "ncclGetVersion");
	comm = make_comm();
	must(cudaStreamCreate(&stream), "cudaStreamCreate");
	must(cudaMalloc((void **)&in, most), "cudaMalloc");
	must(cudaMalloc((void **)&out, most), "cudaMalloc");
	if (rank == 0)
		printf("# %s, version %d, %d ranks on %d devices\n", argv[1], version, size,
		       devices);
	for (size_t bytes = 8; bytes <= most; bytes *= 32)
		measure(bytes, in, out, comm, stream);
	check(nccl.comm_destroy(comm), "ncclCommDestroy");
	MPI_Finalize();
	return 0;
}
