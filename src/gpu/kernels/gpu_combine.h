/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a block does with its part of a chunk: elements of the sources combined, in the order of the
 * sources, and stored to all targets; with one source a copy.
 *
 * Each source is read once and each target written once, 16 bytes at a time where alignment allows,
 * with several loads in flight. The order of the arithmetic is that of the sources whatever the
 * launch looks like, so results are the same on all ranks and from run to run. A target may be a
 * source: an element is read and written by one thread, in that order.
 */
#ifndef GPU_COMBINE_H
#define GPU_COMBINE_H

#include "gpu/kernels/gpu_ops.h"

/*
 * The addresses are in shared memory. Functions that are called, not inlined, take a chunk by
 * value: where its address is taken it is in local memory for all others, too, which the loops
 * would load it from again and again (gpu_execute's, for any type, do).
 */
struct gpu_chunk {
	const uint64_t *sources, *targets;
	uint32_t num_sources, num_targets, op;
	uint64_t bytes;
};

template <typename T, typename F>
GPU_DEVICE void gpu_fold(uint32_t op, struct gpu_vec *into, struct gpu_vec with)
{
	T a[GPU_VEC / sizeof(T)], b[GPU_VEC / sizeof(T)];

	memcpy(a, into, GPU_VEC);
	memcpy(b, &with, GPU_VEC);
	GPU_UNROLL
	for (unsigned i = 0; i < GPU_VEC / sizeof(T); i++)
		a[i] = F::apply(op, a[i], b[i]);
	memcpy(into, a, GPU_VEC);
}

/* Where code counts for more than speed; HOT: what programs spend their time in. */
template <typename T, typename F>
GPU_CALLED struct gpu_vec gpu_fold_called(uint32_t op, struct gpu_vec sum, struct gpu_vec with)
{
	gpu_fold<T, F>(op, &sum, with);
	return sum;
}

template <typename T, typename F, bool HOT>
GPU_DEVICE void gpu_fold_in(uint32_t op, struct gpu_vec *into, struct gpu_vec with)
{
	if (HOT)
		gpu_fold<T, F>(op, into, with);
	else
		*into = gpu_fold_called<T, F>(op, *into, with);
}

template <typename T, typename F>
GPU_DEVICE void gpu_fold_tile(uint32_t op, struct gpu_vec *sum, const struct gpu_vec *tile)
{
	GPU_UNROLL
	for (int i = 0; i < GPU_TILE; i++)
		gpu_fold<T, F>(op, &sum[i], tile[i]);
}

/* Sources are loaded two, or four, ahead of the arithmetic. */
template <typename T, typename F>
GPU_DEVICE void gpu_combine_tile(const struct gpu_chunk *c, uint64_t at, uint64_t step)
{
	struct gpu_vec sum[GPU_TILE], tile[2][GPU_TILE];
	uint32_t s;

	gpu_load_tile(sum, c->sources[0] + at, step);
	GPU_ROLLED
	for (s = 1; s + 1 < c->num_sources; s += 2) {
		gpu_load_tile(tile[0], c->sources[s] + at, step);
		gpu_load_tile(tile[1], c->sources[s + 1] + at, step);
		gpu_fold_tile<T, F>(c->op, sum, tile[0]);
		gpu_fold_tile<T, F>(c->op, sum, tile[1]);
	}
	if (s < c->num_sources) {
		gpu_load_tile(tile[0], c->sources[s] + at, step);
		gpu_fold_tile<T, F>(c->op, sum, tile[0]);
	}
	GPU_ROLLED
	for (uint32_t t = 0; t < c->num_targets; t++)
		gpu_store_tile(sum, c->targets[t] + at, step);
}

enum { GPU_AHEAD = 4 };

template <typename T, typename F, bool HOT>
GPU_DEVICE void gpu_combine_vec(const struct gpu_chunk *c, uint64_t at)
{
	struct gpu_vec sum = gpu_load_vec(c->sources[0] + at), vecs[GPU_AHEAD] = {};

	GPU_ROLLED
	for (uint32_t s = 1; s < c->num_sources; s += GPU_AHEAD) {
		GPU_UNROLL
		for (uint32_t i = 0; i < GPU_AHEAD; i++) {
			if (s + i < c->num_sources)
				vecs[i] = gpu_load_vec(c->sources[s + i] + at);
		}
		GPU_UNROLL
		for (uint32_t i = 0; i < GPU_AHEAD; i++) {
			if (s + i < c->num_sources)
				gpu_fold_in<T, F, HOT>(c->op, &sum, vecs[i]);
		}
	}
	GPU_ROLLED
	for (uint32_t t = 0; t < c->num_targets; t++)
		gpu_store_vec(c->targets[t] + at, sum);
}

/* `vecs` 16-byte words from `at` on, where all addresses are aligned. */
template <typename T, typename F, bool HOT>
GPU_DEVICE void gpu_combine_vecs(const struct gpu_chunk *c, uint64_t at, uint64_t vecs)
{
	uint64_t thread = gpu_thread(), threads = gpu_threads(), tile = GPU_TILE * threads;
	uint64_t tiled = HOT ? vecs / tile * tile : 0;

	GPU_ROLLED
	for (uint64_t i = 0; i < tiled; i += tile)
		gpu_combine_tile<T, F>(c, at + GPU_VEC * (i + thread), GPU_VEC * threads);
	GPU_ROLLED
	for (uint64_t i = tiled + thread; i < vecs; i += threads)
		gpu_combine_vec<T, F, HOT>(c, at + GPU_VEC * i);
}

