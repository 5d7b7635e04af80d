/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program of NCCL's interface that knows nothing of MPI.
 *
 *     test_nccl FILE [CASE]
 *
 * Its rank it has from the launcher's environment, and the id by way of the file. Without a case:
 * every collective, on all types and operations that it takes, in place and not, against arithmetic
 * on the host; guard bytes stand around the buffers.
 */
#include "../draw.h"
#include "gpucoll/nccl.h"
#include "nccl/nccl_number.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5, POISON = 0xee, MOST = 8 };

static int rank, size;
static ncclComm_t comm;
static cudaStream_t stream;
static long passed, failed;

static void must(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, cudaGetErrorString(error));
	exit(3);
}

static void well(ncclResult_t result, const char *what)
{
	if (result == ncclSuccess)
		return;
	fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, ncclGetErrorString(result),
		ncclGetLastError(NULL));
	exit(4);
}

static void check(bool ok, const char *format, const char *name, int type, int op, size_t count)
{
	passed += ok;
	failed += !ok;
	if (!ok) {
		fprintf(stderr, "rank %d: FAIL ", rank);
		fprintf(stderr, format, name, type, op, count);
		fputc('\n', stderr);
	}
}

/* ---- buffers ---- */

static void *buffer_new(const void *data, size_t bytes)
{
	char *host = malloc(bytes + 2 * GUARD), *base;

	memset(host, GUARD_BYTE, bytes + 2 * GUARD);
	memcpy(host + GUARD, data, bytes);
	must(cudaMalloc((void **)&base, bytes + 2 * GUARD), "cudaMalloc");
	must(cudaMemcpy(base, host, bytes + 2 * GUARD, cudaMemcpyDefault), "cudaMemcpy");
	free(host);
	return base + GUARD;
}

static bool buffer_read(const void *buffer, void *data, size_t bytes)
{
	unsigned char *host = malloc(bytes + 2 * GUARD);
	bool ok = true;

	must(cudaMemcpy(host, (const char *)buffer - GUARD, bytes + 2 * GUARD, cudaMemcpyDefault),
	     "cudaMemcpy");
	for (int i = 0; i < GUARD; i++)
		ok &= host[i] == GUARD_BYTE && host[GUARD + bytes + (size_t)i] == GUARD_BYTE;
	memcpy(data, host + GUARD, bytes);
	free(host);
	return ok;
}

static void buffer_free(void *buffer)
{
	must(cudaFree((char *)buffer - GUARD), "cudaFree");
}

/* ---- what is given and expected ---- */

static bool is_float(ncclDataType_t type)
{
	return type >= ncclFloat16;
}

/* What rank `from` gives at place `i`: small, so that sums and products of all are exact; or zero.
 */
static double given(int from, size_t i)
{
	return i % 5 == 4 ? 0 : (double)(1 + (i * 7 + (size_t)from * 3) % 2);
}

static void put(ncclDataType_t type, void *at, double value)
{
	int64_t whole = (int64_t)value;

	if (is_float(type))
		nccl_number_store(type, at, value);
	else
		memcpy(at, &whole, nccl_number_size(type));
}

static double get(ncclDataType_t type, const void *at)
{
	bool is_signed = type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
	size_t bytes = nccl_number_size(type);
	int64_t whole = 0;

	if (is_float(type))
		return nccl_number_load(type, at);
	memcpy(&whole, at, bytes);
	if (is_signed && bytes < 8 && whole >> (8 * bytes - 1))
		whole -= INT64_C(1) << (8 * bytes);
	return (double)whole;
}

/* The reduction of what all give at place `i`, each times `factor`. */
static double reduced(ncclRedOp_t op, size_t i, double factor)
{
	double value = given(0, i) * factor;

	for (int r = 1; r < size; r++) {
		double next = given(r, i) * factor;

		value = op == ncclProd  ? value * next
			: op == ncclMax ? fmax(value, next)
			: op == ncclMin ? fmin(value, next)
					: value + next;
	}
	return op == ncclAvg ? value / size : value;
}

static void *input(ncclDataType_t type, size_t count)
{
	size_t bytes = nccl_number_size(type);
	char *data = malloc(count * bytes + 1);

	for (size_t i = 0; i < count; i++)
		put(type, data + i * bytes, given(rank, i));
	return data;
}

/* Averages of integers are cut, and floating point is rounded. */
static bool is_same(ncclDataType_t type, double got, double want)
{
	double tolerance[ncclNumTypes] = {
		[ncclFloat16] = 2e-3,  [ncclFloat32] = 1e-6,   [ncclFloat64] = 1e-14,
		[ncclBfloat16] = 2e-2, [ncclFloat8e4m3] = 0.1, [ncclFloat8e5m2] = 0.2};

	if (!is_float(type))
		return got == trunc(want);
	return fabs(got - want) <= tolerance[type] * fabs(want);
}

