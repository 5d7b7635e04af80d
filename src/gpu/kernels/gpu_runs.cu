/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_copy_runs, gpu_pack: the bytes of datatypes with irregular gaps, between device memory and
 * pinned host memory.
 *
 * When: a datatype has so many runs that one copy of the driver for each would cost more than a
 * launch. Cost: one thread a run, which favours many short runs; the long and the regular ones go
 * to the copy engines (core_stage.c).
 */
#include "gpu/kernels/gpu_kernel.h"
#include "gpu/kernels/gpu_runs.h"

/* One of `lanes` threads that copy a run in units, one after the other. */
template <typename T>
GPU_DEVICE void copy_units(uint64_t to, uint64_t from, uint64_t length, uint32_t lane,
			   uint32_t lanes)
{
	for (uint64_t i = (uint64_t)lane * sizeof(T); i + sizeof(T) <= length;
	     i += (uint64_t)lanes * sizeof(T))
		gpu_store<T>(to + i, gpu_load<T>(from + i));
}

GPU_DEVICE void copy_shared(uint64_t to, uint64_t from, uint64_t length, uint32_t lane,
			    uint32_t lanes)
{
	uint64_t unit = ((to | from) & 15) == 0  ? 16
			: ((to | from) & 7) == 0 ? 8
			: ((to | from) & 3) == 0 ? 4
						 : 1;
	uint64_t whole = length / unit * unit;

	if (unit == 16)
		copy_units<struct gpu_vec>(to, from, whole, lane, lanes);
	else if (unit == 8)
		copy_units<uint64_t>(to, from, whole, lane, lanes);
	else if (unit == 4)
		copy_units<uint32_t>(to, from, whole, lane, lanes);
	else
		copy_units<uint8_t>(to, from, whole, lane, lanes);
	for (uint64_t i = whole + lane; i < length; i += lanes)
		gpu_store8(to + i, gpu_load8(from + i));
}

GPU_KERNEL(gpu_copy_runs, struct gpu_copy_runs_args)
{
	uint64_t total = args.num_runs * args.num_elements;
	uint64_t stride = (uint64_t)gpu_blocks() * gpu_threads();

	for (uint64_t i = (uint64_t)gpu_block() * gpu_threads() + gpu_thread(); i < total;
	     i += stride) {
		uint64_t run = args.runs + i % args.num_runs * sizeof(struct gpu_run);
		uint64_t shift = i / args.num_runs * (uint64_t)args.extent + gpu_load64(run);

		copy_shared(args.to + shift, args.from + shift, gpu_load64(run + 8), 0, 1);
	}
}

GPU_DEVICE struct gpu_dense_run run_of(const struct gpu_pack_args &args, uint64_t index)
{
	uint64_t at = args.runs + index * sizeof(struct gpu_dense_run);
	struct gpu_dense_run run = {args.pitch * (int64_t)index, args.length, args.length * index};

	if (args.runs)
		run = {(int64_t)gpu_load64(at), gpu_load64(at + 8), gpu_load64(at + 16)};
	return run;
}

GPU_KERNEL(gpu_pack, struct gpu_pack_args)
{
	uint32_t lanes = 1u << args.lanes_shift;
	uint64_t total = args.num_runs * args.num_elements << args.lanes_shift;
	uint64_t stride = (uint64_t)gpu_blocks() * gpu_threads();

	for (uint64_t i = (uint64_t)gpu_block() * gpu_threads() + gpu_thread(); i < total;
	     i += stride) {
		/* Division is long on GPUs, and most messages are of one element. */
		uint64_t number = i >> args.lanes_shift,
			 element = args.num_elements > 1 ? number / args.num_runs : 0;
		struct gpu_dense_run run = run_of(args, number - element * args.num_runs);
		uint64_t there =
			args.origin + element * (uint64_t)args.extent + (uint64_t)run.offset;
		uint64_t at = element * args.size + run.at,
			 left = args.bytes > at ? args.bytes - at : 0;
		uint64_t length = run.length < left ? run.length : left, dense = args.dense + at;
		uint32_t lane = (uint32_t)i & (lanes - 1);

		copy_shared(args.unpacks ? there : dense, args.unpacks ? dense : there, length,
			    lane, lanes);
	}
}
