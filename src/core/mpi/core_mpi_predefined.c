/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_predefined.h"
#include "core/call/core_mpi_handle.h"

#include <stddef.h>

/* The first are those that are looked for most. */
static const struct {
	MPI_Datatype type;
	const char *word;
} types[] = {
	{MPI_DATATYPE_NULL, "derived"},
	{MPI_DOUBLE, "MPI_DOUBLE"},
	{MPI_FLOAT, "MPI_FLOAT"},
	{MPI_INT, "MPI_INT"},
	{MPI_BYTE, "MPI_BYTE"},
	{MPI_CHAR, "MPI_CHAR"},
	{MPI_LONG, "MPI_LONG"},
	{MPI_UNSIGNED_LONG, "MPI_UNSIGNED_LONG"},
	{MPI_DOUBLE_PRECISION, "MPI_DOUBLE_PRECISION"},
	{MPI_REAL, "MPI_REAL"},
	{MPI_INTEGER, "MPI_INTEGER"},
	{MPI_INT64_T, "MPI_INT64_T"},
	{MPI_UINT64_T, "MPI_UINT64_T"},
	{MPI_INT32_T, "MPI_INT32_T"},
	{MPI_UINT32_T, "MPI_UINT32_T"},
	{MPI_PACKED, "MPI_PACKED"},
	{MPI_LONG_LONG, "MPI_LONG_LONG"},
	{MPI_UNSIGNED_LONG_LONG, "MPI_UNSIGNED_LONG_LONG"},
	{MPI_UNSIGNED, "MPI_UNSIGNED"},
	{MPI_SIGNED_CHAR, "MPI_SIGNED_CHAR"},
	{MPI_UNSIGNED_CHAR, "MPI_UNSIGNED_CHAR"},
	{MPI_SHORT, "MPI_SHORT"},
	{MPI_UNSIGNED_SHORT, "MPI_UNSIGNED_SHORT"},
	{MPI_INT8_T, "MPI_INT8_T"},
	{MPI_UINT8_T, "MPI_UINT8_T"},
	{MPI_INT16_T, "MPI_INT16_T"},
	{MPI_UINT16_T, "MPI_UINT16_T"},
	{MPI_C_FLOAT_COMPLEX, "MPI_C_FLOAT_COMPLEX"},
	{MPI_C_DOUBLE_COMPLEX, "MPI_C_DOUBLE_COMPLEX"},
	{MPI_COMPLEX, "MPI_COMPLEX"},
	{MPI_DOUBLE_COMPLEX, "MPI_DOUBLE_COMPLEX"},
	{MPI_LONG_DOUBLE, "MPI_LONG_DOUBLE"},
	{MPI_AINT, "MPI_AINT"},
	{MPI_OFFSET, "MPI_OFFSET"},
	{MPI_COUNT, "MPI_COUNT"},
	{MPI_C_BOOL, "MPI_C_BOOL"},
	{MPI_LOGICAL, "MPI_LOGICAL"},
	{MPI_CHARACTER, "MPI_CHARACTER"},
	{MPI_WCHAR, "MPI_WCHAR"},
	{MPI_2INT, "MPI_2INT"},
	{MPI_FLOAT_INT, "MPI_FLOAT_INT"},
	{MPI_DOUBLE_INT, "MPI_DOUBLE_INT"},
	{MPI_LONG_INT, "MPI_LONG_INT"},
	{MPI_SHORT_INT, "MPI_SHORT_INT"},
	{MPI_2INTEGER, "MPI_2INTEGER"},
	{MPI_2REAL, "MPI_2REAL"},
	{MPI_2DOUBLE_PRECISION, "MPI_2DOUBLE_PRECISION"},
	{MPI_INTEGER1, "MPI_INTEGER1"},
	{MPI_INTEGER2, "MPI_INTEGER2"},
	{MPI_INTEGER4, "MPI_INTEGER4"},
	{MPI_INTEGER8, "MPI_INTEGER8"},
	{MPI_REAL4, "MPI_REAL4"},
	{MPI_REAL8, "MPI_REAL8"},
	{MPI_COMPLEX8, "MPI_COMPLEX8"},
	{MPI_COMPLEX16, "MPI_COMPLEX16"},
};
enum { NUM_TYPES = sizeof(types) / sizeof(types[0]) };

static const struct {
	MPI_Op op;
	const char *word;
} ops[] = {
	{MPI_OP_NULL, "user-defined"}, {MPI_SUM, "MPI_SUM"},         {MPI_MAX, "MPI_MAX"},
	{MPI_MIN, "MPI_MIN"},          {MPI_PROD, "MPI_PROD"},       {MPI_LAND, "MPI_LAND"},
	{MPI_LOR, "MPI_LOR"},          {MPI_BAND, "MPI_BAND"},       {MPI_BOR, "MPI_BOR"},
	{MPI_LXOR, "MPI_LXOR"},        {MPI_BXOR, "MPI_BXOR"},       {MPI_MAXLOC, "MPI_MAXLOC"},
	{MPI_MINLOC, "MPI_MINLOC"},    {MPI_REPLACE, "MPI_REPLACE"}, {MPI_NO_OP, "MPI_NO_OP"},
};
enum { NUM_OPS = sizeof(ops) / sizeof(ops[0]) };

uint8_t core_mpi_type_number(core_handle type)
{
	for (uint8_t i = 1; i < NUM_TYPES; i++) {
		if ((core_handle)types[i].type == type)
			return i;
	}
	return 0;
}

bool core_mpi_is_loose(core_handle type)
{
	static const MPI_Datatype loose[] = {MPI_PACKED,           MPI_2INT,     MPI_FLOAT_INT,
					     MPI_DOUBLE_INT,       MPI_LONG_INT, MPI_SHORT_INT,
					     MPI_LONG_DOUBLE_INT,  MPI_2INTEGER, MPI_2REAL,
					     MPI_2DOUBLE_PRECISION};

	for (size_t i = 0; i < sizeof(loose) / sizeof(loose[0]); i++) {
		if ((core_handle)loose[i] == type)
			return true;
	}
	return false;
}

uint8_t core_mpi_op_number(core_handle op)
{
	for (uint8_t i = 1; i < NUM_OPS; i++) {
		if ((core_handle)ops[i].op == op)
			return i;
	}
	return 0;
}

const char *core_mpi_type_word(uint8_t number)
{
	return types[number < NUM_TYPES ? number : 0].word;
}

const char *core_mpi_op_word(uint8_t number)
{
	return ops[number < NUM_OPS ? number : 0].word;
}