/* ---- a call ---- */

enum kind {
	REDUCE,
	ALL_REDUCE,
	REDUCE_SCATTER,
	BROADCAST,
	ALL_GATHER,
	ALL_TO_ALL,
	GATHER,
	SCATTER
};
static const char *const names[] = {"Reduce",    "AllReduce", "ReduceScatter", "Broadcast",
				    "AllGather", "AlltoAll",  "Gather",        "Scatter"};

struct test {
	enum kind kind;
	ncclDataType_t type;
	ncclRedOp_t op, base; /* base: that of which `op` is made */
	double factor;
	size_t count;
	int root;
	bool in_place;
};

static bool spreads_input(const struct test *t)
{
	return t->kind == REDUCE_SCATTER || t->kind == ALL_TO_ALL ||
	       (t->kind == SCATTER && rank == t->root);
}

static bool spreads_output(const struct test *t)
{
	return t->kind == ALL_GATHER || t->kind == ALL_TO_ALL ||
	       (t->kind == GATHER && rank == t->root);
}

static ncclResult_t call(const struct test *t, const void *send, void *recv)
{
	switch (t->kind) {
	case REDUCE:
		return ncclReduce(send, recv, t->count, t->type, t->op, t->root, comm, stream);
	case ALL_REDUCE:
		return ncclAllReduce(send, recv, t->count, t->type, t->op, comm, stream);
	case REDUCE_SCATTER:
		return ncclReduceScatter(send, recv, t->count, t->type, t->op, comm, stream);
	case BROADCAST:
		return ncclBroadcast(send, recv, t->count, t->type, t->root, comm, stream);
	case ALL_GATHER:
		return ncclAllGather(send, recv, t->count, t->type, comm, stream);
	case ALL_TO_ALL:
		return ncclAlltoAll(send, recv, t->count, t->type, comm, stream);
	case GATHER:
		return ncclGather(send, recv, t->count, t->type, t->root, comm, stream);
	default:
		return ncclScatter(send, recv, t->count, t->type, t->root, comm, stream);
	}
}

/* At place `i` of this rank's output. */
static double expected(const struct test *t, size_t i)
{
	size_t block = t->count ? i / t->count : 0, within = t->count ? i % t->count : 0;

	switch (t->kind) {
	case REDUCE:
	case ALL_REDUCE:
		return reduced(t->base, i, t->factor);
	case REDUCE_SCATTER:
		return reduced(t->base, (size_t)rank * t->count + i, t->factor);
	case BROADCAST:
		return given(t->root, i);
	case ALL_TO_ALL:
		return given((int)block, (size_t)rank * t->count + within);
	case SCATTER:
		return given(t->root, (size_t)rank * t->count + i);
	default:
		return given((int)block, within);
	}
}

static bool has_output(const struct test *t)
{
	return (t->kind != REDUCE && t->kind != GATHER) || rank == t->root;
}

/* The output's place in a buffer that is both, or the input's: NCCL's rules. */
static void run(const struct test *t)
{
	size_t bytes = nccl_number_size(t->type), all = t->count * (size_t)size;
	size_t in = spreads_input(t) ? all : t->count, out = spreads_output(t) ? all : t->count;
	size_t mine = (size_t)rank * t->count * bytes;
	char *data = input(t->type, in), *got = malloc(all * bytes + 1), *send, *recv, *whole;
	bool ok = true;

	memset(got, POISON, all * bytes);
	if (t->in_place) {
		size_t at = out > in ? mine : 0;

		memcpy(got + at, data, in * bytes);
		whole = buffer_new(got, all * bytes);
		send = whole + at;
		recv = whole + (in > out ? mine : 0);
	} else {
		send = buffer_new(data, in * bytes);
		recv = whole = buffer_new(got, all * bytes);
	}
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	well(call(t, send, recv), names[t->kind]);
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	ok &= buffer_read(whole, got, all * bytes);
	for (size_t i = 0; i < out && ok && has_output(t); i++)
		ok = is_same(t->type, get(t->type, got + (recv - whole) + i * bytes),
			     expected(t, i));
	if (!t->in_place) {
		char *still = malloc(in * bytes + 1);

		ok &= buffer_read(send, still, in * bytes) && !memcmp(still, data, in * bytes);
		free(still);
		buffer_free(send);
	}
	buffer_free(whole);
	free(data);
	free(got);
	check(ok, "%s of type %d, op %d, count %zu", names[t->kind], (int)t->type, (int)t->base,
	      t->count);
}

static bool may_be_in_place(const struct test *t)
{
	return t->kind != GATHER && t->kind != SCATTER ? true : rank == t->root || t->count == 0;
}

