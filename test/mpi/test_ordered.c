/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums in the order of ranks, bit for bit, under GPUCOLL_REPRODUCIBLE=1: every reduction in all its
 * forms against what this program adds up itself, of numbers whose sum depends on the order.
 *
 *     test_ordered [blocking | nonblocking | persistent | enqueued | inter | more [unasked]]
 *
 * "unasked": without the option some results are to be others, but not those of integers.
 */
#include "gpucoll_weak.h"
#include "test.h"

#include "gpu/kernels/gpu_half.h"

#include <complex.h>
#include <math.h>

enum coll { ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, NUM_COLLS };
enum form { BLOCKING, NONBLOCKING, PERSISTENT, ENQUEUED, INTER, MORE, NUM_FORMS };
enum kind {
	FLOAT,
	DOUBLE,
	COMPLEX,
	DOUBLE_COMPLEX,
	HALF,
	BFLOAT,
	LONG_DOUBLE,
	STRUCTURE,
	INTEGER,
	PAIR,
	NUM_KINDS
};
enum op { SUM, PRODUCT, MAXIMUM, PLACE_OF_MINIMUM };

static const char *const coll_names[] = {
	"Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"};
static const char *const form_names[] = {"blocking", "nonblocking", "persistent",
					 "enqueued", "inter",       "more"};

/* What an operation of the program's own works on: with gaps, and neither way associative. */
struct structure {
	char head[8];
	double value;
	int32_t tag;
	char gap[4];
};

struct pair {
	float value;
	int32_t index;
};

union element {
	struct pair p;
	float f;
	double d;
	float complex c;
	double complex z;
	uint16_t h;
	long double l;
	struct structure s;
	int32_t i;
};

struct type {
	const char *name;
	enum kind kind;
	size_t bytes;
	MPI_Datatype type;
	MPI_Op op;
	enum op kind_of_op;
};

