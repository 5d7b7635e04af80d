/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The edges of what MPI allows: buffers whose address is not where their data are, data in several
 * allocations, arguments that are insignificant, callbacks of MPI_Finalize.
 *
 *     test_edges CASE        one of the names in the table at the end
 */
#include "test.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <unistd.h>

static int *device_ints(int count, int value)
{
	int *device, *host = malloc((size_t)count * sizeof(int));

	for (int i = 0; i < count; i++)
		host[i] = value;
	cuda_check(cudaMalloc((void **)&device, (size_t)count * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMemcpy(device, host, (size_t)count * sizeof(int), cudaMemcpyHostToDevice),
		   "cudaMemcpy");
	free(host);
	return device;
}

static int int_at(const int *device, int index)
{
	int value;

	cuda_check(cudaMemcpy(&value, device + index, sizeof(value), cudaMemcpyDeviceToHost),
		   "cudaMemcpy");
	return value;
}

/*
 * The buffer's address is no memory of anybody's; the datatype, or the displacements, lead to it.
 */
static void outside(void)
{
	enum { FAR = 1 << 20 };
	int *device = device_ints(100, test_rank), length = 4, mine = test_rank;
	int *counts = malloc((size_t)test_size * sizeof(int)),
	    *displs = malloc((size_t)test_size * sizeof(int));
	MPI_Aint displacement = FAR;
	MPI_Datatype type;

	MPI_Type_create_hindexed(1, &length, &displacement, MPI_INT, &type);
	MPI_Type_commit(&type);
	snprintf(test_name, sizeof(test_name), "a datatype leads into device memory");
	MPI_Bcast((char *)device - FAR, 1, type, test_size - 1, MPI_COMM_WORLD);
	test_result(int_at(device, 3) == test_size - 1 && int_at(device, 4) == test_rank);
	MPI_Type_free(&type);

	snprintf(test_name, sizeof(test_name), "displacements lead into device memory");
	for (int i = 0; i < test_size; i++) {
		counts[i] = 1;
		displs[i] = FAR + i;
	}
	MPI_Allgatherv(&mine, 1, MPI_INT, device - FAR, counts, displs, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < test_size; i++)
		test_result(int_at(device, i) == i);
	free(counts);
	free(displs);
	cuda_check(cudaFree(device), "cudaFree");
}

/* A structure on the host with members on the device, many or few, described from its address. */
static void host_structure(void)
{
	enum { RUNS = 40 };
	MPI_Aint origin, places[RUNS + 1];
	int lengths[RUNS + 1], head, *device = device_ints(1000, test_rank);
	MPI_Datatype type;

	for (int runs = 1; runs <= RUNS; runs += RUNS - 1) {
		snprintf(test_name, sizeof(test_name), "host structure with %d device members",
			 runs);
		head = test_rank;
		MPI_Get_address(&head, &origin);
		places[0] = 0;
		lengths[0] = 1;
		for (int i = 1; i <= runs; i++) {
			MPI_Get_address(device + i * 10 + i % 3, &places[i]);
			places[i] -= origin;
			lengths[i] = 1 + i % 4;
		}
		MPI_Type_create_hindexed(runs + 1, lengths, places, MPI_INT, &type);
		MPI_Type_commit(&type);
		MPI_Bcast(&head, 1, type, test_size - 1, MPI_COMM_WORLD);
		test_result(head == test_size - 1 && int_at(device, 0) == test_rank);
		for (int i = 1; i <= runs; i++)
			test_result(int_at(device, i * 10 + i % 3) == test_size - 1);
		MPI_Type_free(&type);
	}
	cuda_check(cudaFree(device), "cudaFree");
}

/*
 * One datatype over two allocations, side by side or not, one of which was never seen before and
 * has a late memset on it.
 */
static void two_allocations(void)
{
	enum { COUNT = 1 << 18 };

	for (int round = 0; round < 6; round++) {
		size_t bytes = COUNT * sizeof(int);
		int *a = device_ints(COUNT, 7), *between = round % 2 ? device_ints(COUNT, 0) : NULL;
		int *b = device_ints(COUNT, 0), *all = device_ints(2 * COUNT, 0);
		int lengths[2] = {COUNT, COUNT};
		MPI_Aint places[2];
		MPI_Datatype type;

		snprintf(test_name, sizeof(test_name), "two allocations, round %d", round);
		MPI_Allreduce(a, all, COUNT, MPI_INT, MPI_MAX, MPI_COMM_SELF);
		MPI_Get_address(a, &places[0]);
		MPI_Get_address(b, &places[1]);
		MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type);
		MPI_Type_commit(&type);
		cuda_check(cudaMemset(b, round + 1, bytes), "cudaMemset");
		MPI_Gather(MPI_BOTTOM, 1, type, all, 2 * COUNT, MPI_INT, 0, MPI_COMM_SELF);
		test_result(int_at(all, 0) == 7 && int_at(all, COUNT - 1) == 7 &&
			    int_at(all, COUNT) == 0x01010101 * (round + 1) &&
			    int_at(all, 2 * COUNT - 1) == 0x01010101 * (round + 1));
		MPI_Type_free(&type);
		for (int i = 0; i < 4; i++)
			cuda_check(cudaFree((int *[]){a, between, b, all}[i]), "cudaFree");
	}
}

