/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Enqueued calls that are kernels, which wait for those of other ranks without a host
 * (docs/decisions/0027): what test_coll and test_stream do not do of them.
 *
 *     test_fused CASE      one of those at the end of the file
 */
#include "test.h"
#include "gpucoll_weak.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

enum { COUNT = 5000, MOST_RANKS = 8 };

static cudaStream_t stream;
static MPI_Comm comm;

static int value(int rank, int i, int round)
{
	return rank * 7919 + i * 31 + round * 104729 + 1;
}

static void open_comm(void)
{
	cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
		   "cudaStreamCreateWithFlags");
	if (gpucoll_stream_comm(MPI_COMM_WORLD, stream, &comm) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 4);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

/* Whether no call failed. */
static bool close_comm(void)
{
	int error = MPI_SUCCESS;

	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	gpucoll_stream_error(comm, &error);
	MPI_Comm_free(&comm);
	cuda_check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	return error == MPI_SUCCESS;
}

static void must(int result)
{
	if (result != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 4);
}

static void copy(void *to, const void *from, size_t bytes)
{
	cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

static int *pinned(size_t count)
{
	void *memory;

	cuda_check(cudaMallocHost(&memory, count * sizeof(int)), "cudaMallocHost");
	memset(memory, POISON, count * sizeof(int));
	return memory;
}

/* Every other element, as one. */
static MPI_Datatype column(int count)
{
	MPI_Datatype type;

	MPI_Type_vector(count, 1, 2, MPI_INT, &type);
	MPI_Type_commit(&type);
	return type;
}

/* ---- graphs ---- */

/* What is captured: a sum, which is gathered; and what a root has, of whose elements every other.
 */
struct captured {
	int *in, *out, *all, *spread; /* pinned: the first brought, the others fetched in it */
	struct buffer from, to, gathered, spaced;
	cudaGraphExec_t exec;
};

static void capture(struct captured *c, MPI_Datatype type)
{
	size_t bytes = COUNT * sizeof(int);
	cudaGraph_t graph;

	cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
		   "cudaStreamBeginCapture");
	copy(c->from.data, c->in, bytes);
	must(gpucoll_allreduce_enqueue(c->from.data, c->to.data, COUNT, MPI_INT, MPI_SUM, comm,
				       stream));
	must(gpucoll_allgather_enqueue(c->to.data, 10, MPI_INT, c->gathered.data, 10, MPI_INT, comm,
				       stream));
	if (test_rank)
		must(gpucoll_bcast_enqueue(c->spaced.data, 1, type, 0, comm, stream));
	else
		must(gpucoll_bcast_enqueue(c->from.data, COUNT, MPI_INT, 0, comm, stream));
	must(gpucoll_barrier_enqueue(comm, stream));
	copy(c->out, c->to.data, bytes);
	copy(c->all, c->gathered.data, c->gathered.bytes);
	copy(c->spread, test_rank ? c->spaced.data : c->from.data,
	     test_rank ? 2 * bytes - sizeof(int) : bytes);
	cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	cuda_check(cudaGraphInstantiate(&c->exec, graph, 0), "cudaGraphInstantiate");
	cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

/* Of the first so many ranks. */
static int sum_of(int ranks, int i, int round)
{
	int total = 0;

	for (int rank = 0; rank < ranks; rank++)
		total += value(rank, i, round);
	return total;
}

static int sum(int i, int round)
{
	return sum_of(test_size, i, round);
}

static bool check_captured(const struct captured *c, int round)
{
	bool ok = true;

	for (int i = 0; i < COUNT; i++) {
		ok &= c->out[i] == sum(i, round);
		ok &= c->spread[test_rank ? 2 * i : i] == value(0, i, round);
		/* What lies between is nobody's. */
		if (test_rank && i + 1 < COUNT)
			ok &= ((unsigned char *)&c->spread[2 * i + 1])[0] == POISON;
	}
	for (int i = 0; i < 10 * test_size; i++)
		ok &= c->all[i] == sum(i % 10, round);
	return ok;
}

/* Launched again and again, also several times before anybody waits; other calls in between. */
static void graphs(void)
{
	enum { ROUNDS = 7 };
	struct captured c = {.in = pinned(COUNT),
			     .out = pinned(COUNT),
			     .all = pinned(10 * (size_t)test_size),
			     .spread = pinned(2 * COUNT),
			     .from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)),
			     .to = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)),
			     .gathered =
				     buffer_new(PLACE_DEVICE, 10 * sizeof(int) * (size_t)test_size),
			     .spaced = buffer_new(PLACE_DEVICE, (2 * COUNT - 1) * sizeof(int))};
	MPI_Datatype type = column(COUNT);

	open_comm();
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	capture(&c, type);
	MPI_Type_free(&type);
	for (int round = 0; round < ROUNDS; round++) {
		snprintf(test_name, sizeof(test_name), "a graph, launch %d", round);
		for (int i = 0; i < COUNT; i++)
			c.in[i] = value(test_rank, i, round);
		if (test_rank == round % test_size)
			usleep(3000);
		for (int times = 0; times <= round % 3; times++)
			cuda_check(cudaGraphLaunch(c.exec, stream), "cudaGraphLaunch");
		if (round % 2)
			must(gpucoll_bcast_enqueue(c.from.data, COUNT, MPI_INT, 0, comm, stream));
		cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		test_result(check_captured(&c, round));
	}
	cuda_check(cudaGraphExecDestroy(c.exec), "cudaGraphExecDestroy");
	test_result(close_comm());
}

