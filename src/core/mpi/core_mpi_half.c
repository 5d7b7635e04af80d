/* SPDX-License-Identifier: BSD-3-Clause */
/* The datatypes of 16-bit floating point numbers, for the real MPI. */
#include "core/call/core_flags.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "gpu/kernels/gpu_half.h"

#include <pthread.h>
#include <stdatomic.h>

enum { HALF_SUM, HALF_PROD, HALF_MAX, HALF_MIN, NUM_HALF_OPS };

static pthread_mutex_t halves_lock = PTHREAD_MUTEX_INITIALIZER; /* for writing */
static struct {
	_Atomic core_handle type; /* 0: not made. Release when all is there */
	MPI_Op ops[NUM_HALF_OPS];
} halves[CORE_NUM_HALVES];

static float apply_half(int op, float a, float b)
{
	switch (op) {
	case HALF_SUM:
		return a + b;
	case HALF_PROD:
		return a * b;
	case HALF_MAX:
		return b > a ? b : a;
	default:
		return b < a ? b : a;
	}
}

static void apply_halves(enum core_half half, int op, const uint16_t *in, uint16_t *inout,
			 int length)
{
	for (int i = 0; i < length; i++) {
		if (half == CORE_FLOAT16)
			inout[i] = gpu_float16_from_float(apply_half(
				op, gpu_float16_to_float(in[i]), gpu_float16_to_float(inout[i])));
		else
			inout[i] = gpu_bfloat16_from_float(apply_half(
				op, gpu_bfloat16_to_float(in[i]), gpu_bfloat16_to_float(inout[i])));
	}
}

/* MPI calls an operation with nothing that says which it is. */
#define DEFINE_HALF_OP(name, half, op)                                                             \
	static void name(void *in, void *inout, int *length, MPI_Datatype *type)                   \
	{                                                                                          \
		(void)type;                                                                        \
		apply_halves(half, op, in, inout, *length);                                        \
	}
DEFINE_HALF_OP(float16_sum, CORE_FLOAT16, HALF_SUM)
DEFINE_HALF_OP(float16_prod, CORE_FLOAT16, HALF_PROD)
DEFINE_HALF_OP(float16_max, CORE_FLOAT16, HALF_MAX)
DEFINE_HALF_OP(float16_min, CORE_FLOAT16, HALF_MIN)
DEFINE_HALF_OP(bfloat16_sum, CORE_BFLOAT16, HALF_SUM)
DEFINE_HALF_OP(bfloat16_prod, CORE_BFLOAT16, HALF_PROD)
DEFINE_HALF_OP(bfloat16_max, CORE_BFLOAT16, HALF_MAX)
DEFINE_HALF_OP(bfloat16_min, CORE_BFLOAT16, HALF_MIN)

/* Under the lock. */
static int make_half(enum core_half half)
{
	static MPI_User_function *const functions[CORE_NUM_HALVES][NUM_HALF_OPS] = {
		[CORE_FLOAT16] = {float16_sum, float16_prod, float16_max, float16_min},
		[CORE_BFLOAT16] = {bfloat16_sum, bfloat16_prod, bfloat16_max, bfloat16_min}};
	MPI_Datatype type = MPI_DATATYPE_NULL;
	int result = PMPI_Type_contiguous(2, MPI_BYTE, &type);

	if (result == MPI_SUCCESS)
		result = PMPI_Type_commit(&type);
	for (int i = 0; i < NUM_HALF_OPS && result == MPI_SUCCESS; i++)
		result = PMPI_Op_create(functions[half][i], 1, &halves[half].ops[i]);
	if (result == MPI_SUCCESS)
		atomic_store_explicit(&halves[half].type, (core_handle)type, memory_order_release);
	return result;
}

int core_mpi_half_type(enum core_half half, core_handle *type)
{
	int result = MPI_SUCCESS;

	pthread_mutex_lock(&halves_lock);
	if (!halves[half].type)
		result = make_half(half);
	if (result == MPI_SUCCESS)
		core_attentive = true;
	*type = halves[half].type;
	pthread_mutex_unlock(&halves_lock);
	return result;
}

/* Acquire, the pair of make_half's release. */
enum core_half core_mpi_half_of(core_handle type)
{
	int half = 0;

	while (half < CORE_NUM_HALVES &&
	       (!type || atomic_load_explicit(&halves[half].type, memory_order_acquire) != type))
		half++;
	return (enum core_half)half;
}

core_handle core_mpi_real_op(const struct core_call *call)
{
	const MPI_Op ops[NUM_HALF_OPS] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
	enum core_half half = core_mpi_half_of(call->recvtype);

	for (int i = 0; call->op && half < CORE_NUM_HALVES && i < NUM_HALF_OPS; i++) {
		if ((MPI_Op)call->op == ops[i])
			return (core_handle)halves[half].ops[i];
	}
	return call->op;
}

void core_mpi_free_halves(void)
{
	for (int half = 0; half < CORE_NUM_HALVES; half++) {
		MPI_Datatype type = core_mpi_as_type(halves[half].type);

		if (!halves[half].type)
			continue;
		halves[half].type = 0;
		PMPI_Type_free(&type);
		for (int i = 0; i < NUM_HALF_OPS; i++)
			PMPI_Op_free(&halves[half].ops[i]);
	}
}
