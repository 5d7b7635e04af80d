/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from and to device, managed and host memory: test_message CASE [ROUNDS [SEED]]; of query
 * the number is the answer that is wanted.
 *
 * stress: random messages among all ranks, whose lists all ranks draw from one seed, in all forms
 * of sends, receives, probes and completion calls, which each rank draws for itself. What is to
 * come into a buffer is made by the real MPI's MPI_Unpack on host memory.
 */
#include "test.h"
#include "gpucoll_weak.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

enum { NUM_TYPES = 8, MOST_MESSAGES = 10, BASE_TAG = 100 };

/* MPI_STATUSES_IGNORE, which MPICH's header has compilers take for too small an array. */
static MPI_Status *ignored(void)
{
	static MPI_Status *volatile constant = MPI_STATUSES_IGNORE;

	return constant;
}

static unsigned draw_below(uint64_t *state, unsigned limit)
{
	return (unsigned)(draw(state) % limit);
}

/* ---- datatypes of ints ---- */

static struct type {
	MPI_Datatype type;
	int ints;    /* of an element */
	size_t span; /* bytes of n elements: span + (n - 1) * extent, from `lb` on */
	MPI_Aint lb, extent;
} types[NUM_TYPES];

static void add_type(int index, MPI_Datatype type)
{
	MPI_Aint true_lb, true_extent, lb, extent;
	int size;

	if (type != MPI_INT)
		MPI_Type_commit(&type);
	MPI_Type_size(type, &size);
	MPI_Type_get_extent(type, &lb, &extent);
	MPI_Type_get_true_extent(type, &true_lb, &true_extent);
	types[index] =
		(struct type){type, size / (int)sizeof(int), (size_t)true_extent, true_lb, extent};
}

static void make_types(void)
{
	static const int lengths[] = {2, 1, 3}, displs[] = {7, 4, 0}, sizes[] = {6, 5, 4},
			 part[] = {2, 3, 2}, starts[] = {1, 1, 2};
	MPI_Aint apart[] = {40, 8, 24};
	MPI_Datatype parts[] = {MPI_INT, MPI_INT, MPI_INT}, type, inner;

	add_type(0, MPI_INT);
	MPI_Type_contiguous(5, MPI_INT, &type);
	add_type(1, type);
	MPI_Type_vector(4, 2, 5, MPI_INT, &type);
	add_type(2, type);
	MPI_Type_indexed(3, lengths, displs, MPI_INT, &type); /* falling */
	add_type(3, type);
	MPI_Type_create_struct(3, lengths, apart, parts, &type);
	add_type(4, type);
	MPI_Type_create_resized(MPI_INT, 0, 12, &type);
	add_type(5, type);
	MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, MPI_INT, &type);
	add_type(6, type);
	/* Solid, but not in the order of its bytes. */
	MPI_Type_create_indexed_block(2, 1, (const int[]){1, 0}, MPI_INT, &inner);
	MPI_Type_create_resized(inner, 0, 2 * sizeof(int), &type);
	MPI_Type_free(&inner);
	add_type(7, type);
}

static void free_types(void)
{
	for (int i = 1; i < NUM_TYPES; i++)
		MPI_Type_free(&types[i].type);
}

/* A buffer for so many elements. */
struct data {
	struct buffer buffer;
	const struct type *type;
	int count;
	unsigned char *expected; /* what is to be in it */
	void *at;                /* what MPI is given */
};

static size_t bytes_of(const struct type *type, int count)
{
	return count ? type->span + (size_t)(count - 1) * (size_t)type->extent : 0;
}

static struct data data_new(enum place place, const struct type *type, int count)
{
	struct data data = {.type = type, .count = count};
	size_t bytes = bytes_of(type, count);

	data.buffer = buffer_new(place, bytes);
	data.expected = malloc(bytes + 1);
	memset(data.expected, POISON, bytes);
	data.at = (char *)data.buffer.data - type->lb;
	return data;
}

static void data_free(struct data *data)
{
	buffer_free(&data->buffer);
	free(data->expected);
}

static int value_of(int round, int message, int i)
{
	return round * 7919 + message * 104729 + i;
}

/* Have so many ints of the message in the buffer as it is expected to be. */
static void expect(struct data *data, int round, int message, int ints)
{
	int *values = malloc((size_t)(ints + 1) * sizeof(int)), position = 0, whole;

	for (int i = 0; i < ints; i++)
		values[i] = value_of(round, message, i);
	whole = ints / data->type->ints;
	MPI_Unpack(values, ints * (int)sizeof(int), &position, data->expected - data->type->lb,
		   whole, data->type->type, MPI_COMM_SELF);
	/* Of an element that ends early: all but its end. */
	if (ints % data->type->ints) {
		int rest = ints % data->type->ints, full = data->type->ints;
		unsigned char *copy = malloc(data->type->span), *element;
		int *padded = calloc((size_t)full, sizeof(int)),
		    *marks = calloc((size_t)full, sizeof(int));

		element = data->expected + (size_t)whole * (size_t)data->type->extent;
		memcpy(padded, values + whole * full, (size_t)rest * sizeof(int));
		memset(marks, 0xff, (size_t)rest * sizeof(int));
		memset(copy, 0, data->type->span);
		position = 0;
		MPI_Unpack(marks, full * (int)sizeof(int), &position, copy - data->type->lb, 1,
			   data->type->type, MPI_COMM_SELF);
		position = 0;
		unsigned char *fresh = calloc(1, data->type->span);
		MPI_Unpack(padded, full * (int)sizeof(int), &position, fresh - data->type->lb, 1,
			   data->type->type, MPI_COMM_SELF);
		for (size_t i = 0; i < data->type->span; i++) {
			if (copy[i])
				element[i] = fresh[i];
		}
		free(copy);
		free(fresh);
		free(padded);
		free(marks);
	}
	free(values);
}

static void fill(struct data *data, int round, int message, int ints)
{
	expect(data, round, message, ints);
	buffer_put(&data->buffer, data->expected, data->buffer.bytes);
}

/* ---- a round's messages, which all ranks draw alike ---- */

enum how { POSTED, LATE, PROBED, WILD }; /* the receive */

struct message {
	int source, dest, ints, send_type, recv_type, more;
	enum how how;
	bool ready; /* to be sent by a ready send */
};

static int draw_ints(uint64_t *state)
{
	static const int sizes[] = {0, 1, 7, 60, 420, 2520, 25200};

	return sizes[draw_below(state, 7)] +
	       (int)(draw_below(state, 3) ? 0 : draw_below(state, 40));
}

