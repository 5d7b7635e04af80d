/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host and the kernels know alike: sizes of launches, element types and operations. */
#ifndef GPU_TYPES_H
#define GPU_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* A function that both have. */
#ifdef __CUDACC__
#define GPU_COMMON static __device__ __forceinline__
#else
#define GPU_COMMON static inline
#endif

/* The most threads of a block, of any kernel. */
enum { GPU_THREADS = 512 };

enum gpu_type {
	GPU_TYPE_NONE, /* not one that a kernel can compute with */
	GPU_TYPE_INT8,
	GPU_TYPE_UINT8,
	GPU_TYPE_INT16,
	GPU_TYPE_UINT16,
	GPU_TYPE_INT32,
	GPU_TYPE_UINT32,
	GPU_TYPE_INT64,
	GPU_TYPE_UINT64,
	GPU_TYPE_FLOAT16,
	GPU_TYPE_BFLOAT16,
	GPU_TYPE_FLOAT,
	GPU_TYPE_DOUBLE,
	GPU_TYPE_COMPLEX_FLOAT,
	GPU_TYPE_COMPLEX_DOUBLE,
	/* value and index, as C lays out struct {value; index;} */
	GPU_TYPE_SHORT_INT,
	GPU_TYPE_INT_INT,
	GPU_TYPE_LONG_INT,
	GPU_TYPE_FLOAT_INT,
	GPU_TYPE_DOUBLE_INT,
	GPU_TYPE_FLOAT_FLOAT,
	GPU_TYPE_DOUBLE_DOUBLE,
	GPU_TYPE_NUM
};

/* Whether there are bytes in or behind the C structure that belong to no field. */
GPU_COMMON bool gpu_type_is_padded(uint32_t type)
{
	return type == GPU_TYPE_SHORT_INT || type == GPU_TYPE_LONG_INT ||
	       type == GPU_TYPE_DOUBLE_INT;
}

/* Whether what sums are depends on their order. */
GPU_COMMON bool gpu_type_is_floating(uint32_t type)
{
	return (type >= GPU_TYPE_FLOAT16 && type <= GPU_TYPE_COMPLEX_DOUBLE) ||
	       (type >= GPU_TYPE_FLOAT_INT && type <= GPU_TYPE_DOUBLE_DOUBLE);
}

enum gpu_op {
	GPU_OP_NONE,
	GPU_OP_SUM,
	GPU_OP_PROD,
	GPU_OP_MAX,
	GPU_OP_MIN,
	GPU_OP_LAND,
	GPU_OP_LOR,
	GPU_OP_LXOR,
	GPU_OP_BAND,
	GPU_OP_BOR,
	GPU_OP_BXOR,
	GPU_OP_MAXLOC,
	GPU_OP_MINLOC,
	GPU_OP_NUM
};

#endif
