/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who has touched a block's shared memory, where that is asked for (ptx_grid.watches): threads that
 * touch the same bytes, one of which stores, with nothing between that orders them; and what is
 * read before anybody has stored it. Either ends the launch.
 *
 * Each thread has a vector clock, with a time for each thread of the block (Fidge and Mattern;
 * FastTrack, Flanagan and Freund, PLDI 2009): an access happened before what a thread does now if
 * the thread's clock has come to its time. Clocks meet at barriers of the block and of warps, and
 * where a thread finds what another has stored in a way that others may look at (volatile, atomic,
 * with a scope), in shared memory or in global. That is more order than PTX promises, so not all is
 * reported that is not well, and nothing that is, but for what is ordered by another block or by a
 * thread's end. Shuffles and votes order nothing.
 */
#ifndef EMU_PTX_WATCH_H
#define EMU_PTX_WATCH_H

#include "ptx.h"

/* For the block's threads. NULL: no memory. */
struct ptx_watch *ptx_watch_new(const struct ptx_block *block);
void ptx_watch_free(struct ptx_watch *watch);

/*
 * A lane is about to load from `place`, or to store the value there, of so many bytes; `visible`:
 * others may look. An atomic operation loads, and where it stores has swapped.
 */
void ptx_watch_load(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    const unsigned char *place, unsigned bytes, bool visible);
void ptx_watch_store(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		     const unsigned char *place, unsigned bytes, uint64_t value, bool visible);
void ptx_watch_swap(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    const unsigned char *place, unsigned bytes);

/* A lane comes to a barrier of the block; goes on from it; and all have gone on. */
void ptx_watch_come(struct ptx_warp *warp, unsigned lane, unsigned barrier);
void ptx_watch_go_on(struct ptx_warp *warp, unsigned lane, unsigned barrier);
void ptx_watch_release(struct ptx_block *block, unsigned barrier);

/* Lanes meet at a barrier of their warp. */
void ptx_watch_meet(struct ptx_warp *warp, uint32_t lanes);

#endif