static void draw_message(uint64_t *state, struct message *m, bool wild)
{
	m->source = (int)draw_below(state, (unsigned)test_size);
	m->dest = (int)draw_below(state, (unsigned)test_size);
	m->send_type = (int)draw_below(state, NUM_TYPES);
	m->recv_type = (int)draw_below(state, NUM_TYPES);
	m->ints = draw_ints(state);
	m->ints -= m->ints % types[m->send_type].ints;
	m->more = (int)draw_below(state, 3);
	m->how = wild ? WILD : (enum how)draw_below(state, 3);
	m->ready = m->how == POSTED && draw_below(state, 4) == 0;
}

/* ---- what is under way here ---- */

struct pending {
	const struct message *message;
	int number;
	bool receives;
	bool freed; /* a send's request was */
	struct data data;
};

static struct {
	uint64_t state; /* of what this rank draws for itself */
	int round, num;
	struct pending all[2 * MOST_MESSAGES + 8];
	MPI_Request requests[2 * MOST_MESSAGES + 8];
	bool well;
} here;

static void wrong(const struct pending *p, const char *what)
{
	here.well = false;
	fprintf(stderr,
		"rank %d, round %d, message %d of %d ints, %d to %d, types %d, %d, how %d: %s\n",
		test_rank, here.round, p->number, p->message->ints, p->message->source,
		p->message->dest, p->message->send_type, p->message->recv_type,
		(int)p->message->how, what);
}

static void check_status(const struct pending *p, MPI_Status *status)
{
	int ints = p->message->ints, each = p->data.type->ints, count, elements;

	if (!p->receives)
		return;
	MPI_Get_count(status, p->data.type->type, &count);
	MPI_Get_elements(status, p->data.type->type, &elements);
	if (elements != ints)
		wrong(p, "MPI_Get_elements");
	if (count != (ints % each ? MPI_UNDEFINED : ints / each))
		wrong(p, "MPI_Get_count");
	if (status->MPI_SOURCE != p->message->source || status->MPI_TAG != BASE_TAG + p->number)
		wrong(p, "the status");
}

static enum place draw_place(void)
{
	return (enum place)draw_below(&here.state, PLACE_NUM);
}

static struct pending *begin(const struct message *m, int number, bool receives)
{
	struct pending *p = &here.all[here.num];
	int kind = receives ? m->recv_type : m->send_type, each = types[kind].ints;
	int count = m->ints / each;

	if (receives)
		count = (m->ints + each - 1) / each + m->more;
	*p = (struct pending){m, number, receives, false,
			      data_new(draw_place(), &types[kind], count)};
	if (receives)
		expect(&p->data, here.round, number, m->ints);
	else
		fill(&p->data, here.round, number, m->ints);
	here.requests[here.num] = MPI_REQUEST_NULL;
	here.num++;
	return p;
}

/* Or the form for large counts, where the MPI has it. */
#if MPI_VERSION >= 4
#define LARGE(name, ...)                                                                           \
	(draw_below(&here.state, 3) ? MPI_##name(__VA_ARGS__) : MPI_##name##_c(__VA_ARGS__))
#else
#define LARGE(name, ...) MPI_##name(__VA_ARGS__)
#endif

static MPI_Request *request_of(const struct pending *p)
{
	return &here.requests[p - here.all];
}

static void post_receive(const struct message *m, int number)
{
	struct pending *p = begin(m, number, true);
	MPI_Request *request = request_of(p);
	int source = draw_below(&here.state, 4) ? m->source : MPI_ANY_SOURCE;

	if (draw_below(&here.state, 3)) {
		LARGE(Irecv, p->data.at, p->data.count, p->data.type->type, source,
		      BASE_TAG + number, MPI_COMM_WORLD, request);
		return;
	}
	LARGE(Recv_init, p->data.at, p->data.count, p->data.type->type, source, BASE_TAG + number,
	      MPI_COMM_WORLD, request);
	if (draw_below(&here.state, 2))
		MPI_Start(request);
	else
		MPI_Startall(1, request);
}

/* Blocking where the receive is posted. */
static void send(const struct message *m, int number, MPI_Comm comm)
{
	struct pending *p = begin(m, number, false);
	MPI_Request *request = request_of(p);
	void *at = p->data.at;
	int count = p->data.count, tag = BASE_TAG + number;
	MPI_Datatype type = p->data.type->type;

	if (m->ready) {
		if (draw_below(&here.state, 2))
			LARGE(Rsend, at, count, type, m->dest, tag, comm);
		else
			LARGE(Irsend, at, count, type, m->dest, tag, comm, request);
		return;
	}
	switch (draw_below(&here.state, m->how == POSTED ? 9 : 6)) {
	case 0:
		LARGE(Isend, at, count, type, m->dest, tag, comm, request);
		break;
	case 1:
		LARGE(Issend, at, count, type, m->dest, tag, comm, request);
		break;
	case 2:
		LARGE(Ibsend, at, count, type, m->dest, tag, comm, request);
		break;
	case 3:
		LARGE(Bsend, at, count, type, m->dest, tag, comm);
		break;
	case 4:
		LARGE(Send_init, at, count, type, m->dest, tag, comm, request);
		MPI_Start(request);
		break;
	case 5:
		LARGE(Isend, at, count, type, m->dest, tag, comm, request);
		p->freed = true;
		MPI_Request_free(request);
		break;
	case 6:
		LARGE(Send, at, count, type, m->dest, tag, comm);
		break;
	case 7:
		LARGE(Ssend, at, count, type, m->dest, tag, comm);
		break;
	default:
		LARGE(Ssend_init, at, count, type, m->dest, tag, comm, request);
		MPI_Startall(1, request);
	}
}

static void receive_late(const struct message *m, int number)
{
	struct pending *p = begin(m, number, true);
	MPI_Request *request = request_of(p);
	MPI_Datatype type = p->data.type->type;
	MPI_Message message;
	MPI_Status status;
	int flag = 0, tag = BASE_TAG + number;

	if (m->how == LATE) {
		LARGE(Recv, p->data.at, p->data.count, type, m->source, tag, MPI_COMM_WORLD,
		      &status);
		check_status(p, &status);
		return;
	}
	if (draw_below(&here.state, 2)) {
		MPI_Mprobe(m->source, tag, MPI_COMM_WORLD, &message, &status);
	} else {
		while (!flag)
			MPI_Improbe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &message, &status);
	}
	check_status(p, &status);
	if (draw_below(&here.state, 2)) {
		LARGE(Mrecv, p->data.at, p->data.count, type, &message, &status);
		check_status(p, &status);
	} else {
		LARGE(Imrecv, p->data.at, p->data.count, type, &message, request);
	}
}

