/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's kernels: a fatbin embedded in the library, loaded once into each context that needs
 * it, with all its functions at once, since loading one later can synchronise the context.
 */
#ifndef GPU_MODULE_H
#define GPU_MODULE_H

#include "gpu/gpu_stream.h"

enum gpu_kernel {
	GPU_KERNEL_AWAIT,
	GPU_KERNEL_COPY_RUNS,
	GPU_KERNEL_EXCHANGE,
	GPU_KERNEL_PACK,
	GPU_KERNEL_PROBE,
	GPU_KERNEL_VERIFY,
	GPU_KERNEL_EXECUTE, /* any type and operation; the others are for one pair each */
	GPU_KERNEL_EXECUTE_FLOAT_SUM,
	GPU_KERNEL_EXECUTE_DOUBLE_SUM,
	GPU_KERNEL_EXECUTE_INT32_SUM,
	GPU_KERNEL_EXECUTE_INT64_SUM,
	GPU_KERNEL_EXECUTE_FLOAT16_SUM,
	GPU_KERNEL_EXECUTE_BFLOAT16_SUM,
	GPU_KERNEL_EXECUTE_FLOAT_MAX,
	GPU_KERNEL_EXECUTE_DOUBLE_MAX,
	GPU_KERNEL_NUM
};

/*
 * Launch a kernel on a stream. `args` is the kernel's one argument, copied before the call returns.
 * UTIL_ERR_UNSUPPORTED, without a warning, when the module can't be loaded into the stream's
 * context.
 */
enum util_status gpu_module_launch(struct gpu_stream *stream, enum gpu_kernel kernel,
				   unsigned blocks, unsigned threads, void *args);

/*
 * The multiprocessors of the stream's device when its kernels can be launched, 0 when they can't.
 */
unsigned gpu_module_multiprocessors(const struct gpu_stream *stream);

/*
 * Forget the modules, which end with their contexts. No operation may be under way.
 */
void gpu_module_finalize(void);

#endif
