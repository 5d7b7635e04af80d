/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_agree.h"
#include "core/job/core_mpi_job.h"

#include <stdatomic.h>
#include <string.h>

enum { CACHE_LINE = 64 };

/* Of one member; it alone writes here. */
struct desk {
	_Alignas(CACHE_LINE) _Atomic uint64_t announced; /* the call, + 1 */
	_Atomic uint64_t voted;                          /* the call, + 1: yes */
	uint64_t reach[CORE_NUM_REACHES];                /* with that */
	struct core_offer offer;
};

/*
 * The call, + 1, in the upper bits and the decision in the lower ones: one word, so that a decision
 * can't be taken for that of another call.
 */
struct slot {
	_Alignas(CACHE_LINE) _Atomic uint64_t word;
	/* Of all nodes; writer: who settles it, before; readers: who sees CORE_AGREE_ACCEL. */
	struct core_summary common;
};

enum { DECISION_BITS = 3 };

/* First in the area, for communicators of several nodes. */
struct far {
	/* The last calls, + 1, in which this node's members were ready, the latest one first. */
	_Alignas(CACHE_LINE) _Atomic uint64_t ready[CORE_BOARD_REMEMBERED];
	_Atomic uint64_t failed; /* the last call, + 1, in which a member elsewhere did */
	/*
	 * A member was lost. Writers: who finds that, or is told of it by another node; set once.
	 * Readers: all that wait.
	 */
	_Alignas(CACHE_LINE) _Atomic bool lost;
};

/* Then, of each member; it alone writes here. */
struct progress {
	/* The last call, + 1, in which it failed. */
	_Alignas(CACHE_LINE) _Atomic uint64_t failed;
	/*
	 * The last point at which it arrived, with the call, + 1, in the upper bits: it only grows.
	 */
	_Atomic uint64_t arrived;
	/*
	 * The last call, + 1, in which it tried whether kernels run together, above the answer, of
	 * TRIED_BITS.
	 */
	_Atomic uint64_t tried;
	/* The last call, + 1, in whose vote it left its cards with the others. */
	_Atomic uint64_t shown;
	/* The last call, + 1, in which it cut what came for another. */
	_Atomic uint64_t cut;
};

enum { POINT_BITS = 24 };

/* Then, for each member, what CORE_AGREE_TAILS and CORE_AGREE_HEADS count. Others write here. */
struct links {
	_Alignas(CACHE_LINE) _Atomic uint64_t words[CORE_AGREE_NUM_WORDS][GPU_MAX_LINKS];
};

static size_t links_bytes(int local_size)
{
	return (size_t)local_size * sizeof(struct links);
}

/* What comes before the slots. */
static size_t progress_bytes(int local_size)
{
	return sizeof(struct far) + (size_t)local_size * sizeof(struct progress) +
	       links_bytes(local_size);
}

static size_t desks_bytes(int local_size)
{
	return (size_t)local_size * sizeof(struct desk);
}

