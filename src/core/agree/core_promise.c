/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_promise.h"
#include "core/agree/core_area.h"

/* core_area_far.decided: the call, + 1, above this bit, which says that it was promised. */
enum { COMMITTED = 1, CALL_SHIFT = 1 };

/* Who looks for the older one, the newer one first, finds it at any time, also while it moves. */
static void remember(struct core_area_far *far, uint64_t call)
{
	atomic_store(&far->ready[1], atomic_load(&far->ready[0]));
	atomic_store(&far->ready[0], call + 1);
}

void core_promise_make(void *area, uint64_t call)
{
	remember(core_area_far_of(area), call);
}

void core_promise_forget(void *area, uint64_t call)
{
	struct core_area_far *far = core_area_far_of(area);

	if (atomic_load(&far->ready[0]) != call + 1)
		return;
	atomic_store(&far->ready[0], atomic_load(&far->ready[1]));
}

/* The first one for a call counts, and the word only grows. */
static bool decide(struct core_area_far *far, uint64_t call, uint64_t what)
{
	uint64_t old = atomic_load(&far->decided);

	while (old >> CALL_SHIFT < call + 1) {
		if (atomic_compare_exchange_weak(&far->decided, &old,
						 (call + 1) << CALL_SHIFT | what))
			return true;
	}
	return false;
}

/*
 * Nobody is told before it is remembered: who is told goes on, and may decide a later call, whose
 * word takes the place of this one's.
 */
bool core_promise_commit(void *area, uint64_t call)
{
	struct core_area_far *far = core_area_far_of(area);

	if (!decide(far, call, COMMITTED))
		return false;
	remember(far, call);
	return true;
}

void core_promise_prevent(void *area, uint64_t call)
{
	decide(core_area_far_of(area), call, 0);
}

/*
 * Who asks for a call is not past it, and so no later one can have been accelerated: the only one
 * that may be remembered is one for which the node is ready just now.
 */
bool core_promise_was_made(const void *area, uint64_t call)
{
	const struct core_area_far *far = core_area_far_of(area);

	return atomic_load(&far->ready[0]) == call + 1 || atomic_load(&far->ready[1]) == call + 1;
}

/* Where a later call was decided, somebody is past this one: it was promised long ago, or never. */
bool core_promise_is_prevented(const void *area, uint64_t call)
{
	const struct core_area_far *far = core_area_far_of(area);
	uint64_t word = atomic_load(&far->decided);

	if (word >> CALL_SHIFT == call + 1)
		return !(word & COMMITTED);
	return word >> CALL_SHIFT > call + 1 && !core_promise_was_made(area, call);
}

bool core_promise_is_being_made(const void *area, uint64_t call)
{
	const struct core_area_far *far = core_area_far_of(area);

	return atomic_load(&far->decided) == ((call + 1) << CALL_SHIFT | COMMITTED) &&
	       atomic_load(&far->ready[0]) < call + 1;
}

void core_promise_last(const void *area, uint64_t ready[CORE_BOARD_REMEMBERED])
{
	const struct core_area_far *far = core_area_far_of(area);

	for (int i = 0; i < CORE_BOARD_REMEMBERED; i++)
		ready[i] = !atomic_load(&far->lost)     ? atomic_load(&far->ready[i])
			   : atomic_load(&far->revoked) ? CORE_BOARD_REVOKED
							: CORE_BOARD_LOST;
}