static void run_both(struct test *t)
{
	for (int in_place = 0; in_place < 2; in_place++) {
		t->in_place = in_place && may_be_in_place(t);
		run(t);
	}
}

static void all_collectives(void)
{
	static const size_t counts[] = {1, 0, 37, 4001};

	for (int type = 0; type < ncclNumTypes; type++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			struct test t = {
				.type = (ncclDataType_t)type, .factor = 1, .count = counts[i]};

			t.root = (type + (int)i) % size;
			for (int op = 0; op < ncclNumOps; op++) {
				t.op = t.base = (ncclRedOp_t)op;
				for (t.kind = REDUCE; t.kind <= REDUCE_SCATTER; t.kind++)
					run_both(&t);
			}
			t.op = t.base = ncclSum;
			for (t.kind = BROADCAST; t.kind <= SCATTER; t.kind++)
				run_both(&t);
		}
	}
}

static void premultiplied(void)
{
	for (int type = 0; type < ncclNumTypes; type++) {
		struct test t = {
			.type = (ncclDataType_t)type, .base = ncclSum, .factor = 3, .count = 50};
		unsigned char scalar[8], *device;

		put(t.type, scalar, 3);
		must(cudaMalloc((void **)&device, 8), "cudaMalloc");
		must(cudaMemcpy(device, scalar, 8, cudaMemcpyDefault), "cudaMemcpy");
		must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		for (int on_device = 0; on_device < 2; on_device++) {
			well(ncclRedOpCreatePreMulSum(
				     &t.op, on_device ? device : scalar, t.type,
				     on_device ? ncclScalarDevice : ncclScalarHostImmediate, comm),
			     "ncclRedOpCreatePreMulSum");
			for (t.kind = REDUCE; t.kind <= REDUCE_SCATTER; t.kind++)
				run_both(&t);
			well(ncclRedOpDestroy(t.op, comm), "ncclRedOpDestroy");
		}
		must(cudaFree(device), "cudaFree");
	}
}

/* An operation ends when the call that takes it has returned, in a group as well. */
static void short_lived(void)
{
	float factors[2] = {3, 5}, one[2] = {1, 1}, got[2];
	float *send = buffer_new(one, sizeof(one)), *recv = buffer_new(got, sizeof(got));
	bool ok;

	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	well(ncclGroupStart(), "ncclGroupStart");
	for (int i = 0; i < 2; i++) {
		ncclRedOp_t op;

		well(ncclRedOpCreatePreMulSum(&op, &factors[i], ncclFloat, ncclScalarHostImmediate,
					      comm),
		     "ncclRedOpCreatePreMulSum");
		well(ncclAllReduce(send + i, recv + i, 1, ncclFloat, op, comm, stream),
		     "ncclAllReduce");
		well(ncclRedOpDestroy(op, comm), "ncclRedOpDestroy");
	}
	well(ncclGroupEnd(), "ncclGroupEnd");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	ok = buffer_read(recv, got, sizeof(got)) && got[0] == 3 * (float)size &&
	     got[1] == 5 * (float)size;
	check(ok, "%s of type %d, op %d, count %zu", "short-lived operations", 0, 0, 1);
	buffer_free(send);
	buffer_free(recv);
}

/* Two communicators in a group, which half of the ranks name in the other order. */
static void two_at_once(void)
{
	int mine = rank, got[2] = {0, 0}, want = size * (size - 1) / 2;
	int *send = buffer_new(&mine, sizeof(mine)), *recv = buffer_new(got, sizeof(got));
	ncclComm_t other = NULL;

	well(ncclCommSplit(comm, 0, rank, &other, NULL), "ncclCommSplit");
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	well(ncclGroupStart(), "ncclGroupStart");
	for (int i = 0; i < 2; i++) {
		int which = (i + rank) % 2;

		well(ncclAllReduce(send, recv + which, 1, ncclInt, ncclSum, which ? other : comm,
				   stream),
		     "ncclAllReduce");
	}
	well(ncclGroupEnd(), "ncclGroupEnd");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	check(buffer_read(recv, got, sizeof(got)) && got[0] == want && got[1] == want,
	      "%s of type %d, op %d, count %zu", "two communicators", 0, 0, 1);
	well(ncclCommDestroy(other), "ncclCommDestroy");
	buffer_free(send);
	buffer_free(recv);
}

/* ---- messages in groups ---- */

