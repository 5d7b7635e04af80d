/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arenas of communicators that were freed while other members were still in the last call. Their
 * kernels may yet say in the arena what they have read, so its memory can't be used again before
 * they are past that call, have freed the communicator, too, or have ended. Nobody tells this
 * process so: it looks when communicators come and go, and before it takes new memory for an arena.
 */
#ifndef CORE_LEAVING_H
#define CORE_LEAVING_H

#include "core/comm/core_comm.h"

/* Take over the arena of a communicator, which is left without; before its slot is left. */
void core_leaving_keep(struct core_comm *comm);

/* Give back the memory of those that nobody touches any more. Thread-safe. */
void core_leaving_look(void);

#endif
