/* SPDX-License-Identifier: BSD-3-Clause */
/* What the twins of kernels call, as gpu_kernel.h declares it for them: emu_kernel.c has it for the
 * emulated driver, emu_alone.c for blocks that a test runs itself. */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include <stdint.h>

unsigned emu_thread(void);
unsigned emu_threads(void);
unsigned emu_block(void);
unsigned emu_blocks(void);
void emu_block_barrier(void);
uint64_t emu_clock(void);
void emu_pause(void);
void *emu_kernel_place(uint64_t address);

#endif