/* Each sends to each, more than a send has without its receive. */
static void exchange(size_t count)
{
	size_t all = count * (size_t)size;
	int *data = malloc(4 * all + 4), *got = malloc(4 * all + 4);
	int *send, *recv;
	bool ok;

	for (size_t i = 0; i < all; i++)
		data[i] = rank * 1000003 + (int)i;
	memset(got, POISON, 4 * all);
	send = buffer_new(data, 4 * all);
	recv = buffer_new(got, 4 * all);
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	well(ncclGroupStart(), "ncclGroupStart");
	for (int peer = 0; peer < size; peer++) {
		well(ncclRecv(recv + (size_t)peer * count, count, ncclInt32, peer, comm, stream),
		     "ncclRecv");
		well(ncclSend(send + (size_t)peer * count, count, ncclInt32, peer, comm, stream),
		     "ncclSend");
	}
	well(ncclGroupEnd(), "ncclGroupEnd");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	ok = buffer_read(recv, got, 4 * all);
	for (size_t i = 0; i < all && ok; i++)
		ok = got[i] == (int)(i / count) * 1000003 + rank * (int)count + (int)(i % count);
	check(ok, "%s of type %d, op %d, count %zu", "exchange", 0, 0, count);
	buffer_free(send);
	buffer_free(recv);
	free(data);
	free(got);
}

static void groups(void)
{
	exchange(1);
	exchange(1000);
	exchange(100000);
	short_lived();
	two_at_once();
}

/* ---- messages that are drawn ---- */

enum { MOST_MESSAGES = 60, FIRST_SEED = 12345 };

struct message {
	int from, to;
	size_t bytes,
		shift[2]; /* of the sender's buffer, and the receiver's, from their beginnings */
	char *sent, *got;
};

static unsigned char byte_of(const struct message *m, int number, size_t i)
{
	return (unsigned char)(m->from * 17 + m->to * 5 + number * 31 +
			       (int)(i ^ (i >> 8) ^ (i >> 16)));
}

/* All ranks draw the same. */
static int draw_messages(uint64_t *seed, struct message *messages)
{
	int num = (int)(draw(seed) % MOST_MESSAGES);

	for (int i = 0; i < num; i++) {
		struct message *m = &messages[i];
		uint64_t kind = draw(seed) % 8;

		*m = (struct message){.from = (int)(draw(seed) % (uint64_t)size),
				      .to = (int)(draw(seed) % (uint64_t)size)};
		m->bytes = draw(seed) % (kind == 0   ? 1
					 : kind == 1 ? 3000000
					 : kind < 4  ? 100000
						     : 300);
		for (int end = 0; end < 2; end++)
			m->shift[end] = draw(seed) % 2 ? 0 : draw(seed) % 16;
	}
	return num;
}

static void open_message(struct message *m, int number)
{
	char *data = malloc(m->bytes + 16);

	memset(data, POISON, m->bytes + 16);
	if (m->to == rank)
		m->got = buffer_new(data, m->bytes + 16);
	for (size_t i = 0; i < m->bytes; i++)
		data[m->shift[0] + i] = (char)byte_of(m, number, i);
	if (m->from == rank)
		m->sent = buffer_new(data, m->bytes + 16);
	free(data);
}

static bool close_message(struct message *m, int number)
{
	unsigned char *data = malloc(m->bytes + 16);
	bool ok = true;

	if (m->from == rank)
		buffer_free(m->sent);
	if (m->to == rank) {
		ok = buffer_read(m->got, data, m->bytes + 16);
		for (size_t i = 0; i < m->bytes + 16 && ok; i++) {
			bool inside = i >= m->shift[1] && i < m->shift[1] + m->bytes;

			ok = data[i] == (inside ? byte_of(m, number, i - m->shift[1]) : POISON);
		}
		buffer_free(m->got);
	}
	free(data);
	return ok;
}

/* Each end begins where it likes: only what is between two ranks has an order. */
static void ask_for_messages(struct message *messages, int num, uint64_t *mine, ncclComm_t on)
{
	bool receives_first = draw(mine) % 2;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < num; i++) {
			struct message *m = &messages[i];
			bool receives = (pass == 0) == receives_first;

			if (receives && m->to == rank)
				well(ncclRecv(m->got + m->shift[1], m->bytes, ncclInt8, m->from, on,
					      stream),
				     "ncclRecv");
			if (!receives && m->from == rank)
				well(ncclSend(m->sent + m->shift[0], m->bytes, ncclInt8, m->to, on,
					      stream),
				     "ncclSend");
		}
	}
}

