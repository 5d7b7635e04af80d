/* SPDX-License-Identifier: BSD-3-Clause */
/* Spans of time that a profiler shows (NVTX), in the domain "gpucoll". */
#ifndef GPU_RANGE_H
#define GPU_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether there is a profiler that wants them. Before the first range, in one thread. */
bool gpu_range_start(void);

/* Begin one, which any thread may end. */
uint64_t gpu_range_begin(const char *name);
void gpu_range_end(uint64_t range);

#endif