/* Work on the default stream is ours to wait for, every time. */
static void default_stream(void)
{
	enum { COUNT = 1 << 20 };
	int *send = device_ints(COUNT, 0), *recv = device_ints(COUNT, 0);

	for (int i = 1; i < 10; i++) {
		snprintf(test_name, sizeof(test_name), "work on the default stream, call %d", i);
		cuda_check(cudaMemsetAsync(send, i, COUNT * sizeof(int), 0), "cudaMemsetAsync");
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		test_result(int_at(recv, 0) == 0x01010101 * i &&
			    int_at(recv, COUNT - 1) == 0x01010101 * i);
	}
	cuda_check(cudaFree(send), "cudaFree");
	cuda_check(cudaFree(recv), "cudaFree");
}

/* What MPI does not look at may be anything: NULL, null types, a type too large to take apart. */
static void insignificant(void)
{
	MPI_Datatype half, huge;
	char byte[8] = {0};
	int *device = device_ints(100, test_rank), *all = device_ints(100 * test_size, -1);
	bool leaf = test_rank > 0;

	MPI_Type_contiguous(1200000000, MPI_BYTE, &half);
	MPI_Type_create_hvector(2, 1, 1300000000L, half, &huge);
	MPI_Type_commit(&huge);
	snprintf(test_name, sizeof(test_name), "no elements of a huge type");
	test_result(MPI_Gather(byte, 0, huge, leaf ? NULL : byte, 0, huge, 0, MPI_COMM_WORLD) ==
		    MPI_SUCCESS);
	MPI_Type_free(&huge);
	MPI_Type_free(&half);

	snprintf(test_name, sizeof(test_name), "gather with nonsense where only the root looks");
	MPI_Gather(device, 100, MPI_INT, leaf ? (void *)16 : all, leaf ? -77 : 100,
		   leaf ? MPI_DATATYPE_NULL : MPI_INT, 0, MPI_COMM_WORLD);
	test_result(leaf ||
		    (int_at(all, 0) == 0 && int_at(all, 100 * test_size - 1) == test_size - 1));
	cuda_check(cudaFree(device), "cudaFree");
	cuda_check(cudaFree(all), "cudaFree");
}

/* A line of ranks: the first has no neighbour to receive from, the last none to send to. */
static void no_neighbours(void)
{
	int before = test_rank - 1, after = test_rank + 1, count = 4, displ = 0, weight = 1;
	bool in = test_rank > 0, out = test_rank < test_size - 1;
	int *send = device_ints(4, test_rank + 10), *recv = device_ints(4, -1);
	MPI_Aint byte_displ = 0;
	MPI_Datatype type = MPI_INT;
	MPI_Comm line;

	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, &before, &weight, out, &after, &weight,
				       MPI_INFO_NULL, 0, &line);
	snprintf(test_name, sizeof(test_name), "neighbours of a line, one type");
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;
	MPI_Get_library_version(version, &length);
	/* MPICH refuses the null type for no data, */
	bool null_types = strncmp(version, "MPICH", 5) != 0;
	MPI_Neighbor_alltoallv(out ? send : NULL, out ? &count : NULL, out ? &displ : NULL,
			       out || !null_types ? MPI_INT : MPI_DATATYPE_NULL, in ? recv : NULL,
			       in ? &count : NULL, in ? &displ : NULL,
			       in || !null_types ? MPI_INT : MPI_DATATYPE_NULL, line);
	test_result(int_at(recv, 3) == (in ? before + 10 : -1));
	if (null_types) { /* and crashes on no types, on host buffers too */
		snprintf(test_name, sizeof(test_name), "neighbours of a line, each its type");
		cuda_check(cudaMemset(recv, 0xff, 4 * sizeof(int)), "cudaMemset");
		MPI_Neighbor_alltoallw(out ? send : NULL, out ? &count : NULL,
				       out ? &byte_displ : NULL, out ? &type : NULL,
				       in ? recv : NULL, in ? &count : NULL,
				       in ? &byte_displ : NULL, in ? &type : NULL, line);
		test_result(int_at(recv, 3) == (in ? before + 10 : -1));
	}
	MPI_Comm_free(&line);
	cuda_check(cudaFree(send), "cudaFree");
	cuda_check(cudaFree(recv), "cudaFree");
}

static MPI_Datatype shared_type;

static void *use_type(void *argument)
{
	int *device = device_ints(5000, test_rank);

	MPI_Bcast(device, 4, shared_type, 0, *(MPI_Comm *)argument);
	cuda_check(cudaFree(device), "cudaFree");
	return NULL;
}