static struct type types[] = {
	{"float", FLOAT, sizeof(float), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"float product", FLOAT, sizeof(float), MPI_DATATYPE_NULL, MPI_OP_NULL, PRODUCT},
	{"float maximum", FLOAT, sizeof(float), MPI_DATATYPE_NULL, MPI_OP_NULL, MAXIMUM},
	{"pair", PAIR, sizeof(struct pair), MPI_DATATYPE_NULL, MPI_OP_NULL, PLACE_OF_MINIMUM},
	{"int", INTEGER, sizeof(int32_t), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"double", DOUBLE, sizeof(double), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"complex", COMPLEX, sizeof(float complex), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"double complex", DOUBLE_COMPLEX, sizeof(double complex), MPI_DATATYPE_NULL, MPI_OP_NULL,
	 SUM},
	{"float16", HALF, sizeof(uint16_t), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"bfloat16", BFLOAT, sizeof(uint16_t), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"long double", LONG_DOUBLE, sizeof(long double), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
	{"structure", STRUCTURE, sizeof(struct structure), MPI_DATATYPE_NULL, MPI_OP_NULL, SUM},
};
enum { NUM_TYPES = sizeof(types) / sizeof(types[0]) };

static MPI_Comm comm, other; /* the latter for a stream */
static cudaStream_t stream;
static int comm_rank, comm_size;
static bool unasked;
static long others[NUM_KINDS]; /* unasked: wrong results */

/* ---- numbers ---- */

static struct structure mix(struct structure a, struct structure b)
{
	a.value = a.value / 3 + b.value;
	a.tag = 3 * a.tag + b.tag;
	return a;
}

static void mix_all(void *in, void *inout, int *count, MPI_Datatype *type)
{
	struct structure *a = in, *b = inout;

	(void)type;
	for (int i = 0; i < *count; i++) {
		struct structure sum = mix(a[i], b[i]);

		/* The gap is nobody's. */
		b[i].value = sum.value;
		b[i].tag = sum.tag;
	}
}

/* Of all sizes, so that each sum is rounded, and which bits are lost depends on the order. */
static double number_of(int rank, size_t at, enum op op)
{
	uint64_t state = (uint64_t)rank * 1000003 + at * 7919 + 17;
	uint64_t bits = draw(&state);
	double fraction = 1 + (double)(bits % 1000003) / 1000003;

	if (op == PRODUCT)
		return fraction * 0.75;
	/* Zeros of both signs, of which the earlier one counts, and what is no number, among
	 * others. */
	if (op == MAXIMUM || op == PLACE_OF_MINIMUM)
		return bits % 9 < 3    ? 0.0
		       : bits % 9 < 6  ? -0.0
		       : bits % 9 == 6 ? NAN
				       : fraction - 1.5;
	return (bits >> 40 & 1 ? 1 : -1) * fraction * (double)(1 << (bits >> 32 & 7));
}

static void put(const struct type *type, int rank, size_t at, void *to)
{
	double number = number_of(rank, at, type->kind_of_op);
	union element e;

	memset(&e, 0, sizeof(e));
	switch (type->kind) {
	case FLOAT:
		e.f = (float)number;
		break;
	case DOUBLE:
		e.d = number;
		break;
	case COMPLEX:
		e.c = (float)number + (float)number_of(rank, at + 1, SUM) * I;
		break;
	case DOUBLE_COMPLEX:
		e.z = number + number_of(rank, at + 1, SUM) * I;
		break;
	case BFLOAT:
		e.h = gpu_bfloat16_from_float((float)number);
		break;
	case HALF:
		e.h = gpu_float16_from_float((float)number);
		break;
	case PAIR:
		e.p.value = (float)number;
		e.p.index = (int32_t)((at + (size_t)rank * 7) % 5);
		break;
	case LONG_DOUBLE:
		e.l = (long double)number / 3;
		break;
	case STRUCTURE:
		e.s.value = number;
		e.s.tag = (int32_t)at + rank;
		break;
	default:
		e.i = (int32_t)(1e6 * number);
		break;
	}
	memcpy(to, &e, type->bytes);
}

static struct pair least_of(struct pair a, struct pair b)
{
	if (a.value == b.value) {
		a.index = a.index < b.index ? a.index : b.index;
		return a;
	}
	return a.value > b.value ? b : a;
}

static void add(const struct type *type, void *sum, const void *more)
{
	union element a, b;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	memcpy(&a, sum, type->bytes);
	memcpy(&b, more, type->bytes);
	switch (type->kind) {
	case FLOAT:
		a.f = type->kind_of_op == PRODUCT   ? a.f * b.f
		      : type->kind_of_op == MAXIMUM ? (b.f > a.f ? b.f : a.f)
						    : a.f + b.f;
		break;
	case DOUBLE:
		a.d += b.d;
		break;
	case COMPLEX:
		a.c += b.c;
		break;
	case DOUBLE_COMPLEX:
		a.z += b.z;
		break;
	case BFLOAT:
		a.h = gpu_bfloat16_from_float(gpu_bfloat16_to_float(a.h) +
					      gpu_bfloat16_to_float(b.h));
		break;
	case HALF:
		a.h = gpu_float16_from_float(gpu_float16_to_float(a.h) + gpu_float16_to_float(b.h));
		break;
	case PAIR:
		a.p = least_of(a.p, b.p);
		break;
	case LONG_DOUBLE:
		a.l += b.l;
		break;
	case STRUCTURE:
		a.s = mix(a.s, b.s);
		break;
	default:
		a.i += b.i;
		break;
	}
	memcpy(sum, &a, type->bytes);
}

/* What the first ranks' contributions come to, one after the other. */
static void fold(const struct type *type, int ranks, size_t at, void *to)
{
	union element sum, more;

	put(type, 0, at, &sum);
	for (int i = 1; i < ranks; i++) {
		put(type, i, at, &more);
		add(type, &sum, &more);
	}
	/* What lies in the gaps stays. */
	if (type->kind == STRUCTURE)
		memcpy((char *)to + offsetof(struct structure, value), &sum.s.value,
		       offsetof(struct structure, gap) - offsetof(struct structure, value));
	else
		memcpy(to, &sum, type->bytes);
}

/* ---- calls ---- */

struct call {
	enum coll coll;
	enum form form;
	const struct type *type;
	int count, root; /* of a reduce_scatter, count of the shortest block */
	bool in_place;
	const void *in;
	void *out;
	int counts[64]; /* blocks */
};

static size_t elements(const struct call *c)
{
	size_t sum = 0;

	if (c->coll != REDUCE_SCATTER && c->coll != REDUCE_SCATTER_BLOCK)
		return (size_t)c->count;
	for (int i = 0; i < comm_size; i++)
		sum += (size_t)c->counts[i];
	return sum;
}

static int call_blocking(const struct call *c)
{
	MPI_Datatype type = c->type->type;
	MPI_Op op = c->type->op;

	switch (c->coll) {
	case ALLREDUCE:
		return MPI_Allreduce(c->in, c->out, c->count, type, op, comm);
	case REDUCE:
		return MPI_Reduce(c->in, c->out, c->count, type, op, c->root, comm);
	case REDUCE_SCATTER:
		return MPI_Reduce_scatter(c->in, c->out, c->counts, type, op, comm);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Reduce_scatter_block(c->in, c->out, c->count, type, op, comm);
	case SCAN:
		return MPI_Scan(c->in, c->out, c->count, type, op, comm);
	default:
		return MPI_Exscan(c->in, c->out, c->count, type, op, comm);
	}
}

static int begin_nonblocking(const struct call *c, MPI_Request *request)
{
	MPI_Datatype type = c->type->type;
	MPI_Op op = c->type->op;

	switch (c->coll) {
	case ALLREDUCE:
		return MPI_Iallreduce(c->in, c->out, c->count, type, op, comm, request);
	case REDUCE:
		return MPI_Ireduce(c->in, c->out, c->count, type, op, c->root, comm, request);
	case REDUCE_SCATTER:
		return MPI_Ireduce_scatter(c->in, c->out, c->counts, type, op, comm, request);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Ireduce_scatter_block(c->in, c->out, c->count, type, op, comm, request);
	case SCAN:
		return MPI_Iscan(c->in, c->out, c->count, type, op, comm, request);
	default:
		return MPI_Iexscan(c->in, c->out, c->count, type, op, comm, request);
	}
}

static int init_persistent(const struct call *c, MPI_Request *request)
{
	MPI_Datatype type = c->type->type;
	MPI_Info info = MPI_INFO_NULL;
	MPI_Op op = c->type->op;

	switch (c->coll) {
	case ALLREDUCE:
		return INIT(Allreduce)(c->in, c->out, c->count, type, op, comm, info, request);
	case REDUCE:
		return INIT(Reduce)(c->in, c->out, c->count, type, op, c->root, comm, info,
				    request);
	case REDUCE_SCATTER:
		return INIT(Reduce_scatter)(c->in, c->out, c->counts, type, op, comm, info,
					    request);
	case REDUCE_SCATTER_BLOCK:
		return INIT(Reduce_scatter_block)(c->in, c->out, c->count, type, op, comm, info,
						  request);
	case SCAN:
		return INIT(Scan)(c->in, c->out, c->count, type, op, comm, info, request);
	default:
		return INIT(Exscan)(c->in, c->out, c->count, type, op, comm, info, request);
	}
}

static int call_enqueued(const struct call *c)
{
	MPI_Datatype type = c->type->type;
	MPI_Op op = c->type->op;

	switch (c->coll) {
	case ALLREDUCE:
		return gpucoll_allreduce_enqueue(c->in, c->out, c->count, type, op, other, stream);
	case REDUCE:
		return gpucoll_reduce_enqueue(c->in, c->out, c->count, type, op, c->root, other,
					      stream);
	case REDUCE_SCATTER:
		return gpucoll_reduce_scatter_enqueue(c->in, c->out, c->counts, type, op, other,
						      stream);
	case REDUCE_SCATTER_BLOCK:
		return gpucoll_reduce_scatter_block_enqueue(c->in, c->out, c->count, type, op,
							    other, stream);
	case SCAN:
		return gpucoll_scan_enqueue(c->in, c->out, c->count, type, op, other, stream);
	default:
		return gpucoll_exscan_enqueue(c->in, c->out, c->count, type, op, other, stream);
	}
}

static int make(const struct call *c)
{
	MPI_Request request;
	int result, error = 0;

	switch (c->form) {
	case NONBLOCKING:
		result = begin_nonblocking(c, &request);
		return result ? result : MPI_Wait(&request, MPI_STATUS_IGNORE);
	case PERSISTENT:
		result = init_persistent(c, &request);
		result = result ? result : MPI_Start(&request);
		result = result ? result : MPI_Wait(&request, MPI_STATUS_IGNORE);
		return result ? result : MPI_Request_free(&request);
	case ENQUEUED:
		/* The stream does not wait for copies that have put the buffers' data there. */
		cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		result = call_enqueued(c);
		cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		gpucoll_stream_error(other, &error);
		return result ? result : error;
	default:
		return call_blocking(c);
	}
}

/* ---- expectations ---- */

/* The result in `want`, which has what was there. */
static void expect(const struct call *c, unsigned char *want)
{
	size_t first = 0, num = elements(c);
	int ranks = comm_size;

	if (c->coll == REDUCE && comm_rank != c->root)
		return;
	if (c->coll == SCAN || c->coll == EXSCAN)
		ranks = comm_rank + (c->coll == SCAN);
	if (!ranks)
		return;
	if (c->coll == REDUCE_SCATTER || c->coll == REDUCE_SCATTER_BLOCK) {
		num = (size_t)c->counts[comm_rank];
		for (int i = 0; i < comm_rank; i++)
			first += (size_t)c->counts[i];
	}
	for (size_t i = 0; i < num; i++)
		fold(c->type, ranks, first + i, want + i * c->type->bytes);
}

static void run(struct call *c, enum place place)
{
	size_t bytes;

	for (int i = 0; i < comm_size; i++)
		c->counts[i] = c->count + (c->coll == REDUCE_SCATTER ? i : 0);
	bytes = elements(c) * c->type->bytes;
	unsigned char *send = malloc(bytes + 1), *want = malloc(bytes + 1);
	struct buffer in = buffer_new(place, bytes), out = buffer_new(place, bytes);

	snprintf(test_name, sizeof(test_name), "%s %s %s, %d elements%s%s, root %d",
		 form_names[c->form], coll_names[c->coll], c->type->name, c->count,
		 c->in_place ? ", in place" : "", place == PLACE_HOST ? ", host" : "", c->root);
	memset(want, POISON, bytes);
	for (size_t i = 0; i < elements(c); i++)
		put(c->type, comm_rank, i, send + i * c->type->bytes);
	bool mine = c->in_place && (c->coll != REDUCE || comm_rank == c->root);
	if (mine)
		memcpy(want, send, bytes);
	buffer_put(&in, send, bytes);
	buffer_put(&out, want, bytes);
	c->in = mine ? MPI_IN_PLACE : in.data;
	c->out = out.data;
	/* In place, a reduce_scatter may have left anything behind its result. */
	int result = make(c);
	expect(c, want);
	if (mine && (c->coll == REDUCE_SCATTER || c->coll == REDUCE_SCATTER_BLOCK)) {
		size_t own = (size_t)c->counts[comm_rank] * c->type->bytes;

		if (place == PLACE_HOST)
			memcpy((char *)out.data + own, want + own, bytes - own);
		else
			cuda_check(cudaMemcpy((char *)out.data + own, want + own, bytes - own,
					      cudaMemcpyDefault),
				   "cudaMemcpy");
	}
	bool ok = result == MPI_SUCCESS;
	ok &= buffer_equals(&out, want, "receive buffer");
	ok &= buffer_equals(&in, send, "send buffer");
	if (unasked)
		others[c->type->kind] += !ok;
	else
		test_result(ok);
	buffer_free(&in);
	buffer_free(&out);
	free(send);
	free(want);
}

static void look_at_others(void)
{
	long all[NUM_KINDS];

	MPI_Allreduce(others, all, NUM_KINDS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	snprintf(test_name, sizeof(test_name), "floats in another order");
	test_result(all[FLOAT] > 0 && all[DOUBLE] > 0);
	snprintf(test_name, sizeof(test_name), "integers in any order");
	test_result(!all[INTEGER]);
}

static void run_all(enum form form)
{
	static const int counts[] = {0, 1, 33, 7000, 70001};
	int runs = 0;

	for (int coll = 0; coll < NUM_COLLS; coll++) {
		for (int t = 0; t < NUM_TYPES; t++) {
			for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++, runs++) {
				struct call c = {.coll = (enum coll)coll,
						 .form = form,
						 .type = &types[t],
						 .count = counts[i],
						 .in_place = runs % 3 == 2};
				/* One rank may have host buffers: all are staged then. */
				bool mixed = runs % 5 == 1, host = runs % 7 == 3;

				if (coll == REDUCE)
					c.root = runs % comm_size;
				if (coll == REDUCE_SCATTER || coll == REDUCE_SCATTER_BLOCK)
					c.count /= comm_size;
				/* The long ones take most of the time. */
				if (i == 4 && (t + coll) % 3)
					continue;
				/* MPICH 4.0's own get it wrong, on host buffers too. */
				if ((unasked || comm_size == 1) &&
				    (types[t].kind == STRUCTURE || coll == REDUCE_SCATTER))
					continue;
				run(&c,
				    host || (mixed && comm_rank == 1) ? PLACE_HOST : PLACE_DEVICE);
			}
		}
	}
}

/* ---- two groups, each of which gets the other's sum ---- */

/* Each group's sum, of which the other's ranks have a part each. */
static void scatter_inter(MPI_Comm inter, MPI_Comm half, int others)
{
	const struct type *type = &types[5];
	int rank, size, *counts, total = 0, first = 0;

	MPI_Comm_rank(half, &rank);
	MPI_Comm_size(half, &size);
	counts = malloc((size_t)size * sizeof(*counts));
	/* As many in both groups. */
	for (int i = 0; i < size; i++) {
		counts[i] = i < size - 1 ? 10 + i : 1000 - total;
		first += i < rank ? counts[i] : 0;
		total += counts[i];
	}
	size_t bytes = (size_t)total * type->bytes, own = (size_t)counts[rank] * type->bytes;
	unsigned char *send = malloc(bytes), *want = malloc(own);
	struct buffer in = buffer_new(PLACE_DEVICE, bytes), out = buffer_new(PLACE_DEVICE, own);

	snprintf(test_name, sizeof(test_name), "inter Reduce_scatter");
	for (int i = 0; i < total; i++)
		put(type, rank, (size_t)i, send + (size_t)i * type->bytes);
	buffer_put(&in, send, bytes);
	int result = MPI_Reduce_scatter(in.data, out.data, counts, type->type, type->op, inter);

	for (int i = 0; i < counts[rank]; i++)
		fold(type, others, (size_t)(first + i), want + (size_t)i * type->bytes);
	bool ok = result == MPI_SUCCESS;
	ok &= buffer_equals(&out, want, "receive buffer");
	test_result(ok);
	buffer_free(&in);
	buffer_free(&out);
	free(counts);
	free(send);
	free(want);
}

static void run_inter(void)
{
	int group = test_rank % 2, half_rank, half_size, others;
	MPI_Comm half, inter;

	MPI_Comm_split(MPI_COMM_WORLD, group, 0, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - group, 5, &inter);
	MPI_Comm_rank(half, &half_rank);
	MPI_Comm_size(half, &half_size);
	MPI_Comm_remote_size(inter, &others);
	for (int i = 0; i < 4; i++) {
		enum { COUNT = 600 };
		bool reduces = i % 2;
		const struct type *type = &types[i / 2 ? 5 : 0];
		size_t bytes = COUNT * type->bytes;
		unsigned char *send = malloc(bytes), *want = malloc(bytes);
		struct buffer in = buffer_new(PLACE_DEVICE, bytes);
		struct buffer out = buffer_new(PLACE_DEVICE, bytes);
		int root = group ? 0 : half_rank ? MPI_PROC_NULL : MPI_ROOT;

		snprintf(test_name, sizeof(test_name), "inter %s %s",
			 reduces ? "Reduce" : "Allreduce", type->name);
		memset(want, POISON, bytes);
		for (size_t j = 0; j < COUNT; j++)
			put(type, half_rank, j, send + j * type->bytes);
		buffer_put(&in, send, bytes);
		MPI_Request request;
		int result = reduces ? MPI_Reduce(in.data, out.data, COUNT, type->type, type->op,
						  root, inter)
				     : MPI_Iallreduce(in.data, out.data, COUNT, type->type,
						      type->op, inter, &request);

		if (!reduces && result == MPI_SUCCESS)
			result = MPI_Wait(&request, MPI_STATUS_IGNORE);

		for (size_t j = 0; (!reduces || root == MPI_ROOT) && j < COUNT; j++)
			fold(type, others, j, want + j * type->bytes);
		bool ok = result == MPI_SUCCESS;
		ok &= buffer_equals(&out, want, "receive buffer");
		test_result(ok);
		buffer_free(&in);
		buffer_free(&out);
		free(send);
		free(want);
	}
	scatter_inter(inter, half, others);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
}

/* ---- what is rare ---- */

/* Longer than what is moved at a time, and not a multiple of it. */
static void run_slices(void)
{
	static const enum coll colls[] = {ALLREDUCE, REDUCE, SCAN, EXSCAN};

	for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
		struct call c = {.coll = colls[i], .form = BLOCKING, .type = &types[5]};

		c.count = 600001;
		c.root = c.coll == REDUCE ? comm_size - 1 : 0;
		run(&c, PLACE_HOST);
	}
}

