/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The edges of what MPI allows: buffers whose address is not where their data are, data in several
 * allocations, arguments that are insignificant, callbacks of MPI_Finalize.
 *
 *     test_edges CASE        one of the names in the table at the end
 */
#include "test.h"

#include <pthread.h>

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

/* The buffer's address is no memory of anybody's; the datatype, or the displacements, lead to it.
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

/* One datatype over two allocations, side by side or not, one of which was never seen before and
 * has a late memset on it. */
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

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"outside", outside},
	{"host_structure", host_structure},
	{"two_allocations", two_allocations},
	{"default_stream", default_stream},
	{"insignificant", insignificant},
	{"no_neighbours", no_neighbours},
	{"new_type_in_threads", new_type_in_threads},
	{"finalize_callback", finalize_callback},
};

int main(int argc, char **argv)
{
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	test_start();
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		cases[i].run();
		int status = test_finish();
		MPI_Finalize();
		return status;
	}
	fprintf(stderr, "test_edges: no case '%s'\n", argc > 1 ? argv[1] : "");
	MPI_Abort(MPI_COMM_WORLD, 2);
}
