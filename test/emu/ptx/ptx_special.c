/* SPDX-License-Identifier: BSD-3-Clause */
/* Special registers: who a thread is, the clock, what the launch gave. */
#include "ptx_warp.h"

#include <string.h>

enum special {
	TID_X,
	TID_Y,
	TID_Z,
	NTID_X,
	NTID_Y,
	NTID_Z,
	CTAID_X,
	CTAID_Y,
	CTAID_Z,
	NCTAID_X,
	NCTAID_Y,
	NCTAID_Z,
	LANEID,
	WARPID,
	NWARPID,
	MASK_EQ,
	MASK_LT,
	MASK_LE,
	MASK_GT,
	MASK_GE,
	CLOCK,
	CLOCK_HIGH,
	SMID,
	NSMID,
	GRIDID,
	DYNAMIC_SHARED,
	TOTAL_SHARED,
	WARP_SIZE,
	WORKSPACE_HIGH,
	WORKSPACE_LOW,
};

static const struct {
	const char *name;
	enum special which;
} specials[] = {
	{"%tid.x", TID_X},
	{"%tid.y", TID_Y},
	{"%tid.z", TID_Z},
	{"%ntid.x", NTID_X},
	{"%ntid.y", NTID_Y},
	{"%ntid.z", NTID_Z},
	{"%ctaid.x", CTAID_X},
	{"%ctaid.y", CTAID_Y},
	{"%ctaid.z", CTAID_Z},
	{"%nctaid.x", NCTAID_X},
	{"%nctaid.y", NCTAID_Y},
	{"%nctaid.z", NCTAID_Z},
	{"%laneid", LANEID},
	{"%warpid", WARPID},
	{"%nwarpid", NWARPID},
	{"%lanemask_eq", MASK_EQ},
	{"%lanemask_lt", MASK_LT},
	{"%lanemask_le", MASK_LE},
	{"%lanemask_gt", MASK_GT},
	{"%lanemask_ge", MASK_GE},
	{"%clock", CLOCK},
	{"%clock64", CLOCK},
	{"%clock_hi", CLOCK_HIGH},
	{"%globaltimer", CLOCK},
	{"%globaltimer_lo", CLOCK},
	{"%globaltimer_hi", CLOCK_HIGH},
	{"%smid", SMID},
	{"%nsmid", NSMID},
	{"%gridid", GRIDID},
	{"%dynamic_smem_size", DYNAMIC_SHARED},
	{"%total_smem_size", TOTAL_SHARED},
	{"WARP_SZ", WARP_SIZE},
	{"%envreg1", WORKSPACE_HIGH},
	{"%envreg2", WORKSPACE_LOW},
};

int ptx_special_find(const char *name)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
		if (!strcmp(specials[i].name, name))
			return (int)specials[i].which;
	}
	return -1;
}

static uint32_t part_of(uint32_t index, const uint32_t sizes[3], unsigned which)
{
	return which == 0   ? index % sizes[0]
	       : which == 1 ? index / sizes[0] % sizes[1]
			    : index / sizes[0] / sizes[1];
}

uint64_t ptx_special(const struct ptx_warp *warp, unsigned lane, uint32_t which)
{
	const struct ptx_block *block = warp->block;
	uint32_t bit = UINT32_C(1) << lane;

	if (which <= TID_Z)
		return part_of(warp->number * PTX_LANES + lane, block->grid->threads, which);
	if (which <= NTID_Z)
		return block->grid->threads[which - NTID_X];
	if (which <= CTAID_Z)
		return part_of(block->index, block->grid->blocks, which - CTAID_X);
	if (which <= NCTAID_Z)
		return block->grid->blocks[which - NCTAID_X];
	switch (which) {
	case LANEID:
		return lane;
	case WARPID:
		return warp->number;
	case NWARPID:
		return block->num_warps;
	case MASK_EQ:
		return bit;
	case MASK_LT:
		return bit - 1;
	case MASK_LE:
		return bit | (bit - 1);
	case MASK_GT:
		return ~(bit | (bit - 1));
	case MASK_GE:
		return ~(bit - 1);
	case CLOCK:
		return ptx_device_clock();
	case CLOCK_HIGH:
		return ptx_device_clock() >> 32;
	case SMID:
		return block->index;
	case NSMID:
		return (uint64_t)block->grid->blocks[0] * block->grid->blocks[1] *
		       block->grid->blocks[2];
	case DYNAMIC_SHARED:
		return block->grid->shared_bytes;
	case TOTAL_SHARED:
		return block->shared_bytes;
	case WARP_SIZE:
		return PTX_LANES;
	case WORKSPACE_HIGH:
		return block->grid->workspace >> 32;
	case WORKSPACE_LOW:
		return block->grid->workspace & UINT32_MAX;
	default:
		return 0;
	}
}
