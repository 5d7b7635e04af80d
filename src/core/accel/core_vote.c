/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_vote.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_mixed.h"
#include "core/accel/core_proof.h"
#include "core/accel/core_reach.h"
#include "core/accel/core_ready.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/agree/core_terms.h"
#include "core/call/core_coll.h"
#include "core/wire/core_wire.h"
#include "util/util_fdpass.h"

/* Who has a block for each rank tells the others where they are, if it is they who use them. */
static const struct core_block *table_of(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;

	if (accel->comm->spans && !(accel->offer.flags & CORE_OFFER_EXPORTED))
		return NULL;
	switch (shape->coll) {
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		return accel->comm->spans ? shape->out.blocks : NULL;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		return NULL;
	default:
		break;
	}
	if (shape->in.num_blocks > 1)
		return shape->in.blocks;
	return shape->out.num_blocks > 1 ? shape->out.blocks : NULL;
}

/* Earlier work on the buffers, and then what this call needs before it is announced. */
static enum util_status wait_for_stream(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	if (!accel->eager.fetching) {
		if (core_shape_has_data(&accel->shape))
			status = core_ready_poll(accel);
		if (status == UTIL_OK) {
			accel->eager.fetching = true;
			status = core_eager_fetch(accel);
		}
	}
	if (status != UTIL_OK || (!accel->clearing && !(accel->offer.flags & CORE_OFFER_EAGER)))
		return status;
	return gpu_stream_poll(accel->stream);
}

enum util_status core_vote_announce(struct core_accel *accel)
{
	enum util_status status = accel->stream ? wait_for_stream(accel) : UTIL_OK;

	if (status == UTIL_IN_PROGRESS)
		return status;
	if (status != UTIL_OK)
		return core_failure_stage(accel, CORE_REASON_EARLIER_WORK);
	core_agree_open(&accel->agree, accel->comm, accel->number, accel->nonblocking);
	if (accel->comm->spans) {
		core_wire_begin(accel->comm->wire, accel->number);
		core_eager_publish(accel);
	}
	core_agree_announce(&accel->agree, &accel->offer, table_of(accel));
	return UTIL_OK;
}

/* All answer alike, and say in a vote what they reach. */
static enum util_status answer(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;
	struct core_summary common;
	bool fit;

	core_agree_summarize(&accel->agree, &common);
	fit = common.fits && !(common.any & CORE_OFFER_BEHIND);
	if (fit)
		status = core_reach_prepare(accel);
	if (status == UTIL_IN_PROGRESS && accel->agree.vote)
		return status;
	if (!common.fits)
		accel->reason = core_reason_text(CORE_REASON_ARGUMENTS);
	else if (!fit)
		accel->reason = core_reason_text(CORE_REASON_NODE_BEHIND);
	else if (status != UTIL_OK)
		accel->reason = core_reason_text(CORE_REASON_NOT_PASSED);
	core_agree_answer(&accel->agree, fit && (status == UTIL_OK || !accel->agree.vote),
			  accel->reached.kinds);
	return UTIL_OK;
}

/* What can be said of all members of this node together. */
static uint32_t flags_of_node(const struct core_accel *accel)
{
	uint32_t flags = core_terms_are_whole(&accel->agree) ? CORE_OFFER_WHOLE : 0;

	return core_terms_are_mapped(&accel->agree) ? flags | CORE_OFFER_MAPPED : flags;
}

static enum core_agree_state agree_with_nodes(struct core_accel *accel)
{
	if (!core_nodes_has_begun(&accel->agree))
		core_nodes_begin(&accel->agree, flags_of_node(accel));
	core_nodes_progress(&accel->agree);
	return core_agree_poll(&accel->agree);
}

/*
 * Sizes that both ends of a link know to be equal: with flags there is no other way to know a
 * message's end, and a rank would wait for ever where a program gives sizes that do not match.
 */
static bool know_sizes(const struct core_shape *shape)
{
	switch (shape->coll) {
	case CORE_GATHER:
	case CORE_SCATTER:
		return false;
	case CORE_REDUCE_SCATTER: /* all give all sizes */
		return true;
	case CORE_ALLGATHER: /* of each, all have the same */
		return shape->in.num_blocks && shape->out.num_blocks &&
		       shape->in.blocks[0].bytes == shape->out.blocks[0].bytes;
	default:
		return !core_coll_sizes_differ(shape->coll);
	}
}

/* Another member may have decided before this one looked at the offers. */
static void fill_facts(struct core_accel *accel)
{
	struct core_facts *facts = &accel->facts;

	facts->comm = accel->comm;
	facts->agree = &accel->agree;
	facts->coll = accel->shape.coll;
	facts->enqueued = false;
	facts->knows_sizes = know_sizes(&accel->shape);
	if (accel->comm->spans)
		facts->common = *core_agree_common(&accel->agree);
	else
		core_agree_summarize(&accel->agree, &facts->common);
}

/* Somebody stages the call, and so do all. */
static enum util_status give_way(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	/* Over several nodes nobody finds out later what is missing for links. */
	if (accel->agree.vote && comm->spans && core_offer_arena(&accel->offer))
		comm->links.wanted = comm->links.shm_wanted = true;
	if (accel->agree.vote)
		core_proof_doubt(accel);
	if (accel->reason)
		return UTIL_STAGE;
	if (!accel->withdrawn)
		core_mixed_note(comm, accel->shape.coll, true);
	return core_accel_stage(accel, accel->withdrawn ? CORE_REASON_LATER_CALL
							: CORE_REASON_OTHERS_CHOICE);
}

enum util_status core_vote_progress(struct core_accel *accel)
{
	enum core_agree_state state = core_agree_poll(&accel->agree);

	/* Also after this rank's answer: what is sent to it must not hold up the sender. */
	if (accel->agree.vote)
		util_fdpass_receive();
	if (state == CORE_AGREE_ANNOUNCED) {
		if (answer(accel) == UTIL_IN_PROGRESS) {
			core_failure_give_up(accel);
			return UTIL_IN_PROGRESS;
		}
		state = core_agree_poll(&accel->agree);
	}
	/* The stream and the launch's memory go to other calls. */
	if (core_proof_settle(accel) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	if (state == CORE_AGREE_READY && accel->withdrawn) {
		core_nodes_take_back(&accel->agree);
		state = core_agree_poll(&accel->agree);
	}
	if (state == CORE_AGREE_READY && core_comm_speaks(accel->comm))
		state = agree_with_nodes(accel);
	if (state == CORE_AGREE_STAGE)
		return give_way(accel);
	if (state != CORE_AGREE_ACCEL) {
		core_failure_give_up(accel);
		return UTIL_IN_PROGRESS;
	}
	accel->comm->accelerated = true;
	core_mixed_note(accel->comm, accel->shape.coll, false);
	fill_facts(accel);
	/* An eager call needs no links; a longer one will. */
	if (accel->comm->spans && accel->facts.common.arena &&
	    !accel->facts.common.any_without_data && !(accel->facts.common.all & CORE_OFFER_WHOLE))
		accel->comm->links.wanted = accel->comm->links.shm_wanted = true;
	/* After a loss, or another node's failure, not all have come, nor voted. */
	if (accel->agree.vote && !core_meet_is_lost(accel->comm) &&
	    !core_meet_failed(accel->comm, accel->number)) {
		core_reach_drop_descriptors(accel);
		core_reach_learn(accel);
	}
	return UTIL_OK;
}
