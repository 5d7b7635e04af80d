/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The datatypes of 16-bit floating point numbers, on device and host buffers, against integers: all
 * results are small whole numbers, which both formats have exactly.
 */
#include "test.h"

#include <dlfcn.h>
#include <math.h>

enum coll { ALLREDUCE, REDUCE, REDUCE_SCATTER_BLOCK, SCAN, REDUCE_LOCAL, NUM_COLLS };
enum op { SUM, PROD, MAX, MIN, NUM_OPS };

static const char *const coll_names[] = {"Allreduce", "Reduce", "Reduce_scatter_block", "Scan",
					 "Reduce_local"};
static const char *const op_names[] = {"SUM", "PROD", "MAX", "MIN"};

struct format {
	const char *name, *function;
	int fraction_bits, bias;
	MPI_Datatype type;
};

static struct format formats[] = {{"float16", "gpucoll_type_float16", 10, 15, MPI_DATATYPE_NULL},
				  {"bfloat16", "gpucoll_type_bfloat16", 7, 127, MPI_DATATYPE_NULL}};

/* The bits of a whole number that the format has. */
static uint16_t encode(const struct format *f, int number)
{
	int exponent, size = abs(number);
	double fraction = frexp(size, &exponent); /* in [0.5, 1) */

	if (!number)
		return 0;
	return (uint16_t)((number < 0) << 15 | (exponent - 1 + f->bias) << f->fraction_bits |
			  (int)((2 * fraction - 1) * (1 << f->fraction_bits)));
}

/*
 * One and two in most places of a product, so that it stays a power of two that the formats have.
 */
static int input(enum op op, int rank, size_t at)
{
	if (op == PROD)
		return 1 + (rank + at) % 3 % 2;
	return (int)((at * 7 + (size_t)rank * 5) % 13) - 6;
}

static int combine(enum op op, int a, int b)
{
	return op == SUM ? a + b : op == PROD ? a * b : op == MAX ? (a > b ? a : b) : a < b ? a : b;
}

static int expected(enum op op, int ranks, size_t at)
{
	int result = input(op, 0, at);

	for (int i = 1; i < ranks; i++)
		result = combine(op, result, input(op, i, at));
	return result;
}

static int call(enum coll coll, const void *from, void *to, int count, MPI_Datatype type, MPI_Op op)
{
	switch (coll) {
	case ALLREDUCE:
		return MPI_Allreduce(from, to, count, type, op, MPI_COMM_WORLD);
	case REDUCE:
		return MPI_Reduce(from, to, count, type, op, test_size - 1, MPI_COMM_WORLD);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Reduce_scatter_block(from, to, count / test_size, type, op,
						MPI_COMM_WORLD);
	case SCAN:
		return MPI_Scan(from, to, count, type, op, MPI_COMM_WORLD);
	default:
		return MPI_Reduce_local(from, to, count, type, op);
	}
}

/* What the receive buffer holds afterwards, over what it held before. */
static void expect(const struct format *f, enum coll coll, enum op op, size_t count, uint16_t *want)
{
	size_t block = count / (size_t)test_size;

	if (coll == REDUCE && test_rank != test_size - 1)
		return;
	for (size_t i = 0; i < count; i++) {
		if (coll == REDUCE_SCATTER_BLOCK && i >= block)
			break;
		int number = coll == REDUCE_SCATTER_BLOCK
				     ? expected(op, test_size, (size_t)test_rank * block + i)
			     : coll == SCAN ? expected(op, test_rank + 1, i)
			     : coll == REDUCE_LOCAL
				     ? combine(op, input(op, test_rank, i), input(op, 9, i))
				     : expected(op, test_size, i);

		want[i] = encode(f, number);
	}
}

static void run(const struct format *f, enum coll coll, enum op op, size_t count, enum place place,
		bool in_place)
{
	static const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
	uint16_t *send = malloc(2 * count + 2), *want = malloc(2 * count + 2);
	struct buffer from = buffer_new(place, 2 * count), to = buffer_new(place, 2 * count);

	snprintf(test_name, sizeof(test_name), "%s %s %s count %zu%s%s ranks %d", coll_names[coll],
		 f->name, op_names[op], count, in_place ? " in place" : "",
		 place == PLACE_HOST ? " host" : "", test_size);
	memset(want, POISON, 2 * count);
	for (size_t i = 0; i < count; i++) {
		send[i] = encode(f, input(op, test_rank, i));
		if (coll == REDUCE_LOCAL)
			want[i] = encode(f, input(op, 9, i));
	}
	if (in_place)
		memcpy(want, send, 2 * count);
	buffer_put(&from, send, 2 * count);
	buffer_put(&to, want, 2 * count);
	int result = call(coll, in_place ? MPI_IN_PLACE : from.data, to.data, (int)count, f->type,
			  ops[op]);
	expect(f, coll, op, count, want);
	bool ok = result == MPI_SUCCESS;
	ok &= buffer_equals(&to, want, "receive buffer");
	ok &= buffer_equals(&from, send, "send buffer");
	test_result(ok);
	buffer_free(&from);
	buffer_free(&to);
	free(send);
	free(want);
}

static void test_format(const struct format *f)
{
	static const size_t counts[] = {0, 1, 17, 5000};

	for (int coll = 0; coll < NUM_COLLS; coll++) {
		for (int op = 0; op < NUM_OPS; op++) {
			for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
				size_t count = counts[i];

				run(f, coll, op, count, PLACE_DEVICE, false);
				run(f, coll, op, count, PLACE_HOST, false);
				if (coll != REDUCE && coll != REDUCE_LOCAL)
					run(f, coll, op, count, PLACE_DEVICE, true);
				/* The library need not have been on the GPU to know its types. */
				run(f, coll, op, count, test_rank % 2 ? PLACE_DEVICE : PLACE_HOST,
				    false);
			}
		}
	}
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	test_start();
	for (int i = 0; i < 2; i++) {
		int (*make)(MPI_Datatype *);

		*(void **)&make = dlsym(RTLD_DEFAULT, formats[i].function);
		if (!make || make(&formats[i].type) != MPI_SUCCESS) {
			printf("there is no %s\n", formats[i].function);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		test_format(&formats[i]);
	}
	int status = test_finish();
	MPI_Finalize();
	return status;
}
