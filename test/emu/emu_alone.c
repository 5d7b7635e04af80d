/* SPDX-License-Identifier: BSD-3-Clause */
#include "emu_alone.h"
#include "emu_device.h"
#include "util/util_time.h"

#include <sched.h>
#include <stdint.h>

/*
 * Of the clock of devices: blocks take long to meet under ThreadSanitizer, on a machine that does
 * other things too, and a probe (gpu_probe.cu) gives them 1.6 ms.
 */
enum { SLOWNESS = 10000 };

static _Thread_local struct {
	unsigned index, num;
} block;

uint64_t emu_arena_start, emu_arena_bytes;
static const struct emu_range all = {0, UINT64_MAX};
const struct emu_range *emu_pinned = &all;

void emu_alone_begin(unsigned index, unsigned num)
{
	block.index = index;
	block.num = num;
}

unsigned emu_thread(void)
{
	return 0;
}

unsigned emu_threads(void)
{
	return 1;
}

unsigned emu_block(void)
{
	return block.index;
}

unsigned emu_blocks(void)
{
	return block.num;
}

void emu_block_barrier(void)
{
}

uint64_t emu_clock(void)
{
	return util_now() / SLOWNESS;
}

uint64_t emu_now(void)
{
	return util_now();
}

void emu_pause(void)
{
	sched_yield();
}

void *emu_kernel_place(uint64_t address)
{
	return (void *)address;
}