/* A group of messages of two communicators, with a collective between them. */
static void drawn_group(uint64_t *common, uint64_t *mine, ncclComm_t other, int round)
{
	struct message messages[2][MOST_MESSAGES];
	int num[2], one = 1, sum = 0, got, order = (int)(draw(mine) % 2);
	int *in = buffer_new(&one, sizeof(one)), *out = buffer_new(&sum, sizeof(sum));
	bool ok = true;

	for (int k = 0; k < 2; k++) {
		num[k] = draw_messages(common, messages[k]);
		for (int i = 0; i < num[k]; i++)
			open_message(&messages[k][i], i);
	}
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	well(ncclGroupStart(), "ncclGroupStart");
	for (int k = 0; k < 2; k++) {
		int which = k ^ order;

		ask_for_messages(messages[which], num[which], mine, which ? other : comm);
		if (!which)
			well(ncclAllReduce(in, out, 1, ncclInt32, ncclSum, comm, stream),
			     "ncclAllReduce");
	}
	well(ncclGroupEnd(), "ncclGroupEnd");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < num[k]; i++)
			ok &= close_message(&messages[k][i], i);
	}
	ok &= buffer_read(out, &got, sizeof(got)) && got == size;
	check(ok, "%s of type %d, round %d, count %zu", "drawn messages", 0, round, 0);
	buffer_free(in);
	buffer_free(out);
}

static void messages(void)
{
	enum { ROUNDS = 12 };
	uint64_t common = FIRST_SEED + (uint64_t)size, mine = (uint64_t)rank + 1;
	ncclComm_t other = NULL;

	well(ncclCommSplit(comm, 0, -rank, &other, NULL), "ncclCommSplit");
	well(ncclCommDestroy(other), "ncclCommDestroy");
	well(ncclCommSplit(comm, 0, rank, &other, NULL), "ncclCommSplit");
	for (int round = 0; round < ROUNDS; round++)
		drawn_group(&common, &mine, other, round);
	well(ncclCommDestroy(other), "ncclCommDestroy");
}

/* To oneself as much as from oneself, in each group. */
static void to_oneself(void)
{
	char data[64] = {0}, *buffer = buffer_new(data, sizeof(data));

	check(ncclSend(buffer, 8, ncclInt8, rank, comm, stream) == ncclInvalidUsage,
	      "%s of type %d, op %d, count %zu", "a send to oneself alone", 0, 0, 8);
	well(ncclGroupStart(), "ncclGroupStart");
	well(ncclSend(buffer, 8, ncclInt8, rank, comm, stream), "ncclSend");
	well(ncclRecv(buffer + 32, 16, ncclInt8, rank, comm, stream), "ncclRecv");
	check(ncclGroupEnd() == ncclInvalidUsage, "%s of type %d, op %d, count %zu",
	      "other sizes to oneself", 0, 0, 8);
	exchange(3);
	buffer_free(buffer);
}

/* The receivers' sizes are not the senders': all come to an end, and are told. */
static void mismatched(void)
{
	size_t count = 1000 + (rank == 1);
	char *data = calloc(2, count), *buffer = buffer_new(data, 2 * count);
	ncclResult_t error = ncclSuccess;

	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	well(ncclGroupStart(), "ncclGroupStart");
	well(ncclSend(buffer, 1000, ncclInt8, (rank + 1) % size, comm, stream), "ncclSend");
	well(ncclRecv(buffer + count, count, ncclInt8, (rank + size - 1) % size, comm, stream),
	     "ncclRecv");
	well(ncclGroupEnd(), "ncclGroupEnd");
	/* More than a FIFO has, which nobody receives. */
	ncclSend(buffer, 1, ncclInt8, (rank + 1) % size, comm, stream);
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	ncclCommGetAsyncError(comm, &error);
	check(rank != 1 || error != ncclSuccess, "%s of type %d, op %d, count %zu", "mismatch", 0,
	      0, count);
	free(data);
}

/* What nobody sends, or receives, ends where the program says so. */
static void aborted(void)
{
	char *buffer;
	ncclResult_t error = ncclSuccess, begun;

	must(cudaMalloc((void **)&buffer, 32 << 20), "cudaMalloc");
	/* The other's abort may come before this rank's call. */
	begun = rank == 0 ? ncclRecv(buffer, 100, ncclInt8, 1, comm, stream)
			  : ncclSend(buffer, 32 << 20, ncclInt8, 0, comm, stream);
	usleep(100000);
	well(ncclCommAbort(comm), "ncclCommAbort");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	ncclCommGetAsyncError(comm, &error);
	check(begun != ncclSuccess || error != ncclSuccess, "%s of type %d, op %d, count %zu",
	      "abort", 0, 0, 0);
	check(ncclSend(buffer, 1, ncclInt8, 1 - rank, comm, stream) != ncclSuccess,
	      "%s of type %d, op %d, count %zu", "a send behind it", 0, 0, 0);
}

