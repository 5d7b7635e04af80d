/* SPDX-License-Identifier: BSD-3-Clause */
/* What the offers of several members come to. */
#ifndef CORE_SUMMARY_H
#define CORE_SUMMARY_H

#include "core/agree/core_offer.h"

/*
 * What the offers of several members come to, which is what a plan of all of them follows from:
 * those of a node, and then, where there are several nodes, those of all.
 */
struct core_summary {
	bool fits; /* they are of one and the same call */
	uint16_t coll, type, op;
	int32_t root;
	uint64_t bytes, counts;
	uint32_t any, all; /* flags that some have, that all have */
	bool any_without_data;
	uint64_t longest; /* the largest */
	uint64_t arena;   /* the smallest */
	uint32_t blocks;  /* the fewest */
	bool has_first;   /* the communicator's first rank is among them; then, what it gave: */
	struct algo_wish wish;
};

/* Of one offer, by the member; and of two summaries, into the first. */
void core_summary_of(struct core_summary *summary, const struct core_offer *offer, int rank);
void core_summary_add(struct core_summary *summary, const struct core_summary *other);

/* Whether on each of several nodes the members reach what the others there may touch. */
static inline bool core_summary_is_mapped(const struct core_summary *summary)
{
	const uint32_t both = CORE_OFFER_EXPORTED | CORE_OFFER_MAPPED;

	return (summary->all & both) == both;
}

#endif
