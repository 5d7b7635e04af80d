/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that are wrong: what the library says of them.
 *
 *     test_desync CASE [host]      one of those at the end of the file; on host buffers
 *
 * A call that fails says so and ends its rank. Who hangs is killed by the test.
 */
#include "test.h"
#include "gpucoll_weak.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000 };

static int *buffer, *other;

static void *allocate(bool host)
{
	size_t bytes = 4 * COUNT * sizeof(int);
	void *memory = host ? malloc(bytes) : NULL;

	if (!host)
		cuda_check(cudaMalloc(&memory, bytes), "cudaMalloc");
	if (!host)
		cuda_check(cudaMemset(memory, 0, bytes), "cudaMemset");
	else if (memory)
		memset(memory, 0, bytes);
	return memory;
}

/* Errors are returned on MPI_COMM_WORLD and its descendants. */
static void must_fail(int result)
{
	int class = MPI_SUCCESS;

	MPI_Error_class(result, &class);
	printf("rank %d: error class %s\n", test_rank,
	       class == MPI_ERR_ROOT    ? "root"
	       : class == MPI_ERR_OP    ? "op"
	       : class == MPI_ERR_TYPE  ? "type"
	       : class == MPI_ERR_COUNT ? "count"
	       : class == MPI_SUCCESS   ? "none"
					: "other");
	fflush(stdout);
}

static void wrong_order(void)
{
	if (test_rank == 0)
		must_fail(MPI_Allreduce(MPI_IN_PLACE, buffer, COUNT, MPI_INT, MPI_SUM,
					MPI_COMM_WORLD));
	else
		must_fail(MPI_Bcast(buffer, COUNT, MPI_INT, 0, MPI_COMM_WORLD));
}

static void wrong_root(void)
{
	must_fail(MPI_Bcast(buffer, COUNT, MPI_INT, test_rank == 1, MPI_COMM_WORLD));
}

static void wrong_op(void)
{
	must_fail(MPI_Reduce(buffer, other, COUNT, MPI_INT, test_rank == 1 ? MPI_MAX : MPI_SUM, 0,
			     MPI_COMM_WORLD));
}

static void wrong_type(void)
{
	must_fail(MPI_Allreduce(buffer, other, COUNT, test_rank == 1 ? MPI_FLOAT : MPI_INT, MPI_SUM,
				MPI_COMM_WORLD));
}

static void wrong_count(void)
{
	must_fail(MPI_Scan(buffer, other, COUNT + (test_rank == 1), MPI_INT, MPI_SUM,
			   MPI_COMM_WORLD));
}

static void wrong_block(void)
{
	must_fail(MPI_Gather(buffer, 10 + (test_rank == 1), MPI_INT, other, 10, MPI_INT, 0,
			     MPI_COMM_WORLD));
}

static void exchanged_type(void)
{
	MPI_Datatype type = test_rank == 1 ? MPI_FLOAT : MPI_INT;

	must_fail(MPI_Allgather(buffer, 10, type, other, 10, type, MPI_COMM_WORLD));
}

static void wrong_exchange(void)
{
	int sends[test_size], takes[test_size], displs[test_size];

	for (int i = 0; i < test_size; i++) {
		sends[i] = takes[i] = 10;
		displs[i] = 20 * i;
	}
	sends[0] += test_rank == 1;
	must_fail(MPI_Alltoallv(buffer, sends, displs, MPI_INT, other, takes, displs, MPI_INT,
				MPI_COMM_WORLD));
}

/* Of the two neighbours on a ring rank 1 sends the next one too much. */
static void wrong_neighbor(void)
{
	int dims[1] = {test_size}, periods[1] = {1}, takes[2] = {10, 10}, displs[2] = {0, 20};
	int sends[2] = {10, 10 + (test_rank == 1)};
	MPI_Comm ring;

	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
	must_fail(MPI_Neighbor_alltoallv(buffer, sends, displs, MPI_INT, other, takes, displs,
					 MPI_INT, ring));
}

