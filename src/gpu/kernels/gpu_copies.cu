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

/* Which of how many blocks share a copy. */
struct team {
	uint64_t member, size;
};

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

GPU_DEVICE void copy_vecs(struct team team, uint64_t to, uint64_t from, uint64_t vecs, bool swap)
{
	uint64_t thread = gpu_thread(), threads = gpu_threads(), tile_vecs = GPU_TILE * threads;
	struct gpu_share share = gpu_share_of(vecs, tile_vecs, team.member, team.size);

	for (uint64_t i = share.first; i < share.last; i += tile_vecs) {
		uint64_t at = GPU_VEC * (i + thread);

		copy_tile(to + at, from + at, GPU_VEC * threads, swap);
	}
	for (uint64_t i = share.last + thread; i < share.end; i += threads)
		copy_vec(to + GPU_VEC * i, from + GPU_VEC * i, swap);
}

enum { AHEAD = 4 };

/* Units of a type to which both addresses are aligned. */
template <typename T> GPU_DEVICE void copy_units(struct team team, uint64_t to, uint64_t from, uint64_t units, bool swap)
{
	uint64_t stride = team.size * gpu_threads(), first = team.member * gpu_threads() + gpu_thread();
	T values[AHEAD] = {}, others[AHEAD] = {};

	for (uint64_t i = first; i < units; i += AHEAD * stride) {
		GPU_UNROLL
		for (unsigned j = 0; j < AHEAD; j++) {
			uint64_t at = (i + j * stride) * sizeof(T);

			if (i + j * stride < units) {
				values[j] = gpu_load<T>(from + at);
				others[j] = swap ? gpu_load<T>(to + at) : 0;
			}
		}
		GPU_UNROLL
		for (unsigned j = 0; j < AHEAD; j++) {
			uint64_t at = (i + j * stride) * sizeof(T);

			if (i + j * stride >= units)
				break;
			if (swap)
				gpu_store<T>(from + at, others[j]);
			gpu_store<T>(to + at, values[j]);
		}
	}
}

/* Head and tail in bytes, the rest in units of T. */
template <typename T> GPU_DEVICE void copy_by(struct team team, struct gpu_copy c, bool swap)
{
	uint64_t head = -c.to & (sizeof(T) - 1), units, body;

	head = head < c.bytes ? head : c.bytes;
	units = (c.bytes - head) / sizeof(T);
	body = units * sizeof(T);
	copy_units<uint8_t>(team, c.to, c.from, head, swap);
	copy_units<T>(team, c.to + head, c.from + head, units, swap);
	copy_units<uint8_t>(team, c.to + head + body, c.from + head + body, c.bytes - head - body, swap);
}

GPU_DEVICE void copy_aligned_alike(struct team team, struct gpu_copy c, bool swap)
{
	uint64_t head = -c.to & (GPU_VEC - 1), vecs, body;

	head = head < c.bytes ? head : c.bytes;
	vecs = (c.bytes - head) / GPU_VEC;
	body = vecs * GPU_VEC;
	copy_units<uint8_t>(team, c.to, c.from, head, swap);
	copy_vecs(team, c.to + head, c.from + head, vecs, swap);
	copy_units<uint8_t>(team, c.to + head + body, c.from + head + body, c.bytes - head - body, swap);
}

GPU_DEVICE void copy(struct team team, struct gpu_copy c, bool swap)
{
	uint64_t differ = c.to ^ c.from;

	if (!(differ & (GPU_VEC - 1)))
		copy_aligned_alike(team, c, swap);
	else if (!(differ & 7))
		copy_by<uint64_t>(team, c, swap);
	else if (!(differ & 3))
		copy_by<uint32_t>(team, c, swap);
	else if (!(differ & 1))
		copy_by<uint16_t>(team, c, swap);
	else
		copy_units<uint8_t>(team, c.to, c.from, c.bytes, swap);
}

/* All blocks share each copy, or, where there are enough for all, each copy has a team of its own. */
GPU_KERNEL(gpu_copies, struct gpu_copies_args)
{
	struct team all = {gpu_block(), gpu_blocks()};
	uint64_t mine = gpu_block() % args.num;
	struct team team = {gpu_block() / args.num, (gpu_blocks() - mine + args.num - 1) / args.num};

	if (args.teams)
		copy(team, args.copies[mine], args.swap != 0);
	for (uint32_t i = 0; i < args.num && !args.teams; i++)
		copy(all, args.copies[i], args.swap != 0);
	gpu_block_done(args.done);
}
