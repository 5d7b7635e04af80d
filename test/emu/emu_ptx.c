/* SPDX-License-Identifier: BSD-3-Clause */
/* What the interpreter of PTX asks of the device: memory, the clock. */
#include "emu.h"
#include "emu_device.h"
#include "ptx/ptx.h"

/* What this thread found last, until something is freed. */
enum { KEPT = 4 };

static _Thread_local struct {
	uint64_t address, bytes;
	unsigned frees;
} kept[KEPT];
static _Thread_local unsigned next;

static void *shadow_of(uint64_t address)
{
	return emu_in_arena(address) ? emu_shadow(address) : (void *)address;
}

/* Memory that kernels may touch, and all of it in one allocation. */
void *ptx_device_place(uint64_t address, size_t bytes)
{
	unsigned frees = atomic_load(&emu_frees);
	struct emu_alloc alloc;

	for (int i = 0; i < KEPT; i++) {
		if (address - kept[i].address < kept[i].bytes &&
		    bytes <= kept[i].bytes - (address - kept[i].address) && kept[i].frees == frees)
			return shadow_of(address);
	}
	if (!emu_find(address, &alloc) || alloc.unmapped || !emu_covers(&alloc, address, bytes))
		return NULL;
	kept[next].address = alloc.address;
	kept[next].bytes = alloc.size;
	kept[next].frees = frees;
	next = (next + 1) % KEPT;
	return shadow_of(address);
}

/* For bench/ptx-speed.cu, which finds this with dlsym. */
EMU_API uint64_t cuemu_executed(void);
EMU_API uint64_t cuemu_executed(void)
{
	return atomic_load(&ptx_executed);
}

uint64_t ptx_device_clock(void)
{
	return emu_clock();
}

void ptx_device_pause(void)
{
	emu_pause();
}
