/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_probe: whether as many blocks of every rank's as a fused collective may have run at the same
 * time.
 *
 * When: before the first fused collective of ranks that share a GPU. Contexts that are time-sliced
 * take turns of a millisecond and more; blocks that run together meet within microseconds. So all
 * wait for all, patiently at first, since ranks do not start at the same moment, and then several
 * times more within a bound. Contexts that take turns come well within the patience, too: who has
 * not come by then was late, which says nothing of how kernels run.
 *
 * The word of block b of rank r, in every rank's arena: writer, that block; readers, all blocks of
 * the arena's rank. It counts the rounds in which the block came, above the call's number. Release
 * and acquire order nothing but the words.
 */
#include "gpu/kernels/gpu_kernel.h"
#include "gpu/kernels/gpu_program.h"

GPU_DEVICE uint64_t word_in(uint64_t arena, uint64_t rank)
{
	return arena + GPU_ARENA_SEEN + 8 * (rank * gpu_blocks() + gpu_block());
}

GPU_DEVICE void come(const struct gpu_probe_args &args, uint64_t round)
{
	for (uint32_t i = 0; i < args.ranks; i++)
		gpu_store_release(word_in(i == args.rank ? args.mine : args.theirs[i], args.rank),
				  args.epoch + round);
}

GPU_DEVICE bool all_come(const struct gpu_probe_args &args, uint64_t round, uint64_t until)
{
	uint64_t words = args.mine + GPU_ARENA_SEEN;

	for (uint64_t i = 0; i < (uint64_t)args.ranks * gpu_blocks(); i++) {
		while (gpu_load_acquire(words + 8 * i) < args.epoch + round) {
			if (gpu_clock() > until)
				return false;
			gpu_pause();
		}
	}
	return true;
}

GPU_DEVICE enum gpu_end meet(const struct gpu_probe_args &args)
{
	uint64_t until = gpu_clock() + args.patience;

	for (uint64_t round = 1; round <= GPU_PROBE_ROUNDS; round++) {
		come(args, round);
		if (!all_come(args, round, until))
			return round == 1 ? GPU_END_LATE : GPU_END_ABORTED;
		if (round == 1)
			until = gpu_clock() + GPU_PROBE_ROUNDS * args.round_trip;
	}
	return GPU_END_DONE;
}

GPU_KERNEL(gpu_probe, struct gpu_probe_args)
{
	GPU_SHARED uint32_t end;

	if (gpu_thread() == 0)
		end = meet(args);
	gpu_block_barrier();
	gpu_block_done(args.done, end);
}
