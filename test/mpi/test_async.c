/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking and persistent collectives in programs around them.
 *
 *     test_async random SEED OPERATIONS [THREADS]
 *
 * A random program, the same on all ranks: blocking, nonblocking and persistent collectives and
 * messages, of which many are in flight, on communicators that come and go. Where the buffers are,
 * and how and when requests are completed, each rank draws for itself. What comes out is compared
 * with arithmetic. With THREADS, so many do it at a time, each on communicators of its own.
 *
 *     test_async CASE      one of those at the end of the file
 */
#include "test.h"

#include <pthread.h>

enum coll {
	ALLREDUCE,
	BCAST,
	REDUCE,
	SCAN,
	ALLGATHER,
	ALLTOALL,
	REDUCE_SCATTER_BLOCK,
	GATHER,
	SCATTER,
	MESSAGE, /* to the rank `root` ranks on, and from the one as many before */
	NUM_KINDS
};

static const char *const names[NUM_KINDS] = {
	"Allreduce", "Bcast",   "Reduce",  "Scan", "Allgather", "Alltoall", "Reduce_scatter_block",
	"Gather",    "Scatter", "messages"};

enum form { BLOCKING, NONBLOCKING, PERSISTENT, NUM_FORMS };

enum { MOST_COUNT = 3000, MOST_OPS = 48, MOST_COMMS = 6, MOST_REQUESTS = 2 * MOST_OPS };

struct comm {
	MPI_Comm comm; /* MPI_COMM_NULL: there is none */
	int rank, size, users;
};

struct op {
	bool used, active;
	enum coll kind;
	enum form form;
	struct comm *comm;
	unsigned number; /* from which the data are made */
	int count, root;
	bool in_place;
	struct buffer send, recv;
	MPI_Request requests[2];
	int num_requests;
};

/* A thread's program. */
struct program {
	MPI_Comm base;
	uint64_t common, own; /* what is drawn by all ranks alike, and by each for itself */
	unsigned number;
	struct comm comms[MOST_COMMS];
	struct op ops[MOST_OPS];
	long checked, wrong;
};

/* What rank `rank` gives for place `i` in call `number`. */
static unsigned value(unsigned number, int rank, int i)
{
	return number * 2654435761u + (unsigned)rank * 40503u + (unsigned)i * 2246822519u;
}

static unsigned sum(unsigned number, int ranks, int i)
{
	unsigned total = 0;

	for (int rank = 0; rank < ranks; rank++)
		total += value(number, rank, i);
	return total;
}

/* Elements of the larger of the two buffers. */
static int room(const struct op *op)
{
	switch (op->kind) {
	case ALLGATHER:
	case ALLTOALL:
	case REDUCE_SCATTER_BLOCK:
	case GATHER:
	case SCATTER:
		return op->count * op->comm->size;
	default:
		return op->count;
	}
}

/* Where the collective's input is, and how much of it this rank gives. */
static int input_elements(const struct op *op)
{
	switch (op->kind) {
	case BCAST:
		return op->comm->rank == op->root ? op->count : 0;
	case SCATTER:
		return op->comm->rank == op->root ? room(op) : 0;
	case ALLTOALL:
	case REDUCE_SCATTER_BLOCK:
		return room(op);
	default:
		return op->count;
	}
}

/* Expected at place `i` of the receive buffer; false: it is to be as it was. */
static bool expected(const struct op *op, int i, unsigned *want)
{
	const struct comm *comm = op->comm;
	int block = op->count ? i / op->count : 0, within = op->count ? i % op->count : 0;
	bool at_root = comm->rank == op->root;

	switch (op->kind) {
	case ALLREDUCE:
		*want = sum(op->number, comm->size, i);
		return true;
	case REDUCE:
		*want = sum(op->number, comm->size, i);
		return at_root;
	case SCAN:
		*want = sum(op->number, comm->rank + 1, i);
		return true;
	case BCAST:
		*want = value(op->number, op->root, i);
		return true;
	case ALLGATHER:
	case GATHER:
		*want = value(op->number, block, within);
		return op->kind == ALLGATHER || at_root;
	case ALLTOALL:
		*want = value(op->number, block, comm->rank * op->count + within);
		return true;
	case REDUCE_SCATTER_BLOCK:
		*want = sum(op->number, comm->size, comm->rank * op->count + i);
		return block == 0;
	case SCATTER:
		*want = value(op->number, op->root, comm->rank * op->count + i);
		return block == 0;
	default:
		*want = value(op->number, (comm->rank + comm->size - op->root) % comm->size, i);
		return true;
	}
}

