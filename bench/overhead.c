/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overhead [cuda]: the nanoseconds that the library adds to a call on host buffers, by
 * calling the MPI's own function directly and through whatever is preloaded, turn by turn in one
 * process. With "cuda" the CUDA driver is loaded and initialised first, so that each buffer is
 * looked up in it. Run it on one rank under gpucoll-exec.
 *
 * The calls are MPI_Allreduce of one int on MPI_COMM_SELF, MPI_Reduce_local of one int, and
 * MPI_Irecv, MPI_Isend and MPI_Waitall of one int from and to oneself, which are three.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 200000, ROUNDS = 15, KINDS = 3 };

typedef int allreduce_function(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
typedef int reduce_local_function(const void *, void *, int, MPI_Datatype, MPI_Op);

struct messages {
	int (*irecv)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
	int (*isend)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
	int (*waitall)(int, MPI_Request[], MPI_Status[]);
};

static int in = 1, out = 1;

static double time_allreduce(allreduce_function *function)
{
	double start = MPI_Wtime();

	for (int i = 0; i < CALLS; i++)
		function(&in, &out, 1, MPI_INT, MPI_MAX, MPI_COMM_SELF);
	return 1e9 * (MPI_Wtime() - start) / CALLS;
}

static double time_reduce_local(reduce_local_function *function)
{
	double start = MPI_Wtime();

	for (int i = 0; i < CALLS; i++)
		function(&in, &out, 1, MPI_INT, MPI_MAX);
	return 1e9 * (MPI_Wtime() - start) / CALLS;
}

static double time_messages(const struct messages *calls)
{
	double start = MPI_Wtime();
	MPI_Request requests[2];
	MPI_Status statuses[2];

	for (int i = 0; i < CALLS; i++) {
		calls->irecv(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
		calls->isend(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[1]);
		calls->waitall(2, requests, statuses);
	}
	return 1e9 * (MPI_Wtime() - start) / CALLS;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

/* The MPI's own library, which is loaded already. */
static void *open_mpi(void)
{
	static const char *const names[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"};
	void *handle = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !handle; i++)
		handle = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
	if (!handle) {
		fprintf(stderr, "overhead: the MPI's library is not one that is known here\n");
		exit(2);
	}
	return handle;
}

static void start_cuda(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned);

	*(void **)&init = driver ? dlsym(driver, "cuInit") : NULL;
	if (!init || init(0)) {
		fprintf(stderr, "overhead: no CUDA driver that can be initialised\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static const char *const names[KINDS] = {"MPI_Allreduce", "MPI_Reduce_local",
						 "Irecv+Isend+Waitall"};
	double direct[KINDS][ROUNDS], through[KINDS][ROUNDS];
	struct messages own, ours = {MPI_Irecv, MPI_Isend, MPI_Waitall};
	allreduce_function *real_allreduce;
	reduce_local_function *real_reduce_local;
	void *handle;

	MPI_Init(&argc, &argv);
	handle = open_mpi();
	*(void **)&real_allreduce = dlsym(handle, "MPI_Allreduce");
	*(void **)&real_reduce_local = dlsym(handle, "MPI_Reduce_local");
	*(void **)&own.irecv = dlsym(handle, "MPI_Irecv");
	*(void **)&own.isend = dlsym(handle, "MPI_Isend");
	*(void **)&own.waitall = dlsym(handle, "MPI_Waitall");
	if (argc > 1 && !strcmp(argv[1], "cuda"))
		start_cuda();
	for (int i = 0; i < ROUNDS; i++) {
		direct[0][i] = time_allreduce(real_allreduce);
		through[0][i] = time_allreduce(MPI_Allreduce);
		direct[1][i] = time_reduce_local(real_reduce_local);
		through[1][i] = time_reduce_local(MPI_Reduce_local);
		direct[2][i] = time_messages(&own);
		through[2][i] = time_messages(&ours);
	}
	for (int i = 0; i < KINDS; i++) {
		double alone = median(direct[i]), all = median(through[i]);

		printf("%-20s own %6.1f ns, through the library %6.1f ns, added %5.1f ns\n",
		       names[i], alone, all, all - alone);
	}
	MPI_Finalize();
	return 0;
}
