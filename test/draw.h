/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

/* A reproducible sequence (SplitMix64), so that all ranks draw the same test cases. */
static inline uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

#endif