/* Calls that a graph can't have are refused, and the capture goes on. */
static void not_captured(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int class = 0;
	cudaGraph_t graph;
	int result;

	open_comm();
	cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
		   "cudaStreamBeginCapture");
	result = gpucoll_send_enqueue(buffer.data, 1, MPI_INT, 0, 1, comm, stream);
	MPI_Error_class(result, &class);
	must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM, comm,
				       stream));
	snprintf(test_name, sizeof(test_name), "not in a graph");
	test_result(cudaStreamEndCapture(stream, &graph) == cudaSuccess && class == MPI_ERR_OTHER);
	cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
	test_result(close_comm());
	buffer_free(&buffer);
}

/* ---- layouts ---- */

/* Ranks differ in how their elements lie, of which others know nothing. */
struct laid {
	MPI_Datatype type; /* of one element */
	int times;         /* ints that it takes */
};

static void put(struct buffer *buffer, const struct laid *laid, const int *values, int count)
{
	size_t bytes = (size_t)count * (size_t)laid->times * sizeof(int);
	int *raw = malloc(bytes + 1);

	memset(raw, POISON, bytes);
	for (int i = 0; i < count; i++)
		raw[i * laid->times] = values[i];
	*buffer = buffer_new(PLACE_DEVICE, bytes);
	buffer_put(buffer, raw, bytes);
	free(raw);
}

static bool got(struct buffer *buffer, const struct laid *laid, const int *want, int count)
{
	size_t bytes = (size_t)count * (size_t)laid->times * sizeof(int);
	int *raw = malloc(bytes + 1);
	bool ok;

	memset(raw, POISON, bytes);
	for (int i = 0; i < count; i++)
		raw[i * laid->times] = want[i];
	ok = buffer_equals(buffer, raw, "output");
	free(raw);
	buffer_free(buffer);
	return ok;
}

static int begin_moving(int kind, void *in, void *out, int count, MPI_Datatype type, int root)
{
	switch (kind) {
	case 0:
		return gpucoll_bcast_enqueue(out, count, type, root, comm, stream);
	case 1:
		return gpucoll_gather_enqueue(in, count, type, out, count, type, root, comm,
					      stream);
	case 2:
		return gpucoll_scatter_enqueue(in, count, type, out, count, type, root, comm,
					       stream);
	case 3:
		return gpucoll_allgather_enqueue(in, count, type, out, count, type, comm, stream);
	default:
		return gpucoll_alltoall_enqueue(in, count, type, out, count, type, comm, stream);
	}
}

