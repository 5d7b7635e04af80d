/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_mapped.h"
#include "core/agree/core_terms.h"
#include "core/call/core_coll.h"
#include "core/choose/core_choices.h"
#include "gpu/kernels/gpu_program.h"

#include <string.h>

bool core_mapped_is_possible(const struct core_facts *facts)
{
	return !facts->comm->spans && !facts->enqueued &&
	       core_terms_all_reach(facts->comm, CORE_REACH_BUFFERS);
}

bool core_mapped_is_roots_matter(enum sched_coll coll)
{
	return coll == SCHED_GATHER || coll == SCHED_SCATTER;
}

/* Of one that does the work of all on a GPU: two blocks for each two of its ranks and all. */
static bool has_too_many_places(const struct core_comm *comm, enum sched_coll coll)
{
	struct sched_request request = {.coll = coll, .ranks = comm->size};
	bool square = !core_mapped_is_roots_matter(coll) && sched_num_blocks(&request) > 1;

	return square && 2 * comm->size * core_choices_most_sharers(comm) > GPU_MAX_PLACES;
}

/*
 * Who is in place is each rank's own matter, and shapes its schedule: where one does the work of
 * several, they must be alike.
 */
bool core_mapped_is_shared(const struct core_facts *facts)
{
	const struct core_summary *common = &facts->common;
	enum sched_coll coll = core_coll_sched(facts->coll);

	if (!(common->all & CORE_OFFER_EXPORTED) || facts->comm->spans ||
	    has_too_many_places(facts->comm, coll))
		return false;
	if (!(common->any & CORE_OFFER_IN_PLACE) || core_mapped_is_roots_matter(coll))
		return true;
	/* See algo_direct.c: in place results are in order where blocks are of one size. */
	if (facts->coll == CORE_REDUCE_SCATTER)
		return false;
	return common->all & CORE_OFFER_IN_PLACE;
}

enum core_reason core_mapped_refuse(const struct core_facts *facts, const struct algo *algo,
				    bool shared, bool windowed)
{
	if (!core_mapped_is_possible(facts))
		return CORE_REASON_NOT_MAPPED;
	/* See others_write and others_read in core_prepare.c. */
	if (algo->needs & ALGO_NEEDS_ALL_MAPPED && !shared)
		return CORE_REASON_NOT_OFFERED;
	if (strcmp(algo->name, "oneshot"))
		return CORE_REASON_NONE;
	if (windowed)
		return CORE_REASON_NOT_BY_WINDOWS;
	if (facts->common.any & CORE_OFFER_IN_PLACE)
		return CORE_REASON_NOT_IN_PLACE;
	return CORE_REASON_NONE;
}
