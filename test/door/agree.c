/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree agree: the first rank agrees with the others while it waits for an allreduce to which they
 * have not come, and which they finish before they agree.
 * agree anybody|anybody-again: the last rank dies while the first one waits for a message from
 * anybody, by a request of its own or a persistent one, which the failure leaves pending; another
 * rank's message completes it.
 */
#include <mpi.h>
/* This looks at what it has. */
#include <mpi-ext.h>

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 5000 };

static int *device, host[COUNT], sums[COUNT], rank, size;

static void fill(int value)
{
	for (int i = 0; i < COUNT; i++)
		host[i] = value + i;
	cudaMemcpy(device, host, sizeof(host), cudaMemcpyDefault);
}

static bool holds(const int *values, int base, int times)
{
	cudaMemcpy(host, values, sizeof(host), cudaMemcpyDefault);
	for (int i = 0; i < COUNT; i++) {
		if (host[i] != base + times * i)
			return false;
	}
	return true;
}

static const char *name_of(int error)
{
	int class;

	MPI_Error_class(error, &class);
	return class == MPI_SUCCESS                    ? "SUCCESS"
	       : class == MPIX_ERR_PROC_FAILED_PENDING ? "PENDING"
						       : "other";
}

static void agree(void)
{
	MPI_Request request;
	int flag = 1;
	MPI_Comm other;
	bool right;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	fill(rank);
	if (rank == 0) {
		MPI_Iallreduce(MPI_IN_PLACE, device, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
			       &request);
		MPIX_Comm_agree(other, &flag);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		right = holds(device, size * (size - 1) / 2, size);
	} else {
		usleep(200000);
		MPI_Iallreduce(host, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPIX_Comm_agree(other, &flag);
		right = holds(sums, size * (size - 1) / 2, size);
	}
	printf("rank %d: flag %d, %s\n", rank, flag, right ? "right" : "wrong");
	MPI_Comm_free(&other);
	MPI_Finalize();
}

static void receive_from_anybody(bool again)
{
	MPI_Request request;
	int first, then;

	if (again) {
		MPI_Recv_init(device, COUNT, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
		MPI_Start(&request);
	} else {
		MPI_Irecv(device, COUNT, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
	}
	first = MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPIX_Comm_failure_ack(MPI_COMM_WORLD);
	MPI_Send(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
	then = MPI_Wait(&request, MPI_STATUS_IGNORE);
	printf("rank 0: %s, then %s, %s\n", name_of(first), name_of(then),
	       holds(device, 4711, 1) ? "right" : "wrong");
	fflush(stdout); /* the launcher may end all when rank 1 has ended */
	if (again)
		MPI_Request_free(&request);
	MPI_Send(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

static void anybody(bool again)
{
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	fill(rank == 1 ? 4711 : -1);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == size - 1) {
		usleep(200000);
		raise(SIGKILL);
	}
	if (rank == 0)
		receive_from_anybody(again);
	if (rank == 1) {
		MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(device, COUNT, MPI_INT, 0, 0, MPI_COMM_WORLD);
		MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	fflush(stdout);
	_exit(0); /* MPI_Finalize may wait for the dead */
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	cudaMalloc((void **)&device, COUNT * sizeof(*device));
	if (!strncmp(way, "anybody", strlen("anybody")))
		anybody(!strcmp(way, "anybody-again"));
	agree();
	return 0;
}
