/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the memory of other devices that this one has mapped works: each rank leaves cards in the
 * others' memory, by kernels and by copies, and takes copies of theirs; then each looks at what has
 * come. Shared by the host and the kernel.
 *
 * A rank's cards, in its device's memory: its own, which others read; and of each other rank, by
 * its number, the one that a kernel of it wrote here, the one that a copy wrote here, and the one
 * that a copy of this rank's took there.
 */
#ifndef GPU_VERIFY_H
#define GPU_VERIFY_H

#include "gpu/kernels/gpu_program.h"

#include <stdint.h>

enum gpu_card_kind { GPU_CARD_WRITTEN, GPU_CARD_COPIED, GPU_CARD_TAKEN, GPU_CARD_KINDS };

enum {
	GPU_CARD_BYTES = 32, /* 16 of data, a word, 8 without meaning */
	GPU_CARD_WORD = 16,
	GPU_CARDS_BYTES = GPU_CARD_BYTES * (1 + GPU_CARD_KINDS * GPU_MAX_PEERS)
};

/* Where a card is from the first, which is the rank's own. */
GPU_COMMON uint64_t gpu_card_place(enum gpu_card_kind kind, uint32_t rank)
{
	return GPU_CARD_BYTES * (1 + (uint64_t)kind * GPU_MAX_PEERS + rank);
}

/*
 * What is on the card of a rank: the data's words, of which the first comes once more as the word.
 * `seed` is another in each trial, so that what an earlier one left is not taken for this one's
 * (the finalizer of splitmix64, https://prng.di.unimi.it/splitmix64.c).
 */
GPU_COMMON uint64_t gpu_card_value(uint64_t seed, uint32_t rank, uint32_t word)
{
	uint64_t z = seed + (2 * (uint64_t)rank + word + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/*
 * What a look has found, as bits of ranks whose cards were not as they should be: of those that
 * kernels read where they are; and of each kind.
 */
enum { GPU_VERIFY_READ = GPU_CARD_KINDS, GPU_VERIFY_FOUND };

struct gpu_verify_args {
	uint64_t done;  /* as in struct gpu_execute_args */
	uint64_t found; /* GPU_VERIFY_FOUND words in pinned memory, written before that */
	uint64_t seed;
	uint64_t with; /* ranks, as bits */
	uint64_t mine; /* this rank's cards */
	uint32_t rank;
	uint32_t looks; /* at what has come; else it leaves its card, and reads others' */
	uint64_t theirs[GPU_MAX_PEERS];
};

#endif