/* A call of `count` elements a block; what it gives is known. */
static void move(int kind, const struct laid *laid, int count, int root)
{
	int all = count * test_size, in = kind == 2 || kind == 4 ? all : count;
	int out = kind == 0 || kind == 2 ? count : all;
	int *values = malloc(((size_t)all + 1) * sizeof(int)),
	    *want = malloc(((size_t)all + 1) * sizeof(int));
	bool writes = kind == 1 ? test_rank == root : true;
	struct buffer from, to;

	memset(want, POISON, (size_t)all * sizeof(int));
	for (int i = 0; i < in; i++)
		values[i] = value(test_rank, i, kind);
	put(&from, laid, values, in);
	put(&to, laid, kind == 0 && test_rank == root ? values : want, out);
	for (int i = 0; writes && i < out; i++) {
		int sender = kind == 0 || kind == 2 ? root : i / count;
		int at = kind == 2 || kind == 4 ? test_rank * count + i % count
			 : kind == 0            ? i
						: i % count;

		want[i] = value(sender, at, kind);
	}
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	must(begin_moving(kind, from.data, to.data, count, laid->type, root));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	snprintf(test_name, sizeof(test_name), "layout, call %d of %d from %d", kind, count, root);
	test_result(got(&to, laid, want, out));
	buffer_free(&from);
	free(values);
	free(want);
}

static void layouts(void)
{
	static const int counts[] = {1, 37, 3000};
	struct laid solid = {MPI_INT, 1}, spaced = {.times = 2};

	MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced.type);
	MPI_Type_commit(&spaced.type);
	open_comm();
	for (int kind = 0; kind < 5; kind++) {
		for (int i = 0; i < 3; i++)
			move(kind, (test_rank + i) % 2 ? &solid : &spaced, counts[i],
			     (kind + i) % test_size);
	}
	test_result(close_comm());
	MPI_Type_free(&spaced.type);
}

/* ---- sizes of each rank's own ---- */

enum form {
	VECTORS,
	VECTORS_IN_PLACE,
	TYPES,
	GATHERED,
	GATHERED_IN_PLACE,
	SCATTERED,
	SCATTERED_IN_PLACE,
	ALL,
	ALL_IN_PLACE,
	NUM_FORMS
};

/* One side of a call: a block for each rank, with gaps between them, and, of TYPES, in some. */
struct side {
	int counts[MOST_RANKS], displs[MOST_RANKS], times[MOST_RANKS];
	int bytes[MOST_RANKS]; /* displacements */
	MPI_Datatype types[MOST_RANKS];
	struct buffer buffer;
	int *data, total; /* ints */
};

struct exchange {
	enum form form;
	int number, root;
	struct side send, recv;
};

static uint64_t hash(int a, int b, int c)
{
	uint64_t state = ((uint64_t)a << 40) + ((uint64_t)b << 20) + (uint64_t)c + 1;

	return draw(&state);
}

/* Ints that rank `i` sends to rank `j`, which both know. */
static int ints_between(const struct exchange *e, int i, int j)
{
	static const int most[] = {1, 10, 3000, 150000, 20};
	bool swaps = e->form == VECTORS_IN_PLACE && j < i;
	bool gathers = e->form == GATHERED || e->form == GATHERED_IN_PLACE;
	bool scatters = e->form == SCATTERED || e->form == SCATTERED_IN_PLACE;
	uint64_t of;

	if ((gathers && j != e->root) || (scatters && i != e->root))
		return 0;
	if (e->form >= ALL)
		j = 0;
	of = hash(e->number, swaps ? j : i, swaps ? i : j);
	return of % 4 == 3 ? 0 : (int)(of / 4 % (uint64_t)most[of / 1024 % 5]);
}

static void open_side(struct side *side, const struct exchange *e, bool sends, MPI_Datatype spaced,
		      uint64_t *mine)
{
	int at = 0;

	for (int i = 0; i < test_size; i++) {
		bool same = sends && e->form >= ALL && i;

		side->counts[i] =
			sends ? ints_between(e, test_rank, i) : ints_between(e, i, test_rank);
		side->times[i] = e->form == TYPES && draw(mine) % 3 == 0 ? 2 : 1;
		side->types[i] = side->times[i] == 2 ? spaced : MPI_INT;
		at += same ? 0 : (int)(draw(mine) % 5);
		side->displs[i] = same ? side->displs[0] : at;
		side->bytes[i] = side->displs[i] * (int)sizeof(int);
		at += same ? 0 : side->counts[i] * side->times[i];
	}
	side->total = at + 1;
	side->data = malloc((size_t)side->total * sizeof(int));
	memset(side->data, POISON, (size_t)side->total * sizeof(int));
	side->buffer = buffer_new(draw(mine) % 4 ? PLACE_DEVICE : PLACE_HOST,
				  (size_t)side->total * sizeof(int));
}

