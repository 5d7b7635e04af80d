/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the emulated runtime library share. */
#ifndef EMU_CUDART_H
#define EMU_CUDART_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#define RT_API __attribute__((visibility("default")))

/* In emu_config.c, which this library is linked with too. */
void emu_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* A driver's answer as the runtime's, which cudaGetLastError then tells. */
cudaError_t emu_rt_done(CUresult result);

/*
 * Make the current device's primary context current, unless the program set a context of its own.
 */
CUresult emu_rt_enter(void);

#define ENTER()                                                                                    \
	do {                                                                                       \
		CUresult entered_ = emu_rt_enter();                                                \
		if (entered_ != CUDA_SUCCESS)                                                      \
			return emu_rt_done(entered_);                                              \
	} while (0)

#endif