static size_t slot_bytes(int local_size)
{
	size_t bytes = sizeof(struct slot) + desks_bytes(local_size);

	return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static size_t slots_bytes(int local_size)
{
	return progress_bytes(local_size) + CORE_AGREE_SLOTS * slot_bytes(local_size);
}

/*
 * Then, of each slot, a table of each member here, with a block for each member anywhere; and the
 * records.
 */
static size_t tables_bytes(int near, int size)
{
	size_t bytes = (size_t)near * (size_t)size * sizeof(struct core_block);

	return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

enum { RECORDS_BYTES = 64 << 10 };

size_t core_agree_area_bytes(int local_size, int near, int size, bool records)
{
	size_t more = tables_bytes(near, size) + (records ? RECORDS_BYTES : 0);

	return slots_bytes(local_size) + CORE_AGREE_SLOTS * more;
}

static char *slot_at(const struct core_comm *comm, uint64_t call)
{
	int local_size = core_mpi_job.local_size;

	return (char *)comm->area + progress_bytes(local_size) +
	       call % CORE_AGREE_SLOTS * slot_bytes(local_size);
}

static _Atomic uint64_t *word_of(const struct core_agree *agree)
{
	return &((struct slot *)slot_at(agree->comm, agree->call))->word;
}

static struct desk *desk_of(const struct core_agree *agree, int rank)
{
	char *desks = slot_at(agree->comm, agree->call) + sizeof(struct slot);

	return (struct desk *)desks + core_comm_local_rank(agree->comm, rank);
}

static struct core_block *table_of(const struct core_agree *agree, int rank)
{
	const struct core_comm *comm = agree->comm;
	size_t tables = tables_bytes(comm->num_near, comm->size);
	char *first = (char *)comm->area + slots_bytes(core_mpi_job.local_size);

	return (struct core_block *)(first + agree->call % CORE_AGREE_SLOTS * tables) +
	       (size_t)core_comm_number(comm, rank) * (size_t)comm->size;
}

size_t core_agree_record_bytes(const struct core_comm *comm)
{
	return (size_t)(RECORDS_BYTES / comm->size / CACHE_LINE * CACHE_LINE);
}

void *core_agree_record(const struct core_agree *agree, int rank)
{
	const struct core_comm *comm = agree->comm;
	size_t before =
		core_agree_area_bytes(core_mpi_job.local_size, comm->num_near, comm->size, false);

	return (char *)comm->area + before + agree->call % CORE_AGREE_SLOTS * RECORDS_BYTES +
	       (size_t)rank * core_agree_record_bytes(comm);
}

const struct core_offer *core_agree_offer(const struct core_agree *agree, int rank)
{
	return &desk_of(agree, rank)->offer;
}

const struct core_block *core_agree_table(const struct core_agree *agree, int rank)
{
	return table_of(agree, rank);
}

/*
 * Calls that the member is past. Acquire, the pair of core_agree_pass: what it did before is done.
 */
static uint64_t passed(const struct core_comm *comm, int rank)
{
	return core_board_passed(comm->slot, core_comm_local_rank(comm, rank));
}

bool core_agree_is_past(const struct core_comm *comm, int rank, uint64_t call)
{
	return passed(comm, rank) > call;
}

void core_agree_pass(struct core_comm *comm, uint64_t call)
{
	if (comm->slot && !comm->retired)
		core_board_publish(comm->slot, call + 1);
}

void core_agree_retire(struct core_comm *comm)
{
	if (!comm->slot || comm->retired)
		return;
	comm->retired = true;
	comm->area = NULL;
	comm->no_area = "a call failed earlier";
	core_board_publish(comm->slot, UINT64_MAX);
}

/* All members are past the calls below this number: remembered, since it only grows. */
static bool all_past(struct core_comm *comm, uint64_t calls)
{
	while (comm->all_passed < calls) {
		uint64_t least = UINT64_MAX;

		for (int i = 0; i < comm->num_near; i++) {
			uint64_t theirs = passed(comm, comm->near[i]);

			least = theirs < least ? theirs : least;
		}
		if (least == comm->all_passed)
			return false;
		comm->all_passed = least;
	}
	return true;
}

bool core_agree_all_passed(struct core_comm *comm, uint64_t call)
{
	return all_past(comm, call + 1);
}

static struct progress *progress_of(const struct core_comm *comm, int rank)
{
	struct far *far = comm->area;

	return (struct progress *)(far + 1) + core_comm_local_rank(comm, rank);
}

static struct far *far_of(const void *area)
{
	return (struct far *)area;
}

/* Relaxed: core_agree_pass, which follows, orders it before what the readers have seen. */
void core_agree_fail(struct core_comm *comm, uint64_t call)
{
	atomic_store_explicit(&progress_of(comm, comm->rank)->failed, call + 1,
			      memory_order_relaxed);
}

/* Relaxed, for the same reason. */
void core_agree_cut(struct core_comm *comm, uint64_t call)
{
	atomic_store_explicit(&progress_of(comm, comm->rank)->cut, call + 1, memory_order_relaxed);
}

bool core_agree_was_cut(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (atomic_load_explicit(&progress_of(comm, comm->near[i])->cut,
					 memory_order_relaxed) == call + 1)
			return true;
	}
	return false;
}

/* A later failure may have taken this call's place: who fails once will not be right again. */
bool core_agree_failed(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (atomic_load_explicit(&progress_of(comm, comm->near[i])->failed,
					 memory_order_relaxed) > call)
			return true;
	}
	return atomic_load_explicit(&far_of(comm->area)->failed, memory_order_relaxed) > call;
}

/* Whoever comes with an older call is late. */
void core_agree_fail_far(void *area, uint64_t call)
{
	_Atomic uint64_t *failed = &far_of(area)->failed;
	uint64_t old = atomic_load_explicit(failed, memory_order_relaxed);

	while (old < call + 1 && !atomic_compare_exchange_weak(failed, &old, call + 1))
		;
}

/* Release, the pair of core_agree_is_lost; see there. */
void core_agree_lose_far(void *area)
{
	atomic_store_explicit(&far_of(area)->lost, true, memory_order_release);
}

void core_agree_lose(struct core_comm *comm)
{
	core_agree_lose_far(core_board_area(comm->slot)); /* also of one that is retired */
}

/*
 * Acquire. A member that gives a call up has seen the loss, and then says that it is past the call
 * (core_agree_pass, a release); so who has seen that (passed(), an acquire) and looks here, sees
 * the loss.
 */