/* What rank `from` sends to rank `to`, in the side's block of the other of them. */
static void fill_block(struct side *side, const struct exchange *e, int block, int from, int to)
{
	for (int k = 0; k < side->counts[block]; k++)
		side->data[side->displs[block] + k * side->times[block]] =
			value(from * 31 + (e->form >= ALL ? 0 : to), k, e->number);
}

static void open_exchange(struct exchange *e, int number, MPI_Datatype spaced, uint64_t *mine)
{
	bool in_place;

	*e = (struct exchange){.form = (enum form)(number % NUM_FORMS),
			       .number = number,
			       .root = number % test_size};
	in_place = e->form == VECTORS_IN_PLACE || e->form == ALL_IN_PLACE ||
		   (test_rank == e->root && e->form == GATHERED_IN_PLACE);
	open_side(&e->send, e, true, spaced, mine);
	open_side(&e->recv, e, false, spaced, mine);
	for (int i = 0; i < test_size; i++)
		fill_block(&e->send, e, i, test_rank, i);
	buffer_put(&e->send.buffer, e->send.data, (size_t)e->send.total * sizeof(int));
	/* In place what is sent lies where the same rank's is received. */
	for (int i = 0; in_place && i < test_size; i++) {
		if (e->form == VECTORS_IN_PLACE || i == test_rank)
			fill_block(&e->recv, e, i, test_rank, i);
	}
	buffer_put(&e->recv.buffer, e->recv.data, (size_t)e->recv.total * sizeof(int));
	for (int i = 0; i < test_size; i++) {
		if (e->form != SCATTERED_IN_PLACE || test_rank != e->root)
			fill_block(&e->recv, e, i, i, test_rank);
	}
}

static int begin_exchange(struct exchange *e)
{
	struct side *s = &e->send, *r = &e->recv;
	bool at_root = test_rank == e->root;
	char *to = r->buffer.data;

	switch (e->form) {
	case VECTORS:
		return gpucoll_alltoallv_enqueue(s->buffer.data, s->counts, s->displs, MPI_INT, to,
						 r->counts, r->displs, MPI_INT, comm, stream);
	case VECTORS_IN_PLACE:
		return gpucoll_alltoallv_enqueue(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, to,
						 r->counts, r->displs, MPI_INT, comm, stream);
	case TYPES:
		return gpucoll_alltoallw_enqueue(s->buffer.data, s->counts, s->bytes, s->types, to,
						 r->counts, r->bytes, r->types, comm, stream);
	case GATHERED:
	case GATHERED_IN_PLACE:
		return gpucoll_gatherv_enqueue(at_root && e->form == GATHERED_IN_PLACE
						       ? MPI_IN_PLACE
						       : (char *)s->buffer.data + s->bytes[e->root],
					       s->counts[e->root], MPI_INT, at_root ? to : NULL,
					       at_root ? r->counts : NULL,
					       at_root ? r->displs : NULL, MPI_INT, e->root, comm,
					       stream);
	case SCATTERED:
	case SCATTERED_IN_PLACE:
		return gpucoll_scatterv_enqueue(
			at_root ? s->buffer.data : NULL, at_root ? s->counts : NULL,
			at_root ? s->displs : NULL, MPI_INT,
			at_root && e->form == SCATTERED_IN_PLACE ? MPI_IN_PLACE
								 : to + r->bytes[e->root],
			r->counts[e->root], MPI_INT, e->root, comm, stream);
	default:
		return gpucoll_allgatherv_enqueue(
			e->form == ALL ? (char *)s->buffer.data + s->bytes[0] : MPI_IN_PLACE,
			s->counts[0], MPI_INT, to, r->counts, r->displs, MPI_INT, comm, stream);
	}
}