/* Threads that use a new datatype for the first time at the same moment. */
static void new_type_in_threads(void)
{
	enum { THREADS = 4, BLOCKS = 200 };
	int lengths[BLOCKS], displs[BLOCKS];
	pthread_t threads[THREADS];
	MPI_Comm comms[THREADS];

	for (int i = 0; i < BLOCKS; i++) {
		lengths[i] = 1;
		displs[i] = 3 * i + (i % 5 == 0);
	}
	for (int round = 0; round < 50; round++) {
		MPI_Type_indexed(BLOCKS, lengths, displs, MPI_BYTE, &shared_type);
		MPI_Type_commit(&shared_type);
		for (int i = 0; i < THREADS; i++) {
			MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
			pthread_create(&threads[i], NULL, use_type, &comms[i]);
		}
		for (int i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			MPI_Comm_free(&comms[i]);
		}
		MPI_Type_free(&shared_type);
	}
	snprintf(test_name, sizeof(test_name), "a new type in threads");
	test_result(true);
}

/*
 * Types that are one piece of memory, whose parts MPI sends in another order than that of
 * addresses.
 */
static void permuted_type(void)
{
	int lengths[4] = {1, 1, 1, 1}, displs[4] = {3, 2, 1, 0};
	int *device = device_ints(4, 0), *all = device_ints(4 * test_size, 0),
	    values[4] = {1, 2, 3, 4};
	MPI_Datatype backwards, column, transposed;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a datatype that runs backwards");
	MPI_Type_indexed(4, lengths, displs, MPI_INT, &backwards);
	MPI_Type_commit(&backwards);
	cuda_check(cudaMemcpy(device, values, sizeof(values), cudaMemcpyDefault), "cudaMemcpy");
	MPI_Bcast(device, test_rank ? 4 : 1, test_rank ? MPI_INT : backwards, 0, MPI_COMM_WORLD);
	for (int i = 0; i < 4; i++)
		ok &= int_at(device, i) == (test_rank ? 4 - i : 1 + i);
	test_result(ok);

	snprintf(test_name, sizeof(test_name), "a matrix transposed by its datatype");
	MPI_Type_vector(2, 1, 2, MPI_INT, &column);
	MPI_Type_create_hvector(2, 1, sizeof(int), column, &transposed);
	MPI_Type_commit(&transposed);
	cuda_check(cudaMemcpy(device, values, sizeof(values), cudaMemcpyDefault), "cudaMemcpy");
	MPI_Allgather(device, 1, transposed, all, 4, MPI_INT, MPI_COMM_WORLD);
	ok = true;
	for (int i = 0; i < test_size; i++)
		ok &= int_at(all, 4 * i) == 1 && int_at(all, 4 * i + 1) == 3 &&
		      int_at(all, 4 * i + 2) == 2 && int_at(all, 4 * i + 3) == 4;
	test_result(ok);
	MPI_Type_free(&backwards);
	MPI_Type_free(&column);
	MPI_Type_free(&transposed);
}

/*
 * The same type in another dress: lengths in bytes must not be compared before padding is counted
 * alike.
 */
static void pair_in_disguise(void)
{
	struct {
		double value;
		int index;
	} mine = {test_rank, test_rank}, *all = calloc((size_t)test_size, sizeof(*all));
	int *counts = malloc((size_t)test_size * sizeof(int)),
	    *displs = malloc((size_t)test_size * sizeof(int));
	MPI_Datatype dup, one;
	void *send, *recv;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "MPI_DOUBLE_INT and types made of it");
	MPI_Type_dup(MPI_DOUBLE_INT, &dup);
	MPI_Type_contiguous(1, MPI_DOUBLE_INT, &one);
	MPI_Type_commit(&one);
	cuda_check(cudaMalloc(&send, sizeof(mine)), "cudaMalloc");
	cuda_check(cudaMalloc(&recv, (size_t)test_size * sizeof(mine)), "cudaMalloc");
	cuda_check(cudaMemcpy(send, &mine, sizeof(mine), cudaMemcpyDefault), "cudaMemcpy");
	for (int i = 0; i < test_size; i++) {
		counts[i] = 1;
		displs[i] = i;
	}
	MPI_Gatherv(send, 1, test_rank ? MPI_DOUBLE_INT : one, recv, counts, displs, dup, 0,
		    MPI_COMM_WORLD);
	cuda_check(cudaMemcpy(all, recv, (size_t)test_size * sizeof(mine), cudaMemcpyDefault),
		   "cudaMemcpy");
	for (int i = 0; test_rank == 0 && i < test_size; i++)
		ok &= all[i].value == i && all[i].index == i;
	test_result(ok);
	free(all);
	free(counts);
	free(displs);
	MPI_Type_free(&dup);
	MPI_Type_free(&one);
}

/*
 * A call that one rank alone makes, and its MPI refuses: the others' next calls are this rank's
 * next.
 */