/* Columns of a matrix, each an element that lies among the others. */
enum { ROWS = 3, STRIDE = 9 };

static void mix_columns(void *in, void *inout, int *count, MPI_Datatype *type)
{
	double *a = in, *b = inout;

	(void)type;
	for (int i = 0; i < *count; i++) {
		for (int j = 0; j < ROWS; j++)
			b[i + j * STRIDE] = a[i + j * STRIDE] / 3 + b[i + j * STRIDE];
	}
}

static void run_columns(bool waits, int count)
{
	size_t bytes = ROWS * STRIDE * sizeof(double);
	double send[ROWS * STRIDE], want[ROWS * STRIDE];
	struct buffer in = buffer_new(PLACE_DEVICE, bytes), out = buffer_new(PLACE_DEVICE, bytes);
	MPI_Datatype vector, column;
	MPI_Request request;
	MPI_Op op;

	snprintf(test_name, sizeof(test_name), "%d columns%s", count, waits ? ", nonblocking" : "");
	MPI_Type_vector(ROWS, 1, STRIDE, MPI_DOUBLE, &vector);
	MPI_Type_create_resized(vector, 0, sizeof(double), &column);
	MPI_Type_commit(&column);
	MPI_Op_create(mix_columns, 0, &op);
	memset(want, POISON, bytes);
	for (size_t i = 0; i < ROWS * STRIDE; i++) {
		send[i] = number_of(comm_rank, i, SUM);
		if ((int)(i % STRIDE) >= count)
			continue;
		want[i] = number_of(0, i, SUM);
		for (int rank = 1; rank < comm_size; rank++)
			want[i] = want[i] / 3 + number_of(rank, i, SUM);
	}
	buffer_put(&in, send, bytes);
	int result = waits ? MPI_Iallreduce(in.data, out.data, count, column, op, comm, &request)
			   : MPI_Allreduce(in.data, out.data, count, column, op, comm);
	/* They are needed until the call is complete, which is MPI's affair. */
	MPI_Type_free(&vector);
	MPI_Type_free(&column);
	MPI_Op_free(&op);
	bool ok = column == MPI_DATATYPE_NULL && op == MPI_OP_NULL;
	if (waits && result == MPI_SUCCESS)
		result = MPI_Wait(&request, MPI_STATUS_IGNORE);
	ok &= result == MPI_SUCCESS;
	ok &= buffer_equals(&out, want, "receive buffer");
	test_result(ok);
	buffer_free(&in);
	buffer_free(&out);
}