/* From anybody, with any tag, on a communicator of its own: what it is the status says. */
static void receive_wild(const struct message *messages, MPI_Comm comm)
{
	struct pending *p;
	MPI_Status status;

	MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
	p = begin(&messages[status.MPI_TAG - BASE_TAG], status.MPI_TAG - BASE_TAG, true);
	if (draw_below(&here.state, 2)) {
		MPI_Recv(p->data.at, p->data.count, p->data.type->type, status.MPI_SOURCE,
			 status.MPI_TAG, comm, MPI_STATUS_IGNORE);
	} else {
		MPI_Irecv(p->data.at, p->data.count, p->data.type->type, status.MPI_SOURCE,
			  status.MPI_TAG, comm, request_of(p));
	}
}

/* ---- completion ---- */

static void take_status(int index, MPI_Status *status)
{
	check_status(&here.all[index], status);
}

static void complete_by_any(bool test)
{
	int index = 0, flag;
	MPI_Status status;

	while (index != MPI_UNDEFINED) {
		flag = true;
		if (test)
			MPI_Testany(here.num, here.requests, &index, &flag, &status);
		else
			MPI_Waitany(here.num, here.requests, &index, &status);
		if (flag && index != MPI_UNDEFINED)
			take_status(index, &status);
		index = flag ? index : 0;
	}
}

static void complete_by_some(bool test, bool ignore)
{
	int indices[2 * MOST_MESSAGES + 8], num = 0;
	MPI_Status statuses[2 * MOST_MESSAGES + 8];

	while (num != MPI_UNDEFINED) {
		MPI_Status *wanted = ignore ? ignored() : statuses;

		if (test)
			MPI_Testsome(here.num, here.requests, &num, indices, wanted);
		else
			MPI_Waitsome(here.num, here.requests, &num, indices, wanted);
		for (int i = 0; num != MPI_UNDEFINED && !ignore && i < num; i++)
			take_status(indices[i], &statuses[i]);
	}
}

/* Persistent requests are inactive after completion, and null then for `any` and `some`. */
static void complete_one(int index)
{
	MPI_Status status, again;
	int flag = 0, form = (int)draw_below(&here.state, 4);

	if (here.requests[index] == MPI_REQUEST_NULL)
		return;
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 50000000
	/* MPI_Request_get_status makes a persistent one inactive, whose status is empty then. */
	form = form == 2 ? 0 : form;
#endif
	while (form == 1 && !flag)
		MPI_Test(&here.requests[index], &flag, &status);
	while (form == 2 && !flag)
		MPI_Request_get_status(here.requests[index], &flag, &again);
	if (form == 2)
		take_status(index, &again);
	if (form == 3)
		MPI_Wait(&here.requests[index], MPI_STATUS_IGNORE);
	else if (form != 1)
		MPI_Wait(&here.requests[index], &status);
	if (form != 3)
		take_status(index, &status);
}

static void complete(void)
{
	MPI_Status statuses[2 * MOST_MESSAGES + 8];
	int flag = 0, form = (int)draw_below(&here.state, 9);
	bool active[2 * MOST_MESSAGES + 8];

	for (int i = 0; i < here.num; i++)
		active[i] = here.requests[i] != MPI_REQUEST_NULL;
	if (form < 2) {
		complete_by_any(form == 1);
	} else if (form < 5) {
		complete_by_some(form == 3, form == 4);
	} else if (form == 5) {
		MPI_Waitall(here.num, here.requests, ignored());
	} else if (form == 8) {
		for (int i = here.num - 1; i >= 0; i--)
			complete_one(i);
	} else {
		if (form == 6)
			MPI_Waitall(here.num, here.requests, statuses);
		while (form == 7 && !flag)
			MPI_Testall(here.num, here.requests, &flag, statuses);
		for (int i = 0; i < here.num; i++) {
			if (active[i])
				take_status(i, &statuses[i]);
		}
	}
	for (int i = 0; i < here.num; i++) {
		if (here.requests[i] != MPI_REQUEST_NULL)
			MPI_Request_free(&here.requests[i]);
	}
}

static void check_data(void)
{
	for (int i = 0; i < here.num; i++) {
		struct pending *p = &here.all[i];

		if (!buffer_equals(&p->data.buffer, p->data.expected, "data"))
			wrong(p, p->receives ? "what came" : "what was sent has changed");
		data_free(&p->data);
	}
}

/* A receive of what nobody sends. */
static void cancel_one(void)
{
	struct data data = data_new(draw_place(), &types[draw_below(&here.state, NUM_TYPES)], 9);
	MPI_Request request;
	MPI_Status status;
	int cancelled = 0;

	MPI_Irecv(data.at, data.count, data.type->type, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD,
		  &request);
	MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	MPI_Test_cancelled(&status, &cancelled);
	if (!cancelled || !buffer_equals(&data.buffer, data.expected, "cancelled"))
		here.well = false;
	data_free(&data);
}

/*
 * Or the nonblocking form, which is new in MPI 4; MPICH 4.0.2 lets go of derived types in it, which
 * are then freed too early.
 */
