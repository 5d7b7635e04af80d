/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files share that run a block: ptx_block.c, ptx_warp.c, ptx_frame.c, ptx_barrier.c,
 * ptx_lanes.c.
 */
#ifndef EMU_PTX_WARP_H
#define EMU_PTX_WARP_H

#include "ptx.h"

/* CUDA's errors, as a CUresult. */
enum { LAUNCH_FAILED = 719, OUT_OF_MEMORY = 2 };

/* ---- ptx_frame.c ---- */

static inline const struct ptx_frame *ptx_frame_of(const struct ptx_warp *warp, unsigned lane)
{
	return &warp->frames[lane][warp->depth[lane]];
}

/* Of all frames. */
void ptx_need_registers(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			uint32_t slots);
/* The function that a lane calls; and back, from the kernel to its end. */
void ptx_enter(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane);
void ptx_leave(struct ptx_warp *warp, unsigned lane);

/* ---- ptx_barrier.c ---- */

static inline void ptx_set_state(struct ptx_warp *warp, unsigned lane, enum ptx_lane_state state)
{
	warp->block->running -= warp->state[lane] == PTX_RUNS;
	warp->block->running += state == PTX_RUNS;
	warp->state[lane] = (uint8_t)state;
}

/* Who waits for it at a barrier of the block may go on. */
void ptx_end_lane(struct ptx_warp *warp, unsigned lane);

/* ---- ptx_lanes.c ---- */

/* Lanes have come to what they do together, and wait, or go on all. */
void ptx_meet_lanes(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);
/* Who waits for lanes that have ended since goes on. */
void ptx_look_at_waiting(struct ptx_warp *warp);

/* ---- ptx_async.c ---- */

/* The warp has ended. */
void ptx_forget_copies(struct ptx_warp *warp);

/* ---- ptx_warp.c ---- */

/* Some of its lanes, for a while. false: none can go. */
bool ptx_run_warp(struct ptx_warp *warp);

/* ---- ptx_block.c ---- */

/* A random number, by the seed. */
uint32_t ptx_draw(struct ptx_block *block);

#endif