static void barrier(void)
{
	if (test_rank == 0)
		must_fail(MPI_Barrier(MPI_COMM_WORLD));
	else
		must_fail(MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
}

static void constructor(void)
{
	MPI_Comm made;

	if (test_rank == 0)
		must_fail(MPI_Comm_dup(MPI_COMM_WORLD, &made));
	else
		must_fail(MPI_Bcast(buffer, COUNT, MPI_INT, 0, MPI_COMM_WORLD));
}

/* What is found may be so after the stream has come past the call. */
static int await_error(MPI_Comm comm)
{
	int error = MPI_SUCCESS;

	for (int i = 0; i < 5000 && !error; i++) {
		gpucoll_stream_error(comm, &error);
		usleep(1000);
	}
	return error;
}

/* A communicator for a new stream. */
static MPI_Comm open_stream(cudaStream_t *stream)
{
	MPI_Comm comm;

	cuda_check(cudaStreamCreate(stream), "cudaStreamCreate");
	if (gpucoll_stream_comm(MPI_COMM_WORLD, *stream, &comm))
		exit(1);
	return comm;
}

/* On a stream: found while the host waits for it, and told then, and by the next call. */
static void enqueued(void)
{
	cudaStream_t stream;
	MPI_Comm comm = open_stream(&stream);

	for (int i = 0; i < 3; i++)
		gpucoll_allreduce_enqueue(buffer, other, COUNT, MPI_INT,
					  i == 2 && test_rank == 1 ? MPI_MAX : MPI_SUM, comm,
					  stream);
	cudaStreamSynchronize(stream);
	must_fail(await_error(comm));
	must_fail(gpucoll_allreduce_enqueue(buffer, other, COUNT, MPI_INT, MPI_SUM, comm, stream));
	MPI_Comm_free(&comm);
}

/* Kernels of different calls may wait for each other for ever. */
static void enqueued_other(void)
{
	cudaStream_t stream;
	MPI_Comm comm = open_stream(&stream);

	if (test_rank == 1)
		gpucoll_allgather_enqueue(buffer, 10, MPI_INT, other, 10, MPI_INT, comm, stream);
	else
		gpucoll_allreduce_enqueue(buffer, other, COUNT, MPI_INT, MPI_SUM, comm, stream);
	cudaStreamSynchronize(stream);
	must_fail(await_error(comm));
	MPI_Comm_free(&comm);
}

static volatile bool told;

/* Of which the error handler is told: nothing ends. */
static void tell(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	must_fail(*error);
	told = true;
}

/* The real MPI may complete what does not match, or not, or call that an error, too. */
static void nonblocking(void)
{
	MPI_Request request;
	MPI_Errhandler handler;
	MPI_Comm apart;
	int flag;

	MPI_Comm_dup(MPI_COMM_WORLD, &apart);
	MPI_Comm_create_errhandler(tell, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	if (test_rank == 0)
		MPI_Iallreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
	else
		MPI_Ibcast(buffer, COUNT, MPI_INT, 0, MPI_COMM_WORLD, &request);
	while (!told)
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, apart, &flag, MPI_STATUS_IGNORE);
	MPI_Barrier(apart);
	fflush(stdout);
	_exit(0);
}

static MPI_Comm freed;

static void free_it(MPI_Comm *comm, int *error, ...)
{
	must_fail(*error);
	freed = *comm;
	MPI_Comm_free(comm);
}

/* The error handler frees the communicator. */
static void frees(void)
{
	MPI_Errhandler handler;
	MPI_Comm made;

	MPI_Comm_dup(MPI_COMM_WORLD, &made);
	MPI_Comm_create_errhandler(free_it, &handler);
	MPI_Comm_set_errhandler(made, handler);
	MPI_Bcast(buffer, COUNT, MPI_INT, test_rank == 1, made);
	MPI_Errhandler_free(&handler);
	test_result(freed != MPI_COMM_NULL);
}

/* ---- those that hang ---- */

static void missing(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank == 1)
		sleep(60);
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void two_comms(void)
{
	MPI_Comm comms[2];

	MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, comms[test_rank == 1]);
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_MAX, comms[test_rank != 1]);
}

