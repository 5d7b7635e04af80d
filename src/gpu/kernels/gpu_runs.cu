/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_copy_runs: the bytes of datatypes with irregular gaps, between device memory and pinned host memory.
 *
 * When: a datatype has so many runs that one copy of the driver for each would cost more than a launch. Cost: one thread
 * a run, which favours many short runs; the long and the regular ones go to the copy engines (core_stage.c).
 */
#include "gpu/kernels/gpu_kernel.h"
#include "gpu/kernels/gpu_runs.h"

GPU_DEVICE void copy_run(uint64_t to, uint64_t from, uint64_t length)
{
	uint64_t i = 0;

	if (((to | from) & 7) == 0) {
		for (; i + 8 <= length; i += 8)
			gpu_store64(to + i, gpu_load64(from + i));
	}
	for (; i < length; i++)
		gpu_store8(to + i, gpu_load8(from + i));
}

GPU_KERNEL(gpu_copy_runs, struct gpu_copy_runs_args)
{
	uint64_t total = args.num_runs * args.num_elements;
	uint64_t stride = (uint64_t)gpu_blocks() * gpu_threads();

	for (uint64_t i = (uint64_t)gpu_block() * gpu_threads() + gpu_thread(); i < total; i += stride) {
		uint64_t run = args.runs + i % args.num_runs * sizeof(struct gpu_run);
		uint64_t shift = i / args.num_runs * (uint64_t)args.extent + gpu_load64(run);

		copy_run(args.to + shift, args.from + shift, gpu_load64(run + 8));
	}
}
