/* SPDX-License-Identifier: BSD-3-Clause */
/* What a block does with its part of two places that are swapped: an alltoall in place. */
#ifndef GPU_SWAP_H
#define GPU_SWAP_H

#include "gpu/kernels/gpu_combine.h"

template <typename T>
GPU_DEVICE void gpu_swap_units(uint64_t a, uint64_t b, uint64_t first, uint64_t end)
{
	uint64_t stride = gpu_threads() * sizeof(T);
	T values[GPU_AHEAD] = {}, others[GPU_AHEAD] = {};

	GPU_ROLLED
	for (uint64_t at = first + gpu_thread() * sizeof(T); at < end; at += GPU_AHEAD * stride) {
		GPU_UNROLL
		for (unsigned i = 0; i < GPU_AHEAD; i++) {
			if (at + i * stride < end) {
				values[i] = gpu_load<T>(a + at + i * stride);
				others[i] = gpu_load<T>(b + at + i * stride);
			}
		}
		GPU_UNROLL
		for (unsigned i = 0; i < GPU_AHEAD; i++) {
			if (at + i * stride < end) {
				gpu_store<T>(a + at + i * stride, others[i]);
				gpu_store<T>(b + at + i * stride, values[i]);
			}
		}
	}
}

template <typename T> GPU_DEVICE void gpu_swap_by(uint64_t a, uint64_t b, uint64_t bytes)
{
	uint64_t head = -a & (sizeof(T) - 1), body;

	head = head < bytes ? head : bytes;
	body = (bytes - head) / sizeof(T) * sizeof(T);
	gpu_swap_units<uint8_t>(a, b, 0, head);
	gpu_swap_units<T>(a, b, head, head + body);
	gpu_swap_units<uint8_t>(a, b, head + body, bytes);
}

/* The two places, which do not overlap, are the chunk's sources. */
GPU_CALLED void gpu_swap(struct gpu_chunk c)
{
	uint64_t a = c.sources[0], b = c.sources[1], differ = a ^ b;

	if (!(differ & (GPU_VEC - 1)))
		gpu_swap_by<struct gpu_vec>(a, b, c.bytes);
	else if (!(differ & 7))
		gpu_swap_by<uint64_t>(a, b, c.bytes);
	else if (!(differ & 3))
		gpu_swap_by<uint32_t>(a, b, c.bytes);
	else
		gpu_swap_by<uint8_t>(a, b, c.bytes);
}

#endif