static void refused_call(void)
{
	int *device = device_ints(1, test_rank), got[3], result = MPI_SUCCESS;

	snprintf(test_name, sizeof(test_name), "a call that is refused on one rank");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Allreduce(MPI_IN_PLACE, device, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (test_rank == 1)
		result = MPI_Bcast(device, -1, MPI_INT, 0, MPI_COMM_WORLD);
	test_result((result != MPI_SUCCESS) == (test_rank == 1));
	for (int i = 0; i < 3; i++) {
		int value = i + 1;

		if (test_rank == 0)
			cuda_check(cudaMemcpy(device, &value, sizeof(value), cudaMemcpyDefault),
				   "cudaMemcpy");
		MPI_Bcast(device, 1, MPI_INT, 0, MPI_COMM_WORLD);
		got[i] = int_at(device, 0);
	}
	test_result(got[0] == 1 && got[1] == 2 && got[2] == 3);
}

static jmp_buf before_the_call;

static void jump(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	longjmp(before_the_call, 1);
}

/* In frames below the one that a jump ended. */
static int deeper(int levels, int *device)
{
	volatile char room[512];

	memset((char *)room, levels, sizeof(room));
	if (levels)
		return deeper(levels - 1, device) + (room[1] != levels);
	MPI_Allreduce(MPI_IN_PLACE, device, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	return room[0] != 0;
}

/* An error handler may leave by a jump. */
static void jumping_handler(void)
{
	int *device = device_ints(1, test_rank), host = test_rank;
	MPI_Errhandler handler;
	MPI_Comm self, dup;

	snprintf(test_name, sizeof(test_name), "an error handler that jumps");
	MPI_Comm_create_errhandler(jump, &handler);
	MPI_Comm_dup(MPI_COMM_SELF, &self);
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Comm_set_errhandler(self, handler);
	MPI_Comm_set_errhandler(dup, handler);
	if (!setjmp(before_the_call)) {
		MPI_Bcast(&host, -1, MPI_INT, 0, self);
		MPI_Abort(MPI_COMM_WORLD, 4);
	}
	if (test_rank == 0 && !setjmp(before_the_call))
		MPI_Bcast(device, -1, MPI_INT, 0, dup);
	for (int i = 0; i < 3; i++) {
		bool on_host = test_rank == 0 && i == 0;

		MPI_Allreduce(MPI_IN_PLACE, on_host ? &host : device, 1, MPI_INT, MPI_MAX,
			      MPI_COMM_WORLD);
		test_result((on_host ? host : int_at(device, 0)) == test_size - 1);
		MPI_Allreduce(MPI_IN_PLACE, device, 1, MPI_INT, MPI_MAX, dup);
		test_result(int_at(device, 0) == test_size - 1 || on_host);
	}
	device = device_ints(1, test_rank);
	if (test_rank == 0 && !setjmp(before_the_call)) {
		MPI_Bcast(device, -1, MPI_INT, 0, self);
		MPI_Abort(MPI_COMM_WORLD, 4);
	}
	test_result(deeper(16, device) == 0 && int_at(device, 0) == test_size - 1);
	MPI_Comm_free(&self);
	MPI_Comm_free(&dup);
	MPI_Errhandler_free(&handler);
}

/* More communicators than the board has room for: the ranks must agree on which have a place. */
static void full_board(void)
{
	enum { COMMS = 1100 };
	MPI_Comm *comms = malloc(COMMS * sizeof(*comms));
	int *device = device_ints(1, 1);
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "more communicators than the board has room for");
	for (int i = 0; i < COMMS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		/* Places become free when the last rank has let go, at a moment of its own. */
		if (i > 1030 && i % 2)
			MPI_Comm_free(&comms[i - 1000]);
	}
	for (int i = 0; i < COMMS; i++) {
		int one = 1;

		if (comms[i] == MPI_COMM_NULL)
			continue;
		cuda_check(cudaMemcpy(device, &one, sizeof(one), cudaMemcpyDefault), "cudaMemcpy");
		MPI_Allreduce(MPI_IN_PLACE, device, 1, MPI_INT, MPI_SUM, comms[i]);
		ok &= int_at(device, 0) == test_size;
		MPI_Comm_free(&comms[i]);
	}
	test_result(ok);
	free(comms);
}

/* A rank that is past the call on host buffers lets the others go, though one has not come yet. */
static void late_member(void)
{
	int *device = device_ints(1, 7), host = 5;
	double start, waited = 0;

	snprintf(test_name, sizeof(test_name), "a late member, and one that is past");
	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	if (test_rank == 0)
		sleep(3);
	MPI_Bcast(test_rank == 1 ? &host : device, 1, MPI_INT, 1, MPI_COMM_WORLD);
	waited = MPI_Wtime() - start;
	if (test_rank == 2)
		printf("rank 2 was let go: %s\n", waited < 1.5 ? "yes" : "no");
	test_result(test_rank == 1 || int_at(device, 0) == 5);
}

static int last_words(MPI_Comm comm, int keyval, void *value, void *extra)
{
	int *device = value;

	(void)comm;
	(void)keyval;
	(void)extra;
	MPI_Allreduce(MPI_IN_PLACE, device, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (test_rank == 0)
		printf("in MPI_Finalize: %s\n", int_at(device, 3) == test_size ? "right" : "wrong");
	return MPI_SUCCESS;
}

/* MPI calls the delete functions of MPI_COMM_SELF's attributes first of all in MPI_Finalize. */
static void finalize_callback(void)
{
	int keyval;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &keyval, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, keyval, device_ints(4, 1));
}

/* The blocks that a rank sends are in two allocations, with a hole between, or without. */
static void scattered_blocks(void)
{
	enum { COUNT = 32, MOST = 64 };
	int *out = device_ints(COUNT * MOST, -1);
	int *const blocks[] = {device_ints(COUNT, test_rank), device_ints(COUNT, 7),
			       device_ints(COUNT, test_rank + 100)};
	int counts[MOST], from[MOST], to[MOST];

	cuda_check(cudaFree(blocks[1]), "cudaFree");
	for (int i = 0; i < test_size; i++) {
		counts[i] = COUNT;
		from[i] = i % 2 ? (int)(blocks[2] - blocks[0]) : 0;
		to[i] = COUNT * i;
	}
	for (int round = 0; round < 4; round++) {
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "blocks in two allocations, %d", round);
		MPI_Alltoallv(blocks[0], counts, from, MPI_INT, out, counts, to, MPI_INT,
			      MPI_COMM_WORLD);
		for (int i = 0; i < test_size; i++)
			ok &= int_at(out, COUNT * i + COUNT - 1) == i + test_rank % 2 * 100;
		test_result(ok);
	}
}

