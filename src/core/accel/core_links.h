/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call with messages needs: slots, who waits, by which protocol. */
#ifndef CORE_LINKS_H
#define CORE_LINKS_H

#include "core/accel/core_accel_call.h"

/*
 * After a schedule with links was taken: what must be tried first, whether there is room for its
 * messages. Returns why it can't be, or CORE_REASON_NONE.
 */
enum core_reason core_links_make(struct core_accel *accel);

/*
 * Once a probe is over, or where there is none, decide whether kernels or hosts wait for messages,
 * and by which protocol they go.
 */
void core_links_decide(struct core_accel *accel);

/*
 * What kernels know the members' arenas as, given how they are mapped: whose links are in the
 * host's memory, as bits of `shm`; this rank's own of each transport that others map; and those of
 * all.
 */
void core_links_set_arenas(const struct core_comm *comm,
			   const struct core_reach (*arenas)[CORE_MAX_NEAR],
			   const struct gpu_stream *stream, uint64_t *shm, uint64_t *mine,
			   uint64_t *theirs);

/* Add what a launch with links needs to its arguments. */
void core_links_set_args(struct core_accel *accel);

/*
 * What is to come from other nodes has not come for a while: have it found out if who sends it is
 * lost.
 */
void core_links_miss(const struct core_accel *accel);

/*
 * Break off the connections for which UCX still holds messages of the call, so that it is done with
 * the application's memory. Those at their other ends are lost then, and nobody else.
 */
void core_links_break_off(const struct core_accel *accel);

#endif