template <typename T, bool ALIGNED> GPU_DEVICE T gpu_load_element(uint64_t address)
{
	return ALIGNED ? element_of<T>::load(address) : element_of<T>::load_bytes(address);
}

template <typename T, typename F, bool ALIGNED>
GPU_DEVICE void gpu_combine_element(const struct gpu_chunk *c, uint64_t at)
{
	T sum = gpu_load_element<T, ALIGNED>(c->sources[0] + at);

	GPU_ROLLED
	for (uint32_t s = 1; s < c->num_sources; s++)
		sum = F::apply(c->op, sum, gpu_load_element<T, ALIGNED>(c->sources[s] + at));
	GPU_ROLLED
	for (uint32_t t = 0; t < c->num_targets; t++) {
		if (ALIGNED)
			element_of<T>::store(c->targets[t] + at, sum);
		else
			element_of<T>::store_bytes(c->targets[t] + at, sum);
	}
}

/* Bytes [first, end), whole elements. */
template <typename T, typename F, bool ALIGNED>
GPU_DEVICE void gpu_combine_elements(const struct gpu_chunk *c, uint64_t first, uint64_t end)
{
	uint64_t stride = gpu_threads() * sizeof(T);

	GPU_ROLLED
	for (uint64_t at = first + gpu_thread() * sizeof(T); at < end; at += stride)
		gpu_combine_element<T, F, ALIGNED>(c, at);
}

/* In which of the low four bits the addresses differ from the first. */
GPU_DEVICE uint64_t gpu_differing_bits(const struct gpu_chunk *c)
{
	uint64_t differ = 0, first = c->sources[0];

	GPU_ROLLED
	for (uint32_t s = 1; s < c->num_sources; s++)
		differ |= c->sources[s] ^ first;
	GPU_ROLLED
	for (uint32_t t = 0; t < c->num_targets; t++)
		differ |= c->targets[t] ^ first;
	return differ & (GPU_VEC - 1);
}

template <typename T, typename F, bool HOT> GPU_DEVICE void gpu_combine(const struct gpu_chunk *c)
{
	uint64_t differ = gpu_differing_bits(c), first = c->sources[0], head, body;

	if ((differ | first) & (alignof(T) - 1)) {
		gpu_combine_elements<T, F, false>(c, 0, c->bytes);
		return;
	}
	if (element_of<T>::IS_PADDED || differ || (first & (sizeof(T) - 1))) {
		gpu_combine_elements<T, F, true>(c, 0, c->bytes);
		return;
	}
	head = -first & (GPU_VEC - 1);
	head = head < c->bytes ? head : c->bytes;
	body = (c->bytes - head) / GPU_VEC * GPU_VEC;
	gpu_combine_elements<T, F, true>(c, 0, head);
	gpu_combine_vecs<T, F, HOT>(c, head, body / GPU_VEC);
	gpu_combine_elements<T, F, true>(c, head + body, c->bytes);
}

/* ---- copies ---- */

template <typename T> struct gpu_no_op {
	GPU_DEVICE T apply(uint32_t, T a, T)
	{
		return a;
	}
};

/* Units in bytes [first, end); several loads are under way at a time. */
template <typename T>
GPU_DEVICE void gpu_copy_units(const struct gpu_chunk *c, uint64_t first, uint64_t end)
{
	uint64_t stride = gpu_threads() * sizeof(T);
	T values[GPU_AHEAD] = {};

	GPU_ROLLED
	for (uint64_t at = first + gpu_thread() * sizeof(T); at < end; at += GPU_AHEAD * stride) {
		GPU_UNROLL
		for (unsigned i = 0; i < GPU_AHEAD; i++) {
			if (at + i * stride < end)
				values[i] = gpu_load<T>(c->sources[0] + at + i * stride);
		}
		GPU_ROLLED
		for (uint32_t t = 0; t < c->num_targets; t++) {
			GPU_UNROLL
			for (unsigned i = 0; i < GPU_AHEAD; i++) {
				if (at + i * stride < end)
					gpu_store<T>(c->targets[t] + at + i * stride, values[i]);
			}
		}
	}
}

/* In units to which all addresses are aligned alike, with bytes before and after. */
template <typename T> GPU_DEVICE void gpu_copy_by(const struct gpu_chunk *c)
{
	uint64_t head = -c->sources[0] & (sizeof(T) - 1), body;

	head = head < c->bytes ? head : c->bytes;
	body = (c->bytes - head) / sizeof(T) * sizeof(T);
	gpu_copy_units<uint8_t>(c, 0, head);
	gpu_copy_units<T>(c, head, head + body);
	gpu_copy_units<uint8_t>(c, head + body, c->bytes);
}

GPU_CALLED void gpu_copy(struct gpu_chunk chunk)
{
	const struct gpu_chunk *c = &chunk;
	uint64_t differ = gpu_differing_bits(c);

	if (!differ)
		gpu_combine<uint8_t, gpu_no_op<uint8_t>, true>(c);
	else if (!(differ & 7))
		gpu_copy_by<uint64_t>(c);
	else if (!(differ & 3))
		gpu_copy_by<uint32_t>(c);
	else if (!(differ & 1))
		gpu_copy_by<uint16_t>(c);
	else
		gpu_copy_by<uint8_t>(c);
}

#endif