/* In place: at which element of the receive buffer this rank's input lies. */
static int place_of_input(const struct op *op)
{
	return op->kind == ALLGATHER ? op->comm->rank * op->count : 0;
}

static unsigned *make_words(const struct op *op)
{
	unsigned *words = malloc((size_t)room(op) * sizeof(*words) + 1);

	memset(words, POISON, (size_t)room(op) * sizeof(*words));
	return words;
}

/* The data before the call, also of each start of a persistent one. */
static void fill(struct op *op)
{
	unsigned *words = make_words(op), *input = words;
	size_t bytes = (size_t)room(op) * sizeof(*words);

	if (!op->in_place && op->kind != BCAST)
		buffer_put(&op->recv, words, bytes);
	else
		input += place_of_input(op);
	for (int i = 0; i < input_elements(op); i++)
		input[i] = value(op->number, op->comm->rank, i);
	buffer_put(op->in_place || op->kind == BCAST ? &op->recv : &op->send, words, bytes);
	free(words);
}

static void check(struct program *program, struct op *op)
{
	unsigned *words = make_words(op), want;
	char what[160];

	if (op->in_place || op->kind == BCAST) {
		for (int i = 0; i < input_elements(op); i++)
			words[place_of_input(op) + i] = value(op->number, op->comm->rank, i);
	}
	for (int i = 0; i < room(op); i++) {
		if (expected(op, i, &want))
			words[i] = want;
	}
	snprintf(what, sizeof(what), "call %u, %s, form %d, count %d, root %d, %s of %d ranks",
		 op->number, names[op->kind], (int)op->form, op->count, op->root,
		 op->in_place ? "in place" : "apart", op->comm->size);
	program->checked++;
	program->wrong += !buffer_equals(&op->recv, words, what);
	free(words);
}

#define FORM(name, lower, ...)                                                                     \
	(op->form == BLOCKING      ? MPI_##name(__VA_ARGS__, comm)                                 \
	 : op->form == NONBLOCKING ? MPI_I##lower(__VA_ARGS__, comm, op->requests)                 \
				   : INIT(name)(__VA_ARGS__, comm, MPI_INFO_NULL, op->requests))

static void exchange(struct op *op)
{
	int size = op->comm->size, to = (op->comm->rank + op->root) % size,
	    from = (op->comm->rank + size - op->root) % size, tag = (int)(op->number % 30000);
	MPI_Comm comm = op->comm->comm;

	op->num_requests = 2;
	if (op->form == BLOCKING) {
		MPI_Sendrecv(op->send.data, op->count, MPI_UNSIGNED, to, tag, op->recv.data,
			     op->count, MPI_UNSIGNED, from, tag, comm, MPI_STATUS_IGNORE);
	} else if (op->form == NONBLOCKING) {
		MPI_Irecv(op->recv.data, op->count, MPI_UNSIGNED, from, tag, comm, op->requests);
		MPI_Isend(op->send.data, op->count, MPI_UNSIGNED, to, tag, comm, op->requests + 1);
	} else {
		MPI_Recv_init(op->recv.data, op->count, MPI_UNSIGNED, from, tag, comm,
			      op->requests);
		MPI_Send_init(op->send.data, op->count, MPI_UNSIGNED, to, tag, comm,
			      op->requests + 1);
	}
}

