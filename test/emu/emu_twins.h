/* SPDX-License-Identifier: BSD-3-Clause */
/* The twins of the library's kernels: X(name, type of the arguments) for each. */
#ifndef EMU_TWINS_H
#define EMU_TWINS_H

#include "gpu/kernels/gpu_await.h"
#include "gpu/kernels/gpu_exchange.h"
#include "gpu/kernels/gpu_program.h"
#include "gpu/kernels/gpu_runs.h"
#include "gpu/kernels/gpu_verify.h"

#define EMU_TWINS(X)                                                                               \
	X(gpu_await, struct gpu_await_args)                                                        \
	X(gpu_copy_runs, struct gpu_copy_runs_args)                                                \
	X(gpu_exchange, struct gpu_exchange_args)                                                  \
	X(gpu_pack, struct gpu_pack_args)                                                          \
	X(gpu_probe, struct gpu_probe_args)                                                        \
	X(gpu_verify, struct gpu_verify_args)                                                      \
	X(gpu_execute, struct gpu_execute_args)                                                    \
	X(gpu_execute_float_sum, struct gpu_execute_args)                                          \
	X(gpu_execute_double_sum, struct gpu_execute_args)                                         \
	X(gpu_execute_int32_sum, struct gpu_execute_args)                                          \
	X(gpu_execute_int64_sum, struct gpu_execute_args)                                          \
	X(gpu_execute_float16_sum, struct gpu_execute_args)                                        \
	X(gpu_execute_bfloat16_sum, struct gpu_execute_args)                                       \
	X(gpu_execute_float_max, struct gpu_execute_args)                                          \
	X(gpu_execute_double_max, struct gpu_execute_args)

#endif