/* Several at a time, which ranks start in different orders. */
static void run_persistent_orders(enum place place)
{
	enum { NUM = 5, COUNT = 3000 };
	const struct type *type = &types[5];
	size_t bytes = COUNT * type->bytes;
	struct buffer in[NUM], out[NUM];
	unsigned char *send = malloc(bytes), *want = malloc(bytes);
	MPI_Request requests[NUM];
	MPI_Status statuses[NUM];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "persistent ones in different orders%s",
		 place == PLACE_HOST ? ", host" : "");
	for (int i = 0; i < NUM; i++) {
		in[i] = buffer_new(place, bytes);
		out[i] = buffer_new(place, bytes);
		INIT(Allreduce)
		(in[i].data, out[i].data, COUNT, type->type, type->op, comm, MPI_INFO_NULL,
		 &requests[i]);
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < NUM; i++) {
			int which = (i * (1 + comm_rank % 2) + round) % NUM;

			for (size_t j = 0; j < COUNT; j++)
				put(type, comm_rank, j + (size_t)which, send + j * type->bytes);
			buffer_put(&in[which], send, bytes);
			ok &= MPI_Start(&requests[which]) == MPI_SUCCESS;
		}
		ok &= MPI_Waitall(NUM, requests, statuses) == MPI_SUCCESS;
		for (int i = 0; i < NUM; i++) {
			for (size_t j = 0; j < COUNT; j++)
				fold(type, comm_size, j + (size_t)i, want + j * type->bytes);
			ok &= buffer_equals(&out[i], want, "receive buffer");
		}
	}
	test_result(ok);
	for (int i = 0; i < NUM; i++) {
		MPI_Request_free(&requests[i]);
		buffer_free(&in[i]);
		buffer_free(&out[i]);
	}
	free(send);
	free(want);
}