bool core_agree_is_lost(const struct core_comm *comm)
{
	return atomic_load_explicit(&far_of(comm->area)->lost, memory_order_acquire);
}

static uint64_t point_value(uint64_t call, uint64_t point)
{
	return (call + 1) << POINT_BITS | point;
}

/* Release, the pair of the acquire in core_agree_all_arrived. */
void core_agree_arrive(struct core_comm *comm, uint64_t call, uint64_t point)
{
	atomic_store_explicit(&progress_of(comm, comm->rank)->arrived, point_value(call, point),
			      memory_order_release);
}

bool core_agree_all_arrived(const struct core_comm *comm, uint64_t call, uint64_t point)
{
	return core_agree_not_arrived(comm, call, point) < 0;
}

int core_agree_not_arrived(const struct core_comm *comm, uint64_t call, uint64_t point)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (atomic_load_explicit(&progress_of(comm, comm->near[i])->arrived,
					 memory_order_acquire) < point_value(call, point))
			return comm->near[i];
	}
	return -1;
}

enum { TRIED_BITS = 2 }; /* hold an enum core_together */

/* Release and acquire: a pair only for the sake of whoever reads the answer's consequences. */
void core_agree_try(struct core_comm *comm, uint64_t call, enum core_together together)
{
	atomic_store_explicit(&progress_of(comm, comm->rank)->tried,
			      (call + 1) << TRIED_BITS | together, memory_order_release);
}

enum util_status core_agree_tried(const struct core_comm *comm, uint64_t call,
				  enum core_together *together)
{
	*together = CORE_TOGETHER_YES;
	for (int i = 0; i < comm->num_near; i++) {
		uint64_t word = atomic_load_explicit(&progress_of(comm, comm->near[i])->tried,
						     memory_order_acquire);
		enum core_together told = (enum core_together)(word & ((1 << TRIED_BITS) - 1));

		if (word >> TRIED_BITS < call + 1)
			return UTIL_IN_PROGRESS;
		*together = told > *together ? told : *together;
	}
	return UTIL_OK;
}

/*
 * Release, the pair of the acquire in core_agree_has_shown: of what the kernel and the copies
 * wrote, which this host has seen to be done.
 */
void core_agree_show(struct core_comm *comm, uint64_t call)
{
	atomic_store_explicit(&progress_of(comm, comm->rank)->shown, call + 1,
			      memory_order_release);
}

bool core_agree_has_shown(const struct core_comm *comm, int rank, uint64_t call)
{
	return atomic_load_explicit(&progress_of(comm, rank)->shown, memory_order_acquire) >=
	       call + 1;
}

static _Atomic uint64_t *link_word(const struct core_comm *comm, int rank,
				   enum core_agree_words words, unsigned link)
{
	struct progress *progress = (struct progress *)(far_of(comm->area) + 1);
	struct links *links = (struct links *)(progress + core_mpi_job.local_size);

	return &links[core_comm_local_rank(comm, rank)].words[words][link];
}

/* Release, the pair of the acquire in core_agree_told. */
void core_agree_tell(const struct core_comm *comm, int rank, enum core_agree_words words,
		     unsigned link, uint64_t value)
{
	atomic_store_explicit(link_word(comm, rank, words, link), value, memory_order_release);
}

uint64_t core_agree_told(const struct core_comm *comm, enum core_agree_words words, unsigned link)
{
	return atomic_load_explicit(link_word(comm, comm->rank, words, link), memory_order_acquire);
}

static bool slot_is_free(struct core_comm *comm, uint64_t call)
{
	return call < CORE_AGREE_SLOTS || all_past(comm, call + 1 - CORE_AGREE_SLOTS);
}

bool core_agree_open(struct core_agree *agree, struct core_comm *comm, uint64_t call)
{
	*agree = (struct core_agree){.comm = comm, .call = call};
	return slot_is_free(comm, call);
}

