/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_accel_rounds.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_place.h"
#include "core/accel/core_window.h"
#include "core/agree/core_meet.h"
#include "core/exec/core_steps.h"
#include "core/wire/core_wire.h"

void core_accel_go(struct core_accel *accel, enum core_accel_state state)
{
	accel->state = state;
	accel->moves++;
	core_note_where(accel->note, CORE_WHERE_OFFER + (enum core_where)state);
}

enum util_status core_accel_wait_for_steps(struct core_accel *accel)
{
	enum util_status status;

	if (!accel->running)
		return UTIL_OK;
	if (accel->result == UTIL_OK) {
		status = core_steps_progress(&accel->steps);
		if (status == UTIL_IN_PROGRESS) {
			/* The second phase is this rank's alone. */
			if (accel->linked && accel->steps.phase == 0)
				core_failure_look(accel);
			return status;
		}
		core_accel_keep(accel, status);
	}
	if (core_steps_settle(&accel->steps) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	accel->truncates |= accel->steps.truncates;
	accel->running = false;
	return UTIL_OK;
}

static void start_steps(struct core_accel *accel,
			enum util_status (*begin)(struct core_accel *accel))
{
	if (accel->result == UTIL_OK)
		core_accel_keep(accel, begin(accel));
	/* The first launch, at once. */
	if (accel->running)
		core_accel_wait_for_steps(accel);
}

/* Of several copies the first ones may be under way where a later one fails. */
static void start_copies(struct core_accel *accel, uint64_t round,
			 enum util_status (*copy)(struct core_accel *accel, uint64_t round))
{
	if (accel->result != UTIL_OK)
		return;
	accel->windows.copying = accel->windows.copies != NULL;
	core_accel_keep(accel, copy(accel, round));
}

void core_accel_start_round(struct core_accel *accel)
{
	start_steps(accel, core_place_begin);
	if (accel->windows.round > 0)
		start_copies(accel, accel->windows.round - 1, core_window_drain);
	if (accel->windows.round + 1 < accel->windows.rounds.num)
		start_copies(accel, accel->windows.round + 1, core_window_fill);
	core_accel_go(accel, CORE_ACCEL_RUN);
}

void core_accel_begin(struct core_accel *accel)
{
	if (accel->windows.rounds.width) {
		start_copies(accel, 0, core_window_fill);
		core_accel_go(accel, CORE_ACCEL_FILL);
	} else {
		core_accel_start_round(accel);
	}
}

enum util_status core_accel_wait_for_copies(struct core_accel *accel)
{
	enum util_status status =
		accel->windows.copying ? gpu_stream_poll(accel->windows.copies) : UTIL_OK;

	if (status == UTIL_IN_PROGRESS)
		return status;
	accel->windows.copying = false;
	core_accel_keep(accel, status);
	return UTIL_OK;
}

enum util_status core_accel_drain(struct core_accel *accel)
{
	enum util_status status;

	if (!accel->comm->spans)
		return UTIL_OK;
	if (accel->result == UTIL_OK && accel->eager.taken)
		return UTIL_OK;
	if (accel->result == UTIL_OK) {
		status = core_wire_drain(accel->comm->wire);
		if (status == UTIL_IN_PROGRESS)
			core_failure_look(accel);
		else
			core_accel_keep(accel, status);
	} else {
		status = UTIL_OK;
	}
	if (accel->result == UTIL_OK)
		return status;
	return core_failure_settle(accel);
}

void core_accel_start_last(struct core_accel *accel)
{
	if (core_meet_failed(accel->comm, accel->number))
		core_accel_keep(accel, UTIL_ERR_PEER);
	start_steps(accel, core_place_begin_last);
	start_copies(accel, accel->windows.round, core_window_drain);
	core_accel_go(accel, CORE_ACCEL_LAST);
}

/* In a gather, of what comes for the root: if that is too long it is the root's error. */
static bool is_carrier(const struct core_accel *accel)
{
	return accel->touches && accel->linked && accel->schedule &&
	       accel->sched->request.coll == SCHED_GATHER && accel->comm->rank != accel->shape.root;
}

/* This rank's part is done or has failed: say so, which the others wait for. */
static void pass(struct core_accel *accel)
{
	if (accel->result != UTIL_OK) {
		core_failure_give_up_device(accel);
		accel->comm->links.failed = true;
		core_meet_fail(accel->comm, accel->number);
	}
	if (accel->truncates && is_carrier(accel)) {
		core_meet_cut(accel->comm, accel->number);
		accel->truncates = false;
	}
	core_meet_pass(accel->comm, accel->number);
	if (accel->touches)
		core_accel_go(accel, CORE_ACCEL_MEET);
	else
		core_accel_start_last(accel);
}

void core_accel_muster(struct core_accel *accel)
{
	core_meet_arrive(accel->comm, accel->number, accel->windows.round + 1);
	core_accel_go(accel, CORE_ACCEL_MUSTER);
}

void core_accel_end_round(struct core_accel *accel)
{
	if (accel->windows.round + 1 == accel->windows.rounds.num) {
		pass(accel);
		return;
	}
	accel->windows.round++;
	core_accel_muster(accel);
}
