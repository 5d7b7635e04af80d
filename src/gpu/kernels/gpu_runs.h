/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of the kernels gpu_copy_runs and gpu_pack, shared by the host and the kernels. */
#ifndef GPU_RUNS_H
#define GPU_RUNS_H

#include <stdint.h>

struct gpu_run {
	int64_t offset; /* from an element's origin, bytes */
	uint64_t length;
};

/*
 * Copy `num_runs` runs of each of `num_elements` elements, which stand `extent` bytes apart on both
 * sides.
 */
struct gpu_copy_runs_args {
	uint64_t to, from; /* addresses of the first elements' origins */
	uint64_t runs;     /* address of struct gpu_run[num_runs] */
	uint64_t num_runs, num_elements;
	int64_t extent;
};

/* A run of an element, and where it is in the element's data. */
struct gpu_dense_run {
	int64_t offset;
	uint64_t length, at;
};

/*
 * Copy elements' data between where they lie and a place in which all follow on each other, as MPI
 * sends them: `num_runs` runs of each of `num_elements` elements, which stand `extent` bytes apart
 * there. `runs`: address of struct gpu_dense_run[num_runs], or 0: each has `length` bytes, the
 * first is at the origin, and they stand `pitch` bytes apart.
 */
struct gpu_pack_args {
	uint64_t origin; /* of the first element */
	uint64_t dense;
	uint64_t runs;
	uint64_t num_runs, num_elements;
	int64_t extent, pitch;
	uint64_t length;
	uint64_t size;        /* bytes of an element's data */
	uint64_t bytes;       /* copy no more than the first so many */
	uint32_t lanes_shift; /* threads that share a run: 1 << this */
	uint32_t unpacks;
};

#endif