/* What MPI refuses it refuses, as errors on the communicator. */
static void run_refused(void)
{
	struct buffer out = buffer_new(PLACE_DEVICE, 64);
	MPI_Comm copy;
	int class = MPI_SUCCESS;

	MPI_Comm_dup(comm, &copy);
	MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
	snprintf(test_name, sizeof(test_name), "an operation that the type does not have");
	int result = MPI_Allreduce(MPI_IN_PLACE, out.data, 2, MPI_LONG_DOUBLE, MPI_BAND, copy);

	MPI_Error_class(result, &class);
	test_result(class == MPI_ERR_OP);
	MPI_Comm_free(&copy);
	buffer_free(&out);
}

static void run_more(void)
{
	run_slices();
	for (int i = 0; i < 4; i++)
		run_columns(i % 2, i / 2 ? 8 : 5);
	run_persistent_orders(PLACE_DEVICE);
	run_persistent_orders(PLACE_HOST);
	run_refused();
}

/* ---- set-up ---- */

static void make_structure(struct type *type)
{
	int lengths[] = {1, 1};
	MPI_Aint places[] = {offsetof(struct structure, value), offsetof(struct structure, tag)};
	MPI_Datatype members[] = {MPI_DOUBLE, MPI_INT32_T}, whole;

	MPI_Type_create_struct(2, lengths, places, members, &whole); /* begins behind the head */
	MPI_Type_create_resized(whole, 0, sizeof(struct structure), &type->type);
	MPI_Type_commit(&type->type);
	MPI_Type_free(&whole);
	MPI_Op_create(mix_all, 0, &type->op);
}