static bool close_exchange(struct exchange *e)
{
	bool ok = buffer_equals(&e->recv.buffer, e->recv.data, "output") &&
		  buffer_equals(&e->send.buffer, e->send.data, "input");

	buffer_free(&e->send.buffer);
	buffer_free(&e->recv.buffer);
	free(e->send.data);
	free(e->recv.data);
	return ok;
}

/* One behind the other, from and to memory of the host, too; one of them again and again, in a
 * graph. */
static void exchanges(void)
{
	enum { CALLS = 3 * NUM_FORMS, CAPTURED = 2 * NUM_FORMS };
	static struct exchange all[CALLS];
	uint64_t mine = (uint64_t)test_rank + 7;
	MPI_Datatype spaced;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced);
	MPI_Type_commit(&spaced);
	open_comm();
	for (int i = 0; i < CALLS; i++)
		open_exchange(&all[i], i, spaced, &mine);
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
		   "cudaStreamBeginCapture");
	for (int i = CAPTURED; i < CALLS; i++) {
		if (all[i].form != VECTORS_IN_PLACE)
			must(begin_exchange(&all[i]));
	}
	cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
	for (int i = 0; i < CAPTURED; i++) {
		must(begin_exchange(&all[i]));
		if (i % 5 == 2)
			cuda_check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
	}
	must(begin_exchange(&all[CAPTURED + VECTORS_IN_PLACE]));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	for (int i = 0; i < CALLS; i++) {
		snprintf(test_name, sizeof(test_name), "exchange %d of form %d", i, all[i].form);
		test_result(close_exchange(&all[i]));
	}
	cuda_check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
	test_result(close_comm());
	MPI_Type_free(&spaced);
}

/* ---- one behind another ---- */

/* Calls that nobody waits for, of which each has its own schedule and a rank of its own is late. */
static void in_turn(void)
{
	enum { CALLS = 24, LONG = 200000 };
	static const int counts[] = {5000, LONG, 3, LONG / 7};
	int *in = pinned(LONG), *out[CALLS];
	struct buffer from = buffer_new(PLACE_DEVICE, LONG * sizeof(int)), to[CALLS];
	bool ok = true;

	for (int i = 0; i < LONG; i++)
		in[i] = value(test_rank, i, 0);
	buffer_put(&from, in, LONG * sizeof(int));
	for (int i = 0; i < CALLS; i++) {
		out[i] = pinned(LONG);
		to[i] = buffer_new(PLACE_DEVICE, LONG * sizeof(int));
		if ((i / 3 + 2) % test_size == test_rank)
			buffer_put(&to[i], in, LONG * sizeof(int));
	}
	open_comm();
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	for (int i = 0; i < CALLS; i++) {
		int count = counts[i / 3 % 4], root = (i / 3 + 2) % test_size;

		if ((i * 7 + 3) % test_size == test_rank)
			usleep(2000);
		if (i % 3 == 2)
			must(gpucoll_allreduce_enqueue(from.data, to[i].data, count, MPI_INT,
						       MPI_SUM, comm, stream));
		else if (i % 3 == 1)
			must(gpucoll_bcast_enqueue(to[i].data, count, MPI_INT, root, comm, stream));
		else
			must(gpucoll_exscan_enqueue(from.data, to[i].data, count, MPI_INT, MPI_SUM,
						    comm, stream));
		copy(out[i], to[i].data, (size_t)count * sizeof(int));
	}
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	for (int i = 0; i < CALLS; i++) {
		int count = counts[i / 3 % 4], root = (i / 3 + 2) % test_size;

		for (int j = 0; j < count && (i % 3 || test_rank); j++)
			ok &= out[i][j] == (i % 3 == 2   ? sum_of(test_size, j, 0)
					    : i % 3 == 1 ? value(root, j, 0)
							 : sum_of(test_rank, j, 0));
		buffer_free(&to[i]);
	}
	snprintf(test_name, sizeof(test_name), "one behind another");
	test_result(ok);
	buffer_free(&from);
	test_result(close_comm());
}

