/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that are enqueued on streams.
 *
 *     test_stream random SEED CALLS
 *
 * A random program: collectives and messages on several communicators, each with a stream of its
 * own, whose order on a communicator is common, and between communicators each rank's own. Inputs
 * are copied to the device, and results back, in the order of the stream; the host waits at the end
 * only, and meanwhile calls MPI on host and device buffers. What comes out is compared with
 * arithmetic.
 *
 *     test_stream CASE      one of those at the end of the file
 */
#include "test.h"
#include "gpucoll_weak.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum kind { ALLREDUCE, BCAST, ALLGATHER, ALLTOALL, SCATTER, RING, BARRIER, NUM_KINDS };

static const char *const names[NUM_KINDS] = {"Allreduce", "Bcast", "Allgather", "Alltoall",
					     "Scatter",   "Ring",  "Barrier"};

enum { NUM_COMMS = 3, MOST_COUNT = 3000, CALLS_OF_THREAD = 30 };

struct call {
	enum kind kind;
	unsigned number; /* from which the data are made */
	int count, root;
	struct buffer send, recv;
	unsigned *in, *out; /* pinned */
};

/* A communicator and its stream. */
struct lane {
	MPI_Comm comm;
	cudaStream_t stream;
	uint64_t common; /* what is drawn by all ranks alike */
	struct call calls[CALLS_OF_THREAD];
};

/* What rank `rank` gives for place `i` in call `number`. */
static unsigned value(unsigned number, int rank, int i)
{
	return number * 2654435761u + (unsigned)rank * 40503u + (unsigned)i * 2246822519u;
}

static unsigned expected(const struct call *call, int i)
{
	unsigned total = 0;

	switch (call->kind) {
	case ALLREDUCE:
		for (int rank = 0; rank < test_size; rank++)
			total += value(call->number, rank, i);
		return total;
	case BCAST:
		return value(call->number, call->root, i);
	case ALLGATHER:
		return value(call->number, i / call->count, i % call->count);
	case ALLTOALL:
		return value(call->number, i / call->count,
			     test_rank * call->count + i % call->count);
	case SCATTER:
		return value(call->number, call->root, test_rank * call->count + i);
	default:
		return value(call->number, (test_rank + test_size - 1) % test_size, i);
	}
}

static int sent(const struct call *call)
{
	bool all = call->kind == ALLTOALL || call->kind == SCATTER;

	return all ? call->count * test_size : call->count;
}

static int received(const struct call *call)
{
	bool all = call->kind == ALLTOALL || call->kind == ALLGATHER;

	return all ? call->count * test_size : call->count;
}

static unsigned *pinned(size_t bytes)
{
	void *memory;

	cuda_check(cudaMallocHost(&memory, bytes + 4), "cudaMallocHost");
	memset(memory, POISON, bytes + 4);
	return memory;
}

static struct call prepare(enum kind kind, unsigned number, int count, int root)
{
	struct call call = {.kind = kind, .number = number, .count = count, .root = root};
	bool bcasts = kind == BCAST && test_rank == root;

	call.send = buffer_new(PLACE_DEVICE, 4 * (size_t)sent(&call));
	call.recv = buffer_new(PLACE_DEVICE, 4 * (size_t)received(&call));
	call.in = pinned(call.send.bytes);
	call.out = pinned(call.recv.bytes);
	for (int i = 0; i < sent(&call); i++)
		call.in[i] = value(number, test_rank, i);
	for (int i = 0; bcasts && i < count; i++)
		call.out[i] = call.in[i];
	/* What was put into the buffers is there, whatever else goes on. */
	cuda_check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
	return call;
}

static int ring(const struct call *call, MPI_Comm comm, cudaStream_t stream)
{
	int next = (test_rank + 1) % test_size, last = (test_rank + test_size - 1) % test_size;
	int result = gpucoll_send_enqueue(call->send.data, call->count, MPI_UNSIGNED, next, 5, comm,
					  stream);

	/* Room for more than comes. */
	return result ? result
		      : gpucoll_recv_enqueue(call->recv.data, call->count, MPI_UNSIGNED, last, 5,
					     comm, MPI_STATUS_IGNORE, stream);
}