static void send_both(const struct data *in, int dest, const struct data *out, int source)
{
#if MPI_VERSION >= 4
	MPI_Request request;

	if (in->type == types && out->type == types && draw_below(&here.state, 2)) {
		LARGE(Isendrecv, in->at, in->count, in->type->type, dest, 5, out->at, out->count,
		      out->type->type, source, 5, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		return;
	}
#endif
	LARGE(Sendrecv, in->at, in->count, in->type->type, dest, 5, out->at, out->count,
	      out->type->type, source, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void replace_both(const struct data *data, int dest, int source)
{
#if MPI_VERSION >= 4
	MPI_Request request;

	if (data->type == types && draw_below(&here.state, 2)) {
		LARGE(Isendrecv_replace, data->at, data->count, data->type->type, dest, 5, source,
		      5, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		return;
	}
#endif
	LARGE(Sendrecv_replace, data->at, data->count, data->type->type, dest, 5, source, 5,
	      MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Each rank to its right, of as many ints as all types divide. */
static void shift(int number, bool replace)
{
	enum { INTS = 840 };
	int left = (test_rank + test_size - 1) % test_size, right = (test_rank + 1) % test_size;
	const struct type *type = &types[draw_below(&here.state, NUM_TYPES)], *other;
	struct data in = data_new(draw_place(), type, INTS / type->ints), out;

	fill(&in, here.round, number + test_rank, INTS);
	if (replace) {
		expect(&in, here.round, number + left, INTS);
		replace_both(&in, right, left);
		here.well &= buffer_equals(&in.buffer, in.expected, "replaced");
		data_free(&in);
		return;
	}
	other = &types[draw_below(&here.state, NUM_TYPES)];
	out = data_new(draw_place(), other, INTS / other->ints);
	expect(&out, here.round, number + left, INTS);
	send_both(&in, right, &out, left);
	here.well &= buffer_equals(&out.buffer, out.expected, "sendrecv");
	data_free(&in);
	data_free(&out);
}

static void sum_up(void)
{
	struct data data = data_new(draw_place(), &types[0], 3);
	int values[3] = {1, 2, 3};

	buffer_put(&data.buffer, values, sizeof(values));
	MPI_Allreduce(MPI_IN_PLACE, data.at, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 3; i++)
		values[i] *= test_size;
	here.well &= buffer_equals(&data.buffer, values, "sum");
	data_free(&data);
}

static void run_round(uint64_t *state, MPI_Comm wild)
{
	struct message messages[MOST_MESSAGES];
	int num = 1 + (int)draw_below(state, MOST_MESSAGES), kind = (int)draw_below(state, 8);
	bool any_ready = false, all_wild = draw_below(state, 4) == 0;

	here.num = 0;
	for (int i = 0; i < num; i++) {
		draw_message(state, &messages[i], all_wild);
		any_ready |= messages[i].ready;
	}
	for (int i = 0; i < num; i++) {
		if (messages[i].dest == test_rank && messages[i].how == POSTED)
			post_receive(&messages[i], i);
	}
	if (any_ready)
		MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < num; i++) {
		if (messages[i].source == test_rank)
			send(&messages[i], i, all_wild ? wild : MPI_COMM_WORLD);
	}
	if (kind == 0)
		cancel_one();
	for (int i = 0; i < num; i++) {
		if (messages[i].dest != test_rank)
			continue;
		if (messages[i].how == WILD)
			receive_wild(messages, wild);
		else if (messages[i].how != POSTED)
			receive_late(&messages[i], i);
	}
	complete();
	if (kind == 1)
		sum_up();
	if (kind == 2 || kind == 3)
		shift(1000, kind == 3);
	MPI_Barrier(MPI_COMM_WORLD); /* what was freed is received */
	check_data();
}

static int rounds = 100;
static unsigned seed = 1;

static void stress(void)
{
	enum { ATTACHED = 32 << 20 };
	uint64_t state = seed;
	char *attached = malloc(ATTACHED);
	MPI_Comm wild;

	snprintf(test_name, sizeof(test_name), "%d rounds of seed %u", rounds, seed);
	MPI_Comm_dup(MPI_COMM_WORLD, &wild);
	MPI_Buffer_attach(attached, ATTACHED);
	here.state = seed * 1000 + (uint64_t)test_rank;
	here.well = true;
	for (here.round = 0; here.round < rounds; here.round++)
		run_round(&state, wild);
	test_result(here.well);
	MPI_Buffer_detach(&attached, &(int){0});
	free(attached);
	MPI_Comm_free(&wild);
	free_types();
}

/* ---- what is seldom done ---- */

static void put_bytes(struct buffer *buffer, int first)
{
	unsigned char *bytes = malloc(buffer->bytes);

	for (size_t i = 0; i < buffer->bytes; i++)
		bytes[i] = (unsigned char)(first + (int)i * 7);
	buffer_put(buffer, bytes, buffer->bytes);
	free(bytes);
}

/* A pair's padding is not the message's; less comes than there is room for, and ends in a pair. */
static void pairs(void)
{
	struct pair {
		double value;
		int index;
	} values[3], expected[3];
	struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(values));
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "pairs");
	memset(values, test_rank ? POISON : 0x11, sizeof(values));
	for (int i = 0; i < 3 && test_rank == 0; i++) {
		values[i].value = i + 0.5;
		values[i].index = i;
	}
	buffer_put(&buffer, values, sizeof(values));
	if (test_rank == 0) {
		MPI_Send(buffer.data, 2, MPI_DOUBLE_INT, 1, 0, MPI_COMM_WORLD);
	} else if (test_rank == 1) {
		MPI_Status status;
		int count;

		MPI_Recv(buffer.data, 3, MPI_DOUBLE_INT, 0, 0, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_DOUBLE_INT, &count);
		memset(expected, POISON, sizeof(expected));
		cuda_check(cudaMemcpy(values, buffer.data, sizeof(values), cudaMemcpyDefault),
			   "cudaMemcpy");
		ok = count == 2 && values[2].index == expected[2].index &&
		     !memcmp(&values[2], &expected[2], sizeof(values[2]));
		for (int i = 0; i < 2; i++)
			ok &= values[i].value == i + 0.5 && values[i].index == i;
	}
	test_result(ok);
	buffer_free(&buffer);
}

/* Also by the constructor with large counts, where MPI has one. */
static MPI_Datatype type_of_parts(int num, const int lengths[], const MPI_Aint displs[],
				  const MPI_Datatype parts[], bool large)
{
	MPI_Datatype type;
#if MPI_VERSION >= 4
	MPI_Count large_lengths[3], large_displs[3];

	for (int i = 0; i < num; i++) {
		large_lengths[i] = lengths[i];
		large_displs[i] = displs[i];
	}
	if (large)
		MPI_Type_create_struct_c(num, large_lengths, large_displs, parts, &type);
#else
	large = false;
#endif
	if (!large)
		MPI_Type_create_struct(num, lengths, displs, parts, &type);
	return type;
}

/*
 * A header and a trailer in host memory, on the heap and on the stack, between which device memory
 * is by its address, and data there: under MPI_BOTTOM, or told by their distance from the header.
 */
static void host_and_device(bool bottom)
{
	enum { NUM = 100000 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, NUM);
	int *header = malloc(sizeof(*header)), trailer = test_rank ? -1 : 1147;
	int lengths[] = {1, bottom ? NUM : 1, 1};
	MPI_Datatype parts[] = {MPI_INT, MPI_BYTE, MPI_INT}, every_other, type;
	unsigned char *expected = malloc(NUM);
	void *origin = bottom ? MPI_BOTTOM : header;
	MPI_Aint displs[3];
	MPI_Request request;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "host and device memory in one type, %s",
		 bottom ? "under MPI_BOTTOM" : "from its header");
	*header = test_rank ? -1 : 4711;
	put_bytes(&buffer, test_rank ? 100 : 3);
	MPI_Get_address(header, &displs[0]);
	displs[1] = (MPI_Aint)buffer.data;
	MPI_Get_address(&trailer, &displs[2]);
	for (int i = 2; i >= 0 && !bottom; i--)
		displs[i] -= displs[0];
	/* A part need not be committed. */
	MPI_Type_vector(NUM / 2, 1, 2, MPI_BYTE, &every_other);
	if (!bottom)
		parts[1] = every_other;
	type = type_of_parts(3, lengths, displs, parts, !bottom);
	MPI_Type_commit(&type);
	if (test_rank == 0) {
		MPI_Isend(origin, 1, type, 1, 0, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else if (test_rank == 1) {
		MPI_Irecv(origin, 1, type, 0, 0, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < NUM; i++)
		expected[i] = (unsigned char)((bottom || i % 2 == 0 ? 3 : 100) + i * 7);
	if (test_rank == 1)
		ok = *header == 4711 && trailer == 1147 &&
		     buffer_equals(&buffer, expected, "device");
	test_result(ok);
	free(header);
	free(expected);
	MPI_Type_free(&every_other);
	MPI_Type_free(&type);
	buffer_free(&buffer);
}

/* Types that MPI makes on demand, as for Fortran's selected_real_kind, are predefined for good. */
static void types_on_demand(void)
{
	enum { NUM = 8 };
	double values[NUM], got[NUM];
	struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(values));
	MPI_Datatype real, type;

	snprintf(test_name, sizeof(test_name), "types made of MPI_Type_create_f90_real's");
	for (int i = 0; i < NUM; i++)
		values[i] = test_rank ? -1 : i + 0.5;
	buffer_put(&buffer, values, sizeof(values));
	MPI_Type_create_f90_real(15, 300, &real);
	MPI_Type_contiguous(NUM, real, &type);
	MPI_Type_commit(&type);
	for (int i = 0; i < 2; i++) {
		if (test_rank == 0)
			MPI_Send(buffer.data, 1, type, 1, 0, MPI_COMM_WORLD);
		else if (test_rank == 1)
			MPI_Recv(buffer.data, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Bcast(buffer.data, 1, type, 0, MPI_COMM_WORLD);
	for (int i = 0; i < NUM; i++)
		got[i] = i + 0.5;
	test_result(buffer_equals(&buffer, got, "device"));
	MPI_Type_free(&type);
	buffer_free(&buffer);
}

static void CUDART_CB wait_for_word(void *word)
{
	while (!__atomic_load_n((int *)word, __ATOMIC_ACQUIRE))
		usleep(1000);
}

/* What is on the default stream waits for what comes behind the message. */
static void beside_default_stream(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 1000);
	unsigned char expected[1000];
	MPI_Request request;
	int word = 0;

	snprintf(test_name, sizeof(test_name), "messages beside a default stream that waits");
	put_bytes(&buffer, test_rank ? 100 : 3);
	cuda_check(cudaLaunchHostFunc(0, wait_for_word, &word), "cudaLaunchHostFunc");
	test_result(gpucoll_wait_default_stream(0) == 1);
	if (test_rank == 0)
		MPI_Isend(buffer.data, 1000, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
	else
		MPI_Irecv(buffer.data, 1000, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	test_result(gpucoll_wait_default_stream(1) == 0);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 1000; i++)
		expected[i] = (unsigned char)(3 + i * 7);
	test_result(buffer_equals(&buffer, expected, "device"));
	buffer_free(&buffer);
}

/*
 * A type by its bytes' addresses, in device memory: whose it is the library asks first, where their
 * order does not matter, and how often they are there.
 */
static void send_from_bottom(MPI_Datatype type, int num, const char *what)
{
	enum { VALUES = 64 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, VALUES * sizeof(int));
	int values[VALUES], want[VALUES] = {0}, got[VALUES] = {0};
	MPI_Aint place = (MPI_Aint)buffer.data;
	MPI_Datatype placed;

	snprintf(test_name, sizeof(test_name), "%s, under MPI_BOTTOM", what);
	for (int i = 0; i < VALUES; i++)
		values[i] = 100 + i;
	buffer_put(&buffer, values, sizeof(values));
	MPI_Type_create_hindexed(1, (const int[]){1}, &place, type, &placed);
	MPI_Type_commit(&placed);
	MPI_Type_commit(&type);
	MPI_Sendrecv(values, 1, type, 0, 0, want, num, MPI_INT, 0, 0, MPI_COMM_SELF,
		     MPI_STATUS_IGNORE);
	MPI_Sendrecv(MPI_BOTTOM, 1, placed, 0, 0, got, num, MPI_INT, 0, 0, MPI_COMM_SELF,
		     MPI_STATUS_IGNORE);
	test_result(!memcmp(want, got, sizeof(want)) && buffer_equals(&buffer, values, "buffer"));
	MPI_Type_free(&placed);
	MPI_Type_free(&type);
	buffer_free(&buffer);
}

static void seldom_orders(void)
{
	MPI_Datatype inner, type;

	MPI_Type_create_indexed_block(3, 1, (const int[]){4, 2, 0}, MPI_INT, &inner);
	MPI_Type_contiguous(1, inner, &type);
	MPI_Type_free(&inner);
	send_from_bottom(type, 3, "what falls");
	MPI_Type_create_hvector(2, 2, sizeof(int), MPI_INT, &inner);
	MPI_Type_create_hvector(2, 1, 100, inner, &type);
	MPI_Type_free(&inner);
	send_from_bottom(type, 8, "a word that is there twice");
}

/* Elements that overlap may be sent. */
static void overlapping(void)
{
	int values[8], got[12], wanted[12];
	struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(values));
	MPI_Datatype type;

	snprintf(test_name, sizeof(test_name), "elements that overlap");
	for (int i = 0; i < 8; i++)
		values[i] = i;
	for (int i = 0; i < 12; i++)
		wanted[i] = i / 3 + i % 3;
	buffer_put(&buffer, values, sizeof(values));
	MPI_Type_vector(4, 3, 1, MPI_INT, &type);
	MPI_Type_commit(&type);
	if (test_rank == 0)
		MPI_Send(buffer.data, 1, type, 1, 0, MPI_COMM_WORLD);
	if (test_rank == 1)
		MPI_Recv(got, 12, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	test_result(test_rank != 1 || !memcmp(got, wanted, sizeof(got)));
	MPI_Type_free(&type);
	buffer_free(&buffer);
}

/* More comes than there is room for: an error, beside a message that is well, and no byte of it. */
static void truncated(void)
{
	struct buffer small = buffer_new(PLACE_DEVICE, 40), well = buffer_new(PLACE_DEVICE, 40);
	unsigned char poison[40], expected[40];
	MPI_Request requests[2];
	MPI_Status statuses[2];
	bool ok = true;
	int class = 0;

	snprintf(test_name, sizeof(test_name), "a message that is too long");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	memset(poison, POISON, sizeof(poison));
	if (test_rank == 1) {
		MPI_Irecv(small.data, 10, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[0]);
		MPI_Irecv(well.data, 10, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[1]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank == 0) {
		struct buffer large = buffer_new(PLACE_DEVICE, 80);

		put_bytes(&large, 5);
		MPI_Send(large.data, 20, MPI_INT, 1, 1, MPI_COMM_WORLD);
		MPI_Send(large.data, 10, MPI_INT, 1, 2, MPI_COMM_WORLD);
		buffer_free(&large);
	} else if (test_rank == 1) {
		int result = MPI_Waitall(2, requests, statuses);

		/* Open MPI may stop at the first error. */
		if (requests[1] != MPI_REQUEST_NULL)
			MPI_Wait(&requests[1], &statuses[1]);
		MPI_Error_class(statuses[0].MPI_ERROR, &class);
		for (int i = 0; i < 40; i++)
			expected[i] = (unsigned char)(5 + i * 7);
		ok = result == MPI_ERR_IN_STATUS && class == MPI_ERR_TRUNCATE &&
		     buffer_equals(&small, poison, "truncated") &&
		     buffer_equals(&well, expected, "beside it");
	}
	test_result(ok);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	buffer_free(&small);
	buffer_free(&well);
}

/* Nobody, oneself, nothing. */
static void nobody(void)
{
	struct buffer in = buffer_new(PLACE_DEVICE, 64), out = buffer_new(PLACE_DEVICE, 64);
	unsigned char expected[64];
	MPI_Request requests[3];
	MPI_Status status;
	int count;
	bool ok;

	snprintf(test_name, sizeof(test_name), "messages to nobody and to oneself");
	put_bytes(&in, test_rank);
	memset(expected, POISON, sizeof(expected));
	MPI_Send(in.data, 64, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
	MPI_Recv(out.data, 64, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &count);
	ok = count == 0 && status.MPI_SOURCE == MPI_PROC_NULL &&
	     buffer_equals(&out, expected, "from nobody");
	MPI_Irecv(out.data, 64, MPI_BYTE, 0, 3, MPI_COMM_SELF, &requests[0]);
	MPI_Isend(in.data, 64, MPI_BYTE, 0, 3, MPI_COMM_SELF, &requests[1]);
	MPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[2]);
	MPI_Waitall(3, requests, ignored());
	for (int i = 0; i < 64; i++)
		expected[i] = (unsigned char)(test_rank + i * 7);
	ok &= buffer_equals(&out, expected, "from oneself");
	test_result(ok);
	buffer_free(&in);
	buffer_free(&out);
}

/* A receive that is freed while it is under way: what comes is there in the end. */
static void freed_receive(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	unsigned char expected[64], got[64];
	MPI_Request request;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a receive that is freed");
	put_bytes(&buffer, test_rank ? 99 : 1);
	for (int i = 0; i < 64; i++)
		expected[i] = (unsigned char)(1 + i * 7);
	if (test_rank == 1) {
		MPI_Irecv(buffer.data, 64, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
		MPI_Request_free(&request);
		ok = request == MPI_REQUEST_NULL;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank == 0)
		MPI_Send(buffer.data, 64, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	while (ok && test_rank == 1) {
		int one = 1, flag;

		/* Some call that completes requests. */
		MPI_Isend(&one, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request);
		MPI_Recv(&one, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Iprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
		cuda_check(cudaMemcpy(got, buffer.data, 64, cudaMemcpyDefault), "cudaMemcpy");
		if (!memcmp(got, expected, 64))
			break;
	}
	test_result(ok);
	buffer_free(&buffer);
}

/* Started again and again, with other data each time. */
static void persistent(void)
{
	struct buffer in = buffer_new(PLACE_DEVICE, 64), out = buffer_new(PLACE_MANAGED, 64);
	int left = (test_rank + test_size - 1) % test_size, right = (test_rank + 1) % test_size;
	unsigned char expected[64];
	MPI_Request requests[2];
	bool ok = true;
	int flag;

	snprintf(test_name, sizeof(test_name), "persistent requests");
	MPI_Recv_init(out.data, 64, MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[0]);
	MPI_Send_init(in.data, 64, MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, ignored()); /* they are inactive */
	for (int round = 0; round < 20; round++) {
		put_bytes(&in, round * 3 + test_rank);
		MPI_Startall(2, requests);
		flag = round % 2;
		while (flag < 1)
			MPI_Testall(2, requests, &flag, ignored());
		MPI_Waitall(2, requests, ignored());
		for (int i = 0; i < 64; i++)
			expected[i] = (unsigned char)(round * 3 + left + i * 7);
		ok &= buffer_equals(&out, expected, "started");
		put_bytes(&out, 200);
	}
	MPI_Request_free(&requests[0]);
	MPI_Start(&requests[1]);
	MPI_Request_free(&requests[1]); /* under way */
	MPI_Recv(out.data, 64, MPI_BYTE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < 64; i++)
		expected[i] = (unsigned char)(19 * 3 + left + i * 7);
	ok &= buffer_equals(&out, expected, "the last one");
	test_result(ok);
	buffer_free(&in);
	buffer_free(&out);
}

/*
 * Starts one after the other of a buffered send whose receiver is late: Open MPI has a new request,
 * and a new handle, for each.
 */
static void started_again(void)
{
	enum { NUM = 1 << 18, TIMES = 4, ATTACHED = 8 << 20 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, NUM * sizeof(int));
	int *values = malloc(NUM * sizeof(int));
	char *attached = malloc(ATTACHED);
	MPI_Request request;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a buffered send that is started again");
	MPI_Buffer_attach(attached, ATTACHED);
	if (test_rank == 0)
		MPI_Bsend_init(buffer.data, NUM, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
	for (int k = 0; k < TIMES && test_rank == 0; k++) {
		for (int i = 0; i < NUM; i++)
			values[i] = k * 1000 + i;
		buffer_put(&buffer, values, NUM * sizeof(int));
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int k = 0; k < TIMES && test_rank == 1; k++) {
		MPI_Recv(values, NUM, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		ok &= values[0] == k * 1000 && values[NUM - 1] == k * 1000 + NUM - 1;
	}
	test_result(ok);
	MPI_Buffer_detach(&attached, &(int){0});
	if (test_rank == 0)
		MPI_Request_free(&request);
	free(attached);
	free(values);
	buffer_free(&buffer);
}

static MPI_Request other; /* is completed by the error handler of a call on another one */

static void complete_other(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	if (other != MPI_REQUEST_NULL)
		MPI_Wait(&other, MPI_STATUS_IGNORE);
}

/* Nor is a handle that is given to another request mistaken for it. */
static void completed_by_a_handler(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 40), small = buffer_new(PLACE_DEVICE, 4);
	unsigned char expected[40], poison[40];
	MPI_Errhandler handler;
	MPI_Request requests[2];
	MPI_Comm comm = MPI_COMM_WORLD; /* on which MPICH raises such errors */
	int host[100];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "an error handler that completes a request");
	MPI_Comm_create_errhandler(complete_other, &handler);
	MPI_Comm_set_errhandler(comm, handler);
	other = MPI_REQUEST_NULL;
	memset(poison, POISON, sizeof(poison));
	for (int i = 0; i < 40; i++)
		expected[i] = (unsigned char)(6 + i * 7);
	if (test_rank == 1) {
		MPI_Irecv(small.data, 1, MPI_INT, 0, 1, comm, &requests[0]);
		MPI_Irecv(buffer.data, 10, MPI_INT, 0, 2, comm, &other);
		requests[1] = other;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank == 0) {
		put_bytes(&buffer, 6);
		MPI_Send(host, 100, MPI_INT, 1, 1, comm);
		MPI_Send(buffer.data, 10, MPI_INT, 1, 2, comm);
	} else if (test_rank == 1) {
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		ok = other == MPI_REQUEST_NULL && buffer_equals(&buffer, expected, "completed");
		buffer_put(&buffer, poison, sizeof(poison));
	}
	for (int i = 0; i < 20; i++) { /* others' requests, and handles that were used */
		MPI_Irecv(host, 10, MPI_INT, test_rank, 5, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(host + 50, 10, MPI_INT, test_rank, 5, MPI_COMM_WORLD, &requests[1]);
		MPI_Waitall(2, requests, ignored());
	}
	ok &= test_rank != 1 || buffer_equals(&buffer, poison, "afterwards");
	test_result(ok);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&handler);
	buffer_free(&buffer);
	buffer_free(&small);
}

/* In a callback, inside another call. */
static int send_in_callback(MPI_Comm comm, int keyval, void *extra, void *value, void *out,
			    int *flag)
{
	char *data = value;
	MPI_Request request;

	(void)comm;
	(void)keyval;
	(void)extra;
	(void)out;
	MPI_Irecv(data + 32, 32, MPI_BYTE, 0, 0, MPI_COMM_SELF, &request);
	MPI_Send(data, 32, MPI_BYTE, 0, 0, MPI_COMM_SELF);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	*flag = 0;
	return MPI_SUCCESS;
}

static void in_a_callback(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	unsigned char expected[64];
	MPI_Comm comm, copy;
	int keyval;

	snprintf(test_name, sizeof(test_name), "messages in a callback");
	put_bytes(&buffer, 9);
	for (int i = 0; i < 64; i++)
		expected[i] = (unsigned char)(9 + i % 32 * 7);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_create_keyval(send_in_callback, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
	MPI_Comm_set_attr(comm, keyval, buffer.data);
	MPI_Comm_dup(comm, &copy);
	test_result(buffer_equals(&buffer, expected, "called back"));
	MPI_Comm_free(&copy);
	MPI_Comm_free(&comm);
	MPI_Comm_free_keyval(&keyval);
	buffer_free(&buffer);
}

/* The real MPI's error, not ours. */
static void not_committed(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	MPI_Datatype type;
	int class;

	snprintf(test_name, sizeof(test_name), "a type that is not committed");
	MPI_Type_vector(2, 1, 2, MPI_INT, &type);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	MPI_Error_class(MPI_Send(buffer.data, 1, type, 0, 0, MPI_COMM_SELF), &class);
	test_result(class == MPI_ERR_TYPE);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
	MPI_Type_free(&type);
	buffer_free(&buffer);
}

/* Across an intercommunicator. */
static void between_groups(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	unsigned char expected[64];
	MPI_Comm half, inter;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "an intercommunicator");
	put_bytes(&buffer, test_rank ? 50 : 2);
	MPI_Comm_split(MPI_COMM_WORLD, test_rank > 0, 0, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, test_rank > 0 ? 0 : 1, 0, &inter);
	for (int i = 0; i < 64; i++)
		expected[i] = (unsigned char)(2 + i * 7);
	if (test_rank == 0)
		MPI_Send(buffer.data, 64, MPI_BYTE, 0, 0, inter);
	if (test_rank == 1) {
		MPI_Recv(buffer.data, 64, MPI_BYTE, 0, 0, inter, MPI_STATUS_IGNORE);
		ok = buffer_equals(&buffer, expected, "from the other group");
	}
	test_result(ok);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
	buffer_free(&buffer);
}

/* Pack and unpack, of every type, on both sides, in native and external form. */
static void packing(void)
{
	static const enum place places[] = {PLACE_HOST, PLACE_DEVICE, PLACE_MANAGED};
	enum { COUNT = 5, BEFORE = 3, ROOM = 2000 };
	bool ok = true;

	for (int form = 0; form < 2 * NUM_TYPES * 9; form++) {
		const struct type *type = &types[form / 2 / 9];
		bool external = form % 2;
		enum place where = places[form / 2 % 3], packed = places[form / 2 / 3 % 3];
		struct data in = data_new(where, type, COUNT), out = data_new(where, type, COUNT);
		struct buffer middle = buffer_new(packed, ROOM);
		int position = BEFORE;
		MPI_Aint far = BEFORE;

		snprintf(test_name, sizeof(test_name), "packing, form %d", form);
		fill(&in, form, 0, COUNT * type->ints);
		expect(&out, form, 0, COUNT * type->ints);
		if (external) {
			MPI_Pack_external("external32", in.at, COUNT, type->type, middle.data, ROOM,
					  &far);
			ok &= far == BEFORE + COUNT * type->ints * 4;
			far = BEFORE;
			MPI_Unpack_external("external32", middle.data, ROOM, &far, out.at, COUNT,
					    type->type);
		} else {
			MPI_Pack(in.at, COUNT, type->type, middle.data, ROOM, &position,
				 MPI_COMM_WORLD);
			ok &= position == BEFORE + COUNT * type->ints * 4;
			position = BEFORE;
			MPI_Unpack(middle.data, ROOM, &position, out.at, COUNT, type->type,
				   MPI_COMM_WORLD);
		}
		ok &= buffer_equals(&in.buffer, in.expected, "in") &&
		      buffer_equals(&out.buffer, out.expected, "out");
		/* Nothing is written before the position and behind the data. */
		unsigned char *bytes = malloc(ROOM);

		cuda_check(cudaMemcpy(bytes, middle.data, ROOM, cudaMemcpyDefault), "cudaMemcpy");
		for (int i = 0; i < ROOM; i++) {
			if (i < BEFORE || i >= BEFORE + COUNT * type->ints * 4)
				ok &= bytes[i] == POISON;
		}
		ok &= buffer_equals(&middle, bytes, "packed");
		free(bytes);
		data_free(&in);
		data_free(&out);
		buffer_free(&middle);
	}
	test_result(ok);
}

static void edges(void)
{
	if (test_size < 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	pairs();
	host_and_device(true);
	host_and_device(false);
	types_on_demand();
	seldom_orders();
	overlapping();
	truncated();
	nobody();
	freed_receive();
	persistent();
	started_again();
	completed_by_a_handler();
	in_a_callback();
	not_committed();
	between_groups();
	packing();
	free_types();
}

/* ---- several threads ---- */

enum { THREADS = 3 };
static MPI_Comm comms[THREADS]; /* of each thread */

static void *exchange(void *argument)
{
	MPI_Comm comm = *(MPI_Comm *)argument;
	uint64_t state = seed + (uint64_t)((MPI_Comm *)argument - comms);
	int left = (test_rank + test_size - 1) % test_size, right = (test_rank + 1) % test_size;
	struct buffer in = buffer_new(PLACE_DEVICE, 4000), out = buffer_new(PLACE_DEVICE, 4000);
	unsigned char *values = malloc(4000);
	MPI_Request requests[2];
	intptr_t wrong = 0;
	int index, flag = 0;

	for (int round = 0; round < rounds; round++) {
		int bytes = 1 + (int)draw_below(&state, 4000), form = (int)draw_below(&state, 3);

		put_bytes(&in, round + test_rank);
		MPI_Irecv(out.data, 4000, MPI_BYTE, left, round, comm, &requests[0]);
		MPI_Isend(in.data, bytes, MPI_BYTE, right, round, comm, &requests[1]);
		if (form == 0)
			MPI_Waitall(2, requests, ignored());
		for (int i = 0; form == 1 && i < 2; i++)
			MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
		for (int i = 0; form == 2 && i < 2; i++) {
			for (flag = 0; !flag;)
				MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
		}
		cuda_check(cudaMemcpy(values, out.data, 4000, cudaMemcpyDefault), "cudaMemcpy");
		for (int i = 0; i < bytes; i++) {
			if (values[i] == (unsigned char)(round + left + i * 7))
				continue;
			if (!wrong++)
				printf("rank %d, thread %d, round %d, form %d: byte %d of %d is %d\n",
				       test_rank, (int)((MPI_Comm *)argument - comms), round, form,
				       i, bytes, values[i]);
		}
	}
	free(values);
	buffer_free(&in);
	buffer_free(&out);
	return (void *)wrong;
}

static void threads(void)
{
	pthread_t all[THREADS];
	void *wrong;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "several threads");
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&all[i], NULL, exchange, &comms[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(all[i], &wrong);
		ok &= !wrong;
	}
	test_result(ok);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&comms[i]);
	free_types();
}

/* What two threads ask about at a time is unpacked when either is told that it has come. */
enum { WATCHED = 1 << 20 };

static struct {
	MPI_Request request;
	struct buffer buffer;
	pthread_barrier_t barrier;
} watched;

static void *watch(void *argument)
{
	unsigned char *values = malloc(WATCHED);
	intptr_t wrong = 0;
	int flag = 0;

	(void)argument;
	for (int round = 0; round < rounds; round++) {
		pthread_barrier_wait(&watched.barrier); /* it is posted */
		for (flag = 0; !flag;)
			MPI_Request_get_status(watched.request, &flag, MPI_STATUS_IGNORE);
		cuda_check(cudaMemcpy(values, watched.buffer.data, WATCHED, cudaMemcpyDefault),
			   "cudaMemcpy");
		for (int i = 0; i < WATCHED; i += 101)
			wrong += values[i] != (unsigned char)(round + i * 7);
		pthread_barrier_wait(&watched.barrier);
	}
	free(values);
	return (void *)wrong;
}

static void watchers(void)
{
	enum { WATCHERS = 2 };
	struct buffer sent = buffer_new(PLACE_DEVICE, WATCHED);
	pthread_t all[WATCHERS];
	MPI_Request request;
	void *wrong;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "two threads that ask about one request");
	watched.buffer = buffer_new(PLACE_DEVICE, WATCHED);
	pthread_barrier_init(&watched.barrier, NULL, WATCHERS + 1);
	for (int i = 0; i < WATCHERS; i++)
		pthread_create(&all[i], NULL, watch, NULL);
	for (int round = 0; round < rounds; round++) {
		put_bytes(&sent, round);
		MPI_Irecv(watched.buffer.data, WATCHED, MPI_BYTE, test_rank, round, MPI_COMM_WORLD,
			  &watched.request);
		pthread_barrier_wait(&watched.barrier);
		MPI_Isend(sent.data, WATCHED, MPI_BYTE, test_rank, round, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		pthread_barrier_wait(&watched.barrier);
		MPI_Wait(&watched.request, MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < WATCHERS; i++) {
		pthread_join(all[i], &wrong);
		ok &= !wrong;
	}
	test_result(ok);
	pthread_barrier_destroy(&watched.barrier);
	buffer_free(&watched.buffer);
	buffer_free(&sent);
	free_types();
}

/* ---- what programs ask ---- */

static void query(void)
{
	int (*ask)(void), mine, least, most, wanted = rounds;

	snprintf(test_name, sizeof(test_name), "MPIX_Query_cuda_support");
	*(void **)&ask = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
	mine = ask ? ask() : -1;
	MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	test_result(least == wanted && most == wanted);
	free_types();
}

static const struct test_case cases[] = {
	{"stress", stress},     {"edges", edges}, {"threads", threads},
	{"watchers", watchers}, {"query", query}, {"beside_default_stream", beside_default_stream},
};

int main(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "threads") || !strcmp(argv[1], "watchers")))
		MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &(int){0});
	else
		MPI_Init(&argc, &argv);
	test_start();
	rounds = argc > 2 ? atoi(argv[2]) : rounds;
	seed = argc > 3 ? (unsigned)atoi(argv[3]) : seed;
	make_types();
	return test_run_case(argc > 1 ? argv[1] : NULL, cases, sizeof(cases) / sizeof(cases[0]));
}