/* By who has done its part, as by a program's exit: the root, which comes later, lacks nothing. */
static void aborted_when_idle(void)
{
	enum { COUNT = 100 };
	int data[COUNT], got[COUNT], *buffer;
	ncclResult_t error = ncclSuccess;
	bool right = true;

	for (int i = 0; i < COUNT; i++)
		data[i] = 1000 * rank + i;
	must(cudaMalloc((void **)&buffer, sizeof(data)), "cudaMalloc");
	must(cudaMemcpy(buffer, data, sizeof(data), cudaMemcpyHostToDevice), "cudaMemcpy");
	if (rank == 1)
		usleep(300000);
	well(ncclReduce(buffer, buffer, COUNT, ncclInt32, ncclSum, 1, comm, stream), "ncclReduce");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	must(cudaMemcpy(got, buffer, sizeof(got), cudaMemcpyDeviceToHost), "cudaMemcpy");
	for (int i = 0; i < COUNT && rank == 1; i++)
		right &= got[i] == 1000 * size * (size - 1) / 2 + size * i;
	ncclCommGetAsyncError(comm, &error);
	check(right && error == ncclSuccess, "%s of type %d, op %d, count %d", "reduce", 0, 0,
	      COUNT);
	well(ncclCommAbort(comm), "ncclCommAbort");
	/* The other, who would be told of it, has come to its end. */
	check(rank == 0 || ncclReduce(buffer, buffer, COUNT, ncclInt32, ncclSum, 1, comm, stream) !=
				   ncclSuccess,
	      "%s of type %d, op %d, count %d", "a call behind an abort", 0, 0, COUNT);
}

/* Rank 0 launches its graph once more than rank 1, on a stream that the library does not know. */
static void aborted_graph(void)
{
	char *buffer;
	ncclResult_t error = ncclSuccess;
	cudaStream_t other;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	must(cudaMalloc((void **)&buffer, 100), "cudaMalloc");
	must(cudaStreamCreate(&other), "cudaStreamCreate");
	must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
	     "cudaStreamBeginCapture");
	well(ncclAllReduce(buffer, buffer, 100, ncclInt8, ncclSum, comm, stream), "ncclAllReduce");
	must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	/* Behind this both have their graphs. */
	well(ncclAllReduce(buffer, buffer, 100, ncclInt8, ncclSum, comm, stream), "ncclAllReduce");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	for (int i = 0; i < 2 - rank; i++)
		must(cudaGraphLaunch(exec, other), "cudaGraphLaunch");
	usleep(200000);
	well(ncclCommAbort(comm), "ncclCommAbort");
	must(cudaStreamSynchronize(other), "cudaStreamSynchronize");
	ncclCommGetAsyncError(comm, &error);
	check(rank != 0 || error != ncclSuccess, "%s of type %d, op %d, count %d", "abort", 0, 0,
	      100);
}

/* What the stream is past comes: its receiver may call later, and the sender end before. */
static void aborted_sender(void)
{
	enum { COUNT = 4 << 20 };
	char *data = malloc(COUNT), *buffer = NULL;

	memset(data, 17, COUNT);
	must(cudaMalloc((void **)&buffer, COUNT), "cudaMalloc");
	if (rank == 0) {
		must(cudaMemcpy(buffer, data, COUNT, cudaMemcpyHostToDevice), "cudaMemcpy");
		well(ncclSend(buffer, COUNT, ncclInt8, 1, comm, stream), "ncclSend");
		must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		well(ncclCommAbort(comm), "ncclCommAbort");
		free(data);
		return;
	}
	usleep(3000000);
	well(ncclRecv(buffer, COUNT, ncclInt8, 0, comm, stream), "ncclRecv");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	memset(data, POISON, COUNT);
	must(cudaMemcpy(data, buffer, COUNT, cudaMemcpyDeviceToHost), "cudaMemcpy");
	check(data[0] == 17 && !memcmp(data, data + 1, COUNT - 1), "%s of type %d, op %d, count %d",
	      "message", 0, 0, COUNT);
	free(data);
}

/* ---- graphs ---- */

