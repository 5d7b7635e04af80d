/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goes on with as many as before, by ULFM and MPI_Comm_spawn: respawn ROUNDS. In each round a rank
 * kills itself; the others shrink the communicator, start a process in its place and merge with it.
 */
#include <cuda_runtime_api.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 5000 };

static int *in, *out, wrong;

static void must(int error, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	if (error == MPI_SUCCESS)
		return;
	MPI_Error_string(error, text, &length);
	fprintf(stderr, "respawn: %s: %s\n", what, text);
	_exit(3);
}

/* Each gives its rank, and the element's number. Returns what the call returned. */
static int sum(MPI_Comm comm)
{
	int rank, size, host[COUNT], result;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	for (int i = 0; i < COUNT; i++)
		host[i] = rank + i;
	cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice);
	result = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost);
	for (int i = 0; i < COUNT && result == MPI_SUCCESS; i++)
		wrong += host[i] != size * (size - 1) / 2 + size * i;
	return result;
}

static MPI_Comm replace_lost(MPI_Comm comm, const char *program, int round)
{
	char text[12], *arguments[] = {text, NULL};
	MPI_Comm rest, inter, merged;
	int size, left;

	MPI_Comm_size(comm, &size);
	MPIX_Comm_revoke(comm);
	must(MPIX_Comm_shrink(comm, &rest), "MPIX_Comm_shrink");
	MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);
	MPI_Comm_size(rest, &left);
	snprintf(text, sizeof(text), "%d", round);
	must(MPI_Comm_spawn(program, arguments, size - left, MPI_INFO_NULL, 0, rest, &inter,
			    MPI_ERRCODES_IGNORE),
	     "MPI_Comm_spawn");
	must(MPI_Intercomm_merge(inter, 0, &merged), "MPI_Intercomm_merge");
	MPI_Comm_set_errhandler(merged, MPI_ERRORS_RETURN);
	return merged;
}

int main(int argc, char **argv)
{
	int round = argc > 1 ? atoi(argv[1]) : 2, rank, size;
	MPI_Comm comm = MPI_COMM_WORLD, parent;

	signal(SIGUSR1, SIG_IGN);
	MPI_Init(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	cudaMalloc((void **)&in, COUNT * sizeof(*in));
	cudaMalloc((void **)&out, COUNT * sizeof(*out));
	MPI_Comm_get_parent(&parent);
	if (parent != MPI_COMM_NULL) {
		must(MPI_Intercomm_merge(parent, 1, &comm), "MPI_Intercomm_merge");
		MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	}
	for (;; round--) {
		int failed = MPI_SUCCESS;

		for (int i = 0; i < 6 && failed == MPI_SUCCESS; i++) {
			MPI_Comm_rank(comm, &rank);
			MPI_Comm_size(comm, &size);
			if (round > 0 && i == 3 && rank == 1)
				raise(SIGKILL);
			failed = sum(comm);
		}
		if (failed == MPI_SUCCESS)
			break;
		comm = replace_lost(comm, argv[0], round - 1);
	}
	printf("rank %d of %d: through, %d wrong\n", rank, size, wrong);
	fflush(stdout);
	MPI_Barrier(comm);
	_exit(wrong != 0);
}
