/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's predefined types and operations as those that kernels compute with. */
#include "core/mpi/core_mpi_arithmetic.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_type.h"
#include "gpu/gpu_launch.h"

/* The types that kernels compute with. Where an MPI lacks one, its handle is MPI_DATATYPE_NULL. */
static enum gpu_type integer_type(size_t bytes, bool is_signed)
{
	switch (bytes) {
	case 1:
		return is_signed ? GPU_TYPE_INT8 : GPU_TYPE_UINT8;
	case 2:
		return is_signed ? GPU_TYPE_INT16 : GPU_TYPE_UINT16;
	case 4:
		return is_signed ? GPU_TYPE_INT32 : GPU_TYPE_UINT32;
	case 8:
		return is_signed ? GPU_TYPE_INT64 : GPU_TYPE_UINT64;
	default:
		return GPU_TYPE_NONE;
	}
}

static enum gpu_type float_type(size_t bytes)
{
	return bytes == 4 ? GPU_TYPE_FLOAT : bytes == 8 ? GPU_TYPE_DOUBLE : GPU_TYPE_NONE;
}

static enum gpu_type complex_type(size_t bytes)
{
	return bytes == 8    ? GPU_TYPE_COMPLEX_FLOAT
	       : bytes == 16 ? GPU_TYPE_COMPLEX_DOUBLE
			     : GPU_TYPE_NONE;
}

enum class_of_type {
	CLASS_SIGNED,
	CLASS_UNSIGNED,
	CLASS_FLOAT,
	CLASS_COMPLEX,
	CLASS_LOGICAL, /* integers that only logical operations take */
	CLASS_BYTE,    /* only bitwise operations */
	CLASS_PAIR,
	CLASS_NONE
};

struct type_row {
	MPI_Datatype type;
	enum class_of_type class;
	enum gpu_type pair; /* of CLASS_PAIR; the size tells the others */
};

static struct type_row type_rows(size_t index)
{
	static const struct type_row rows[] = {
		{MPI_DOUBLE, CLASS_FLOAT, 0},
		{MPI_FLOAT, CLASS_FLOAT, 0},
		{MPI_INT, CLASS_SIGNED, 0},
		{MPI_LONG, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_LONG, CLASS_UNSIGNED, 0},
		{MPI_DOUBLE_PRECISION, CLASS_FLOAT, 0},
		{MPI_REAL, CLASS_FLOAT, 0},
		{MPI_INTEGER, CLASS_SIGNED, 0},
		{MPI_C_DOUBLE_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_C_FLOAT_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_C_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_SIGNED_CHAR, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_CHAR, CLASS_UNSIGNED, 0},
		{MPI_SHORT, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_SHORT, CLASS_UNSIGNED, 0},
		{MPI_UNSIGNED, CLASS_UNSIGNED, 0},
		{MPI_LONG_LONG, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_LONG_LONG, CLASS_UNSIGNED, 0},
		{MPI_INT8_T, CLASS_SIGNED, 0},
		{MPI_INT16_T, CLASS_SIGNED, 0},
		{MPI_INT32_T, CLASS_SIGNED, 0},
		{MPI_INT64_T, CLASS_SIGNED, 0},
		{MPI_UINT8_T, CLASS_UNSIGNED, 0},
		{MPI_UINT16_T, CLASS_UNSIGNED, 0},
		{MPI_UINT32_T, CLASS_UNSIGNED, 0},
		{MPI_UINT64_T, CLASS_UNSIGNED, 0},
		{MPI_AINT, CLASS_SIGNED, 0},
		{MPI_OFFSET, CLASS_SIGNED, 0},
		{MPI_COUNT, CLASS_SIGNED, 0},
		{MPI_INTEGER1, CLASS_SIGNED, 0},
		{MPI_INTEGER2, CLASS_SIGNED, 0},
		{MPI_INTEGER4, CLASS_SIGNED, 0},
		{MPI_INTEGER8, CLASS_SIGNED, 0},
		{MPI_REAL4, CLASS_FLOAT, 0},
		{MPI_REAL8, CLASS_FLOAT, 0},
		{MPI_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_DOUBLE_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_COMPLEX8, CLASS_COMPLEX, 0},
		{MPI_COMPLEX16, CLASS_COMPLEX, 0},
		{MPI_CXX_FLOAT_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_CXX_DOUBLE_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_C_BOOL, CLASS_LOGICAL, 0},
		{MPI_CXX_BOOL, CLASS_LOGICAL, 0},
		{MPI_LOGICAL, CLASS_LOGICAL, 0},
		{MPI_BYTE, CLASS_BYTE, 0},
		{MPI_FLOAT_INT, CLASS_PAIR, GPU_TYPE_FLOAT_INT},
		{MPI_DOUBLE_INT, CLASS_PAIR, GPU_TYPE_DOUBLE_INT},
		{MPI_LONG_INT, CLASS_PAIR, GPU_TYPE_LONG_INT},
		{MPI_SHORT_INT, CLASS_PAIR, GPU_TYPE_SHORT_INT},
		{MPI_2INT, CLASS_PAIR, GPU_TYPE_INT_INT},
		{MPI_2INTEGER, CLASS_PAIR, GPU_TYPE_INT_INT},
		{MPI_2REAL, CLASS_PAIR, GPU_TYPE_FLOAT_FLOAT},
		{MPI_2DOUBLE_PRECISION, CLASS_PAIR, GPU_TYPE_DOUBLE_DOUBLE},
	};

