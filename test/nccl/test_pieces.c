/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of more elements than MPI counts are done by several (nccl_pieces.c): here they are of few
 * elements, and the pieces of fewer, which go by NCCL's interface.
 *
 * All ranks have the numbers i of their input as `1000 * rank + i`, against arithmetic on the host.
 */
#include "nccl/nccl_door.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 103, MOST = 10, GUARD = 16, POISON = -7 };

static int rank, size, num_pieces;
static ncclComm_t comm;
static cudaStream_t stream;
static long passed, failed;

static void must(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "rank %d: %s: error %d\n", rank, what, error);
	MPI_Abort(MPI_COMM_WORLD, 3);
}

static ncclResult_t run(const struct nccl_call *c)
{
	num_pieces++;
	if (c->count > MOST || c->count < 1)
		return ncclInvalidArgument;
	switch (c->kind) {
	case NCCL_REDUCE:
		return ncclReduce(c->send, c->recv, c->count, c->type, c->op, c->root, comm,
				  stream);
	case NCCL_ALL_REDUCE:
		return ncclAllReduce(c->send, c->recv, c->count, c->type, c->op, comm, stream);
	case NCCL_BROADCAST:
		return ncclBroadcast(c->send, c->recv, c->count, c->type, c->root, comm, stream);
	case NCCL_SEND:
		return ncclSend(c->send, c->count, c->type, c->root, comm, stream);
	case NCCL_RECV:
		return ncclRecv(c->recv, c->count, c->type, c->root, comm, stream);
	default: /* of those whose pieces are of another kind */
		return ncclInternalError;
	}
}

static int given(int from, size_t i)
{
	return 1000 * from + (int)i;
}

static int sum(size_t i)
{
	int total = 0;

	for (int r = 0; r < size; r++)
		total += given(r, i);
	return total;
}

/* What this rank is to have at place `i` of its output; POISON: what was there. */
static int wanted(enum nccl_kind kind, int root, size_t i)
{
	int block = (int)(i / COUNT);
	size_t at = i % COUNT;

	switch (kind) {
	case NCCL_REDUCE:
		return rank == root ? sum(i) : POISON;
	case NCCL_ALL_REDUCE:
		return sum(i);
	case NCCL_BROADCAST:
		return given(root, i);
	case NCCL_REDUCE_SCATTER:
		return sum((size_t)rank * COUNT + i);
	case NCCL_ALL_GATHER:
		return given(block, at);
	case NCCL_ALL_TO_ALL:
		return given(block, (size_t)rank * COUNT + at);
	case NCCL_GATHER:
		return rank == root ? given(block, at) : POISON;
	case NCCL_SCATTER:
		return given(root, (size_t)rank * COUNT + i);
	default:
		return POISON;
	}
}

/* Buffers of a block for each rank, whatever the call uses of them, and a guard behind. */
static int *buffer_new(bool is_input)
{
	size_t num = (size_t)size * COUNT + GUARD;
	int *host = malloc(num * sizeof(int)), *buffer;

	for (size_t i = 0; i < num; i++)
		host[i] = is_input ? given(rank, i) : POISON;
	must(cudaMalloc((void **)&buffer, num * sizeof(int)), "cudaMalloc");
	must(cudaMemcpy(buffer, host, num * sizeof(int), cudaMemcpyDefault), "cudaMemcpy");
	free(host);
	return buffer;
}

static void look(enum nccl_kind kind, const char *name, int root, const int *buffer)
{
	bool gathers = kind == NCCL_ALL_GATHER || kind == NCCL_ALL_TO_ALL || kind == NCCL_GATHER;
	size_t num = (size_t)size * COUNT + GUARD, used = gathers ? num - GUARD : COUNT;
	int *host = malloc(num * sizeof(int));
	bool well = true;

	must(cudaMemcpy(host, buffer, num * sizeof(int), cudaMemcpyDefault), "cudaMemcpy");
	for (size_t i = 0; i < num && well; i++) {
		int want = i < used ? wanted(kind, root, i) : POISON;

		well = host[i] == want;
		if (!well)
			fprintf(stderr, "rank %d: FAIL %s, root %d: %d at %zu, not %d\n", rank,
				name, root, host[i], i, want);
	}
	passed += well;
	failed += !well;
	free(host);
}

static void test(enum nccl_kind kind, const char *name, int root)
{
	int *in = buffer_new(true), *out = buffer_new(false);
	struct nccl_call call = {.kind = kind,
				 .name = name,
				 .send = in,
				 .recv = out,
				 .count = COUNT,
				 .type = ncclInt32,
				 .op = ncclSum,
				 .root = root,
				 .comm = comm,
				 .stream = stream};

	num_pieces = 0;
	must(nccl_pieces(&call, MOST, run), name);
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	look(kind, name, root, out);
	passed += num_pieces >= COUNT / MOST;
	failed += num_pieces < COUNT / MOST;
	must(cudaFree(in), "cudaFree");
	must(cudaFree(out), "cudaFree");
}

static void start(int argc, char **argv)
{
	int devices, level;
	ncclUniqueId id;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	must(cudaSetDevice(rank % devices), "cudaSetDevice");
	if (rank == 0)
		must(ncclGetUniqueId(&id), "ncclGetUniqueId");
	MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
	must(ncclCommInitRank(&comm, size, id, rank), "ncclCommInitRank");
	must(cudaStreamCreate(&stream), "cudaStreamCreate");
}

int main(int argc, char **argv)
{
	long mine, all;

	start(argc, argv);
	for (int root = 0; root < size; root++) {
		test(NCCL_REDUCE, "ncclReduce", root);
		test(NCCL_BROADCAST, "ncclBroadcast", root);
		test(NCCL_GATHER, "ncclGather", root);
		test(NCCL_SCATTER, "ncclScatter", root);
	}
	test(NCCL_ALL_REDUCE, "ncclAllReduce", 0);
	test(NCCL_REDUCE_SCATTER, "ncclReduceScatter", 0);
	test(NCCL_ALL_GATHER, "ncclAllGather", 0);
	test(NCCL_ALL_TO_ALL, "ncclAlltoAll", 0);
	must(ncclCommDestroy(comm), "ncclCommDestroy");
	mine = failed;
	MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%ld checks passed, %ld failed\n", passed, all);
	MPI_Finalize();
	return all != 0;
}
