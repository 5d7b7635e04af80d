/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI test programs share: buffers in device, managed or host memory between guard bytes,
 * and counting. The programs are ordinary MPI+CUDA programs; they know nothing of the library.
 */
#ifndef TEST_H
#define TEST_H

#include "../draw.h"

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Of a persistent collective. */
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif

enum place { PLACE_HOST, PLACE_DEVICE, PLACE_MANAGED, PLACE_NUM };
enum { GUARD = 256, GUARD_BYTE = 0xa5, POISON = 0xee };

static int test_rank, test_size;
static long test_passed, test_failed;
static char test_name[256]; /* what is being tested, for the message of a failure */

static inline void cuda_check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s: %s\n", test_name, what, cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 3);
}

/* A buffer of `bytes` bytes with guard bytes on both sides. */
struct buffer {
	enum place place;
	size_t bytes;
	unsigned char *base; /* the allocation */
	void *data;          /* base + GUARD */
};

static inline struct buffer buffer_new(enum place place, size_t bytes)
{
	struct buffer b = {.place = place, .bytes = bytes};
	size_t total = bytes + 2 * GUARD;
	unsigned char *host = malloc(total);

	memset(host, GUARD_BYTE, total);
	memset(host + GUARD, POISON, bytes);
	if (place == PLACE_HOST) {
		b.base = host;
	} else {
		if (place == PLACE_DEVICE)
			cuda_check(cudaMalloc((void **)&b.base, total), "cudaMalloc");
		else
			cuda_check(cudaMallocManaged((void **)&b.base, total, cudaMemAttachGlobal),
				   "cudaMallocManaged");
		cuda_check(cudaMemcpy(b.base, host, total, cudaMemcpyDefault), "cudaMemcpy");
		free(host);
	}
	b.data = b.base + GUARD;
	return b;
}

static inline void buffer_put(struct buffer *b, const void *data, size_t bytes)
{
	if (b->place == PLACE_HOST)
		memcpy(b->data, data, bytes);
	else
		cuda_check(cudaMemcpy(b->data, data, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

/*
 * Compare with what is expected, poison included, and look at the guards. The first wrong byte is
 * printed.
 */
static inline bool buffer_equals(struct buffer *b, const void *expected, const char *what)
{
	size_t total = b->bytes + 2 * GUARD;
	unsigned char *host = malloc(total), *want = malloc(total);
	size_t i;

	memset(want, GUARD_BYTE, total);
	memcpy(want + GUARD, expected, b->bytes);
	if (b->place == PLACE_HOST)
		memcpy(host, b->base, total);
	else
		cuda_check(cudaMemcpy(host, b->base, total, cudaMemcpyDefault), "cudaMemcpy");
	for (i = 0; i < total && host[i] == want[i]; i++)
		;
	if (i < total)
		fprintf(stderr, "rank %d: %s: %s: byte %zd of %zu is 0x%02x, expected 0x%02x\n",
			test_rank, test_name, what, (ssize_t)i - GUARD, b->bytes, host[i], want[i]);
	free(host);
	free(want);
	return i == total;
}

static inline void buffer_free(struct buffer *b)
{
	if (b->place == PLACE_HOST)
		free(b->base);
	else
		cuda_check(cudaFree(b->base), "cudaFree");
}

/* One check, made by all ranks of MPI_COMM_WORLD: it passes when it does on all. */
static inline void test_result(bool ok)
{
	int mine = ok, all;

	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	test_passed += all;
	test_failed += !all;
	if (!all && test_rank == 0)
		printf("FAIL %s\n", test_name);
}

/* Print the line that the harness reads; the exit status of the program. */
static inline int test_finish(void)
{
	if (test_rank == 0)
		printf("%ld checks passed, %ld failed\n", test_passed, test_failed);
	fflush(stdout);
	return test_failed ? 1 : 0;
}

static inline void test_start(void)
{
	int devices = 0;

	MPI_Comm_rank(MPI_COMM_WORLD, &test_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &test_size);
	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
}

/* A program with several cases runs the one that its first argument names. */
struct test_case {
	const char *name;
	void (*run)(void);
};

/* The end of main, from the case on. Returns the exit status. */
static inline int test_run_case(const char *name, const struct test_case *cases, size_t num)
{
	for (size_t i = 0; name && i < num; i++) {
		if (strcmp(cases[i].name, name))
			continue;
		cases[i].run();
		int status = test_finish();
		MPI_Finalize();
		return status;
	}
	fprintf(stderr, "there is no case '%s'\n", name ? name : "");
	MPI_Abort(MPI_COMM_WORLD, 2);
	return 2;
}

#endif