static int make(const struct call *call, MPI_Comm comm, cudaStream_t stream)
{
	const void *send = call->send.data;
	void *recv = call->recv.data;

	switch (call->kind) {
	case ALLREDUCE:
		return gpucoll_allreduce_enqueue(send, recv, call->count, MPI_UNSIGNED, MPI_SUM,
						 comm, stream);
	case BCAST:
		return gpucoll_bcast_enqueue(recv, call->count, MPI_UNSIGNED, call->root, comm,
					     stream);
	case ALLGATHER:
		return gpucoll_allgather_enqueue(send, call->count, MPI_UNSIGNED, recv, call->count,
						 MPI_UNSIGNED, comm, stream);
	case ALLTOALL:
		return gpucoll_alltoall_enqueue(send, call->count, MPI_UNSIGNED, recv, call->count,
						MPI_UNSIGNED, comm, stream);
	case SCATTER:
		return gpucoll_scatter_enqueue(send, call->count, MPI_UNSIGNED, recv, call->count,
					       MPI_UNSIGNED, call->root, comm, stream);
	case RING:
		return ring(call, comm, stream);
	default:
		return gpucoll_barrier_enqueue(comm, stream);
	}
}

/*
 * The copies around it are on the stream, too: one that is not in its order shows, as does an input
 * that is read late.
 */
static void enqueue(struct call *call, MPI_Comm comm, cudaStream_t stream)
{
	size_t in = call->send.bytes, out = call->recv.bytes;
	bool bcasts = call->kind == BCAST;

	snprintf(test_name, sizeof(test_name), "%s of %d, call %u", names[call->kind], call->count,
		 call->number);
	if (bcasts)
		cuda_check(
			cudaMemcpyAsync(call->recv.data, call->out, out, cudaMemcpyDefault, stream),
			"cudaMemcpyAsync");
	cuda_check(cudaMemcpyAsync(call->send.data, call->in, in, cudaMemcpyDefault, stream),
		   "cudaMemcpyAsync");
	if (make(call, comm, stream) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 4);
	cuda_check(cudaMemsetAsync(call->send.data, POISON, in, stream), "cudaMemsetAsync");
	cuda_check(cudaMemcpyAsync(call->out, call->recv.data, out, cudaMemcpyDefault, stream),
		   "cudaMemcpyAsync");
}

static bool check(struct call *call)
{
	unsigned char *want = malloc(call->recv.bytes + 1);
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "%s of %d, call %u", names[call->kind], call->count,
		 call->number);
	memset(want, POISON, call->recv.bytes);
	for (int i = 0; call->kind != BARRIER && i < received(call); i++) {
		unsigned one = expected(call, i);

		memcpy(want + 4 * (size_t)i, &one, 4);
	}
	for (size_t i = 0; ok && i < call->recv.bytes; i++)
		ok = ((unsigned char *)call->out)[i] == want[i];
	if (!ok)
		fprintf(stderr, "rank %d: %s is wrong\n", test_rank, test_name);
	ok &= buffer_equals(&call->recv, want, "receive buffer");
	free(want);
	buffer_free(&call->send);
	buffer_free(&call->recv);
	cuda_check(cudaFreeHost(call->in), "cudaFreeHost");
	cuda_check(cudaFreeHost(call->out), "cudaFreeHost");
	return ok;
}

static struct lane lane_new(uint64_t seed)
{
	struct lane lane = {.common = seed};

	cuda_check(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking),
		   "cudaStreamCreateWithFlags");
	if (gpucoll_stream_comm(MPI_COMM_WORLD, lane.stream, &lane.comm) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 4);
	return lane;
}

