/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"
#include "nccl/nccl_number.h"

#include <string.h>

/* ---- floating point of 8 bits, which MPI knows nothing of ---- */

static double reduce_two(ncclRedOp_t op, double a, double b)
{
	switch (op) {
	case ncclSum:
		return a + b;
	case ncclProd:
		return a * b;
	case ncclMax:
		return b > a ? b : a;
	default:
		return b < a ? b : a;
	}
}

static void reduce(ncclDataType_t type, ncclRedOp_t op, const void *in, void *inout, int count)
{
	const char *from = in;
	char *to = inout;

	for (int i = 0; i < count; i++)
		nccl_number_store(type, to + i,
				  reduce_two(op, nccl_number_load(type, from + i),
					     nccl_number_load(type, to + i)));
}

/* MPI tells its functions neither the type nor the operation in words of ours. */
static void sum_e4m3(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e4m3, ncclSum, in, inout, *count);
}

static void prod_e4m3(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e4m3, ncclProd, in, inout, *count);
}

static void max_e4m3(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e4m3, ncclMax, in, inout, *count);
}

static void min_e4m3(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e4m3, ncclMin, in, inout, *count);
}

static void sum_e5m2(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e5m2, ncclSum, in, inout, *count);
}

static void prod_e5m2(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e5m2, ncclProd, in, inout, *count);
}

static void max_e5m2(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e5m2, ncclMax, in, inout, *count);
}

static void min_e5m2(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	reduce(ncclFloat8e5m2, ncclMin, in, inout, *count);
}

enum { NUM_SMALL = 2, NUM_OPS = ncclAvg };

static MPI_User_function *const functions[NUM_SMALL][NUM_OPS] = {
	{[ncclSum] = sum_e4m3, [ncclProd] = prod_e4m3, [ncclMax] = max_e4m3, [ncclMin] = min_e4m3},
	{[ncclSum] = sum_e5m2, [ncclProd] = prod_e5m2, [ncclMax] = max_e5m2, [ncclMin] = min_e5m2}};
static MPI_Datatype small_types[NUM_SMALL];
static MPI_Op small_ops[NUM_SMALL][NUM_OPS];
static int small_error;
static bool small_made;

/* They live as long as MPI does, if the library has started that. */
static void make_small(void)
{
	for (int i = 0; i < NUM_SMALL && !small_error; i++) {
		small_error = MPI_Type_contiguous(1, MPI_BYTE, &small_types[i]);
		if (!small_error)
			small_error = MPI_Type_commit(&small_types[i]);
		for (int op = 0; op < NUM_OPS && !small_error; op++)
			small_error = MPI_Op_create(functions[i][op], 1, &small_ops[i][op]);
	}
	small_made = !small_error;
}

static ncclResult_t have_small(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_small);
	return nccl_of_mpi(small_error, "MPI_Op_create");
}

void nccl_type_finish(void)
{
	for (int i = 0; i < NUM_SMALL && small_made; i++) {
		MPI_Type_free(&small_types[i]);
		for (int op = 0; op < NUM_OPS; op++)
			MPI_Op_free(&small_ops[i][op]);
	}
}

