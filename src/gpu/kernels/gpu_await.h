/* SPDX-License-Identifier: BSD-3-Clause */
/* See gpu_await.cu. Shared by the host and the kernel. */
#ifndef GPU_AWAIT_H
#define GPU_AWAIT_H

#include <stdint.h>

/* Words of the host's memory, as kernels know it. */
struct gpu_await_args {
	uint64_t came;    /* is set to `number` */
	uint64_t awaited; /* until it is at least that; 0: nothing is awaited */
	uint64_t number;
};

#endif