/* One rank's result goes first to memory that others can't map, then to such as they can. */
static void managed_then_not(void)
{
	enum { COUNT = 100003, ROUNDS = 6 };
	int *in = device_ints(COUNT, test_rank + 1), *out = device_ints(COUNT, -1), *managed;
	int sum = test_size * (test_size + 1) / 2;

	cuda_check(cudaMallocManaged((void **)&managed, COUNT * sizeof(int), cudaMemAttachGlobal),
		   "cudaMallocManaged");
	for (int round = 0; round < ROUNDS; round++) {
		int *to = test_rank == 1 && round < ROUNDS / 2 ? managed : out;
		bool ok = true;

		cuda_check(cudaMemset(to, 0xff, COUNT * sizeof(int)), "cudaMemset");
		snprintf(test_name, sizeof(test_name), "managed memory, then other, %d", round);
		MPI_Allreduce(in, to, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < COUNT; i += 1000)
			ok &= int_at(to, i) == sum;
		test_result(ok && int_at(to, COUNT - 1) == sum);
	}
}

static atomic_bool released;

static void CUDA_CB wait_for_release(void *argument)
{
	(void)argument;
	for (int i = 0; i < 10000 && !atomic_load(&released); i++)
		usleep(1000);
}

/* A rank that has nothing to send waits for nothing: what is on its stream may wait for it. */
static void no_data_and_a_busy_stream(void)
{
	enum { COUNT = 1000 };
	int *send = device_ints(COUNT, 3), *recv = device_ints(COUNT, 0);
	int counts[64] = {COUNT}, displs[64] = {0};
	bool busy = test_rank == test_size - 1;
	double start;

	for (int i = 0; i < 3; i++)
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (busy)
		cuda_check((cudaError_t)cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_release, NULL),
			   "cuLaunchHostFunc");
	start = MPI_Wtime();
	snprintf(test_name, sizeof(test_name), "no data, and a busy stream");
	MPI_Gatherv(send, test_rank ? 0 : COUNT, MPI_INT, recv, counts, displs, MPI_INT, 0,
		    MPI_COMM_WORLD);
	test_result(MPI_Wtime() - start < 5);
	atomic_store(&released, true);
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	test_result(test_rank || int_at(recv, COUNT - 1) == 3);
}

/*
 * Calls in one context and without data in another, over and over, take no more memory each time.
 */