static bool lane_free(struct lane *lane)
{
	int error = MPI_SUCCESS;

	cuda_check(cudaStreamSynchronize(lane->stream), "cudaStreamSynchronize");
	gpucoll_stream_error(lane->comm, &error);
	MPI_Comm_free(&lane->comm);
	cuda_check(cudaStreamDestroy(lane->stream), "cudaStreamDestroy");
	return error == MPI_SUCCESS;
}

/* ---- random programs ---- */

/* What the host does meanwhile; the same on all ranks, at other places in what they enqueue. */
struct beside {
	struct buffer send, recv;
	MPI_Request request;
	int num;
};

static void call_beside(struct beside *beside)
{
	int mine = test_rank + beside->num, all = 0;

	MPI_Wait(&beside->request, MPI_STATUS_IGNORE);
	switch (beside->num++ % 3) {
	case 0:
		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		break;
	case 1:
		MPI_Iallreduce(beside->send.data, beside->recv.data, 64, MPI_INT, MPI_SUM,
			       MPI_COMM_WORLD, &beside->request);
		break;
	default:
		MPI_Allreduce(beside->send.data, beside->recv.data, 64, MPI_INT, MPI_SUM,
			      MPI_COMM_WORLD);
	}
}

static struct call draw_call(struct lane *lane)
{
	enum kind kind = (enum kind)(draw(&lane->common) % NUM_KINDS);
	unsigned number = (unsigned)draw(&lane->common);
	int count = (int)(draw(&lane->common) % MOST_COUNT);
	int root = (int)(draw(&lane->common) % (uint64_t)test_size);

	if (draw(&lane->common) % 8 == 0)
		count = 0;
	return prepare(kind, number, count, root);
}

/* The calls of a round, on each communicator as many; each rank in an order of its own. */
static bool run_round(struct lane *lanes, int calls, uint64_t *own, struct beside *beside)
{
	struct call *all = malloc((size_t)(NUM_COMMS * calls) * sizeof(*all));
	int done[NUM_COMMS] = {0}, num_beside = 3, left = NUM_COMMS * calls;
	bool ok = true;

	for (int i = 0; i < NUM_COMMS * calls; i++)
		all[i] = draw_call(&lanes[i / calls]);
	while (left || num_beside) {
		int i = (int)(draw(own) % (NUM_COMMS + 1));

		if (i == NUM_COMMS && num_beside) {
			num_beside--;
			call_beside(beside);
		} else if (i < NUM_COMMS && done[i] < calls) {
			enqueue(&all[i * calls + done[i]++], lanes[i].comm, lanes[i].stream);
			left--;
		}
	}
	for (int i = 0; i < NUM_COMMS; i++)
		cuda_check(cudaStreamSynchronize(lanes[i].stream), "cudaStreamSynchronize");
	for (int i = 0; i < NUM_COMMS * calls; i++)
		ok &= check(&all[i]);
	free(all);
	return ok;
}

static void run_random(uint64_t seed, int calls)
{
	enum { ROUNDS = 4 };
	struct beside beside = {.request = MPI_REQUEST_NULL};
	uint64_t own = seed * 1000 + (uint64_t)test_rank + 1;
	struct lane lanes[NUM_COMMS];
	bool ok = true;

	beside.send = buffer_new(PLACE_DEVICE, 256);
	beside.recv = buffer_new(PLACE_DEVICE, 256);
	/* What the library has to map and allocate, it has then. */
	for (int i = 0; i < 3; i++)
		call_beside(&beside);
	for (int i = 0; i < NUM_COMMS; i++)
		lanes[i] = lane_new(seed * 17 + (uint64_t)i + 1);
	for (int i = 0; i < ROUNDS; i++)
		ok &= run_round(lanes, calls, &own, &beside);
	MPI_Wait(&beside.request, MPI_STATUS_IGNORE);
	for (int i = 0; i < NUM_COMMS; i++)
		ok &= lane_free(&lanes[i]);
	buffer_free(&beside.send);
	buffer_free(&beside.recv);
	snprintf(test_name, sizeof(test_name), "random program %llu", (unsigned long long)seed);
	test_result(ok);
}