static void call(struct op *op)
{
	const bool at_root = op->comm->rank == op->root;
	const void *send = op->in_place ? MPI_IN_PLACE : op->send.data;
	MPI_Comm comm = op->comm->comm;
	MPI_Datatype type = MPI_UNSIGNED;
	int n = op->count, root = op->root;
	void *recv = op->recv.data;

	op->num_requests = op->form != BLOCKING;
	switch (op->kind) {
	case ALLREDUCE:
		FORM(Allreduce, allreduce, send, recv, n, type, MPI_SUM);
		break;
	case BCAST:
		FORM(Bcast, bcast, recv, n, type, root);
		break;
	case REDUCE:
		FORM(Reduce, reduce, at_root ? send : op->send.data, recv, n, type, MPI_SUM, root);
		break;
	case SCAN:
		FORM(Scan, scan, send, recv, n, type, MPI_SUM);
		break;
	case ALLGATHER:
		FORM(Allgather, allgather, send, n, type, recv, n, type);
		break;
	case ALLTOALL:
		FORM(Alltoall, alltoall, send, n, type, recv, n, type);
		break;
	case REDUCE_SCATTER_BLOCK:
		FORM(Reduce_scatter_block, reduce_scatter_block, send, recv, n, type, MPI_SUM);
		break;
	case GATHER:
		FORM(Gather, gather, op->send.data, n, type, recv, n, type, root);
		break;
	case SCATTER:
		FORM(Scatter, scatter, op->send.data, n, type, recv, n, type, root);
		break;
	default:
		exchange(op);
	}
}

/* With TEST_HOST all is on the host: what the MPI does alone can be seen without the library. */
static enum place draw_place(struct program *program)
{
	uint64_t number = draw(&program->own) % 8;

	if (getenv("TEST_HOST"))
		return PLACE_HOST;
	return number < 5 ? PLACE_DEVICE : number < 6 ? PLACE_MANAGED : PLACE_HOST;
}

/* MPICH 4.0 itself does some persistent collectives wrong, on host buffers too. */
static bool is_broken(const struct op *op)
{
#ifdef OPEN_MPI
	(void)op;
	return false;
#else
	return op->form == PERSISTENT &&
	       (op->kind == GATHER || op->kind == SCATTER || op->kind == ALLGATHER);
#endif
}

static bool has_in_place(enum coll kind)
{
	return kind == ALLREDUCE || kind == SCAN || kind == ALLGATHER;
}

static void end(struct program *program, struct op *op)
{
	(void)program;
	if (op->form == PERSISTENT) {
		for (int i = 0; i < op->num_requests; i++)
			MPI_Request_free(&op->requests[i]);
	}
	buffer_free(&op->send);
	buffer_free(&op->recv);
	op->comm->users--;
	op->used = op->active = false;
}

/* All of an operation's requests have been completed. */
static void arrived(struct program *program, struct op *op)
{
	check(program, op);
	op->active = false;
	if (op->form != PERSISTENT)
		end(program, op);
}

static void begin(struct program *program, struct op *op)
{
	uint64_t number = draw(&program->common);
	int counts[] = {0, 1, 3, (int)(number >> 40) % 64, (int)(number >> 40) % MOST_COUNT};

	memset(op, 0, sizeof(*op));
	do
		op->comm = &program->comms[draw(&program->common) % MOST_COMMS];
	while (op->comm->comm == MPI_COMM_NULL);
	op->kind = (enum coll)(number % NUM_KINDS);
	op->form = (enum form)((number >> 8) % NUM_FORMS);
	op->count = counts[(number >> 16) % 5];
	op->root = (int)((number >> 24) % (unsigned)op->comm->size);
	op->in_place = has_in_place(op->kind) && (number >> 32) % 3 == 0;
	if (is_broken(op))
		op->form = NONBLOCKING;
	op->number = program->number++;
	op->used = op->active = true;
	op->comm->users++;
	op->send = buffer_new(draw_place(program), (size_t)room(op) * sizeof(unsigned));
	op->recv = buffer_new(draw_place(program), (size_t)room(op) * sizeof(unsigned));
	fill(op);
	call(op);
	if (op->form == PERSISTENT)
		MPI_Startall(op->num_requests, op->requests);
	if (op->form == BLOCKING)
		arrived(program, op);
}

/* Those that nobody has started, in the same order on all ranks. */
static void start_again(struct program *program, struct op *op)
{
	op->number = program->number++;
	fill(op);
	MPI_Startall(op->num_requests, op->requests);
	op->active = true;
}

/* ---- completion ---- */

static bool is_done(const struct op *op)
{
	for (int i = 0; i < op->num_requests; i++) {
		int done = 1;

		/* An active one that is not done says so; a null or inactive one is. */
		MPI_Request_get_status(op->requests[i], &done, MPI_STATUS_IGNORE);
		if (!done)
			return false;
	}
	return true;
}