static void no_data_elsewhere(void)
{
	enum { COUNT = 100 };
	int counts[64] = {0};
	size_t before, after, total;
	int *send, *recv, devices, other;

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	other = devices > 1 ? 1 : 0;
	cuda_check(cudaSetDevice(0), "cudaSetDevice");
	device_ints(1, 0);
	cuda_check(cudaSetDevice(other), "cudaSetDevice");
	send = device_ints(COUNT, test_rank);
	recv = device_ints(COUNT, 0);
	for (int i = 0; i < 30; i++) {
		cuda_check(cudaSetDevice(0), "cudaSetDevice");
		if (i == 10)
			cuda_check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		MPI_Gatherv(NULL, 0, MPI_INT, NULL, counts, counts, MPI_INT, 0, MPI_COMM_WORLD);
		/* Data in either of them, too. */
		cuda_check(cudaSetDevice(other), "cudaSetDevice");
		MPI_Bcast(recv, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
	}
	cuda_check(cudaSetDevice(0), "cudaSetDevice");
	cuda_check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
	snprintf(test_name, sizeof(test_name), "no data in another context");
	MPI_Barrier(MPI_COMM_WORLD);
	test_result(before < after + (16 << 20) && int_at(recv, COUNT - 1) == test_size - 1);
}

/* Who expects nothing is sent something, and has neither a context nor a buffer. */
static void too_long_for_nobody(void)
{
	enum { COUNT = 16 };
	int *send = device_ints(COUNT * 64, 5), *recv = device_ints(COUNT, 0);
	int counts[64], displs[64], error, class = MPI_SUCCESS;
	bool last = test_rank == test_size - 1;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < 3; i++)
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < test_size; i++) {
		counts[i] = COUNT;
		displs[i] = COUNT * i;
	}
	if (last)
		cuda_check((cudaError_t)cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
	snprintf(test_name, sizeof(test_name), "too long for nobody");
	error = MPI_Scatterv(send, counts, displs, MPI_INT, last ? NULL : recv, last ? 0 : COUNT,
			     MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Error_class(error, &class);
	test_result(last ? class == MPI_ERR_TRUNCATE : class == MPI_SUCCESS);
}

/*
 * Who sends too much to a root on another node has the root fail, and nobody else, nor any value
 * beyond what was asked for.
 */
static void gather_too_long(void)
{
	enum { COUNT = 20000, MORE = 100 };
	int *send = device_ints(COUNT + MORE, test_rank),
	    *recv = device_ints(COUNT * test_size, -1);
	int counts[64], displs[64], error, class = MPI_SUCCESS, count = COUNT;
	bool ok = true;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < test_size; i++) {
		counts[i] = COUNT;
		displs[i] = COUNT * i;
	}
	for (int round = 0; round < 4; round++) {
		bool cut = round == 2;

		snprintf(test_name, sizeof(test_name), "too much for the root, %d", round);
		if (cut && test_rank == test_size - 2)
			count = COUNT + MORE;
		error = MPI_Gatherv(send, count, MPI_INT, recv, counts, displs, MPI_INT, 0,
				    MPI_COMM_WORLD);
		count = COUNT;
		MPI_Error_class(error, &class);
		for (int i = 0; i < test_size && test_rank == 0; i++)
			ok &= int_at(recv, COUNT * i) == i &&
			      int_at(recv, COUNT * i + COUNT - 1) == i;
		test_result(ok && class == (cut && !test_rank ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
	}
}

/* Two that exchange blocks in place, of which one is longer than its place: that is the error of
 * who receives it. */
static void swap_too_long(void)
{
	enum { COUNT = 3000, MORE = 100, ROOM = COUNT + MORE };
	int last = test_size - 1, *buffer = device_ints(ROOM * test_size, test_rank);
	int counts[64], displs[64], class;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int round = 0; round < 4; round++) {
		bool cut = round == 3;

		snprintf(test_name, sizeof(test_name), "too much to swap, %d", round);
		for (int i = 0; i < test_size; i++) {
			counts[i] = COUNT;
			displs[i] = ROOM * i;
		}
		if (cut && test_rank == last - 1)
			counts[last] += MORE;
		MPI_Error_class(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, buffer,
					      counts, displs, MPI_INT, MPI_COMM_WORLD),
				&class);
		test_result(class == (cut && test_rank == last ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
	}
}

/* What ranks receive stands closer together on some than on others. */
static void allgather_layouts(void)
{
	enum { COUNT = 20000 };
	int far = test_rank % 2 ? 2 : 1;
	int *send = device_ints(COUNT, test_rank), *recv = device_ints(far * COUNT * test_size, -1);
	MPI_Datatype block, apart;

	MPI_Type_contiguous(COUNT, MPI_INT, &block);
	MPI_Type_create_resized(block, 0, (MPI_Aint)(far * COUNT * (int)sizeof(int)), &apart);
	MPI_Type_commit(&apart);
	for (int round = 0; round < 3; round++) {
		bool ok = true;

		cuda_check(cudaMemset(recv, 0xff, (size_t)(far * COUNT * test_size) * sizeof(int)),
			   "cudaMemset");
		snprintf(test_name, sizeof(test_name), "other layouts elsewhere, %d", round);
		MPI_Allgather(send, COUNT, MPI_INT, recv, 1, apart, MPI_COMM_WORLD);
		for (int i = 0; i < test_size; i++) {
			int first = i * far * COUNT;

			ok &= int_at(recv, first) == i && int_at(recv, first + COUNT - 1) == i;
			ok &= far == 1 || int_at(recv, first + COUNT) == -1;
		}
		test_result(ok);
	}
	MPI_Type_free(&apart);
	MPI_Type_free(&block);
}

enum { MOST_NEIGHBOURS = 64 };

/*
 * One side of a rank's part of a graph: its neighbours, in an order of its own, and the bytes for
 * or from each, one block after the other with gaps.
 */
struct side {
	int num, ranks[MOST_NEIGHBOURS], weights[MOST_NEIGHBOURS];
	int counts[MOST_NEIGHBOURS], displs[MOST_NEIGHBOURS];
	size_t bytes;
};

/* Bytes from a rank to another in the round; negative: they are no neighbours. All know. */
static int bytes_between(int round, int from, int to)
{
	static const int sizes[] = {-1, -1, -1, 0, 1, 17, 4096, 300001, 3 << 20};
	uint64_t seed = (uint64_t)(round * 10000 + from * 100 + to);

	draw(&seed);
	return sizes[draw(&seed) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void draw_side(struct side *side, int round, bool out)
{
	memset(side, 0, sizeof(*side));
	for (int i = 0; i < test_size; i++) {
		int peer = (i * 7 + round) % test_size; /* sizes that 7 does not divide */
		int bytes = bytes_between(round, out ? test_rank : peer, out ? peer : test_rank);

		if (bytes < 0)
			continue;
		side->ranks[side->num] = peer;
		side->weights[side->num] = 1;
		side->counts[side->num] = bytes;
		side->displs[side->num++] = (int)side->bytes;
		side->bytes += (size_t)bytes + 5;
	}
}

/*
 * Exchanges along graphs that were drawn, of which some ranks may have no part, as the real MPI
 * does them.
 */
static void any_graph(void)
{
	for (int round = 0; round < 12; round++) {
		struct side in, out;
		struct buffer send, recv, host;
		unsigned char *data;
		MPI_Comm graph, used;

		draw_side(&in, round, false);
		draw_side(&out, round, true);
		MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in.num, in.ranks, in.weights,
					       out.num, out.ranks, out.weights, MPI_INFO_NULL, 0,
					       &graph);
		MPI_Comm_dup(graph, &used);
		send = buffer_new(PLACE_DEVICE, out.bytes);
		recv = buffer_new(PLACE_DEVICE, in.bytes);
		host = buffer_new(PLACE_HOST, in.bytes);
		data = malloc(out.bytes + 1);
		for (size_t i = 0; i < out.bytes; i++)
			data[i] = (unsigned char)(31 * i + (size_t)test_rank + i / 251);
		buffer_put(&send, data, out.bytes);
		MPI_Neighbor_alltoallv(data, out.counts, out.displs, MPI_BYTE, host.data, in.counts,
				       in.displs, MPI_BYTE, used);
		for (int i = 0; i < 2; i++) {
			snprintf(test_name, sizeof(test_name), "graph %d, %d", round, i);
			MPI_Neighbor_alltoallv(send.data, out.counts, out.displs, MPI_BYTE,
					       recv.data, in.counts, in.displs, MPI_BYTE, used);
			test_result(buffer_equals(&recv, host.data, "received"));
			cuda_check(cudaMemset(recv.data, POISON, in.bytes), "cudaMemset");
		}
		free(data);
		buffer_free(&send);
		buffer_free(&recv);
		buffer_free(&host);
		MPI_Comm_free(&used);
		MPI_Comm_free(&graph);
	}
}

/* More ranks than a word has bits, and more blocks than fit a launch's arguments. */
static void many_ranks(void)
{
	enum { COUNT = 3 };
	int num = COUNT * test_size, *send = device_ints(num, 0), *recv = device_ints(num, -1);
	int *numbers = malloc((size_t)num * sizeof(*numbers));
	bool ok = true;

	for (int i = 0; i < num; i++)
		numbers[i] = 1000 * test_rank + i;
	cuda_check(cudaMemcpy(send, numbers, (size_t)num * sizeof(int), cudaMemcpyHostToDevice),
		   "cudaMemcpy");
	snprintf(test_name, sizeof(test_name), "alltoall");
	MPI_Alltoall(send, COUNT, MPI_INT, recv, COUNT, MPI_INT, MPI_COMM_WORLD);
	cuda_check(cudaMemcpy(numbers, recv, (size_t)num * sizeof(int), cudaMemcpyDeviceToHost),
		   "cudaMemcpy");
	for (int i = 0; i < num; i++)
		ok &= numbers[i] == 1000 * (i / COUNT) + COUNT * test_rank + i % COUNT;
	test_result(ok);
	free(numbers);
}

/*
 * Arenas grow as it becomes known who uses which GPU, and not on both ranks at the same time: what
 * a long call left where a short one's packets come, in numbers that look like their flags, is not
 * taken for packets.
 */
static void room_grows(void)
{
	enum { LONG = 1 << 20, SHORT = 16, FLAG = 2 };
	int *in = device_ints(LONG, FLAG), *out = device_ints(LONG, 0), numbers[SHORT];
	MPI_Comm pair;

	MPI_Comm_split(MPI_COMM_WORLD, test_rank / 2, test_rank, &pair);
	usleep(test_rank == 0 ? 0 : test_rank == 1 ? 400000 : 200000);
	snprintf(test_name, sizeof(test_name), "a long call");
	MPI_Allreduce(in, out, LONG, MPI_INT, MPI_SUM, pair);
	test_result(int_at(out, 0) == 2 * FLAG && int_at(out, LONG - 1) == 2 * FLAG);
	for (int i = 0; i < 20; i++) {
		for (int j = 0; j < SHORT; j++)
			numbers[j] = 100 * i + j + 100;
		cudaMemcpy(in, numbers, sizeof(numbers), cudaMemcpyHostToDevice);
		snprintf(test_name, sizeof(test_name), "short call %d", i);
		MPI_Allreduce(in, out, SHORT, MPI_INT, MPI_SUM, pair);
		for (int j = 0; j < SHORT; j++)
			test_result(int_at(out, j) == 2 * numbers[j]);
	}
	cudaFree(in);
	cudaFree(out);
	MPI_Comm_free(&pair);
}

/*
 * The first call of a communicator says where its ranks' GPUs are, unless some have no data; and
 * which way a call went is told of the last one only.
 */
static void ways(void)
{
	enum { COUNT = 1 << 16 };
	int *in = device_ints(COUNT, test_rank), *out = device_ints(COUNT, -1), host = 1, sum;
	int (*last_way)(char *, size_t) = NULL;
	char text[256] = "", other[256];
	int told, told_of_host;

	*(void **)&last_way = dlsym(RTLD_DEFAULT, "gpucoll_last_choice");
	MPI_Allreduce(in, out, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 3; i++)
		MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	told = last_way ? last_way(text, sizeof(text)) : -2;
	MPI_Allreduce(&host, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	told_of_host = last_way ? last_way(other, sizeof(other)) : -2;
	snprintf(test_name, sizeof(test_name), "a sum after one of nothing");
	test_result(int_at(out, COUNT - 1) == test_size * (test_size - 1) / 2);
	snprintf(test_name, sizeof(test_name), "the way of the last call");
	test_result(told == 0 && strstr(text, " allreduce 262144 "));
	if (test_rank == 0)
		printf("way: %s\n", text);
	snprintf(test_name, sizeof(test_name), "a call on host buffers has none");
	test_result(told_of_host == -1);
	cudaFree(in);
	cudaFree(out);
}

/* Nobody knows yet how others' kernels will wait. */
static void first_call(void)
{
	enum { COUNT = 75000 };
	struct buffer in = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer out = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int *values = malloc(COUNT * sizeof(int));

	for (int i = 0; i < COUNT; i++)
		values[i] = 31 * i + test_rank;
	buffer_put(&in, values, COUNT * sizeof(int));
	snprintf(test_name, sizeof(test_name), "the first call");
	MPI_Allreduce(in.data, out.data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < COUNT; i++)
		values[i] = test_size * 31 * i + test_size * (test_size - 1) / 2;
	test_result(buffer_equals(&out, values, "sums"));
	free(values);
	buffer_free(&in);
	buffer_free(&out);
}

/* Fewer are sent than are received, which is the real MPI's to judge: nobody waits for the rest. */
static void half_alltoall(void)
{
	enum { COUNT = 50000 };
	int *send = device_ints(COUNT * test_size, test_rank),
	    *recv = device_ints(2 * COUNT * test_size, -1);

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Alltoall(send, COUNT, MPI_INT, recv, 2 * COUNT, MPI_INT, MPI_COMM_WORLD);
	snprintf(test_name, sizeof(test_name), "after half of what is received");
	MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	test_result(int_at(recv, COUNT - 1) == test_size * (test_size - 1) / 2);
	cudaFree(send);
	cudaFree(recv);
}

static const struct test_case cases[] = {
	{"half_alltoall", half_alltoall},
	{"first_call", first_call},
	{"outside", outside},
	{"host_structure", host_structure},
	{"two_allocations", two_allocations},
	{"default_stream", default_stream},
	{"insignificant", insignificant},
	{"no_neighbours", no_neighbours},
	{"any_graph", any_graph},
	{"new_type_in_threads", new_type_in_threads},
	{"finalize_callback", finalize_callback},
	{"permuted_type", permuted_type},
	{"pair_in_disguise", pair_in_disguise},
	{"refused_call", refused_call},
	{"jumping_handler", jumping_handler},
	{"full_board", full_board},
	{"late_member", late_member},
	{"scattered_blocks", scattered_blocks},
	{"managed_then_not", managed_then_not},
	{"no_data_and_a_busy_stream", no_data_and_a_busy_stream},
	{"no_data_elsewhere", no_data_elsewhere},
	{"room_grows", room_grows},
	{"ways", ways},
	{"too_long_for_nobody", too_long_for_nobody},
	{"gather_too_long", gather_too_long},
	{"swap_too_long", swap_too_long},
	{"allgather_layouts", allgather_layouts},
	{"many_ranks", many_ranks},
};

int main(int argc, char **argv)
{
	int provided;

	/* A jump out of MPICH leaves its lock behind, where it has one. */
	if (argc > 1 && !strcmp(argv[1], "jumping_handler"))
		MPI_Init(&argc, &argv);
	else
		MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	test_start();
	return test_run_case(argv[1], cases, sizeof(cases) / sizeof(cases[0]));
}