/* ---- cases ---- */

/* A rank whose calls are enqueued goes on before the others have come to theirs. */
static void host_goes_on(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 1000, 0), after = prepare(BCAST, 2, 10, 0);
	bool waits = true;
	int token = 0;

	if (test_rank)
		MPI_Recv(&token, 1, MPI_INT, test_rank - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	enqueue(&call, lane.comm, lane.stream);
	enqueue(&after, lane.comm, lane.stream);
	if (test_rank < test_size - 1) {
		waits = cudaStreamQuery(lane.stream) == cudaErrorNotReady;
		MPI_Send(&token, 1, MPI_INT, test_rank + 1, 3, MPI_COMM_WORLD);
	}
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	test_result(waits);
	test_result(check(&call) & check(&after));
	test_result(lane_free(&lane));
}

/* Much more than one call at a time, and more than the pool of pinned memory has. */
static void many(void)
{
	enum { CALLS = 200, COUNT = 20000 };
	struct lane lane = lane_new(1);
	struct call *calls = malloc(CALLS * sizeof(*calls));
	bool ok = true;

	for (int i = 0; i < CALLS; i++)
		calls[i] = prepare(i % 2 ? ALLREDUCE : BCAST, (unsigned)i, COUNT, i % test_size);
	for (int i = 0; i < CALLS; i++)
		enqueue(&calls[i], lane.comm, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	for (int i = 0; i < CALLS; i++)
		ok &= check(&calls[i]);
	free(calls);
	test_result(ok);
	test_result(lane_free(&lane));
}

/* The application's stream, and then the communicator, end before what is enqueued does. */
static void destroyed(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 5000, 0);

	if (test_rank % 2)
		usleep(50000);
	enqueue(&call, lane.comm, lane.stream);
	cuda_check(cudaStreamDestroy(lane.stream), "cudaStreamDestroy");
	MPI_Comm_free(&lane.comm);
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	test_result(check(&call));
}

/* MPI_Finalize comes to what is enqueued, and the communicator was never freed. */
static void left_behind(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 5000, 0);

	enqueue(&call, lane.comm, lane.stream);
	test_result(true);
}

static void on_stream(cudaStream_t stream)
{
	struct call call = prepare(ALLREDUCE, 1, 777, 0);
	MPI_Comm comm;

	if (gpucoll_stream_comm(MPI_COMM_WORLD, stream, &comm) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 4);
	enqueue(&call, comm, stream);
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	test_result(check(&call));
	MPI_Comm_free(&comm);
}

static void default_streams(void)
{
	on_stream(0);
	on_stream(cudaStreamLegacy);
	on_stream(cudaStreamPerThread);
}

static bool is_error(int result, int want)
{
	int class = MPI_SUCCESS;

	MPI_Error_class(result, &class);
	if (class != want)
		fprintf(stderr, "rank %d: %s: error class %d, expected %d\n", test_rank, test_name,
			class, want);
	return class == want;
}

/* What a call that can't be tells at once; the stream and the communicator go on. */
static void refused(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 100, 0);
	cudaStream_t other;
	cudaGraph_t graph;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(lane.comm, MPI_ERRORS_RETURN);
	cuda_check(cudaStreamCreate(&other), "cudaStreamCreate");
	snprintf(test_name, sizeof(test_name), "a communicator for no stream");
	test_result(is_error(make(&call, MPI_COMM_WORLD, lane.stream), MPI_ERR_COMM));
	snprintf(test_name, sizeof(test_name), "another stream");
	test_result(is_error(make(&call, lane.comm, other), MPI_ERR_ARG));
	snprintf(test_name, sizeof(test_name), "a communicator without neighbours");
	test_result(is_error(gpucoll_neighbor_allgather_enqueue(call.send.data, 1, MPI_INT,
								call.recv.data, 1, MPI_INT,
								lane.comm, lane.stream),
			     MPI_ERR_TOPOLOGY));
	snprintf(test_name, sizeof(test_name), "a captured stream");
	cuda_check(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeGlobal),
		   "cudaStreamBeginCapture");
	test_result(is_error(make(&call, lane.comm, lane.stream), MPI_ERR_OTHER));
	cuda_check(cudaStreamEndCapture(lane.stream, &graph), "cudaStreamEndCapture");
	cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
	snprintf(test_name, sizeof(test_name), "after them");
	enqueue(&call, lane.comm, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	test_result(check(&call));
	cuda_check(cudaStreamDestroy(other), "cudaStreamDestroy");
	test_result(lane_free(&lane));
}