/* ---- other ways beside them ---- */

/* More communicators than there are blocks for: each rank goes through them in its own order. */
static void many_comms(void)
{
	enum { MANY = 12, FEW = 300 };
	MPI_Comm comms[MANY];
	cudaStream_t streams[MANY];
	int *out[MANY];
	struct buffer from[MANY], to[MANY];
	bool ok = true;

	for (int i = 0; i < MANY; i++) {
		int values[FEW];

		open_comm();
		comms[i] = comm;
		streams[i] = stream;
		out[i] = pinned(FEW);
		for (int j = 0; j < FEW; j++)
			values[j] = value(test_rank, j, i);
		from[i] = buffer_new(PLACE_DEVICE, sizeof(values));
		to[i] = buffer_new(PLACE_DEVICE, sizeof(values));
		buffer_put(&from[i], values, sizeof(values));
	}
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	for (int i = 0; i < MANY; i++) {
		int k = test_rank % 2 ? MANY - 1 - i : (i * 5 + test_rank) % MANY;

		must(gpucoll_allreduce_enqueue(from[k].data, to[k].data, FEW, MPI_INT, MPI_SUM,
					       comms[k], streams[k]));
		cuda_check(cudaMemcpyAsync(out[k], to[k].data, FEW * sizeof(int), cudaMemcpyDefault,
					   streams[k]),
			   "cudaMemcpyAsync");
	}
	for (int i = 0; i < MANY; i++) {
		cuda_check(cudaStreamSynchronize(streams[i]), "cudaStreamSynchronize");
		for (int j = 0; j < FEW; j++)
			ok &= out[i][j] == sum(j, i);
	}
	snprintf(test_name, sizeof(test_name), "many communicators");
	test_result(ok);
	for (int i = 0; i < MANY; i++) {
		comm = comms[i];
		stream = streams[i];
		ok &= close_comm();
	}
	test_result(ok);
}

/* Of no thread level an MPI needs more for them. */
static void level(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int values[COUNT], level = -1;

	MPI_Query_thread(&level);
	for (int i = 0; i < COUNT; i++)
		values[i] = value(test_rank, i, 0);
	buffer_put(&buffer, values, sizeof(values));
	open_comm();
	must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM, comm,
				       stream));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	for (int i = 0; i < COUNT; i++)
		values[i] = sum(i, 0);
	snprintf(test_name, sizeof(test_name), "without threads");
	test_result(level == MPI_THREAD_SINGLE && buffer_equals(&buffer, values, "output"));
	test_result(close_comm());
}

struct pair {
	double value;
	int rank;
	int padding;
};

/* Pairs whose padding is nobody's; the last one's need not be there. */
static void pairs(void)
{
	enum { NUM = 7 };
	struct buffer buffer;
	struct pair mine[NUM];
	size_t bytes = sizeof(mine) - sizeof(int);

	memset(mine, POISON, sizeof(mine));
	for (int i = 0; i < NUM; i++) {
		mine[i].value = (test_rank * 5 + i) % 7;
		mine[i].rank = test_rank;
	}
	buffer = buffer_new(test_rank % 2 ? PLACE_HOST : PLACE_DEVICE, bytes);
	buffer_put(&buffer, mine, bytes);
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, NUM, MPI_DOUBLE_INT, MPI_MAXLOC,
				       comm, stream));
	must(gpucoll_bcast_enqueue(buffer.data, NUM, MPI_DOUBLE_INT, test_size - 1, comm, stream));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	for (int i = 0; i < NUM; i++) {
		mine[i].value = -1;
		for (int rank = 0; rank < test_size; rank++) {
			double other = (rank * 5 + i) % 7;

			if (other > mine[i].value) {
				mine[i].value = other;
				mine[i].rank = rank;
			}
		}
	}
	snprintf(test_name, sizeof(test_name), "pairs");
	test_result(buffer_equals(&buffer, mine, "pairs"));
	buffer_free(&buffer);
}

