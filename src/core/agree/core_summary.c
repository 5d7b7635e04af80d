/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_summary.h"
#include "core/call/core_call.h"

void core_summary_of(struct core_summary *summary, const struct core_offer *offer, int rank)
{
	*summary = (struct core_summary){
		.fits = true,
		.coll = offer->coll,
		.type = offer->type,
		.op = offer->op,
		.root = offer->root,
		.bytes = offer->bytes,
		.counts = offer->counts,
		.any = offer->flags,
		.all = offer->flags,
		.any_without_data = !offer->device,
		.longest = offer->longest,
		.arena = core_offer_arena(offer),
		.blocks = offer->blocks,
		.has_first = rank == 0,
		.wish = offer->wish,
	};
}

static bool is_alltoall(const struct core_summary *summary)
{
	return summary->coll == CORE_ALLTOALL || summary->coll == CORE_ALLTOALLV ||
	       summary->coll == CORE_ALLTOALLW;
}

static bool fit(const struct core_summary *a, const struct core_summary *b)
{
	if (a->coll != b->coll || a->type != b->type || a->op != b->op || a->root != b->root ||
	    a->bytes != b->bytes || a->counts != b->counts)
		return false;
	/* One buffer for both is the root's own matter where there is a root. */
	return !is_alltoall(a) || !((a->any ^ b->any) & CORE_OFFER_IN_PLACE);
}

void core_summary_add(struct core_summary *summary, const struct core_summary *other)
{
	summary->fits &= other->fits && fit(summary, other);
	summary->any |= other->any;
	summary->all &= other->all;
	summary->any_without_data |= other->any_without_data;
	if (other->longest > summary->longest)
		summary->longest = other->longest;
	if (other->arena < summary->arena)
		summary->arena = other->arena;
	if (other->blocks < summary->blocks)
		summary->blocks = other->blocks;
	if (!other->has_first)
		return;
	summary->has_first = true;
	summary->wish = other->wish;
}