/* What the real MPI refuses when it comes to it is told later, and the stream goes on. */
static void told_later(void)
{
	struct lane lane = lane_new(1);
	struct buffer buffer = buffer_new(PLACE_DEVICE, 400);
	struct call call = prepare(ALLREDUCE, 1, 100, 0);
	int next = (test_rank + 1) % test_size, last = (test_rank + test_size - 1) % test_size;
	int error = MPI_SUCCESS;

	/* MPICH has no other communicator for an error in MPI_Test. */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	gpucoll_send_enqueue(buffer.data, 100, MPI_INT, next, 1, lane.comm, lane.stream);
	gpucoll_recv_enqueue(buffer.data, 50, MPI_INT, last, 1, lane.comm, MPI_STATUS_IGNORE,
			     lane.stream);
	enqueue(&call, lane.comm, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	gpucoll_stream_error(lane.comm, &error);
	snprintf(test_name, sizeof(test_name), "a message that is too long");
	test_result(is_error(error, MPI_ERR_TRUNCATE));
	test_result(check(&call));
	buffer_free(&buffer);
	test_result(lane_free(&lane));
}

/* A short message leaves the rest of the buffer, and its status tells how long it is. */
static void short_message(void)
{
	struct lane lane = lane_new(1);
	struct buffer send = buffer_new(PLACE_DEVICE, 40), recv = buffer_new(PLACE_DEVICE, 400);
	int next = (test_rank + 1) % test_size, last = (test_rank + test_size - 1) % test_size;
	unsigned char want[400];
	MPI_Status status;
	int count = -1;

	memset(want, POISON, sizeof(want));
	for (int i = 0; i < 10; i++)
		memcpy(want + 4 * i, &test_rank, 4);
	buffer_put(&send, want, 40);
	for (int i = 0; i < 10; i++)
		memcpy(want + 4 * i, &last, 4);
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	gpucoll_send_enqueue(send.data, 10, MPI_INT, next, 1, lane.comm, lane.stream);
	gpucoll_recv_enqueue(recv.data, 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, lane.comm,
			     &status, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	MPI_Get_count(&status, MPI_INT, &count);
	snprintf(test_name, sizeof(test_name), "a short message");
	test_result(count == 10 && status.MPI_SOURCE == last && status.MPI_TAG == 1);
	test_result(buffer_equals(&recv, want, "receive buffer"));
	buffer_free(&send);
	buffer_free(&recv);
	test_result(lane_free(&lane));
}

/* Each side sends first, more than MPI sends without a receiver. */
static void sends_first(void)
{
	enum { COUNT = 1 << 20 };
	struct lane lane = lane_new(1);
	struct call call = prepare(RING, 1, COUNT, 0);

	enqueue(&call, lane.comm, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	test_result(check(&call));
	test_result(lane_free(&lane));
}

/* Types and arrays end with the call. */
static void freed(void)
{
	enum { ROWS = 40 };
	struct lane lane = lane_new(1);
	struct buffer send = buffer_new(PLACE_DEVICE, 4 * 2 * ROWS * (size_t)test_size),
		      recv = buffer_new(PLACE_DEVICE, 4 * 2 * ROWS * (size_t)test_size);
	unsigned *in = malloc(send.bytes), *want = malloc(send.bytes);
	int *counts = malloc(4 * (size_t)test_size), *displs = malloc(4 * (size_t)test_size);
	MPI_Datatype column;

	memset(want, POISON, send.bytes);
	for (int i = 0; i < 2 * ROWS * test_size; i++)
		in[i] = value(1, test_rank, i);
	for (int i = 0; i < test_size; i++) {
		counts[i] = 1;
		displs[i] = i;
		for (int j = 0; j < ROWS; j++)
			want[2 * (i * ROWS + j)] = value(1, i, 2 * (test_rank * ROWS + j));
	}
	buffer_put(&send, in, send.bytes);
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	MPI_Type_vector(ROWS, 1, 2, MPI_INT, &column);
	MPI_Datatype whole;
	MPI_Type_create_resized(column, 0, 8 * ROWS, &whole);
	MPI_Type_commit(&whole);
	MPI_Type_free(&column);
	if (test_rank % 2)
		usleep(30000);
	gpucoll_alltoallv_enqueue(send.data, counts, displs, whole, recv.data, counts, displs,
				  whole, lane.comm, lane.stream);
	MPI_Type_free(&whole);
	memset(counts, 0x7f, 4 * (size_t)test_size);
	memset(displs, 0x7f, 4 * (size_t)test_size);
	free(counts);
	free(displs);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	snprintf(test_name, sizeof(test_name), "a type that is freed at once");
	test_result(buffer_equals(&recv, want, "receive buffer"));
	free(in);
	free(want);
	buffer_free(&send);
	buffer_free(&recv);
	test_result(lane_free(&lane));
}

/*
 * Several threads, each with a communicator and stream of its own. What may wait for the device,
 * and so for what other threads have enqueued, is done before and afterwards.
 */
static void *run_thread(void *argument)
{
	struct lane *lane = argument;
	int devices = 1;

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
	for (int i = 0; i < CALLS_OF_THREAD; i++) {
		enqueue(&lane->calls[i], lane->comm, lane->stream);
		if (i % 8 == 0)
			cuda_check(cudaStreamSynchronize(lane->stream), "cudaStreamSynchronize");
	}
	cuda_check(cudaStreamSynchronize(lane->stream), "cudaStreamSynchronize");
	return NULL;
}

static void threads(void)
{
	struct lane lanes[NUM_COMMS];
	pthread_t ids[NUM_COMMS];
	bool ok = true;

	for (int i = 0; i < NUM_COMMS; i++)
		lanes[i] = lane_new((uint64_t)i + 1);
	for (int i = 0; i < NUM_COMMS * CALLS_OF_THREAD; i++)
		lanes[i / CALLS_OF_THREAD].calls[i % CALLS_OF_THREAD] =
			draw_call(&lanes[i / CALLS_OF_THREAD]);
	for (int i = 0; i < NUM_COMMS; i++)
		pthread_create(&ids[i], NULL, run_thread, &lanes[i]);
	for (int i = 0; i < NUM_COMMS; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < NUM_COMMS * CALLS_OF_THREAD; i++)
		ok &= check(&lanes[i / CALLS_OF_THREAD].calls[i % CALLS_OF_THREAD]);
	for (int i = 0; i < NUM_COMMS; i++)
		ok &= lane_free(&lanes[i]);
	snprintf(test_name, sizeof(test_name), "threads");
	test_result(ok);
}

/* The program is told the level that it has asked for, and the library has the one that it needs.
 */
static void level(void)
{
	int level = -1;

	MPI_Query_thread(&level);
	test_result(level == MPI_THREAD_SINGLE);
	host_goes_on();
}

/* Without MPI_THREAD_MULTIPLE. */
static void no_threads(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 100, 0);

	MPI_Comm_set_errhandler(lane.comm, MPI_ERRORS_RETURN);
	snprintf(test_name, sizeof(test_name), "no threads");
	test_result(is_error(make(&call, lane.comm, lane.stream), MPI_ERR_OTHER));
	test_result(lane_free(&lane));
}

/* The device is lost while calls are enqueued: all ends, with an error. */
static void lost(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(BCAST, 1, 100, 0);
	void (*fault)(const char *) = NULL;
	int error = MPI_SUCCESS;

	MPI_Comm_set_errhandler(lane.comm, MPI_ERRORS_RETURN);
	enqueue(&call, lane.comm, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	test_result(check(&call));
	call = prepare(BCAST, 2, 100, 0);
	*(void **)&fault = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	fault("cuStreamWaitValue64:1=719");
	error = make(&call, lane.comm, lane.stream);
	test_result(error != MPI_SUCCESS);
	error = make(&call, lane.comm, lane.stream);
	test_result(error != MPI_SUCCESS);
	MPI_Comm_free(&lane.comm);
	test_result(true);
}

/* Rank 0's driver refuses a call behind one that the others have not come to: that one is right. */
static void one_refused(void)
{
	static const struct timespec later = {0, 200000000};
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 1000, 0), behind = prepare(ALLREDUCE, 2, 10, 0);
	void (*fault)(const char *) = NULL;
	int error = MPI_SUCCESS;

	MPI_Comm_set_errhandler(lane.comm, MPI_ERRORS_RETURN);
	*(void **)&fault = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	if (test_rank == 0) {
		enqueue(&call, lane.comm, lane.stream);
		fault("cuMemcpyAsync:1=1");
		error = make(&behind, lane.comm, lane.stream);
		nanosleep(&later, NULL);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank)
		enqueue(&call, lane.comm, lane.stream);
	cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	test_result((error != MPI_SUCCESS) == (test_rank == 0));
	test_result(check(&call));
	test_result(lane_free(&lane));
}

/* Rank 0's driver refuses to copy what a call gives: the stream goes on, and the others have it. */
static void result_refused(void)
{
	struct lane lane = lane_new(1);
	struct call call = prepare(ALLREDUCE, 1, 1000, 0);
	void (*fault)(const char *) = NULL;
	bool ok = true;

	MPI_Comm_set_errhandler(lane.comm, MPI_ERRORS_RETURN);
	*(void **)&fault = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	if (test_rank == 0) {
		cuda_check(cudaMemcpyAsync(call.send.data, call.in, call.send.bytes,
					   cudaMemcpyDefault, lane.stream),
			   "cudaMemcpyAsync");
		fault("cuMemcpyAsync:2=1");
		ok = make(&call, lane.comm, lane.stream) != MPI_SUCCESS;
		cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank) {
		enqueue(&call, lane.comm, lane.stream);
		cuda_check(cudaStreamSynchronize(lane.stream), "cudaStreamSynchronize");
		ok = check(&call);
	}
	test_result(ok);
	test_result(lane_free(&lane));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"host_goes_on", host_goes_on},
		{"many", many},
		{"destroyed", destroyed},
		{"left_behind", left_behind},
		{"default_streams", default_streams},
		{"refused", refused},
		{"told_later", told_later},
		{"short_message", short_message},
		{"sends_first", sends_first},
		{"freed", freed},
		{"threads", threads},
		{"level", level},
		{"no_threads", no_threads},
		{"lost", lost},
		{"one_refused", one_refused},
		{"result_refused", result_refused},
	};
	const char *name = argc > 1 ? argv[1] : NULL;
	int status, given;

	if (name && (!strcmp(name, "level") || !strcmp(name, "no_threads")))
		MPI_Init(&argc, &argv);
	else
		MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
	test_start();
	if (argc != 4 || strcmp(name, "random"))
		return test_run_case(name, cases, sizeof(cases) / sizeof(cases[0]));
	run_random(strtoull(argv[2], NULL, 10), atoi(argv[3]));
	status = test_finish();
	MPI_Finalize();
	return status;
}
