/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the twins of kernels call, as gpu_kernel.h declares it for them: emu_kernel.c has it for the
 * emulated driver, emu_alone.c for blocks that a test runs itself.
 */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include <stdint.h>

/*
 * The pinned memory that a kernel touched last, which another one finds without emu_kernel_place:
 * many do so again and again. What it points to never changes, and is not freed. No variables of
 * threads, which a library that is loaded late may only have by a call.
 */
struct emu_range {
	uint64_t start, bytes;
};
extern const struct emu_range *emu_pinned;

unsigned emu_thread(void);
unsigned emu_threads(void);
unsigned emu_block(void);
unsigned emu_blocks(void);
void emu_block_barrier(void);
uint64_t emu_clock(void); /* what the block ran: the machine's load does not count */
uint64_t emu_now(void);   /* the same for all */
void emu_pause(void);
void *emu_kernel_place(uint64_t address);

#endif