/* Nobody of those who wait waits in the library. */
static void in_barrier(void)
{
	if (test_rank == 1)
		MPI_Bcast(buffer, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
	if (test_rank == 1)
		sleep(60);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void dies(void)
{
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (test_rank == 1)
		raise(SIGKILL);
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	sleep(60);
}

/* A rank that skips what the others wait for, and ends. */
static void finalize(void)
{
	if (test_rank == 1) {
		MPI_Finalize();
		sleep(60);
	}
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* Some have begun what others have not, and nobody is in a call. */
static void begun(void)
{
	MPI_Request request;

	if (test_rank != 1)
		MPI_Ibarrier(MPI_COMM_WORLD, &request);
	sleep(60);
}

/* ---- those that are right ---- */

/* Types that differ in what MPI lets differ; and a window, which is a collective, too. */
static void loose_types(int *host)
{
	int counts[test_size], displs[test_size];
	MPI_Win window;

	for (int i = 0; i < test_size; i++) {
		counts[i] = i == 1 ? 0 : 4;
		displs[i] = 8 * i;
	}
	MPI_Gatherv(test_rank == 1 ? NULL : buffer, test_rank == 1 ? 0 : 4,
		    test_rank == 1 ? MPI_BYTE : MPI_INT, other, counts, displs, MPI_INT, 0,
		    MPI_COMM_WORLD);
	MPI_Bcast(buffer, test_rank ? 2 : 1, test_rank ? MPI_INT : MPI_2INT, 0, MPI_COMM_WORLD);
	MPI_Win_create(host, COUNT, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Win_free(&window);
}

/* Where ranks' nonblocking calls get to the real MPI at different times: some wait in a queue. */
static void legal(void)
{
	int *host = allocate(true), *first = test_rank == 1 ? host : buffer;
	MPI_Request requests[4];
	MPI_Comm made, second;

	for (int round = 0; round < 20; round++) {
		MPI_Iallreduce(first, other, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
		MPI_Iallgather(buffer, 10, MPI_INT, other + 1000, 10, MPI_INT, MPI_COMM_WORLD,
			       &requests[1]);
		MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
		MPI_Ibcast(host, 100, MPI_INT, 0, MPI_COMM_WORLD, &requests[3]);
		MPI_Allreduce(MPI_IN_PLACE, test_rank == 0 ? buffer + 2000 : host + 2000, 100,
			      MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < 4; i++)
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &made);
	MPI_Comm_dup(MPI_COMM_WORLD, &second);
	/* Others come to it later than a communicator is freed. */
	if (test_rank > 0) {
		MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Ibcast(buffer, 10, MPI_INT, 0, made, &requests[0]);
		MPI_Comm_free(&second);
	} else {
		MPI_Ibcast(buffer, 10, MPI_INT, 0, made, &requests[0]);
		MPI_Comm_free(&second);
		for (int i = 1; i < test_size; i++)
			MPI_Send(NULL, 0, MPI_INT, i, 0, MPI_COMM_WORLD);
	}
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	MPI_Comm_free(&made);
	loose_types(host);
	free(host);
	test_result(true);
}

static void late(void)
{
	for (int i = 0; i < 5; i++) {
		if (i == 3 && test_rank == 1)
			usleep(300000);
		MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
	test_result(true);
}

static void nap(void *nothing)
{
	(void)nothing;
	usleep(100000);
}

/* On the legacy default stream, which the library waits for. */
static void default_stream(void)
{
	int *pinned;

	cuda_check(cudaMallocHost((void **)&pinned, COUNT * sizeof(int)), "cudaMallocHost");
	for (int i = 0; i < COUNT; i++)
		pinned[i] = 1;
	cuda_check(cudaLaunchHostFunc(NULL, nap, NULL), "cudaLaunchHostFunc");
	cuda_check(
		cudaMemcpyAsync(buffer, pinned, COUNT * sizeof(int), cudaMemcpyHostToDevice, NULL),
		"cudaMemcpyAsync");
	MPI_Allreduce(buffer, other, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	cuda_check(cudaMemcpy(pinned, other, COUNT * sizeof(int), cudaMemcpyDeviceToHost),
		   "cudaMemcpy");
	test_result(pinned[0] == test_size && pinned[COUNT - 1] == test_size);
	cudaFreeHost(pinned);
}

/* Calls that overlap. */
static void overlap(void)
{
	MPI_Request requests[4];

	if (test_rank > 0)
		usleep(300000);
	for (int i = 0; i < 4; i++)
		MPI_Iallreduce(buffer + i * 100, other + i * 100, 100, MPI_INT, MPI_SUM,
			       MPI_COMM_WORLD, &requests[i]);
	for (int i = 0; i < 4; i++)
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	test_result(true);
}

static void many(void)
{
	MPI_Comm half;

	for (int i = 0; i < 100; i++)
		MPI_Allreduce(buffer, other, i, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_split(MPI_COMM_WORLD, test_rank % 2, 0, &half);
	MPI_Reduce(buffer, other, COUNT, MPI_INT, MPI_MIN, 0, half);
	MPI_Comm_free(&half);
	raise(SIGUSR2);
	MPI_Barrier(MPI_COMM_WORLD);
	test_result(true);
}

static const struct test_case cases[] = {
	{"order", wrong_order},
	{"root", wrong_root},
	{"op", wrong_op},
	{"type", wrong_type},
	{"count", wrong_count},
	{"block", wrong_block},
	{"exchange", wrong_exchange},
	{"neighbor", wrong_neighbor},
	{"exchanged_type", exchanged_type},
	{"barrier", barrier},
	{"constructor", constructor},
	{"nonblocking", nonblocking},
	{"enqueued", enqueued},
	{"enqueued_other", enqueued_other},
	{"missing", missing},
	{"comms", two_comms},
	{"in_barrier", in_barrier},
	{"dies", dies},
	{"many", many},
	{"late", late},
	{"overlap", overlap},
	{"frees", frees},
	{"finalize", finalize},
	{"begun", begun},
	{"legal", legal},
	{"default_stream", default_stream},
};

int main(int argc, char **argv)
{
	bool host = argc > 2 && !strcmp(argv[2], "host");

	MPI_Init(&argc, &argv);
	test_start();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	buffer = allocate(host);
	other = allocate(host);
	return test_run_case(argv[1], cases, sizeof(cases) / sizeof(cases[0]));
}
