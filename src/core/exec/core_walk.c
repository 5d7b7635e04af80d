/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/exec/core_walk.h"
#include "algos/sched.h"

struct sched_span core_walk_span(const struct core_steps *steps, const struct gpu_step *step,
				 uint32_t round)
{
	const struct gpu_execute_args *args = &steps->args;
	uint64_t bytes = steps->places[step->sized].bytes, offset = round * args->width;
	struct sched_span span;

	bytes = bytes > offset ? bytes - offset : 0;
	bytes = bytes < args->width ? bytes : args->width;
	span = sched_range(bytes, args->unit, (int)args->pieces, step->piece, step->span);
	span.offset += offset;
	return span;
}

uint64_t core_walk_bytes(const struct core_steps *steps, const struct gpu_step *step,
			 uint32_t round)
{
	return core_walk_span(steps, step, round).bytes;
}
