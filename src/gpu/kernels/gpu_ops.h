/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's operations on one element of each type that kernels compute with.
 */
#ifndef GPU_OPS_H
#define GPU_OPS_H

#include "gpu/kernels/gpu_half.h"
#include "gpu/kernels/gpu_kernel.h"

template <typename T> struct complex_of {
	T re, im;
};

template <typename V, typename I> struct pair_of {
	V value;
	I index;
};

/*
 * An element in memory. Of a pair only the fields are read and written: its padding belongs to the
 * application, and behind the last one the buffer may end.
 */
template <typename T> struct element_of {
	enum { IS_PADDED = 0 };

	GPU_DEVICE T load(uint64_t address)
	{
		return gpu_load<T>(address);
	}

	GPU_DEVICE T load_bytes(uint64_t address)
	{
		return gpu_load_bytes<T>(address);
	}

	GPU_DEVICE void store(uint64_t address, T element)
	{
		gpu_store<T>(address, element);
	}

	GPU_DEVICE void store_bytes(uint64_t address, T element)
	{
		gpu_store_bytes<T>(address, element);
	}
};

template <typename V, typename I> struct element_of<pair_of<V, I>> {
	typedef pair_of<V, I> P;
	enum { IS_PADDED = sizeof(P) != sizeof(V) + sizeof(I), INDEX = offsetof(P, index) };

	GPU_DEVICE P load(uint64_t address)
	{
		return P{gpu_load<V>(address), gpu_load<I>(address + INDEX)};
	}

	GPU_DEVICE P load_bytes(uint64_t address)
	{
		return P{gpu_load_bytes<V>(address), gpu_load_bytes<I>(address + INDEX)};
	}

	GPU_DEVICE void store(uint64_t address, P element)
	{
		gpu_store<V>(address, element.value);
		gpu_store<I>(address + INDEX, element.index);
	}

	GPU_DEVICE void store_bytes(uint64_t address, P element)
	{
		gpu_store_bytes<V>(address, element.value);
		gpu_store_bytes<I>(address + INDEX, element.index);
	}
};

template <typename T> GPU_DEVICE T apply_bits(uint32_t op, T a, T b)
{
	switch (op) {
	case GPU_OP_LAND:
		return (T)(a && b);
	case GPU_OP_LOR:
		return (T)(a || b);
	case GPU_OP_LXOR:
		return (T)(!a != !b);
	case GPU_OP_BAND:
		return (T)(a & b);
	case GPU_OP_BOR:
		return (T)(a | b);
	default:
		return (T)(a ^ b);
	}
}

template <typename T> GPU_DEVICE T apply_arithmetic(uint32_t op, T a, T b)
{
	switch (op) {
	case GPU_OP_SUM:
		return (T)(a + b);
	case GPU_OP_PROD:
		return (T)(a * b);
	case GPU_OP_MAX:
		return b > a ? b : a;
	default:
		return b < a ? b : a;
	}
}

/* Unsigned arithmetic wraps, as sums of integers do in C programs that overflow them on purpose. */
template <typename T, typename U> struct integer_op {
	GPU_DEVICE T apply(uint32_t op, T a, T b)
	{
		if (op == GPU_OP_SUM)
			return (T)((U)a + (U)b);
		if (op == GPU_OP_PROD)
			return (T)((uint64_t)(U)a * (uint64_t)(U)b);
		return op <= GPU_OP_MIN ? apply_arithmetic<T>(op, a, b) : apply_bits<T>(op, a, b);
	}
};

template <typename T> struct float_op {
	GPU_DEVICE T apply(uint32_t op, T a, T b)
	{
		return apply_arithmetic<T>(op, a, b);
	}
};

/* 16 bits are computed with as float, and rounded after each operation. */
struct float16 {
	uint16_t bits;
};

struct bfloat16 {
	uint16_t bits;
};

struct float16_op {
	GPU_DEVICE float16 apply(uint32_t op, float16 a, float16 b)
	{
		float r = apply_arithmetic<float>(op, gpu_float16_to_float(a.bits),
						  gpu_float16_to_float(b.bits));

		return float16{gpu_float16_from_float(r)};
	}
};

