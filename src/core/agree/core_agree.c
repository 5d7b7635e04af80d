/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_agree.h"
#include "core/agree/core_area.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_promise.h"
#include "core/job/core_mpi_job.h"

#include <stdatomic.h>
#include <string.h>

enum { DECISION_BITS = 3 };

static struct core_area_slot *slot_of(const struct core_agree *agree)
{
	return core_area_slot_of(agree->comm->area, agree->call);
}

static _Atomic uint64_t *word_of(const struct core_agree *agree)
{
	return &slot_of(agree)->word;
}

static struct core_area_desk *desk_of(const struct core_agree *agree, int rank)
{
	return core_area_desk_of(agree->comm, agree->call, rank);
}

void *core_agree_record(const struct core_agree *agree, int rank)
{
	return core_area_record_of(agree->comm, agree->call, rank);
}

const struct core_offer *core_agree_offer(const struct core_agree *agree, int rank)
{
	return &desk_of(agree, rank)->offer;
}

const struct core_block *core_agree_table(const struct core_agree *agree, int rank)
{
	return core_area_table_of(agree->comm, agree->call, rank);
}

bool core_agree_has_slot(struct core_comm *comm, uint64_t call)
{
	return call < CORE_AGREE_SLOTS || core_meet_all_past(comm, call + 1 - CORE_AGREE_SLOTS);
}

void core_agree_open(struct core_agree *agree, struct core_comm *comm, uint64_t call,
		     bool nonblocking)
{
	*agree = (struct core_agree){.comm = comm, .call = call, .nonblocking = nonblocking};
}

void core_agree_announce(const struct core_agree *agree, const struct core_offer *offer,
			 const struct core_block *table)
{
	const struct core_comm *comm = agree->comm;
	struct core_area_desk *desk = desk_of(agree, comm->rank);

	desk->offer = *offer;
	if (table)
		memcpy(core_area_table_of(comm, agree->call, comm->rank), table,
		       (size_t)comm->size * sizeof(*table));
	/*
	 * Release: whoever sees the number sees the offer and the record (and the buffers'
	 * contents, for its kernels).
	 */
	atomic_store_explicit(&desk->announced, agree->call + 1, memory_order_release);
}

static uint64_t word_value(const struct core_agree *agree, enum core_agree_state decision)
{
	return (agree->call + 1) << DECISION_BITS | (uint64_t)decision;
}

/*
 * Compare-and-swap of the slot's word from an older call's. Who comes second changes nothing. The
 * word can't be a later call's: the slot is not used again before this process is past its call.
 */
static bool decide(const struct core_agree *agree, enum core_agree_state decision)
{
	_Atomic uint64_t *word = word_of(agree);
	uint64_t old = atomic_load_explicit(word, memory_order_acquire);

	return old >> DECISION_BITS != agree->call + 1 &&
	       atomic_compare_exchange_strong(word, &old, word_value(agree, decision));
}

bool core_agree_withdraw(const struct core_agree *agree)
{
	return decide(agree, CORE_AGREE_STAGE);
}

/* The members here are of one mind. Where they are not all, it is up to the speaker. */
static void decide_here(const struct core_agree *agree)
{
	decide(agree, agree->comm->spans ? CORE_AGREE_READY : CORE_AGREE_ACCEL);
}

/* Release: who sees the word sees what all offers come to. */
void core_agree_settle(struct core_agree *agree, bool accel, const struct core_summary *common)
{
	uint64_t ready = word_value(agree, CORE_AGREE_READY);

	if (accel)
		slot_of(agree)->common = *common;
	else if (!agree->nonblocking)
		core_promise_forget(agree->comm->area, agree->call);
	atomic_compare_exchange_strong(
		word_of(agree), &ready,
		word_value(agree, accel ? CORE_AGREE_ACCEL : CORE_AGREE_STAGE));
}

void core_agree_give_up(struct core_agree *agree)
{
	uint64_t ready = word_value(agree, CORE_AGREE_READY);

	core_meet_fail(agree->comm, agree->call);
	if (!decide(agree, CORE_AGREE_ACCEL))
		atomic_compare_exchange_strong(word_of(agree), &ready,
					       word_value(agree, CORE_AGREE_ACCEL));
}

const struct core_summary *core_agree_common(const struct core_agree *agree)
{
	return &slot_of(agree)->common;
}

/*
 * Acquire: an accelerated call reads offers and memory that others made ready before they decided.
 */
static enum core_agree_state decision(const struct core_agree *agree)
{
	uint64_t word = atomic_load_explicit(word_of(agree), memory_order_acquire);

	if (word >> DECISION_BITS != agree->call + 1)
		return CORE_AGREE_WAITING;
	return (enum core_agree_state)(word & ((1 << DECISION_BITS) - 1));
}

/* Of those whose offers have not been seen. */
static bool anybody_passed(const struct core_agree *agree)
{
	for (int i = agree->seen; i < agree->comm->num_near; i++) {
		if (core_meet_is_past(agree->comm, agree->comm->near[i], agree->call))
			return true;
	}
	return false;
}

/*
 * Acquire: who has come and is not seen has not seen the word of a decision that this process has
 * seen or made.
 */
bool core_agree_has_come(const struct core_agree *agree, int rank)
{
	return atomic_load_explicit(&desk_of(agree, rank)->announced, memory_order_acquire) ==
	       agree->call + 1;
}

