/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_reduce: what the direct reductions do between arrival and completion: elements of several mapped buffers combined,
 * in the order of the sources, and stored to one or several others.
 *
 * When: always, on mapped memory. Cost: each source read once, each target written once. The order is that of the ranks
 * whatever the launch looks like, so results are the same on all ranks and from run to run. A target may be a source: an
 * element is read and written by one thread, in that order.
 *
 * The pairs that programs spend their time in have kernels of their own; gpu_reduce chooses type and operation at run
 * time, which costs arithmetic that memory hides for all but the narrowest types.
 */
#include "gpu/kernels/gpu_direct.h"
#include "gpu/kernels/gpu_half.h"
#include "gpu/kernels/gpu_kernel.h"

/* ---- operations on one element ---- */

template <typename T> struct complex_of {
	T re, im;
};

template <typename V, typename I> struct pair_of {
	V value;
	I index;
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
		return a > b ? a : b;
	default:
		return a < b ? a : b;
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
		float r = apply_arithmetic<float>(op, gpu_float16_to_float(a.bits), gpu_float16_to_float(b.bits));

		return float16{gpu_float16_from_float(r)};
	}
};

struct bfloat16_op {
	GPU_DEVICE bfloat16 apply(uint32_t op, bfloat16 a, bfloat16 b)
	{
		float r = apply_arithmetic<float>(op, gpu_bfloat16_to_float(a.bits), gpu_bfloat16_to_float(b.bits));

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

/* ---- elements in 16-byte words ---- */

template <typename T, typename F> GPU_DEVICE void fold(uint32_t op, struct gpu_vec *into, struct gpu_vec with)
{
	T a[GPU_VEC / sizeof(T)], b[GPU_VEC / sizeof(T)];

	memcpy(a, into, GPU_VEC);
	memcpy(b, &with, GPU_VEC);
	GPU_UNROLL
	for (unsigned i = 0; i < GPU_VEC / sizeof(T); i++)
		a[i] = F::apply(op, a[i], b[i]);
	memcpy(into, a, GPU_VEC);
}

/* Sources are loaded two, or four, ahead of the arithmetic, whose order stays that of the ranks. */
template <typename T, typename F> GPU_DEVICE void fold_tile(uint32_t op, struct gpu_vec *sum, const struct gpu_vec *tile)
{
	GPU_UNROLL
	for (int i = 0; i < GPU_TILE; i++)
		fold<T, F>(op, &sum[i], tile[i]);
}

template <typename T, typename F> GPU_DEVICE void reduce_tile(const struct gpu_reduce_args &args, uint64_t at, uint64_t step)
{
	struct gpu_vec sum[GPU_TILE], tile[2][GPU_TILE];
	uint32_t s;

	gpu_load_tile(sum, args.sources[0] + at, step);
	for (s = 1; s + 1 < args.num_sources; s += 2) {
		gpu_load_tile(tile[0], args.sources[s] + at, step);
		gpu_load_tile(tile[1], args.sources[s + 1] + at, step);
		fold_tile<T, F>(args.op, sum, tile[0]);
		fold_tile<T, F>(args.op, sum, tile[1]);
	}
	if (s < args.num_sources) {
		gpu_load_tile(tile[0], args.sources[s] + at, step);
		fold_tile<T, F>(args.op, sum, tile[0]);
	}
	for (uint32_t t = 0; t < args.num_targets; t++)
		gpu_store_tile(sum, args.targets[t] + at, step);
}

enum { AHEAD = 4 };

template <typename T, typename F> GPU_DEVICE void reduce_vec(const struct gpu_reduce_args &args, uint64_t at)
{
	struct gpu_vec sum = gpu_load_vec(args.sources[0] + at), vecs[AHEAD] = {};

	for (uint32_t s = 1; s < args.num_sources; s += AHEAD) {
		GPU_UNROLL
		for (uint32_t i = 0; i < AHEAD; i++) {
			if (s + i < args.num_sources)
				vecs[i] = gpu_load_vec(args.sources[s + i] + at);
		}
		GPU_UNROLL
		for (uint32_t i = 0; i < AHEAD; i++) {
			if (s + i < args.num_sources)
				fold<T, F>(args.op, &sum, vecs[i]);
		}
	}
	for (uint32_t t = 0; t < args.num_targets; t++)
		gpu_store_vec(args.targets[t] + at, sum);
}

/* Words [0, vecs) from `at` on, where all addresses are 16-byte aligned. Tiles make code long, so only the pairs that
 * have kernels of their own have them. */
template <typename T, typename F, bool TILES> GPU_DEVICE void reduce_vecs(const struct gpu_reduce_args &args, uint64_t at, uint64_t vecs)
{
	uint64_t thread = gpu_thread(), threads = gpu_threads(), tile_vecs = GPU_TILE * threads;
	struct gpu_share share = gpu_share_of(vecs, tile_vecs, gpu_block(), gpu_blocks());

	if (!TILES)
		share.last = share.first;
	for (uint64_t i = share.first; i < share.last; i += tile_vecs)
		reduce_tile<T, F>(args, at + GPU_VEC * (i + thread), GPU_VEC * threads);
	for (uint64_t i = share.last + thread; i < share.end; i += threads)
		reduce_vec<T, F>(args, at + GPU_VEC * i);
}

template <typename T, bool ALIGNED> GPU_DEVICE T load_element(uint64_t address)
{
	return ALIGNED ? gpu_load<T>(address) : gpu_load_bytes<T>(address);
}

template <typename T, typename F, bool ALIGNED> GPU_DEVICE void reduce_element(const struct gpu_reduce_args &args, uint64_t at)
{
	T sum = load_element<T, ALIGNED>(args.sources[0] + at), others[AHEAD] = {};

	for (uint32_t s = 1; s < args.num_sources; s += AHEAD) {
		GPU_UNROLL
		for (uint32_t i = 0; i < AHEAD; i++) {
			if (s + i < args.num_sources)
				others[i] = load_element<T, ALIGNED>(args.sources[s + i] + at);
		}
		GPU_UNROLL
		for (uint32_t i = 0; i < AHEAD; i++) {
			if (s + i < args.num_sources)
				sum = F::apply(args.op, sum, others[i]);
		}
	}
	for (uint32_t t = 0; t < args.num_targets; t++) {
		if (ALIGNED)
			gpu_store<T>(args.targets[t] + at, sum);
		else
			gpu_store_bytes<T>(args.targets[t] + at, sum);
	}
}

/* Elements [first, end). */
template <typename T, typename F, bool ALIGNED> GPU_DEVICE void reduce_elements(const struct gpu_reduce_args &args, uint64_t first, uint64_t end)
{
	uint64_t stride = (uint64_t)gpu_blocks() * gpu_threads();

	for (uint64_t i = first + (uint64_t)gpu_block() * gpu_threads() + gpu_thread(); i < end; i += stride)
		reduce_element<T, F, ALIGNED>(args, i * sizeof(T));
}

/* In which of the low four bits the addresses differ from the first, and that one's own. */
GPU_DEVICE uint64_t differing_bits(const struct gpu_reduce_args &args)
{
	uint64_t differ = 0, first = args.sources[0];

	for (uint32_t s = 1; s < args.num_sources; s++)
		differ |= args.sources[s] ^ first;
	for (uint32_t t = 0; t < args.num_targets; t++)
		differ |= args.targets[t] ^ first;
	return differ & (GPU_VEC - 1);
}

template <typename T, typename F, bool TILES = false> GPU_DEVICE void reduce(const struct gpu_reduce_args &args)
{
	uint64_t per_vec = GPU_VEC / sizeof(T), differ = differing_bits(args), first = args.sources[0], head, vecs;

	if ((differ | first) & (alignof(T) - 1)) {
		reduce_elements<T, F, false>(args, 0, args.count);
		return;
	}
	if (differ || (first & (sizeof(T) - 1))) {
		reduce_elements<T, F, true>(args, 0, args.count);
		return;
	}
	head = (-first & (GPU_VEC - 1)) / sizeof(T);
	head = head < args.count ? head : args.count;
	vecs = (args.count - head) / per_vec;
	reduce_elements<T, F, true>(args, 0, head);
	reduce_vecs<T, F, TILES>(args, head * sizeof(T), vecs);
	reduce_elements<T, F, true>(args, head + vecs * per_vec, args.count);
}

template <typename T, typename U> GPU_DEVICE void reduce_integers(const struct gpu_reduce_args &args)
{
	reduce<T, integer_op<T, U>>(args);
}

template <typename V, typename I> GPU_DEVICE void reduce_pairs(const struct gpu_reduce_args &args)
{
	reduce<pair_of<V, I>, pair_op<V, I>>(args);
}

GPU_DEVICE void reduce_any(const struct gpu_reduce_args &args)
{
	switch (args.type) {
	case GPU_TYPE_INT8:
		return reduce_integers<int8_t, uint8_t>(args);
	case GPU_TYPE_UINT8:
		return reduce_integers<uint8_t, uint8_t>(args);
	case GPU_TYPE_INT16:
		return reduce_integers<int16_t, uint16_t>(args);
	case GPU_TYPE_UINT16:
		return reduce_integers<uint16_t, uint16_t>(args);
	case GPU_TYPE_INT32:
		return reduce_integers<int32_t, uint32_t>(args);
	case GPU_TYPE_UINT32:
		return reduce_integers<uint32_t, uint32_t>(args);
	case GPU_TYPE_INT64:
		return reduce_integers<int64_t, uint64_t>(args);
	case GPU_TYPE_UINT64:
		return reduce_integers<uint64_t, uint64_t>(args);
	case GPU_TYPE_FLOAT16:
		return reduce<float16, float16_op>(args);
	case GPU_TYPE_BFLOAT16:
		return reduce<bfloat16, bfloat16_op>(args);
	case GPU_TYPE_FLOAT:
		return reduce<float, float_op<float>>(args);
	case GPU_TYPE_DOUBLE:
		return reduce<double, float_op<double>>(args);
	case GPU_TYPE_COMPLEX_FLOAT:
		return reduce<complex_of<float>, complex_op<float>>(args);
	case GPU_TYPE_COMPLEX_DOUBLE:
		return reduce<complex_of<double>, complex_op<double>>(args);
	case GPU_TYPE_SHORT_INT:
		return reduce_pairs<int16_t, int32_t>(args);
	case GPU_TYPE_INT_INT:
		return reduce_pairs<int32_t, int32_t>(args);
	case GPU_TYPE_LONG_INT:
		return reduce_pairs<int64_t, int32_t>(args);
	case GPU_TYPE_FLOAT_INT:
		return reduce_pairs<float, int32_t>(args);
	case GPU_TYPE_DOUBLE_INT:
		return reduce_pairs<double, int32_t>(args);
	case GPU_TYPE_FLOAT_FLOAT:
		return reduce_pairs<float, float>(args);
	case GPU_TYPE_DOUBLE_DOUBLE:
		return reduce_pairs<double, double>(args);
	}
}

GPU_KERNEL(gpu_reduce, struct gpu_reduce_args)
{
	reduce_any(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_float_sum, struct gpu_reduce_args)
{
	reduce<float, fixed_op<GPU_OP_SUM, float_op<float>, float>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_double_sum, struct gpu_reduce_args)
{
	reduce<double, fixed_op<GPU_OP_SUM, float_op<double>, double>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_int32_sum, struct gpu_reduce_args)
{
	reduce<int32_t, fixed_op<GPU_OP_SUM, integer_op<int32_t, uint32_t>, int32_t>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_int64_sum, struct gpu_reduce_args)
{
	reduce<int64_t, fixed_op<GPU_OP_SUM, integer_op<int64_t, uint64_t>, int64_t>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_float16_sum, struct gpu_reduce_args)
{
	reduce<float16, fixed_op<GPU_OP_SUM, float16_op, float16>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_bfloat16_sum, struct gpu_reduce_args)
{
	reduce<bfloat16, fixed_op<GPU_OP_SUM, bfloat16_op, bfloat16>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_float_max, struct gpu_reduce_args)
{
	reduce<float, fixed_op<GPU_OP_MAX, float_op<float>, float>, true>(args);
	gpu_block_done(args.done);
}

GPU_KERNEL(gpu_reduce_double_max, struct gpu_reduce_args)
{
	reduce<double, fixed_op<GPU_OP_MAX, float_op<double>, double>, true>(args);
	gpu_block_done(args.done);
}
