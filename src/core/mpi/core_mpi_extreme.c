/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_extreme.h"

#include <stddef.h>
#include <string.h>

struct float_int {
	float value;
	int32_t index;
};

struct double_int {
	double value;
	int32_t index;
};

/* Where a pair's parts are; index as whole numbers, or as Fortran has it, of the value's type. */
struct pair {
	size_t bytes, index, value_bytes, index_bytes;
};

static struct pair pair_of(enum gpu_type type)
{
	switch (type) {
	case GPU_TYPE_FLOAT_INT:
		return (struct pair){sizeof(struct float_int), offsetof(struct float_int, index), 4,
				     4};
	case GPU_TYPE_DOUBLE_INT:
		return (struct pair){sizeof(struct double_int), offsetof(struct double_int, index),
				     8, 4};
	case GPU_TYPE_FLOAT_FLOAT:
		return (struct pair){2 * sizeof(float), sizeof(float), 4, 4};
	default:
		return (struct pair){2 * sizeof(double), sizeof(double), 8, 8};
	}
}

bool core_extreme_is(enum gpu_type type, enum gpu_op op)
{
	if (op == GPU_OP_MAX || op == GPU_OP_MIN)
		return type == GPU_TYPE_FLOAT || type == GPU_TYPE_DOUBLE;
	return (op == GPU_OP_MAXLOC || op == GPU_OP_MINLOC) &&
	       (type == GPU_TYPE_FLOAT_INT || type == GPU_TYPE_DOUBLE_INT ||
		type == GPU_TYPE_FLOAT_FLOAT || type == GPU_TYPE_DOUBLE_DOUBLE);
}

static void take_floats(bool largest, const float *left, float *into, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		float a = left[i], b = into[i];

		into[i] = (largest ? b > a : b < a) ? b : a;
	}
}

static void take_doubles(bool largest, const double *left, double *into, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		double a = left[i], b = into[i];

		into[i] = (largest ? b > a : b < a) ? b : a;
	}
}

static double number_at(const unsigned char *at, size_t bytes)
{
	double number;
	float single;

	if (bytes == sizeof(number)) {
		memcpy(&number, at, sizeof(number));
		return number;
	}
	memcpy(&single, at, sizeof(single));
	return single;
}

static double index_at(enum gpu_type type, const unsigned char *at, size_t bytes)
{
	int32_t index;

	if (type == GPU_TYPE_FLOAT_FLOAT || type == GPU_TYPE_DOUBLE_DOUBLE)
		return number_at(at, bytes);
	memcpy(&index, at, sizeof(index));
	return index;
}

/* The lower index of equals; what lies between the parts is the program's. */
static void take_pair(enum gpu_type type, bool largest, const unsigned char *a, unsigned char *b)
{
	struct pair pair = pair_of(type);
	double left = number_at(a, pair.value_bytes), right = number_at(b, pair.value_bytes);
	bool equal = left == right, first = equal || largest == (left > right);

	if (first)
		memcpy(b, a, pair.value_bytes);
	if (equal ? index_at(type, a + pair.index, pair.index_bytes) <
			    index_at(type, b + pair.index, pair.index_bytes)
		  : first)
		memcpy(b + pair.index, a + pair.index, pair.index_bytes);
}

void core_extreme_apply(enum gpu_type type, enum gpu_op op, const void *left, void *into,
			int64_t count)
{
	bool largest = op == GPU_OP_MAX || op == GPU_OP_MAXLOC;
	size_t bytes = pair_of(type).bytes;

	if (type == GPU_TYPE_FLOAT) {
		take_floats(largest, left, into, count);
	} else if (type == GPU_TYPE_DOUBLE) {
		take_doubles(largest, left, into, count);
	} else {
		for (int64_t i = 0; i < count; i++)
			take_pair(type, largest, (const unsigned char *)left + (size_t)i * bytes,
				  (unsigned char *)into + (size_t)i * bytes);
	}
}
