/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel for the emulator's own tests: each block shifts its numbers round by one, with or
 * without the barrier.
 */
#include "gpu/kernels/gpu_kernel.h"

struct emu_rotate_args {
	uint64_t array, barrier;
};

GPU_KERNEL(emu_rotate, struct emu_rotate_args)
{
	GPU_SHARED uint64_t numbers[64];
	unsigned threads = gpu_threads(), thread = gpu_thread();
	uint64_t mine = args.array + ((uint64_t)gpu_block() * threads + thread) * 8;

	numbers[thread] = 0;
	gpu_block_barrier();
	numbers[thread] = gpu_load64(mine);
	if (args.barrier)
		gpu_block_barrier();
	gpu_store64(mine, numbers[(thread + 1) % threads]);
}