/*
 * Why some member's offer may never come. Past the call and no offer seen: if it did make one, it
 * obeyed a word before it passed, and decide() will find that word. Whether it has passed is to be
 * known before whether somebody is lost, see core_meet_is_lost.
 */
static void look_for_reason(struct core_agree *agree)
{
	bool passed = anybody_passed(agree);

	if (core_meet_is_lost(agree->comm))
		core_agree_give_up(agree);
	else if (passed)
		decide(agree, CORE_AGREE_STAGE);
}

/* Go on over the members whose offers are there. True: those of all are. */
static bool wait_for_members(struct core_agree *agree)
{
	for (; agree->seen < agree->comm->num_near; agree->seen++) {
		int rank = agree->comm->near[agree->seen];
		struct core_area_desk *desk = desk_of(agree, rank);

		if (core_agree_has_come(agree, rank)) {
			agree->vote |= (desk->offer.flags & CORE_OFFER_ASKS_VOTE) != 0;
			agree->forget |= (desk->offer.flags & CORE_OFFER_FORGET) != 0;
			continue;
		}
		look_for_reason(agree);
		return false;
	}
	return true;
}

static void count_votes(struct core_agree *agree)
{
	for (; agree->seen < agree->comm->num_near; agree->seen++) {
		struct core_area_desk *desk = desk_of(agree, agree->comm->near[agree->seen]);

		if (atomic_load_explicit(&desk->voted, memory_order_acquire) != agree->call + 1)
			return;
	}
	decide_here(agree);
}

enum core_agree_state core_agree_poll(struct core_agree *agree)
{
	enum core_agree_state state = decision(agree);

	if (state != CORE_AGREE_WAITING)
		return state;
	if (agree->answered && agree->vote)
		count_votes(agree);
	else if (wait_for_members(agree))
		return CORE_AGREE_ANNOUNCED;
	return decision(agree);
}

void core_agree_answer(struct core_agree *agree, bool yes, const uint64_t reach[CORE_NUM_REACHES])
{
	struct core_area_desk *desk = desk_of(agree, agree->comm->rank);

	agree->answered = true;
	agree->seen = 0;
	if (!yes) {
		decide(agree, CORE_AGREE_STAGE);
		return;
	}
	if (!agree->vote) {
		decide_here(agree);
		return;
	}
	memcpy(desk->reach, reach, sizeof(desk->reach));
	/* Release: whoever counts the vote, or sees the decision, sees what it says. */
	atomic_store_explicit(&desk->voted, agree->call + 1, memory_order_release);
}

void core_agree_summarize(const struct core_agree *agree, struct core_summary *summary)
{
	const struct core_comm *comm = agree->comm;

	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];
		struct core_summary one;

		core_summary_of(&one, core_agree_offer(agree, rank), rank);
		if (i)
			core_summary_add(summary, &one);
		else
			*summary = one;
	}
}

const uint64_t *core_agree_reach(const struct core_agree *agree, int rank)
{
	return desk_of(agree, rank)->reach;
}

int core_agree_missing(const struct core_agree *agree)
{
	const struct core_comm *comm = agree->comm;

	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];

		if (!core_agree_has_come(agree, rank) &&
		    !core_meet_is_past(comm, rank, agree->call))
			return rank;
	}
	return decision(agree) != CORE_AGREE_READY && agree->seen < comm->num_near
		       ? comm->near[agree->seen]
		       : -1;
}

static bool has_lost(const void *area)
{
	return atomic_load_explicit(&core_area_far_of(area)->lost, memory_order_acquire);
}

/*
 * Members' counters first: a member that is past the call has seen its word, if it made an offer,
 * or the loss for which it made none.
 */
enum core_agree_state core_agree_where(const struct core_board_slot *slot, const void *area,
				       uint64_t call, bool nonblocking)
{
	const struct core_area_slot *s;
	bool anybody_past = false;
	uint64_t word;

	for (int i = 0; i < core_mpi_job.local_size; i++)
		anybody_past |= core_board_passed(slot, i) > call;
	if (has_lost(area))
		return CORE_AGREE_LOST;
	if (core_promise_is_prevented(area, call))
		return CORE_AGREE_STAGE;
	s = core_area_slot_of(area, call);
	word = atomic_load_explicit(&s->word, memory_order_acquire);
	if (word >> DECISION_BITS == call + 1) {
		enum core_agree_state state = word & ((1 << DECISION_BITS) - 1);

		if (state == CORE_AGREE_READY && nonblocking)
			return CORE_AGREE_WAITING;
		return state == CORE_AGREE_STAGE ? state : CORE_AGREE_READY;
	}
	if (!anybody_past)
		return CORE_AGREE_WAITING;
	return core_promise_was_made(area, call) ? CORE_AGREE_READY : CORE_AGREE_STAGE;
}

/* Where neither is true: it was promised, and forgotten if whoever asks is past it by now. */
enum core_agree_state core_agree_take_back(void *area, uint64_t call)
{
	if (has_lost(area))
		return CORE_AGREE_LOST;
	core_promise_prevent(area, call);
	if (core_promise_is_prevented(area, call))
		return CORE_AGREE_STAGE;
	return core_promise_is_being_made(area, call) ? CORE_AGREE_WAITING : CORE_AGREE_READY;
}