/*
 * Persistent requests stay themselves when they are complete, so of these each is asked for alone;
 * the others are put into one array with those of other operations.
 */
static void complete_alone(struct program *program, struct op *op)
{
	for (int i = 0; i < op->num_requests; i++) {
		int done = draw(&program->own) % 2 == 0;

		if (done)
			MPI_Wait(&op->requests[i], MPI_STATUS_IGNORE);
		while (!done)
			MPI_Test(&op->requests[i], &done, MPI_STATUS_IGNORE);
	}
	arrived(program, op);
}

struct array {
	MPI_Request requests[MOST_REQUESTS];
	struct op *ops[MOST_REQUESTS];
	MPI_Status statuses[MOST_REQUESTS];
	int num;
};

static void gather_requests(struct program *program, struct array *array)
{
	array->num = 0;
	for (int k = 0; k < MOST_OPS; k++) {
		struct op *op = &program->ops[k];

		if (!op->active || op->form != NONBLOCKING || draw(&program->own) % 3 == 0)
			continue;
		for (int i = 0; i < op->num_requests; i++) {
			array->ops[array->num] = op;
			array->requests[array->num++] = op->requests[i];
		}
	}
}

/* Back to the operations, whose requests follow each other; check those that are complete. */
static void scatter_requests(struct program *program, const struct array *array)
{
	for (int i = 0; i < array->num;) {
		struct op *op = array->ops[i];
		bool done = true;

		for (int k = 0; k < op->num_requests; k++, i++) {
			op->requests[k] = array->requests[i];
			done &= array->requests[i] == MPI_REQUEST_NULL;
		}
		if (done)
			arrived(program, op);
	}
}

static void complete_some(struct program *program)
{
	bool ignore = draw(&program->own) % 2;
	int index, done, indices[MOST_REQUESTS];
	struct array array;
	MPI_Status *statuses;

	gather_requests(program, &array);
	statuses = ignore ? MPI_STATUSES_IGNORE : array.statuses;
	switch (draw(&program->own) % 6) {
	case 0:
		MPI_Waitall(array.num, array.requests, statuses);
		break;
	case 1:
		MPI_Testall(array.num, array.requests, &done, statuses);
		break;
	case 2:
		MPI_Waitany(array.num, array.requests, &index, MPI_STATUS_IGNORE);
		break;
	case 3:
		MPI_Testany(array.num, array.requests, &index, &done, MPI_STATUS_IGNORE);
		break;
	case 4:
		MPI_Waitsome(array.num, array.requests, &done, indices, statuses);
		break;
	default:
		MPI_Testsome(array.num, array.requests, &done, indices, statuses);
	}
	scatter_requests(program, &array);
}

static void complete_one(struct program *program)
{
	struct op *op = &program->ops[draw(&program->own) % MOST_OPS];

	if (op->active && (draw(&program->own) % 2 || is_done(op)))
		complete_alone(program, op);
}

static void complete_all(struct program *program)
{
	for (int k = 0; k < MOST_OPS; k++) {
		if (program->ops[k].active)
			complete_alone(program, &program->ops[k]);
	}
}

/* ---- communicators ---- */

static void new_comm(struct program *program, struct comm *comm)
{
	bool dup = draw(&program->common) % 2;
	int rank;

	MPI_Comm_rank(program->base, &rank);
	if (dup)
		MPI_Comm_dup(program->base, &comm->comm);
	else
		MPI_Comm_split(program->base, 0, -rank, &comm->comm);
	MPI_Comm_rank(comm->comm, &comm->rank);
	MPI_Comm_size(comm->comm, &comm->size);
	comm->users = 0;
}

/* All ranks complete what is on it; then it may go. */
static void change_comm(struct program *program)
{
	struct comm *comm = &program->comms[1 + draw(&program->common) % (MOST_COMMS - 1)];

	if (comm->comm == MPI_COMM_NULL) {
		new_comm(program, comm);
		return;
	}
	for (int k = 0; k < MOST_OPS; k++) {
		struct op *op = &program->ops[k];

		if (!op->used || op->comm != comm)
			continue;
		if (op->active)
			complete_alone(program, op);
		if (op->used)
			end(program, op);
	}
	MPI_Comm_free(&comm->comm);
}