static bool is_small(ncclDataType_t type)
{
	return type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

/* ---- types ---- */

ncclResult_t nccl_type(ncclDataType_t type, MPI_Datatype *out)
{
	const MPI_Datatype types[ncclNumTypes] = {
		[ncclInt8] = MPI_INT8_T,   [ncclUint8] = MPI_UINT8_T,
		[ncclInt32] = MPI_INT32_T, [ncclUint32] = MPI_UINT32_T,
		[ncclInt64] = MPI_INT64_T, [ncclUint64] = MPI_UINT64_T,
		[ncclFloat32] = MPI_FLOAT, [ncclFloat64] = MPI_DOUBLE,
	};
	ncclResult_t result;

	if (type == ncclFloat16)
		return nccl_of_mpi(gpucoll_type_float16(out), "gpucoll_type_float16");
	if (type == ncclBfloat16)
		return nccl_of_mpi(gpucoll_type_bfloat16(out), "gpucoll_type_bfloat16");
	if (!is_small(type)) {
		*out = types[type];
		return ncclSuccess;
	}
	result = have_small();
	*out = small_types[type - ncclFloat8e4m3];
	return result;
}

/* ---- operations ---- */

/* Of a hook. */
struct scaling {
	ncclDataType_t type;
	int divisor;
	size_t in, out;     /* elements */
	const void *scalar; /* pinned, brought by the stream; NULL: */
	_Alignas(8) char factor[8];
};
_Static_assert(sizeof(struct scaling) <= CORE_HOOK_BYTES, "it fits a hook");

static void multiply_input(void *input, const void *data)
{
	const struct scaling *scaling = data;

	nccl_number_multiply(scaling->type, input, scaling->in,
			     scaling->scalar ? scaling->scalar : scaling->factor);
}

static void divide_output(void *output, const void *data)
{
	const struct scaling *scaling = data;

	nccl_number_divide(scaling->type, output, scaling->out, scaling->divisor);
}

static void use_scalar(const struct nccl_call *call, struct scaling *scaling,
		       struct nccl_reduction *reduction)
{
	reduction->hooks.before = multiply_input;
	memcpy(scaling->factor, call->user.immediate, sizeof(scaling->factor));
	if (!call->user.scalar)
		return;
	/* Of calls that share it the stream brings the second's when the first has ended. */
	reduction->from = call->user.scalar;
	reduction->to = call->comm->scalars + NCCL_SCALAR_BYTES * (call->op - ncclNumOps);
	scaling->scalar = reduction->to;
}

ncclResult_t nccl_reduction(const struct nccl_call *call, size_t in, size_t out,
			    struct nccl_reduction *reduction)
{
	const MPI_Op ops[NUM_OPS] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
	struct scaling scaling = {
		.type = call->type, .divisor = call->comm->size, .in = in, .out = out};
	ncclRedOp_t base = call->op < ncclAvg ? call->op : ncclSum;
	ncclResult_t result;

	*reduction = (struct nccl_reduction){.hooks = {.apart = true}};
	result = nccl_type(call->type, &reduction->type);
	reduction->op =
		is_small(call->type) ? small_ops[call->type - ncclFloat8e4m3][base] : ops[base];
	if (call->user.used)
		use_scalar(call, &scaling, reduction);
	if (call->op == ncclAvg) /* also where there is nothing: ranks are to be alike */
		reduction->hooks.after = divide_output;
	memcpy(reduction->hooks.data, &scaling, sizeof(scaling));
	return result;
}

/* ---- operations of the program's own ---- */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
				      ncclScalarResidence_t residence, ncclComm_t comm)
{
	ncclResult_t result = ncclSuccess;
	int i = 0;

	if (!op || !scalar || !comm || !nccl_number_size(type))
		return nccl_fail(
			ncclInvalidArgument,
			"ncclRedOpCreatePreMulSum: an argument is NULL, or the datatype %d",
			(int)type);
	pthread_mutex_lock(&comm->lock);
	while (i < NCCL_MAX_USER_OPS && comm->ops[i].used)
		i++;
	if (i < NCCL_MAX_USER_OPS) {
		comm->ops[i].used = true;
		comm->ops[i].type = type;
		comm->ops[i].scalar = residence == ncclScalarDevice ? scalar : NULL;
		if (residence == ncclScalarHostImmediate)
			memcpy(comm->ops[i].immediate, scalar, nccl_number_size(type));
		*op = (ncclRedOp_t)(ncclNumOps + i);
	} else {
		result = nccl_fail(ncclInvalidUsage, "a communicator has %d operations at a time",
				   (int)NCCL_MAX_USER_OPS);
	}
	pthread_mutex_unlock(&comm->lock);
	return result;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	int i = (int)op - (int)ncclNumOps;
	bool well;

	if (!comm || i < 0 || i >= NCCL_MAX_USER_OPS)
		return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: there is no operation %d",
				 (int)op);
	pthread_mutex_lock(&comm->lock);
	well = comm->ops[i].used;
	comm->ops[i].used = false;
	pthread_mutex_unlock(&comm->lock);
	return well ? ncclSuccess
		    : nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: there is no operation %d",
				(int)op);
}