static void make_types(void)
{
	const MPI_Datatype handles[] = {[FLOAT] = MPI_FLOAT,
					[DOUBLE] = MPI_DOUBLE,
					[PAIR] = MPI_FLOAT_INT,
					[COMPLEX] = MPI_C_FLOAT_COMPLEX,
					[DOUBLE_COMPLEX] = MPI_C_DOUBLE_COMPLEX,
					[LONG_DOUBLE] = MPI_LONG_DOUBLE,
					[INTEGER] = MPI_INT32_T};

	for (int i = 0; i < NUM_TYPES; i++) {
		struct type *type = &types[i];

		type->op = type->kind_of_op == PRODUCT            ? MPI_PROD
			   : type->kind_of_op == MAXIMUM          ? MPI_MAX
			   : type->kind_of_op == PLACE_OF_MINIMUM ? MPI_MINLOC
								  : MPI_SUM;
		if (type->kind == HALF)
			gpucoll_type_float16(&type->type);
		else if (type->kind == BFLOAT)
			gpucoll_type_bfloat16(&type->type);
		else if (type->kind == STRUCTURE)
			make_structure(type);
		else
			type->type = handles[type->kind];
	}
}

int main(int argc, char **argv)
{
	int form = 0, level;

	while (argc > 1 && form < NUM_FORMS && strcmp(argv[1], form_names[form]))
		form++;
	if (form == NUM_FORMS) {
		fprintf(stderr, "there is no form '%s'\n", argv[1]);
		return 2;
	}
	if (form == ENQUEUED)
		MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	else
		MPI_Init(&argc, &argv);
	test_start();
	make_types();
	unasked = argc > 2 && !strcmp(argv[2], "unasked");
	comm = MPI_COMM_WORLD;
	comm_rank = test_rank;
	comm_size = test_size;
	if (form == ENQUEUED) {
		cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
		gpucoll_stream_comm(comm, stream, &other);
	}
	if (form == INTER)
		run_inter();
	else if (form == MORE)
		run_more();
	else
		run_all((enum form)form);
	if (unasked)
		look_at_others();
	if (form == ENQUEUED)
		MPI_Comm_free(&other);
	MPI_Type_free(&types[NUM_TYPES - 1].type);
	MPI_Op_free(&types[NUM_TYPES - 1].op);
	int status = test_finish();
	MPI_Finalize();
	return status;
}