/* ---- */

/*
 * A slot is one operation's on all ranks alike: where some ranks have seen it end already and
 * others not, these do now.
 */
static void use_slot(struct program *program)
{
	struct op *op = &program->ops[draw(&program->common) % MOST_OPS];
	bool again = draw(&program->common) % 4 != 0;

	if (op->active)
		complete_alone(program, op);
	if (op->used && again) {
		start_again(program, op);
		return;
	}
	if (op->used)
		end(program, op);
	begin(program, op);
}

static void step(struct program *program)
{
	uint64_t number = draw(&program->common) % 100;

	if (number < 2)
		change_comm(program);
	else
		use_slot(program);
	switch (draw(&program->own) % 4) {
	case 0:
		complete_some(program);
		break;
	case 1:
		complete_one(program);
		break;
	}
}

static void run_program(struct program *program, uint64_t seed, long operations)
{
	program->common = seed;
	program->own = seed * 1000003 + (uint64_t)test_rank;
	for (int i = 0; i < MOST_COMMS; i++)
		program->comms[i].comm = MPI_COMM_NULL;
	new_comm(program, &program->comms[0]);
	for (long i = 0; i < operations; i++)
		step(program);
	complete_all(program);
	for (int k = 0; k < MOST_OPS; k++) {
		if (program->ops[k].used)
			end(program, &program->ops[k]);
	}
	for (int i = 0; i < MOST_COMMS; i++) {
		if (program->comms[i].comm != MPI_COMM_NULL)
			MPI_Comm_free(&program->comms[i].comm);
	}
}

struct job {
	struct program program;
	pthread_t thread;
	uint64_t seed;
	long operations;
};

static void *run_job(void *argument)
{
	struct job *job = argument;
	int devices = 0;

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
	run_program(&job->program, job->seed, job->operations);
	return NULL;
}

static void run_random(uint64_t seed, long operations, int threads)
{
	struct job *jobs = calloc((size_t)threads, sizeof(*jobs));
	long checked = 0, wrong = 0;

	snprintf(test_name, sizeof(test_name), "random %llu %ld %d", (unsigned long long)seed,
		 operations, threads);
	for (int i = 0; i < threads; i++) {
		jobs[i].seed = seed + (uint64_t)i * 7919;
		jobs[i].operations = operations;
		MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].program.base);
	}
	for (int i = 1; i < threads; i++)
		pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]);
	run_job(&jobs[0]);
	for (int i = 1; i < threads; i++)
		pthread_join(jobs[i].thread, NULL);
	for (int i = 0; i < threads; i++) {
		checked += jobs[i].program.checked;
		wrong += jobs[i].program.wrong;
		MPI_Comm_free(&jobs[i].program.base);
	}
	if (test_rank == 0)
		printf("%s: rank 0 has looked at %ld results\n", test_name, checked);
	test_result(!wrong);
	free(jobs);
}

/* ---- cases ---- */

/*
 * What is begun before an accelerated call is waited for by another rank before that call: who
 * waits in it must let the real MPI go on.
 */
static void case_before_blocking(void)
{
	enum { COUNT = 4 << 20 };
	struct buffer large = buffer_new(PLACE_DEVICE, COUNT * sizeof(unsigned)),
		      small = buffer_new(PLACE_DEVICE, 8 * sizeof(unsigned));
	unsigned *words = malloc(COUNT * sizeof(unsigned)), eight[8];
	MPI_Request request;

	for (int round = 0; round < 6; round++) {
		snprintf(test_name, sizeof(test_name), "before a blocking call, round %d", round);
		for (int i = 0; i < COUNT; i++)
			words[i] = value((unsigned)round, test_rank, i);
		buffer_put(&large, words, COUNT * sizeof(unsigned));
		buffer_put(&small, words, sizeof(eight));
		MPI_Iallreduce(MPI_IN_PLACE, large.data, COUNT, MPI_UNSIGNED, MPI_SUM,
			       MPI_COMM_WORLD, &request);
		if (test_rank == round % test_size)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Allreduce(MPI_IN_PLACE, small.data, 8, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int i = 0; i < COUNT; i++)
			words[i] = sum((unsigned)round, test_size, i);
		memcpy(eight, words, sizeof(eight));
		bool ok = buffer_equals(&large, words, "nonblocking");
		test_result(buffer_equals(&small, eight, "blocking") && ok);
	}
	buffer_free(&large);
	buffer_free(&small);
	free(words);
}