	return index < sizeof(rows) / sizeof(rows[0])
		       ? rows[index]
		       : (struct type_row){MPI_DATATYPE_NULL, CLASS_NONE, 0};
}

static enum gpu_type gpu_type_of(const struct type_row *row, size_t bytes)
{
	switch (row->class) {
	case CLASS_SIGNED:
		return integer_type(bytes, true);
	case CLASS_UNSIGNED:
	case CLASS_LOGICAL:
	case CLASS_BYTE:
		return integer_type(bytes, false);
	case CLASS_FLOAT:
		return float_type(bytes);
	case CLASS_COMPLEX:
		return complex_type(bytes);
	case CLASS_PAIR: /* of Fortran's types, whose size is the MPI's choice */
		return gpu_type_bytes(row->pair) == bytes ? row->pair : GPU_TYPE_NONE;
	default:
		return GPU_TYPE_NONE;
	}
}

static enum gpu_op gpu_op_of(MPI_Op op)
{
	const struct {
		MPI_Op op;
		enum gpu_op ours;
	} rows[] = {
		{MPI_SUM, GPU_OP_SUM},   {MPI_MAX, GPU_OP_MAX},       {MPI_MIN, GPU_OP_MIN},
		{MPI_PROD, GPU_OP_PROD}, {MPI_LAND, GPU_OP_LAND},     {MPI_LOR, GPU_OP_LOR},
		{MPI_LXOR, GPU_OP_LXOR}, {MPI_BAND, GPU_OP_BAND},     {MPI_BOR, GPU_OP_BOR},
		{MPI_BXOR, GPU_OP_BXOR}, {MPI_MAXLOC, GPU_OP_MAXLOC}, {MPI_MINLOC, GPU_OP_MINLOC}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].op == op)
			return rows[i].ours;
	}
	return GPU_OP_NONE;
}

/* Which operations MPI has on a type; the others are left to the real MPI, which refuses them. */
static bool op_is_valid(enum class_of_type class, enum gpu_op op)
{
	bool logical = op == GPU_OP_LAND || op == GPU_OP_LOR || op == GPU_OP_LXOR;
	bool bitwise = op == GPU_OP_BAND || op == GPU_OP_BOR || op == GPU_OP_BXOR;
	bool pairwise = op == GPU_OP_MAXLOC || op == GPU_OP_MINLOC;
	bool arithmetic = !logical && !bitwise && !pairwise;

	switch (class) {
	case CLASS_SIGNED:
	case CLASS_UNSIGNED:
		return !pairwise;
	case CLASS_FLOAT:
		return arithmetic;
	case CLASS_COMPLEX:
		return op == GPU_OP_SUM || op == GPU_OP_PROD;
	case CLASS_LOGICAL:
		return logical;
	case CLASS_BYTE:
		return bitwise;
	case CLASS_PAIR:
		return pairwise;
	default:
		return false;
	}
}

enum core_reason core_mpi_find_arithmetic(const struct core_call *call, struct core_shape *shape)
{
	MPI_Datatype type = core_mpi_as_type(call->recvtype);
	enum core_half half = core_mpi_half_of(call->recvtype);
	struct core_mpi_solid solid = {0};
	struct type_row row;
	size_t i = 0;

	do {
		row = type_rows(i++);
	} while (row.class != CLASS_NONE && row.type != type);
	shape->op = gpu_op_of((MPI_Op)call->op);
	if (shape->op == GPU_OP_NONE)
		return CORE_REASON_USERS_OP;
	if (row.class != CLASS_NONE && !core_mpi_find_solid(type, &solid))
		row.class = CLASS_NONE;
	shape->type = gpu_type_of(&row, solid.bytes);
	if (half < CORE_NUM_HALVES) {
		row.class = CLASS_FLOAT;
		shape->type = half == CORE_FLOAT16 ? GPU_TYPE_FLOAT16 : GPU_TYPE_BFLOAT16;
	}
	if (shape->type == GPU_TYPE_NONE)
		return CORE_REASON_TYPE;
	return op_is_valid(row.class, shape->op) ? CORE_REASON_NONE : CORE_REASON_OP;
}
