/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goes on without who dies, by ULFM: shrink STEPS [handler]. One rank after the other kills itself,
 * until two are left; the others shrink the communicator, and every sum is that of those who take
 * part. shrink STEPS freed|kept: and how much device memory was gone in the end that was not when
 * the first had died, if they free what they shrink, or don't. shrink STEPS fault: of three the
 * first dies, and then a driver refuses a kernel of the others. shrink 0 revoke: nobody dies; the
 * last rank takes the communicator back while others wait.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 5000 };

static int world_rank, wrong;

extern int gpucoll_last_path(void) __attribute__((weak)); /* of gpucoll/gpucoll.h */

static void fill(int *device, int value)
{
	int *host = malloc(COUNT * sizeof(*host));

	for (int i = 0; i < COUNT; i++)
		host[i] = value + i;
	cudaMemcpy(device, host, COUNT * sizeof(*host), cudaMemcpyHostToDevice);
	free(host);
}

static bool holds(const int *device, int base, int ranks)
{
	int *host = malloc(COUNT * sizeof(*host));
	bool right = true;

	cudaMemcpy(host, device, COUNT * sizeof(*host), cudaMemcpyDeviceToHost);
	for (int i = 0; i < COUNT; i++)
		right &= host[i] == base + ranks * i;
	free(host);
	return right;
}

/* What the sum is to be, as the host's messages say, which are the MPI's own. */
static int sum_of_ranks(MPI_Comm comm)
{
	int sum = -1;

	return MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS ? sum
											  : -1;
}

static size_t free_memory(void)
{
	size_t bytes, total;

	cudaMemGetInfo(&bytes, &total);
	return bytes;
}

static bool frees;

static MPI_Comm shrink(MPI_Comm comm)
{
	MPI_Comm rest;

	MPIX_Comm_revoke(comm);
	if (MPIX_Comm_shrink(comm, &rest) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 2);
	MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);
	if (frees)
		MPI_Comm_free(&comm);
	return rest;
}

static MPI_Comm next = MPI_COMM_NULL;

static const char *name_of(int error)
{
	int class;

	MPI_Error_class(error, &class);
	return class == MPIX_ERR_PROC_FAILED ? "PROC_FAILED"
	       : class == MPIX_ERR_REVOKED   ? "REVOKED"
					     : "other";
}

/* The others wait for the last rank in the first call, and for each other in a later one. */
static void take_back(MPI_Comm comm, int *in, int *out, int size)
{
	int error = MPI_SUCCESS;

	MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	if (world_rank == size - 1) {
		usleep(300000);
		MPIX_Comm_revoke(comm);
	}
	error = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	printf("rank %d: class %s\n", world_rank, name_of(error));
	error = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	printf("rank %d: then class %s\n", world_rank, name_of(error));
	fflush(stdout);
}

/* Of the emulated driver. */
static void refuse_a_kernel(void)
{
	void (*fault)(const char *) = NULL;

	*(void **)&fault = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	fault("cuLaunchKernel:1=1");
}

/* By ranks that have been in different calls. */
static void shrink_in_handler(MPI_Comm *comm, int *error, ...)
{
	(void)error;
	next = shrink(*comm);
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 10, size, rank, base, accelerated = 0;
	bool by_handler = argc > 2 && !strcmp(argv[2], "handler");
	bool faults = argc > 2 && !strcmp(argv[2], "fault");
	MPI_Comm comm = MPI_COMM_WORLD;
	MPI_Errhandler handler;
	size_t before = 0;
	int *in, *out;

	signal(SIGUSR1, SIG_IGN); /* by which Hydra tells of a death */
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	MPI_Comm_create_errhandler(shrink_in_handler, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, by_handler ? handler : MPI_ERRORS_RETURN);
	cudaMalloc((void **)&in, COUNT * sizeof(*in));
	cudaMalloc((void **)&out, COUNT * sizeof(*out));
	MPI_Comm_size(comm, &size);
	fill(in, world_rank);
	if (argc > 2 && !by_handler)
		MPI_Comm_dup(comm, &comm);
	if (argc > 2 && !strcmp(argv[2], "revoke"))
		take_back(comm, in, out, size);
	frees = argc > 2 && !strcmp(argv[2], "freed");
	while (size >= 2 && steps) {
		int failed = MPI_SUCCESS, step;

		accelerated = 0;
		MPI_Comm_rank(comm, &rank);
		base = sum_of_ranks(comm);
		for (step = 0; step < steps && failed == MPI_SUCCESS; step++) {
			if (size > 2 && step == steps / 2 && rank == (faults ? 0 : size / 2))
				raise(SIGKILL);
			if (size == 2 && step == steps / 2 && faults) {
				if (rank == 0)
					refuse_a_kernel();
				faults = false;
			}
			failed = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
			if (failed == MPI_SUCCESS && !holds(out, base, size))
				wrong++;
			accelerated += gpucoll_last_path && gpucoll_last_path() == 2;
		}
		if (failed == MPI_SUCCESS)
			break;
		if (!before)
			before = free_memory();
		printf("rank %d: %d ranks, step %d: class %s, %d wrong\n", world_rank, size, step,
		       name_of(failed), wrong);
		fflush(stdout);
		if (size == 2) /* who revokes would be the other's reason */
			MPI_Barrier(comm);
		if (by_handler) {
			comm = next;
			MPI_Comm_set_errhandler(comm, handler);
		} else {
			comm = shrink(comm);
		}
		MPI_Comm_size(comm, &size);
	}
	printf("rank %d: through with %d ranks, %d wrong, the last %d steps accelerated\n",
	       world_rank, size, wrong, accelerated);
	if (before)
		printf("rank %d: %zu KiB gone\n", world_rank, (before - free_memory()) >> 10);
	fflush(stdout);
	MPI_Barrier(steps ? comm : MPI_COMM_WORLD);
	_exit(wrong !=
	      0); /* in Open MPI 5.0 one MPI_Finalize in ten does not come back after a death */
}