static void add(void *in, void *inout, int *length, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < 2 * *length; i++)
		((unsigned *)inout)[i] += ((unsigned *)in)[i];
}

/*
 * Types, operations and communicators may be freed while the call is under way; but Open MPI 4.1
 * crashes without the communicator, on host buffers too.
 */
static void case_freed_handles(void)
{
	enum { COUNT = 500, ROUNDS = 20 };
	unsigned words[ROUNDS][2 * COUNT];
	struct buffer buffers[ROUNDS];
	MPI_Comm comms[ROUNDS];
	MPI_Request requests[ROUNDS];
	MPI_Status statuses[ROUNDS];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "handles freed after the call");
	for (int k = 0; k < ROUNDS; k++) {
		MPI_Datatype type;
		MPI_Op op;

		buffers[k] = buffer_new(PLACE_DEVICE, sizeof(words[k]));
		for (int i = 0; i < 2 * COUNT; i++)
			words[k][i] = value((unsigned)k, test_rank, i);
		buffer_put(&buffers[k], words[k], sizeof(words[k]));
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
		MPI_Type_contiguous(2, MPI_UNSIGNED, &type);
		MPI_Type_commit(&type);
		MPI_Op_create(add, 1, &op);
		MPI_Iallreduce(MPI_IN_PLACE, buffers[k].data, COUNT, type, op, comms[k],
			       &requests[k]);
		MPI_Op_free(&op);
		MPI_Type_free(&type);
#ifndef OPEN_MPI
		MPI_Comm_free(&comms[k]);
#endif
	}
	MPI_Waitall(ROUNDS, requests, statuses);
	for (int k = 0; k < ROUNDS; k++) {
		for (int i = 0; i < 2 * COUNT; i++)
			words[k][i] = sum((unsigned)k, test_size, i);
		ok &= buffer_equals(&buffers[k], words[k], "sum");
		buffer_free(&buffers[k]);
#ifdef OPEN_MPI
		MPI_Comm_free(&comms[k]);
#endif
	}
	test_result(ok);
}

/* What MPI_Startall has started before it refused one brings its data. */
static void start_with_refused(struct buffer *buffer)
{
	unsigned char want[64];
	MPI_Request requests[2];
	bool ok;

	snprintf(test_name, sizeof(test_name), "MPI_Startall of one that is not persistent");
	memset(want, 7, sizeof(want));
	MPI_Recv_init(buffer->data, 64, MPI_BYTE, test_rank, 1, MPI_COMM_WORLD, &requests[0]);
	MPI_Irecv(buffer->data, 0, MPI_BYTE, test_rank, 2, MPI_COMM_WORLD, &requests[1]);
	ok = MPI_Startall(2, requests) != MPI_SUCCESS;
	MPI_Send(want, 64, MPI_BYTE, test_rank, 1, MPI_COMM_WORLD);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	ok &= buffer_equals(buffer, want, "what was started");
	MPI_Send(want, 0, MPI_BYTE, test_rank, 2, MPI_COMM_WORLD);
	MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
	MPI_Request_free(&requests[0]);
	test_result(ok);
}

/* Wrong arguments give an error, and no request. */
static void case_refused(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	MPI_Request request = MPI_REQUEST_NULL;
	unsigned char want[64];
	MPI_Datatype type;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "wrong arguments");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	ok &= MPI_Ibcast(buffer.data, 16, MPI_INT, test_size, MPI_COMM_WORLD, &request) != 0;
	ok &= MPI_Iallreduce(MPI_IN_PLACE, buffer.data, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
			     &request) != 0;
	ok &= MPI_Iallreduce(MPI_IN_PLACE, buffer.data, 16, MPI_DATATYPE_NULL, MPI_SUM,
			     MPI_COMM_WORLD, &request) != 0;
	ok &= INIT(Bcast)(buffer.data, 16, MPI_INT, -5, MPI_COMM_WORLD, MPI_INFO_NULL, &request) !=
	      0;
	MPI_Type_vector(2, 1, 3, MPI_INT, &type); /* and not committed */
	ok &= MPI_Allgather(buffer.data, 2, MPI_INT, buffer.data, 1, type, MPI_COMM_WORLD) != 0;
	ok &= MPI_Iallgather(buffer.data, 2, MPI_INT, buffer.data, 1, type, MPI_COMM_WORLD,
			     &request) != 0;
	MPI_Type_free(&type);
	memset(want, POISON, sizeof(want));
	ok &= buffer_equals(&buffer, want, "buffer");
	test_result(ok);
	start_with_refused(&buffer);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	buffer_free(&buffer);
}