void core_agree_announce(const struct core_agree *agree, const struct core_offer *offer,
			 const struct core_block *table)
{
	const struct core_comm *comm = agree->comm;
	struct desk *desk = desk_of(agree, comm->rank);

	desk->offer = *offer;
	if (table)
		memcpy(table_of(agree, comm->rank), table, (size_t)comm->size * sizeof(*table));
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

/*
 * The members here are of one mind. Where they are not all, the node is ready, which it can't take
 * back: the others may accelerate the call from then on, all of whom are ready, or hear of one that
 * is not. The calls in which it was ready are remembered, see core_agree_where.
 */
static void decide_here(const struct core_agree *agree)
{
	struct far *far = far_of(agree->comm->area);

	if (!agree->comm->spans) {
		decide(agree, CORE_AGREE_ACCEL);
		return;
	}
	if (!decide(agree, CORE_AGREE_READY))
		return;
	atomic_store(&far->ready[1], atomic_load(&far->ready[0]));
	atomic_store(&far->ready[0], agree->call + 1);
}

/* Release: who sees the word sees what all offers come to. */
void core_agree_settle(struct core_agree *agree, bool accel, const struct core_summary *common)
{
	uint64_t ready = word_value(agree, CORE_AGREE_READY);

	if (accel)
		((struct slot *)slot_at(agree->comm, agree->call))->common = *common;
	atomic_compare_exchange_strong(
		word_of(agree), &ready,
		word_value(agree, accel ? CORE_AGREE_ACCEL : CORE_AGREE_STAGE));
}

void core_agree_give_up(struct core_agree *agree)
{
	uint64_t ready = word_value(agree, CORE_AGREE_READY);

	core_agree_fail(agree->comm, agree->call);
	if (!decide(agree, CORE_AGREE_ACCEL))
		atomic_compare_exchange_strong(word_of(agree), &ready,
					       word_value(agree, CORE_AGREE_ACCEL));
}

const struct core_summary *core_agree_common(const struct core_agree *agree)
{
	return &((struct slot *)slot_at(agree->comm, agree->call))->common;
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
		if (passed(agree->comm, agree->comm->near[i]) > agree->call)
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
 * known before whether somebody is lost, see core_agree_is_lost.
 */
static void look_for_reason(struct core_agree *agree)
{
	bool passed = anybody_passed(agree);

	if (core_agree_is_lost(agree->comm))
		core_agree_give_up(agree);
	else if (passed)
		decide(agree, CORE_AGREE_STAGE);
}

/* Go on over the members whose offers are there. True: those of all are. */
static bool wait_for_members(struct core_agree *agree)
{
	for (; agree->seen < agree->comm->num_near; agree->seen++) {
		int rank = agree->comm->near[agree->seen];
		struct desk *desk = desk_of(agree, rank);

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
		struct desk *desk = desk_of(agree, agree->comm->near[agree->seen]);

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
	struct desk *desk = desk_of(agree, agree->comm->rank);

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

		if (!core_agree_has_come(agree, rank) && passed(comm, rank) <= agree->call)
			return rank;
	}
	return decision(agree) != CORE_AGREE_READY && agree->seen < comm->num_near
		       ? comm->near[agree->seen]
		       : -1;
}

int core_agree_behind(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (passed(comm, comm->near[i]) <= call)
			return comm->near[i];
	}
	return -1;
}

void core_agree_last_ready(const struct core_comm *comm, uint64_t ready[CORE_BOARD_REMEMBERED])
{
	const struct far *far = far_of(core_board_area(comm->slot));

	for (int i = 0; i < CORE_BOARD_REMEMBERED; i++)
		ready[i] = atomic_load(&far->lost) ? CORE_BOARD_LOST : atomic_load(&far->ready[i]);
}

static bool was_ready(const struct far *far, uint64_t call)
{
	return atomic_load(&far->ready[0]) == call + 1 || atomic_load(&far->ready[1]) == call + 1;
}

/*
 * Somebody on another node is in the call, and so all that members here can do in later calls
 * without it is to go to the real MPI, or to get ready and wait. So if they were ready for the call
 * it is the last but one at most for which they were. Members' counters first: a member that is
 * past the call has seen its word, if it made an offer, or the loss for which it made none.
 */
enum core_agree_state core_agree_where(const struct core_board_slot *slot, const void *area,
				       uint64_t call)
{
	const struct slot *s;
	bool anybody_past = false;
	uint64_t word;

	for (int i = 0; i < core_mpi_job.local_size; i++)
		anybody_past |= core_board_passed(slot, i) > call;
	if (atomic_load_explicit(&far_of(area)->lost, memory_order_acquire))
		return CORE_AGREE_LOST;
	s = (const struct slot *)((const char *)area + progress_bytes(core_mpi_job.local_size) +
				  call % CORE_AGREE_SLOTS * slot_bytes(core_mpi_job.local_size));
	word = atomic_load_explicit(&s->word, memory_order_acquire);
	if (word >> DECISION_BITS == call + 1) {
		enum core_agree_state state = word & ((1 << DECISION_BITS) - 1);

		return state == CORE_AGREE_STAGE && !was_ready(far_of(area), call)
			       ? CORE_AGREE_STAGE
			       : CORE_AGREE_READY;
	}
	if (!anybody_past)
		return CORE_AGREE_WAITING;
	return was_ready(far_of(area), call) ? CORE_AGREE_READY : CORE_AGREE_STAGE;
}