/* Captured once, launched again and again; what can't be is refused, and the capture goes on. */
static void graphs(void)
{
	enum { COUNT = 1000, LAUNCHES = 4 };
	int data[COUNT], got[COUNT], both[2 * COUNT], *send, *recv, *ring;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	bool ok = true;

	for (int i = 0; i < COUNT; i++)
		data[i] = rank * 31 + i;
	memcpy(both, data, sizeof(data));
	memset(both + COUNT, POISON, sizeof(data));
	send = buffer_new(data, sizeof(data));
	recv = buffer_new(data, sizeof(data));
	ring = buffer_new(both, sizeof(both));
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
	     "cudaStreamBeginCapture");
	well(ncclAllReduce(send, recv, COUNT, ncclInt32, ncclSum, comm, stream), "ncclAllReduce");
	check(ncclAllReduce(send, recv, COUNT, ncclInt32, ncclAvg, comm, stream) != ncclSuccess,
	      "%s of type %d, op %d, count %zu", "an average in a graph", 0, 0, COUNT);
	well(ncclGroupStart(), "ncclGroupStart");
	well(ncclAllReduce(send, recv, COUNT, ncclInt32, ncclAvg, comm, stream), "ncclAllReduce");
	check(ncclGroupEnd() != ncclSuccess, "%s of type %d, op %d, count %zu",
	      "an average in a group in a graph", 0, 0, COUNT);
	well(ncclGroupStart(), "ncclGroupStart");
	well(ncclBroadcast(recv, send, COUNT, ncclInt32, 0, comm, stream), "ncclBroadcast");
	well(ncclAllReduce(send, recv, COUNT, ncclInt32, ncclMax, comm, stream), "ncclAllReduce");
	well(ncclSend(ring, COUNT, ncclInt32, (rank + 1) % size, comm, stream), "ncclSend");
	well(ncclRecv(ring + COUNT, COUNT, ncclInt32, (rank + size - 1) % size, comm, stream),
	     "ncclRecv");
	well(ncclGroupEnd(), "ncclGroupEnd");
	must(cudaMemcpyAsync(ring, ring + COUNT, sizeof(data), cudaMemcpyDefault, stream),
	     "cudaMemcpyAsync");
	must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	must(cudaGraphDestroy(graph), "cudaGraphDestroy");
	/* Each launch sums what the last one has left, which is the same on all. */
	for (int i = 0; i < LAUNCHES; i++)
		must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
	must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	ok = buffer_read(recv, got, sizeof(got));
	for (int i = 0; i < COUNT && ok; i++) {
		int want = 31 * size * (size - 1) / 2 + size * i;

		for (int launch = 1; launch < LAUNCHES; launch++)
			want *= size;
		ok = got[i] == want;
	}
	check(ok, "%s of type %d, op %d, count %zu", "a graph", 0, 0, COUNT);
	/* Each launch has passed the data on by one rank. */
	ok = buffer_read(ring, both, sizeof(both));
	for (int i = 0; i < 2 * COUNT && ok; i++)
		ok = both[i] == (rank + LAUNCHES * (size - 1)) % size * 31 + i % COUNT;
	check(ok, "%s of type %d, op %d, count %zu", "messages in a graph", 0, 0, COUNT);
	buffer_free(ring);
	must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
	buffer_free(send);
	buffer_free(recv);
}

/* ---- communicators ---- */

/* Two of one job in turns, and one that is a part. */
static void split(void)
{
	ncclComm_t whole = comm, part = NULL, rest = NULL;
	int whole_size = size, whole_rank = rank, last = size - 1;
	struct test t = {.kind = ALL_REDUCE, .type = ncclInt32, .factor = 1, .count = 100};

	well(ncclCommSplit(whole, rank == last && size > 1 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &part,
			   NULL),
	     "ncclCommSplit");
	if (part) {
		comm = part;
		well(ncclCommCount(comm, &size), "ncclCommCount");
		well(ncclCommUserRank(comm, &rank), "ncclCommUserRank");
		check(size == (whole_size > 1 ? last : 1) && rank == size - 1 - whole_rank,
		      "%s of type %d, op %d, count %zu", "split", rank, size, 0);
		run(&t);
		well(ncclCommDestroy(part), "ncclCommDestroy");
	} else {
		check(rank == last, "%s of type %d, op %d, count %zu", "split", rank, size, 0);
	}
	comm = whole;
	size = whole_size;
	rank = whole_rank;
	run(&t);
	if (size > 1 && rank) {
		int first = 0;

		well(ncclCommShrink(whole, &first, 1, &rest, NULL, NCCL_SHRINK_DEFAULT),
		     "ncclCommShrink");
		comm = rest;
		size--;
		rank--;
		run(&t);
		well(ncclCommDestroy(rest), "ncclCommDestroy");
	}
	comm = whole;
	size = whole_size;
	rank = whole_rank;
}

/* What a program gets wrong it is told. */
static void refused(void)
{
	ncclUniqueId other = {{1, 2, 3}};
	ncclComm_t none;
	ncclRedOp_t op;
	int value;

	check(ncclAllReduce(&value, &value, 1, ncclNumTypes, ncclSum, comm, stream) ==
		      ncclInvalidArgument,
	      "%s %d %d %zu", "type", 0, 0, 0);
	check(ncclBroadcast(&value, &value, 1, ncclInt, size, comm, stream) == ncclInvalidArgument,
	      "%s %d %d %zu", "root", 0, 0, 0);
	check(ncclAllReduce(&value, &value, 1, ncclInt, (ncclRedOp_t)(ncclNumOps + 3), comm,
			    stream) == ncclInvalidArgument,
	      "%s %d %d %zu", "op", 0, 0, 0);
	check(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, NULL, stream) ==
		      ncclInvalidArgument,
	      "%s %d %d %zu", "comm", 0, 0, 0);
	check(ncclCommInitRank(&none, 2, other, 0) == ncclInvalidArgument, "%s %d %d %zu", "id", 0,
	      0, 0);
	check(ncclCommInitAll(&none, 2, NULL) == ncclInvalidUsage, "%s %d %d %zu", "init all", 0, 0,
	      0);
	check(ncclGroupEnd() == ncclInvalidUsage, "%s %d %d %zu", "group", 0, 0, 0);
	check(strstr(ncclGetLastError(comm), "ncclGroupStart") != NULL, "%s %d %d %zu", "text", 0,
	      0, 0);
	value = 7;
	well(ncclRedOpCreatePreMulSum(&op, &value, ncclInt, ncclScalarHostImmediate, comm),
	     "create");
	check(ncclAllReduce(&value, &value, 1, ncclFloat, op, comm, stream) == ncclInvalidArgument,
	      "%s %d %d %zu", "op of another type", 0, 0, 0);
	well(ncclRedOpDestroy(op, comm), "ncclRedOpDestroy");
}

