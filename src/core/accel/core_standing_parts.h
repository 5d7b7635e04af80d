/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of enqueued calls by kernels (core_standing.h) share. */
#ifndef CORE_STANDING_PARTS_H
#define CORE_STANDING_PARTS_H

#include "core/accel/core_accel.h"

#include <stdbool.h>
#include <stdint.h>

/* Memory that a call needed and others may need, or find in use. */
struct core_standing_held {
	struct core_standing_held *next;
	struct gpu_scratch *memory;
};

struct core_standing {
	struct core_standing *next; /* under the lock of core_standing_watch.c */
	struct core_comm *comm;
	struct gpu_stream *own; /* one of ours in the stream's context */
	int device;
	unsigned drawn; /* blocks */
	uint64_t half;  /* bytes of an arena */
	/* Behind the halves (gpu_exchange.h): where in an arena, and bytes of each. */
	uint64_t fifos, fifo_bytes;
	unsigned lanes;
	struct gpu_staging_block *block;
	struct gpu_enqueued *words; /* in it */
	uint64_t address;           /* of them, for kernels */
	/* What was agreed on in the trial, by whose offers ranks that share a GPU are known. */
	struct core_facts facts;
	struct core_agree agree;
	struct core_reach arenas[GPU_NUM_SHARED][CORE_MAX_NEAR];
	struct algo_wish wishes[SCHED_NUM_COLLS];
	struct gpu_scratch *trial_in, *trial_out; /* until it is settled */
	struct core_accel accel;                  /* the call that is being put */
	struct core_standing_held *held;    /* results that are moved last, the largest first */
	uint64_t tickets;                   /* atomic: the last one given out */
	uint64_t behind;                    /* atomic: the same of what was put behind kernels */
	bool repeats;                       /* atomic: calls are in graphs */
	struct core_standing_table *tables; /* of groups of messages that may not have ended */
};

/* Calls are counted from here on: so many have ended, as far as anybody asks. */
enum { CORE_STANDING_FIRST_CALL = 2 };

/* A word that kernels write. Acquire: what a kernel stored before it is seen, too. */
static inline uint64_t core_standing_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Whether a call may be put: nobody is lost, nor has this rank given up. */
bool core_standing_takes_calls(const struct core_standing *standing);

/* Buffers for the trial, in the context of the stream; and give them back, if there are any. */
enum util_status core_standing_take_buffers(struct core_standing *standing);
void core_standing_put_buffers(struct core_standing *standing);

/* From now on, or no longer, it is looked at whether ranks are lost while it has work. */
void core_standing_watch(struct core_standing *standing);
void core_standing_unwatch(const struct core_standing *standing);

/*
 * Settle where the FIFOs are in an arena of so many bytes, of which `half` is known, for kernels of
 * `blocks` blocks; the bytes of their words, which are to be cleared. Give back the tables of
 * launches that have ended, or all.
 */
void core_standing_lay_out_fifos(struct core_standing *standing, uint64_t arena, unsigned blocks);
uint64_t core_standing_fifo_words(const struct core_standing *standing);
void core_standing_free_tables(struct core_standing *standing, bool all_of_them);

/* It has work; `captured`: that may be repeated, and is so without a word. */
void core_standing_wake(struct core_standing *standing, bool captured);

#endif
