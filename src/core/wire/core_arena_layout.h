/* SPDX-License-Identifier: BSD-3-Clause */
/* How large an arena (core_arena.h) is, and how it is divided. */
#ifndef CORE_ARENA_LAYOUT_H
#define CORE_ARENA_LAYOUT_H

#include "algos/sched_slots.h"

#include <stddef.h>

/* The bytes of an arena: one process's share of a GPU's `scratch`, of as many who share the GPU. */
size_t core_arena_layout_bytes(size_t scratch, int sharers);

/* Half as many; 0: that would be too few. */
size_t core_arena_layout_half(size_t arena);

/*
 * Of them, those for messages, between nodes by `sockets` or not, and of device memory (`gdr`) or
 * not; and where those of a protocol begin. First, behind the words, are those whose flags are
 * cleared at times, core_arena_layout_flags(arena) bytes in all.
 */
struct sched_room core_arena_layout_for(size_t arena, bool sockets, bool gdr);
size_t core_arena_layout_start(size_t arena, enum sched_proto proto);
size_t core_arena_layout_flags(size_t arena);

/*
 * Blocks of a process that may wait, so that those of all fit on their GPU together, which runs as
 * many at a time; and can be probed. 0: there are more processes.
 */
int core_arena_layout_resident(int blocks, int sharers);

#endif
