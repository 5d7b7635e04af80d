/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_meet.h"
#include "core/agree/core_area.h"

enum { POINT_BITS = 24 };

/*
 * Calls that the member is past. Acquire, the pair of core_meet_pass: what it did before is done.
 */
static uint64_t passed(const struct core_comm *comm, int rank)
{
	return core_board_passed(comm->slot, core_comm_local_rank(comm, rank));
}

bool core_meet_is_past(const struct core_comm *comm, int rank, uint64_t call)
{
	return passed(comm, rank) > call;
}

bool core_meet_anybody_past(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (core_meet_is_past(comm, comm->near[i], call))
			return true;
	}
	return false;
}

void core_meet_pass(struct core_comm *comm, uint64_t call)
{
	if (comm->slot && !comm->retired)
		core_board_publish(comm->slot, call + 1);
}

void core_meet_retire(struct core_comm *comm)
{
	if (!comm->slot || comm->retired)
		return;
	comm->retired = true;
	/* Before what it is the reason of: a queued call may have failed in another thread. */
	comm->no_area = CORE_REASON_CALL_FAILED;
	__atomic_store_n(&comm->area, NULL, __ATOMIC_RELEASE);
	core_board_publish(comm->slot, UINT64_MAX);
}

/* All members are past the calls below this number: remembered, since it only grows. */
bool core_meet_all_past(struct core_comm *comm, uint64_t calls)
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

bool core_meet_all_passed(struct core_comm *comm, uint64_t call)
{
	return core_meet_all_past(comm, call + 1);
}

/* Relaxed: core_meet_pass, which follows, orders it before what the readers have seen. */
void core_meet_fail(struct core_comm *comm, uint64_t call)
{
	struct core_area_progress *mine = core_area_progress_of(comm, comm->rank);

	atomic_store_explicit(&mine->failed[call % CORE_AGREE_SLOTS], call + 1,
			      memory_order_relaxed);
}

/* Relaxed, for the same reason. */
void core_meet_cut(struct core_comm *comm, uint64_t call)
{
	atomic_store_explicit(&core_area_progress_of(comm, comm->rank)->cut, call + 1,
			      memory_order_relaxed);
}

bool core_meet_was_cut(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (atomic_load_explicit(&core_area_progress_of(comm, comm->near[i])->cut,
					 memory_order_relaxed) == call + 1)
			return true;
	}
	return false;
}

static bool says_failed(const _Atomic uint64_t *failed, uint64_t call)
{
	return atomic_load_explicit(&failed[call % CORE_AGREE_SLOTS], memory_order_relaxed) > call;
}

/*
 * A member that is past the call may have failed in the next one by now, which is another slot's.
 * One that is CORE_AGREE_SLOTS later may take this one's place: then this one may be said to have
 * failed, never the reverse.
 */
bool core_meet_failed(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (says_failed(core_area_progress_of(comm, comm->near[i])->failed, call))
			return true;
	}
	return says_failed(core_area_far_of(comm->area)->failed, call);
}

/* Whoever comes with an older call is late. */
void core_meet_fail_far(void *area, uint64_t call)
{
	_Atomic uint64_t *failed = &core_area_far_of(area)->failed[call % CORE_AGREE_SLOTS];
	uint64_t old = atomic_load_explicit(failed, memory_order_relaxed);

	while (old < call + 1 && !atomic_compare_exchange_weak(failed, &old, call + 1))
		;
}

/* Release, the pair of core_meet_is_lost; see there. */
void core_meet_lose_far(void *area, bool revoked)
{
	struct core_area_far *far = core_area_far_of(area);

	if (revoked)
		atomic_store_explicit(&far->revoked, true, memory_order_relaxed);
	atomic_store_explicit(&far->lost, true, memory_order_release);
}

/* Also of a communicator that is retired. NULL: it has none. */
static struct core_area_far *far_of(const struct core_comm *comm)
{
	void *area = core_board_area(comm->slot);

	return area ? core_area_far_of(area) : NULL;
}

static void lose(const struct core_comm *comm, bool revoked)
{
	void *area = core_board_area(comm->slot);

	if (area)
		core_meet_lose_far(area, revoked);
}

