/* SPDX-License-Identifier: BSD-3-Clause */
/* The argument of the kernel gpu_copy_runs, shared by the host and the kernel. */
#ifndef GPU_RUNS_H
#define GPU_RUNS_H

#include <stdint.h>

struct gpu_run {
	int64_t offset; /* from an element's origin, bytes */
	uint64_t length;
};

/* Copy `num_runs` runs of each of `num_elements` elements, which stand `extent` bytes apart on both
 * sides. */
struct gpu_copy_runs_args {
	uint64_t to, from; /* addresses of the first elements' origins */
	uint64_t runs;     /* address of struct gpu_run[num_runs] */
	uint64_t num_runs, num_elements;
	int64_t extent;
};

#endif
