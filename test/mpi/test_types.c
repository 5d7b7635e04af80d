/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Allreduce and MPI_Reduce_scatter_block over all predefined types and operations on device
 * buffers, against arithmetic on the host. The values are small, so that every order of summation
 * gives the same bits.
 *
 *     test_types [once]     once: of types that are one in memory only the first
 */
#include "test.h"

#include <complex.h>

enum op { SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC, NUM_OPS };

static const char *const op_names[] = {"SUM",  "PROD", "MIN", "MAX",  "LAND",   "LOR",
				       "LXOR", "BAND", "BOR", "BXOR", "MINLOC", "MAXLOC"};

struct type {
	const char *name;
	MPI_Datatype mpi;
	size_t size;
	unsigned ops; /* bit mask over enum op */
	void (*put)(void *array, size_t index, int value);
	void (*apply)(enum op op, void *inout, const void *in, size_t count);
	bool (*equal)(const void *a, const void *b, size_t index);
};

#define BIT(op) (1u << (op))
#define BITWISE (BIT(BAND) | BIT(BOR) | BIT(BXOR))
#define LOGICAL (BIT(LAND) | BIT(LOR) | BIT(LXOR))
#define ORDERED (BIT(SUM) | BIT(PROD) | BIT(MIN) | BIT(MAX))
#define INTEGER (ORDERED | LOGICAL | BITWISE)
#define LOCATED (BIT(MINLOC) | BIT(MAXLOC))

/* Each kind of type gets its three functions; what an operation means is written once. */
#define DEFINE_ACCESS(id, T)                                                                       \
	static void id##_put(void *array, size_t index, int value)                                 \
	{                                                                                          \
		((T *)array)[index] = (T)value;                                                    \
	}                                                                                          \
	static bool id##_equal(const void *a, const void *b, size_t index)                         \
	{                                                                                          \
		return ((const T *)a)[index] == ((const T *)b)[index];                             \
	}

#define DEFINE_INTEGER(id, T)                                                                      \
	DEFINE_ACCESS(id, T)                                                                       \
	static void id##_apply(enum op op, void *inout, const void *in, size_t count)              \
	{                                                                                          \
		T *a = inout;                                                                      \
		const T *b = in;                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			a[i] = (T)(op == SUM    ? a[i] + b[i]                                      \
				   : op == PROD ? a[i] * b[i]                                      \
				   : op == MIN  ? (a[i] < b[i] ? a[i] : b[i])                      \
				   : op == MAX  ? (a[i] > b[i] ? a[i] : b[i])                      \
				   : op == LAND ? a[i] && b[i]                                     \
				   : op == LOR  ? a[i] || b[i]                                     \
				   : op == LXOR ? !a[i] != !b[i]                                   \
				   : op == BAND ? (a[i] & b[i])                                    \
				   : op == BOR  ? (a[i] | b[i])                                    \
						: (a[i] ^ b[i]));                                   \
	}

#define DEFINE_FLOAT(id, T)                                                                        \
	DEFINE_ACCESS(id, T)                                                                       \
	static void id##_apply(enum op op, void *inout, const void *in, size_t count)              \
	{                                                                                          \
		T *a = inout;                                                                      \
		const T *b = in;                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			a[i] = op == SUM    ? a[i] + b[i]                                          \
			       : op == PROD ? a[i] * b[i]                                          \
			       : op == MIN  ? (a[i] < b[i] ? a[i] : b[i])                          \
					    : (a[i] > b[i] ? a[i] : b[i]);                          \
	}

#define DEFINE_COMPLEX(id, T)                                                                      \
	static void id##_put(void *array, size_t index, int value)                                 \
	{                                                                                          \
		((T *)array)[index] = (T)(value + (value - 1) * I);                                \
	}                                                                                          \
	static bool id##_equal(const void *a, const void *b, size_t index)                         \
	{                                                                                          \
		return ((const T *)a)[index] == ((const T *)b)[index];                             \
	}                                                                                          \
	static void id##_apply(enum op op, void *inout, const void *in, size_t count)              \
	{                                                                                          \
		T *a = inout;                                                                      \
		const T *b = in;                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			a[i] = op == SUM ? a[i] + b[i] : a[i] * b[i];                              \
	}

/*
 * The index of the rank that has the value comes from the value's place, so that ties are made and
 * broken.
 */
