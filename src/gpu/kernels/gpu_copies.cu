/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_copies: what the direct broadcast, gathers, scatters and exchanges do between arrival and completion: bytes copied
 * between mapped buffers, or swapped where an exchange is in place.
 *
 * When: always, on mapped memory. Cost: each byte read once and written once. Any alignment; fastest where source and
 * destination are aligned alike.
 */
#include "gpu/kernels/gpu_direct.h"
#include "gpu/kernels/gpu_kernel.h"

GPU_DEVICE void copy_tile(uint64_t to, uint64_t from, uint64_t step, bool swap)
{
	struct gpu_vec tile[GPU_TILE], other[GPU_TILE];

	gpu_load_tile(tile, from, step);
	if (swap) {
		gpu_load_tile(other, to, step);
		gpu_store_tile(other, from, step);
	}
	gpu_store_tile(tile, to, step);
}

GPU_DEVICE void copy_vec(uint64_t to, uint64_t from, bool swap)
{
	struct gpu_vec vec = gpu_load_vec(from);

	if (swap)
		gpu_store_vec(from, gpu_load_vec(to));
	gpu_store_vec(to, vec);
}

GPU_DEVICE void copy_vecs(uint64_t to, uint64_t from, uint64_t vecs, bool swap)
{
	uint64_t thread = gpu_thread(), threads = gpu_threads(), tile_vecs = GPU_TILE * threads;
	struct gpu_share share = gpu_share_of(vecs, tile_vecs);

	for (uint64_t i = share.first; i < share.last; i += tile_vecs) {
		uint64_t at = GPU_VEC * (i + thread);

		copy_tile(to + at, from + at, GPU_VEC * threads, swap);
	}
	for (uint64_t i = share.last + thread; i < share.end; i += threads)
		copy_vec(to + GPU_VEC * i, from + GPU_VEC * i, swap);
}

/* Units of 1, 4 or 8 bytes, to which both addresses are aligned. */
GPU_DEVICE void copy_units(uint64_t to, uint64_t from, uint64_t units, unsigned unit, bool swap)
{
	uint64_t stride = (uint64_t)gpu_blocks() * gpu_threads();

	for (uint64_t i = (uint64_t)gpu_block() * gpu_threads() + gpu_thread(); i < units; i += stride) {
		uint64_t value = 0, other = 0;

		gpu_load_bytes(&value, from + i * unit, unit);
		if (swap) {
			gpu_load_bytes(&other, to + i * unit, unit);
			gpu_store_bytes(from + i * unit, &other, unit);
		}
		gpu_store_bytes(to + i * unit, &value, unit);
	}
}

GPU_DEVICE void copy(struct gpu_copy c, bool swap)
{
	uint64_t differ = c.to ^ c.from;
	uint64_t head = -c.to & (GPU_VEC - 1), body;
	unsigned unit = (differ & 7) == 0 ? 8 : (differ & 3) == 0 ? 4 : 1;

	if ((differ & (GPU_VEC - 1)) == 0) {
		head = head < c.bytes ? head : c.bytes;
		body = (c.bytes - head) / GPU_VEC;
		copy_vecs(c.to + head, c.from + head, body, swap);
		body *= GPU_VEC;
	} else {
		head = -c.to & (unit - 1);
		head = head < c.bytes ? head : c.bytes;
		body = (c.bytes - head) / unit;
		copy_units(c.to + head, c.from + head, body, unit, swap);
		body *= unit;
	}
	copy_units(c.to, c.from, head, 1, swap);
	copy_units(c.to + head + body, c.from + head + body, c.bytes - head - body, 1, swap);
}

GPU_KERNEL(gpu_copies, struct gpu_copies_args)
{
	for (uint32_t i = 0; i < args.num; i++)
		copy(args.copies[i], args.swap != 0);
	gpu_block_done(args.done);
}