void core_meet_lose(struct core_comm *comm)
{
	lose(comm, false);
}

void core_meet_revoke(struct core_comm *comm)
{
	lose(comm, true);
}

/*
 * Acquire. A member that gives a call up has seen the loss, and then says that it is past the call
 * (core_meet_pass, a release); so who has seen that (passed(), an acquire) and looks here, sees
 * the loss.
 */
bool core_meet_is_lost(const struct core_comm *comm)
{
	struct core_area_far *far = far_of(comm);

	return far && atomic_load_explicit(&far->lost, memory_order_acquire);
}

/* Relaxed: who has seen the loss sees why. */
bool core_meet_is_revoked(const struct core_comm *comm)
{
	struct core_area_far *far = far_of(comm);

	return far && atomic_load_explicit(&far->revoked, memory_order_relaxed);
}

static uint64_t point_value(uint64_t call, uint64_t point)
{
	return (call + 1) << POINT_BITS | point;
}

/* Release, the pair of the acquire in core_meet_all_arrived. */
void core_meet_arrive(struct core_comm *comm, uint64_t call, uint64_t point)
{
	atomic_store_explicit(&core_area_progress_of(comm, comm->rank)->arrived,
			      point_value(call, point), memory_order_release);
}

bool core_meet_all_arrived(const struct core_comm *comm, uint64_t call, uint64_t point)
{
	return core_meet_not_arrived(comm, call, point) < 0;
}

int core_meet_not_arrived(const struct core_comm *comm, uint64_t call, uint64_t point)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (atomic_load_explicit(&core_area_progress_of(comm, comm->near[i])->arrived,
					 memory_order_acquire) < point_value(call, point))
			return comm->near[i];
	}
	return -1;
}

enum { TRIED_BITS = 2 }; /* hold an enum core_together */

/* Release and acquire: a pair only for the sake of whoever reads the answer's consequences. */
void core_meet_try(struct core_comm *comm, uint64_t call, enum core_together together)
{
	atomic_store_explicit(&core_area_progress_of(comm, comm->rank)->tried,
			      (call + 1) << TRIED_BITS | together, memory_order_release);
}

enum util_status core_meet_tried(const struct core_comm *comm, uint64_t call,
				 enum core_together *together)
{
	*together = CORE_TOGETHER_YES;
	for (int i = 0; i < comm->num_near; i++) {
		uint64_t word = atomic_load_explicit(
			&core_area_progress_of(comm, comm->near[i])->tried, memory_order_acquire);
		enum core_together told = (enum core_together)(word & ((1 << TRIED_BITS) - 1));

		if (word >> TRIED_BITS < call + 1)
			return UTIL_IN_PROGRESS;
		*together = told > *together ? told : *together;
	}
	return UTIL_OK;
}

/*
 * Release, the pair of the acquire in core_meet_has_shown: of what the kernel and the copies
 * wrote, which this host has seen to be done.
 */
void core_meet_show(struct core_comm *comm, uint64_t call)
{
	atomic_store_explicit(&core_area_progress_of(comm, comm->rank)->shown, call + 1,
			      memory_order_release);
}

bool core_meet_has_shown(const struct core_comm *comm, int rank, uint64_t call)
{
	return atomic_load_explicit(&core_area_progress_of(comm, rank)->shown,
				    memory_order_acquire) >= call + 1;
}

/* Release, the pair of the acquire in core_meet_told. */
void core_meet_tell(const struct core_comm *comm, int rank, enum core_meet_words words,
		    unsigned link, uint64_t value)
{
	atomic_store_explicit(core_area_link_word(comm, rank, words, link), value,
			      memory_order_release);
}

uint64_t core_meet_told(const struct core_comm *comm, enum core_meet_words words, unsigned link)
{
	return atomic_load_explicit(core_area_link_word(comm, comm->rank, words, link),
				    memory_order_acquire);
}

int core_meet_behind(const struct core_comm *comm, uint64_t call)
{
	for (int i = 0; i < comm->num_near; i++) {
		if (passed(comm, comm->near[i]) <= call)
			return comm->near[i];
	}
	return -1;
}
