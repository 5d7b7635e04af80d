/* SPDX-License-Identifier: BSD-3-Clause */
/* How large an arena (core_arena.h) is, and how it is divided. */
#ifndef CORE_ARENA_LAYOUT_H
#define CORE_ARENA_LAYOUT_H

#include "algos/sched_slots.h"

#include <stddef.h>

/* The bytes of an arena: one process's share of a GPU's `scratch`, of as many who share the GPU. */
size_t core_arena_layout_bytes(size_t scratch, int sharers);

/* Bytes of an arena that are enough for calls of `bytes` bytes. */
size_t core_arena_layout_enough(size_t bytes);

/* Half as many; 0: that would be too few. */
size_t core_arena_layout_half(size_t arena);

/*
 * What each of two calls has for messages where an eighth, 128 KiB at least, is left for FIFOs
 * (core_standing.h); 0: that would be too little.
 */
size_t core_arena_layout_share(size_t arena);

/*
 * The room for messages in an arena of `arena` bytes. `sockets`: messages between nodes go by
 * sockets; `gdr`: they are in device memory.
 */
struct sched_room core_arena_layout_for(size_t arena, bool sockets, bool gdr);

/* Where a protocol's slots begin. */
size_t core_arena_layout_start(size_t arena, enum sched_proto proto);

/*
 * Bytes of the flagged protocols' slots, which come first, behind the words, and are cleared now
 * and then.
 */
size_t core_arena_layout_flags(size_t arena);

/*
 * How many waiting blocks each of `sharers` processes may run on a GPU that runs `blocks` at a
 * time. 0 if there are more processes than blocks.
 */
int core_arena_layout_resident(int blocks, int sharers);

#endif
