/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rounds: where buffers go through windows (core_window.h), a call is done over one slice of each
 * block after the other. All ranks cut alike.
 */
#ifndef CORE_ROUNDS_H
#define CORE_ROUNDS_H

#include "core/agree/core_facts.h"
#include "core/call/core_shape.h"

#include <stdbool.h>
#include <stdint.h>

struct core_rounds {
	uint64_t width; /* bytes of a slice; 0: there is one round, over everything */
	uint64_t half;  /* odd rounds are so many bytes further on in the windows */
	uint64_t num;
};

/*
 * The rounds of a call: as many as the longest block needs, where each window, if the call has
 * some, has room for a slice of `slices` blocks.
 */
struct core_rounds core_rounds_of(const struct core_facts *facts, int slices);

/*
 * A round's slice of a block of somebody's buffer; `windowed`: where it is in the buffer's window,
 * in which it is the index-th. Of no bytes behind the block's end.
 */
struct core_block core_rounds_slice(const struct core_rounds *rounds, uint64_t round,
				    struct core_block block, bool windowed, int index);

#endif