/* Of types without bytes some ranks have many, and others none at all. */
static void nothing(void)
{
	MPI_Datatype empty;
	char byte = 1;

	MPI_Type_contiguous(0, MPI_INT, &empty);
	MPI_Type_commit(&empty);
	must(gpucoll_bcast_enqueue(&byte, test_rank % 2 ? 5 : 0, test_rank % 2 ? empty : MPI_INT, 0,
				   comm, stream));
	must(gpucoll_allgather_enqueue(&byte, 3, empty, &byte, 3, empty, comm, stream));
	MPI_Type_free(&empty);
}

/* What nobody writes may be where nobody can. */
static void read_only(void)
{
	static const int constant[3] = {3, 1, 4};
	int got[3] = {0};

	must(gpucoll_bcast_enqueue(test_rank ? got : (void *)constant, 3, MPI_INT, 0, comm,
				   stream));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	snprintf(test_name, sizeof(test_name), "read only");
	test_result(!test_rank || !memcmp(got, constant, sizeof(got)));
}

/* Some ranks' memory is where no kernel comes to: the host's, or another device's. */
static void out_of_reach(void)
{
	enum place place = test_rank % 2 ? PLACE_HOST : PLACE_DEVICE;
	int values[COUNT], devices = 1;
	struct buffer buffer;

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	open_comm();
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < COUNT; i++)
			values[i] = value(test_rank, i, round);
		cuda_check(cudaSetDevice((test_rank + (test_rank == 2)) % devices),
			   "cudaSetDevice");
		buffer = buffer_new(place, sizeof(values));
		buffer_put(&buffer, values, sizeof(values));
		cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
		must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM,
					       comm, stream));
		must(gpucoll_bcast_enqueue(buffer.data, COUNT, MPI_INT, round % test_size, comm,
					   stream));
		cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		for (int i = 0; i < COUNT; i++)
			values[i] = sum(i, round);
		snprintf(test_name, sizeof(test_name), "out of reach, round %d", round);
		test_result(buffer_equals(&buffer, values, "output"));
		buffer_free(&buffer);
	}
	pairs();
	nothing();
	read_only();
	test_result(close_comm());
}

/* ---- failures ---- */

/* One rank's launch fails; the others' kernels end, and they are told. */
static void launch_fails(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	void (*fault)(const char *) = NULL;
	int error = MPI_SUCCESS;

	snprintf(test_name, sizeof(test_name), "a launch fails");
	open_comm();
	must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM, comm,
				       stream));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	if (test_rank == test_size - 1) {
		*(void **)&fault = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
		fault("cuLaunchKernel:1=719");
		error = gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT,
						  MPI_SUM, comm, stream);
	} else {
		/* It may be known here already. */
		error = gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT,
						  MPI_SUM, comm, stream);
		cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		if (!error)
			gpucoll_stream_error(comm, &error);
	}
	test_result(error != MPI_SUCCESS);
	/* Later calls are refused on all. */
	error = gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM, comm,
					  stream);
	test_result(error != MPI_SUCCESS);
	MPI_Comm_free(&comm);
	test_result(true);
}

/* A rank dies while the others' kernels wait for it. */
static void killed(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int error = MPI_SUCCESS;

	signal(SIGUSR1, SIG_IGN);
	open_comm();
	for (int i = 0; i < 3; i++)
		must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM,
					       comm, stream));
	if (test_rank == 1) {
		cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		usleep(200000);
		kill(getpid(), SIGKILL);
	}
	must(gpucoll_allreduce_enqueue(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_SUM, comm,
				       stream));
	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	gpucoll_stream_error(comm, &error);
	if (error != MPI_SUCCESS)
		printf("rank %d survives: error %d\n", test_rank, error);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"exchanges", exchanges},       {"graphs", graphs}, {"in_turn", in_turn},
		{"out_of_reach", out_of_reach}, {"killed", killed}, {"launch_fails", launch_fails},
		{"layouts", layouts},           {"level", level},   {"many_comms", many_comms},
		{"not_captured", not_captured},
	};
	int provided;

	if (argc > 1 && !strcmp(argv[1], "level"))
		MPI_Init(&argc, &argv);
	else
		MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	test_start();
	return test_run_case(argc > 1 ? argv[1] : NULL, cases, sizeof(cases) / sizeof(cases[0]));
}
