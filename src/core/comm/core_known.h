/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A set of ids of allocations: those of this process that all members of a communicator have
 * mapped. A program with an allocation for each of its fields uses many in turn, and an id that is
 * not known costs a vote, so there is room for some thousands; who uses more has all forgotten at
 * times.
 */
#ifndef CORE_KNOWN_H
#define CORE_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed: empty. Not thread-safe. */
struct core_known {
	uint64_t *ids; /* by hash, with linear probing; 0: the place is free */
	size_t places, num;
};

bool core_known_has(const struct core_known *known, uint64_t id);

/* Adding 0, or what is there, does nothing. Without memory it is not added. */
void core_known_add(struct core_known *known, uint64_t id);

/* Forget all; also gives back the memory. */
void core_known_clear(struct core_known *known);

#endif