/* ---- */

static int from_environment(const char *openmpi, const char *mpich)
{
	const char *text = getenv(openmpi) ? getenv(openmpi) : getenv(mpich);

	return text ? atoi(text) : -1;
}

/* The first rank leaves it there, whole at once. */
static ncclUniqueId share_id(const char *path)
{
	char temporary[300];
	ncclUniqueId id;
	FILE *file;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	if (rank == 0) {
		well(ncclGetUniqueId(&id), "ncclGetUniqueId");
		file = fopen(temporary, "w");
		fwrite(&id, sizeof(id), 1, file);
		fclose(file);
		rename(temporary, path);
	}
	while (!(file = fopen(path, "r")))
		usleep(10000);
	if (fread(&id, sizeof(id), 1, file) != 1)
		exit(5);
	fclose(file);
	return id;
}

/* A program that starts MPI itself, without threads: then these must have been asked for. */
static int own_mpi(ncclUniqueId id)
{
	bool asked = getenv("GPUCOLL_THREADS") != NULL;
	int (*init)(int *, char ***);
	int (*finalize)(void);
	ncclResult_t result;

	*(void **)&init = dlsym(RTLD_DEFAULT, "MPI_Init");
	*(void **)&finalize = dlsym(RTLD_DEFAULT, "MPI_Finalize");
	init(NULL, NULL);
	result = ncclCommInitRank(&comm, size, id, rank);
	check(result == (asked ? ncclSuccess : ncclInvalidUsage), "%s %d %d %zu", "own MPI", result,
	      0, 0);
	check(asked || strstr(ncclGetLastError(NULL), "set GPUCOLL_THREADS=multiple"),
	      "%s %d %d %zu", "own MPI's error", result, 0, 0);
	if (asked)
		well(ncclCommDestroy(comm), "ncclCommDestroy");
	finalize();
	printf("rank %d: %ld checks passed, %ld failed\n", rank, passed, failed);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 2 ? argv[2] : "collectives";
	ncclResult_t error = ncclSuccess;
	ncclUniqueId id;
	int devices;

	rank = from_environment("OMPI_COMM_WORLD_RANK", "PMI_RANK");
	size = from_environment("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
	must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	must(cudaSetDevice(rank % devices), "cudaSetDevice");
	must(cudaStreamCreate(&stream), "cudaStreamCreate");
	id = share_id(argv[1]);
	if (!strcmp(name, "own_mpi"))
		return own_mpi(id);
	well(ncclCommInitRank(&comm, size, id, rank), "ncclCommInitRank");
	if (!strcmp(name, "collectives"))
		all_collectives();
	else if (!strcmp(name, "premultiplied"))
		premultiplied();
	else if (!strcmp(name, "groups"))
		groups();
	else if (!strcmp(name, "graphs"))
		graphs();
	else if (!strcmp(name, "messages"))
		messages();
	else if (!strcmp(name, "to_oneself"))
		to_oneself();
	else if (!strcmp(name, "mismatched"))
		mismatched();
	else if (!strcmp(name, "aborted"))
		aborted();
	else if (!strcmp(name, "aborted_when_idle"))
		aborted_when_idle();
	else if (!strcmp(name, "aborted_graph"))
		aborted_graph();
	else if (!strcmp(name, "aborted_sender"))
		aborted_sender();
	else if (!strcmp(name, "split"))
		split();
	else if (!strcmp(name, "refused"))
		refused();
	if (strcmp(name, "mismatched") != 0 && strncmp(name, "aborted", 7) != 0) {
		well(ncclCommGetAsyncError(comm, &error), "ncclCommGetAsyncError");
		check(error == ncclSuccess, "%s %d %d %zu", "async error", 0, 0, 0);
		well(ncclCommDestroy(comm), "ncclCommDestroy");
	}
	printf("rank %d: %ld checks passed, %ld failed\n", rank, passed, failed);
	return failed ? 1 : 0;
}