#define DEFINE_PAIR(id, T)                                                                         \
	struct id##_pair {                                                                         \
		T value;                                                                           \
		int index;                                                                         \
	};                                                                                         \
	static void id##_put(void *array, size_t index, int value)                                 \
	{                                                                                          \
		((struct id##_pair *)array)[index].value = (T)value;                               \
		((struct id##_pair *)array)[index].index = test_rank;                              \
	}                                                                                          \
	static bool id##_equal(const void *a, const void *b, size_t index)                         \
	{                                                                                          \
		const struct id##_pair *x = a, *y = b;                                             \
		return x[index].value == y[index].value && x[index].index == y[index].index;       \
	}                                                                                          \
	static void id##_apply(enum op op, void *inout, const void *in, size_t count)              \
	{                                                                                          \
		struct id##_pair *a = inout;                                                       \
		const struct id##_pair *b = in;                                                    \
		for (size_t i = 0; i < count; i++) {                                               \
			bool better =                                                              \
				op == MINLOC ? b[i].value < a[i].value : b[i].value > a[i].value;  \
			if (better || (b[i].value == a[i].value && b[i].index < a[i].index))       \
				a[i] = b[i];                                                       \
		}                                                                                  \
	}

DEFINE_INTEGER(i8, int8_t)
DEFINE_INTEGER(u8, uint8_t)
DEFINE_INTEGER(i16, int16_t)
DEFINE_INTEGER(u16, uint16_t)
DEFINE_INTEGER(i32, int32_t)
DEFINE_INTEGER(u32, uint32_t)
DEFINE_INTEGER(i64, int64_t)
DEFINE_INTEGER(u64, uint64_t)
DEFINE_INTEGER(boolean, bool)
DEFINE_FLOAT(f32, float)
DEFINE_FLOAT(f64, double)
DEFINE_FLOAT(f80, long double)
DEFINE_COMPLEX(c32, float complex)
DEFINE_COMPLEX(c64, double complex)
DEFINE_PAIR(p16, short)
DEFINE_PAIR(p32, int)
DEFINE_PAIR(p64, long)
DEFINE_PAIR(pf32, float)
DEFINE_PAIR(pf64, double)
DEFINE_PAIR(pf80, long double)

#define ROW(mpi, T, ops, id)                                                                       \
	{                                                                                          \
#mpi, mpi, sizeof(T), ops, id##_put, id##_apply, id##_equal                        \
	}

static void test_case(const struct type *type, enum op op, MPI_Op mpi_op, int count, bool in_place,
		      bool scatter)
{
	size_t total = (size_t)count * (scatter ? (size_t)test_size : 1),
	       bytes = total * type->size;
	unsigned char *mine = calloc(1, bytes + 1), *other = calloc(1, bytes + 1),
		      *want = calloc(1, bytes + 1);
	unsigned char *got = malloc(bytes + 1);
	struct buffer send = buffer_new(PLACE_DEVICE, bytes),
		      recv = buffer_new(PLACE_DEVICE, bytes);
	size_t first = scatter ? (size_t)test_rank * (size_t)count : 0;
	int saved_rank = test_rank;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "%s %s %s count %d%s ranks %d",
		 scatter ? "Reduce_scatter_block" : "Allreduce", type->name, op_names[op], count,
		 in_place ? " in place" : "", test_size);
	for (int rank = 0; rank < test_size; rank++) {
		test_rank = rank; /* whose contribution is made: pairs carry it */
		for (size_t i = 0; i < total; i++)
			type->put(rank == saved_rank ? mine : other, i,
				  1 + ((i + (size_t)rank) % 4 == 0));
		if (rank == 0)
			memcpy(want, rank == saved_rank ? mine : other, bytes);
		else
			type->apply(op, want, rank == saved_rank ? mine : other, total);
	}
	test_rank = saved_rank;
	buffer_put(in_place ? &recv : &send, mine, bytes);
	if (scatter)
		MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : send.data, recv.data, count,
					 type->mpi, mpi_op, MPI_COMM_WORLD);
	else
		MPI_Allreduce(in_place ? MPI_IN_PLACE : send.data, recv.data, count, type->mpi,
			      mpi_op, MPI_COMM_WORLD);
	cuda_check(cudaMemcpy(got, recv.data, bytes, cudaMemcpyDefault), "cudaMemcpy");
	for (size_t i = 0; i < (size_t)count && ok; i++) {
		ok = type->equal(got, want + first * type->size, i);
		if (!ok)
			fprintf(stderr, "rank %d: %s: element %zu is wrong\n", test_rank, test_name,
				i);
	}
	/* The guards: what was received is as it is, whatever it is. */
	ok &= buffer_equals(&recv, got, "receive buffer");
	test_result(ok);
	buffer_free(&send);
	buffer_free(&recv);
	free(mine);
	free(other);
	free(want);
	free(got);
}

/* Whether an earlier one of the types is the same in memory. */
static bool is_known(const struct type *types, size_t which)
{
	for (size_t i = 0; i < which; i++) {
		if (types[i].apply == types[which].apply)
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	static const int counts[] = {0, 1, 2, 3, 17, 10007};
	bool once = argc > 1 && !strcmp(argv[1], "once");

	MPI_Init(&argc, &argv);
	test_start();
	const MPI_Op ops[NUM_OPS] = {MPI_SUM,  MPI_PROD, MPI_MIN, MPI_MAX,  MPI_LAND,   MPI_LOR,
				     MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
	const struct type types[] = {
		ROW(MPI_SIGNED_CHAR, signed char, INTEGER, i8),
		ROW(MPI_UNSIGNED_CHAR, unsigned char, INTEGER, u8),
		ROW(MPI_SHORT, short, INTEGER, i16),
		ROW(MPI_UNSIGNED_SHORT, unsigned short, INTEGER, u16),
		ROW(MPI_INT, int, INTEGER, i32),
		ROW(MPI_UNSIGNED, unsigned, INTEGER, u32),
		ROW(MPI_LONG, long, INTEGER, i64),
		ROW(MPI_UNSIGNED_LONG, unsigned long, INTEGER, u64),
		ROW(MPI_LONG_LONG, long long, INTEGER, i64),
		ROW(MPI_UNSIGNED_LONG_LONG, unsigned long long, INTEGER, u64),
		ROW(MPI_INT8_T, int8_t, INTEGER, i8),
		ROW(MPI_UINT8_T, uint8_t, INTEGER, u8),
		ROW(MPI_INT16_T, int16_t, INTEGER, i16),
		ROW(MPI_UINT16_T, uint16_t, INTEGER, u16),
		ROW(MPI_INT32_T, int32_t, INTEGER, i32),
		ROW(MPI_UINT32_T, uint32_t, INTEGER, u32),
		ROW(MPI_INT64_T, int64_t, INTEGER, i64),
		ROW(MPI_UINT64_T, uint64_t, INTEGER, u64),
		ROW(MPI_BYTE, unsigned char, BITWISE, u8),
		ROW(MPI_AINT, MPI_Aint, ORDERED, i64),
		ROW(MPI_OFFSET, MPI_Offset, ORDERED, i64),
		ROW(MPI_COUNT, MPI_Count, ORDERED, i64),
		ROW(MPI_C_BOOL, bool, LOGICAL, boolean),
		ROW(MPI_FLOAT, float, ORDERED, f32),
		ROW(MPI_DOUBLE, double, ORDERED, f64),
		ROW(MPI_LONG_DOUBLE, long double, ORDERED, f80),
		ROW(MPI_C_FLOAT_COMPLEX, float complex, BIT(SUM) | BIT(PROD), c32),
		ROW(MPI_C_DOUBLE_COMPLEX, double complex, BIT(SUM) | BIT(PROD), c64),
		ROW(MPI_SHORT_INT, struct p16_pair, LOCATED, p16),
		ROW(MPI_2INT, struct p32_pair, LOCATED, p32),
		ROW(MPI_LONG_INT, struct p64_pair, LOCATED, p64),
		ROW(MPI_FLOAT_INT, struct pf32_pair, LOCATED, pf32),
		ROW(MPI_DOUBLE_INT, struct pf64_pair, LOCATED, pf64),
		ROW(MPI_LONG_DOUBLE_INT, struct pf80_pair, LOCATED, pf80),
	};

	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		if (once && is_known(types, t))
			continue;
		for (int op = 0; op < NUM_OPS; op++) {
			if (!(types[t].ops & BIT(op)))
				continue;
			for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
				for (int variant = 0; variant < 3; variant++)
					test_case(&types[t], (enum op)op, ops[op], counts[c],
						  variant == 1, variant == 2);
			}
		}
	}
	int status = test_finish();
	MPI_Finalize();
	return status;
}