struct bfloat16_op {
	GPU_DEVICE bfloat16 apply(uint32_t op, bfloat16 a, bfloat16 b)
	{
		float r = apply_arithmetic<float>(op, gpu_bfloat16_to_float(a.bits),
						  gpu_bfloat16_to_float(b.bits));

		return bfloat16{gpu_bfloat16_from_float(r)};
	}
};

template <typename T> struct complex_op {
	typedef complex_of<T> C;

	GPU_DEVICE C apply(uint32_t op, C a, C b)
	{
		C r;

		if (op == GPU_OP_SUM) {
			r.re = a.re + b.re;
			r.im = a.im + b.im;
		} else {
			r.re = a.re * b.re - a.im * b.im;
			r.im = a.re * b.im + a.im * b.re;
		}
		return r;
	}
};

template <typename V, typename I> struct pair_op {
	typedef pair_of<V, I> P;

	GPU_DEVICE P apply(uint32_t op, P a, P b)
	{
		if (a.value == b.value) {
			a.index = a.index < b.index ? a.index : b.index;
			return a;
		}
		return (op == GPU_OP_MAXLOC) == (a.value > b.value) ? a : b;
	}
};

template <uint32_t OP, typename BASE, typename T> struct fixed_op {
	GPU_DEVICE T apply(uint32_t, T a, T b)
	{
		return BASE::apply(OP, a, b);
	}
};

/* `what`, which has a function template run<T, F>, for the type T and its operations F. */
template <typename WHAT> GPU_DEVICE void gpu_for_type(uint32_t type, WHAT *what)
{
	switch (type) {
	case GPU_TYPE_INT8:
		return what->template run<int8_t, integer_op<int8_t, uint8_t>>();
	case GPU_TYPE_UINT8:
		return what->template run<uint8_t, integer_op<uint8_t, uint8_t>>();
	case GPU_TYPE_INT16:
		return what->template run<int16_t, integer_op<int16_t, uint16_t>>();
	case GPU_TYPE_UINT16:
		return what->template run<uint16_t, integer_op<uint16_t, uint16_t>>();
	case GPU_TYPE_INT32:
		return what->template run<int32_t, integer_op<int32_t, uint32_t>>();
	case GPU_TYPE_UINT32:
		return what->template run<uint32_t, integer_op<uint32_t, uint32_t>>();
	case GPU_TYPE_INT64:
		return what->template run<int64_t, integer_op<int64_t, uint64_t>>();
	case GPU_TYPE_UINT64:
		return what->template run<uint64_t, integer_op<uint64_t, uint64_t>>();
	case GPU_TYPE_FLOAT16:
		return what->template run<float16, float16_op>();
	case GPU_TYPE_BFLOAT16:
		return what->template run<bfloat16, bfloat16_op>();
	case GPU_TYPE_FLOAT:
		return what->template run<float, float_op<float>>();
	case GPU_TYPE_DOUBLE:
		return what->template run<double, float_op<double>>();
	case GPU_TYPE_COMPLEX_FLOAT:
		return what->template run<complex_of<float>, complex_op<float>>();
	case GPU_TYPE_COMPLEX_DOUBLE:
		return what->template run<complex_of<double>, complex_op<double>>();
	case GPU_TYPE_SHORT_INT:
		return what->template run<pair_of<int16_t, int32_t>, pair_op<int16_t, int32_t>>();
	case GPU_TYPE_INT_INT:
		return what->template run<pair_of<int32_t, int32_t>, pair_op<int32_t, int32_t>>();
	case GPU_TYPE_LONG_INT:
		return what->template run<pair_of<int64_t, int32_t>, pair_op<int64_t, int32_t>>();
	case GPU_TYPE_FLOAT_INT:
		return what->template run<pair_of<float, int32_t>, pair_op<float, int32_t>>();
	case GPU_TYPE_DOUBLE_INT:
		return what->template run<pair_of<double, int32_t>, pair_op<double, int32_t>>();
	case GPU_TYPE_FLOAT_FLOAT:
		return what->template run<pair_of<float, float>, pair_op<float, float>>();
	case GPU_TYPE_DOUBLE_DOUBLE:
		return what->template run<pair_of<double, double>, pair_op<double, double>>();
	}
}

#endif