/* The copy out waits for no kernel or copy that the program has on the legacy stream meanwhile. */
static void case_beside_work(void)
{
	enum { COUNT = 1000, LARGE = 64 << 20 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(unsigned)),
		      work = buffer_new(PLACE_DEVICE, LARGE);
	unsigned words[COUNT];
	MPI_Request request;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "beside work on the legacy stream");
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < COUNT; i++)
			words[i] = value((unsigned)round, test_rank, i);
		/* The input is ready when this copy, which returns early, is. */
		cuda_check(cudaMemcpyAsync(buffer.data, words, sizeof(words),
					   cudaMemcpyHostToDevice, 0),
			   "cudaMemcpyAsync");
		MPI_Iallreduce(MPI_IN_PLACE, buffer.data, COUNT, MPI_UNSIGNED, MPI_SUM,
			       MPI_COMM_WORLD, &request);
		cuda_check(cudaMemsetAsync(work.data, round, LARGE, 0), "cudaMemsetAsync");
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int i = 0; i < COUNT; i++)
			words[i] = sum((unsigned)round, test_size, i);
		ok &= buffer_equals(&buffer, words, "sum");
	}
	test_result(ok);
	buffer_free(&buffer);
	buffer_free(&work);
}

/* Persistent ones that are never started, and that are started in another order by each rank. */
static void case_persistent(void)
{
	enum { NUM = 6, COUNT = 100 };
	struct buffer buffers[NUM + 1];
	unsigned words[COUNT];
	MPI_Request requests[NUM + 1];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "persistent requests");
	for (int k = 0; k <= NUM; k++) {
		buffers[k] = buffer_new(PLACE_DEVICE, sizeof(words));
		INIT(Allreduce)
		(MPI_IN_PLACE, buffers[k].data, COUNT, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD,
		 MPI_INFO_NULL, &requests[k]);
	}
#ifdef OPEN_MPI /* MPICH 4.0 waits for one that is inactive */
	MPI_Wait(&requests[NUM], MPI_STATUS_IGNORE);
#endif
	MPI_Request_free(&requests[NUM]);
	for (int round = 0; round < 3; round++) {
		for (int k = 0; k < NUM; k++) {
			for (int i = 0; i < COUNT; i++)
				words[i] = value((unsigned)(round * NUM + k), test_rank, i);
			buffer_put(&buffers[k], words, sizeof(words));
		}
		for (int k = 0; k < NUM; k++)
			MPI_Start(&requests[test_rank % 2 ? NUM - 1 - k : k]);
		for (int k = 0; k < NUM; k++)
			MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
		for (int k = 0; k < NUM; k++) {
			for (int i = 0; i < COUNT; i++)
				words[i] = sum((unsigned)(round * NUM + k), test_size, i);
			ok &= buffer_equals(&buffers[k], words, "sum");
		}
	}
	test_result(ok);
	for (int k = 0; k <= NUM; k++) {
		if (k < NUM)
			MPI_Request_free(&requests[k]);
		buffer_free(&buffers[k]);
	}
}

/* MPI 4's forms with large counts. */
static void case_large_forms(void)
{
#if MPI_VERSION >= 4
	enum { COUNT = 64 };
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(unsigned)),
		      to = buffer_new(PLACE_DEVICE, COUNT * sizeof(unsigned));
	MPI_Count counts[COUNT] = {0};
	MPI_Aint displs[COUNT] = {0};
	unsigned words[COUNT], want[COUNT];
	MPI_Request request;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "large counts");
	for (int i = 0; i < COUNT; i++) {
		words[i] = value(1, test_rank, i);
		want[i] = sum(1, test_size, i);
	}
	buffer_put(&from, words, sizeof(words));
	MPI_Iallreduce_c(from.data, to.data, COUNT, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD,
			 &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	ok &= buffer_equals(&to, want, "sum");
	for (int i = 0; i < test_size; i++) {
		counts[i] = 1;
		displs[i] = i;
		want[i] = value(1, i, test_rank);
	}
	MPI_Ialltoallv_c(from.data, counts, displs, MPI_UNSIGNED, to.data, counts, displs,
			 MPI_UNSIGNED, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	ok &= buffer_equals(&to, want, "exchanged blocks");
	MPI_Bcast_init_c(to.data, COUNT, MPI_UNSIGNED, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
	MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Request_free(&request);
	for (int i = 0; i < test_size; i++)
		want[i] = value(1, i, 0);
	ok &= buffer_equals(&to, want, "broadcast");
	test_result(ok);
	buffer_free(&from);
	buffer_free(&to);
#endif
}

/* Complete one request in one of MPI's ways; returns the request's error. */
static int complete_in_way(int way, MPI_Request *request)
{
	int done = 0, index, indices[1], error = MPI_SUCCESS;
	MPI_Status status[1];

	switch (way) {
	case 0:
		return MPI_Wait(request, MPI_STATUS_IGNORE);
	case 1:
		while (!done && !error)
			error = MPI_Test(request, &done, status);
		return error;
	case 2:
		error = MPI_Waitall(1, request, status);
		break;
	case 3:
		while (!done && !error)
			error = MPI_Testall(1, request, &done, status);
		break;
	case 4:
		return MPI_Waitany(1, request, &index, status);
	case 5:
		error = MPI_Waitsome(1, request, &done, indices, status);
		break;
	default:
		while (!done && !error)
			error = MPI_Request_get_status(*request, &done, MPI_STATUS_IGNORE);
		/* It stays failed. */
		return MPI_Wait(request, MPI_STATUS_IGNORE);
	}
	return error == MPI_ERR_IN_STATUS ? status[0].MPI_ERROR : error;
}

/*
 * One call of the driver fails, in some copy in or out: one MPI error, of the call or the
 * completion, which is returned; and the result of all other calls is right.
 */
static void case_fault(void)
{
	enum { COUNT = 100, WAYS = 7 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(unsigned));
	int errors = 0, wrong = 0;
	unsigned words[COUNT];
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_SELF, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int way = 0; way < WAYS; way++) {
		MPI_Request request = MPI_REQUEST_NULL;
		int error;

		for (int i = 0; i < COUNT; i++)
			words[i] = value((unsigned)way, 0, i);
		if (cudaMemcpy(buffer.data, words, sizeof(words), cudaMemcpyDefault))
			break; /* the device is lost */
		error = MPI_Iscan(MPI_IN_PLACE, buffer.data, COUNT, MPI_UNSIGNED, MPI_SUM, comm,
				  &request);
		if (!error)
			error = complete_in_way(way, &request);
		errors += error != MPI_SUCCESS;
		if (!error)
			wrong += !buffer_equals(&buffer, words, "a call that did not fail");
	}
	printf("rank %d: %d errors, %d wrong\n", test_rank, errors, wrong);
	fflush(stdout);
}

static const struct test_case cases[] = {{"before_blocking", case_before_blocking},
					 {"freed_handles", case_freed_handles},
					 {"refused", case_refused},
					 {"beside_work", case_beside_work},
					 {"persistent", case_persistent},
					 {"large_forms", case_large_forms},
					 {"fault", case_fault}};

int main(int argc, char **argv)
{
	int threads = argc > 4 ? atoi(argv[4]) : 1, level, status;

	MPI_Init_thread(&argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
			&level);
	test_start();
	if (argc < 4 || strcmp(argv[1], "random"))
		return test_run_case(argc > 1 ? argv[1] : NULL, cases,
				     sizeof(cases) / sizeof(cases[0]));
	if (threads > 1 && level < MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "this MPI has no MPI_THREAD_MULTIPLE\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	run_random(strtoull(argv[2], NULL, 0), atol(argv[3]), threads);
	status = test_finish();
	MPI_Finalize();
	return status;
}
