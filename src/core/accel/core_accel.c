/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_accel.h"
#include "core/accel/core_accel_rounds.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_links.h"
#include "core/accel/core_mixed.h"
#include "core/accel/core_plan.h"
#include "core/accel/core_prepare.h"
#include "core/accel/core_reach.h"
#include "core/accel/core_ready.h"
#include "core/accel/core_reserve.h"
#include "core/accel/core_times.h"
#include "core/accel/core_together.h"
#include "core/accel/core_vote.h"
#include "core/agree/core_meet.h"
#include "core/call/core_flags.h"
#include "core/exec/core_steps.h"
#include "core/mpi/core_mpi.h"
#include "net/net_port.h"
#include "net/net_rest.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <string.h>

enum util_status core_accel_stage(struct core_accel *accel, enum core_reason reason)
{
	accel->reason = core_reason_text(reason);
	return UTIL_STAGE;
}

/* The time since the last mark was spent with the stage. */
static void mark(struct core_accel *accel, enum core_stats_stage stage)
{
	uint64_t now;

	if (!util_config.stats)
		return;
	now = util_now();
	accel->spent[stage] += now - accel->since;
	accel->since = now;
}

static void init(struct core_accel *accel, struct core_comm *comm, uint64_t number)
{
	accel->state = CORE_ACCEL_OFFER;
	accel->comm = comm;
	accel->number = number;
	accel->note = NULL;
	accel->shape.many = NULL;
	accel->inside = accel->launches = accel->truncates = false;
	accel->running = accel->withdrawn = accel->ready = false;
	accel->steps.args.enqueued = 0;
	accel->marks = NULL;
	accel->stream = NULL;
	accel->scratch = NULL;
	accel->broken_off = accel->gdr = false;
	accel->proof = (struct core_proof){.state = CORE_PROOF_NONE};
	accel->clearing = accel->reserved = accel->linked = accel->links.tries = false;
	accel->scattered = accel->waits = false;
	accel->passes_descriptors = core_reach_passes_descriptors(comm);
	accel->eager = (struct core_accel_eager){0};
	accel->touches = accel->plain = true;
	accel->polls = 0;
	accel->moves = accel->steps.moves = 0;
	accel->failed_at = accel->reached.missed_at = 0;
	accel->windows = (struct core_accel_windows){.rounds.num = 1};
	accel->schedule = NULL;
	accel->sched = NULL;
	accel->times = NULL;
	accel->reached.passed_to = 0;
	accel->reached.told = accel->reached.refused = false;
	accel->reason = NULL;
	accel->result = UTIL_OK;
	memset(accel->spent, 0, sizeof(accel->spent));
	accel->since = util_config.stats ? util_now() : 0;
}

enum util_status core_accel_start(struct core_accel *accel, const struct core_call *call,
				  struct core_comm *comm, uint64_t number)
{
	enum core_reason reason;

	init(accel, comm, number);
	accel->nonblocking = call->request != NULL;
	if (!util_config.accel)
		return core_accel_stage(accel, CORE_REASON_ACCEL_OFF);
	if (call->coll == CORE_REDUCE_LOCAL)
		return core_accel_stage(accel, CORE_REASON_NO_FORM);
	/* A call on host buffers that is to be the library's for its order. */
	if (!gpu_driver_present())
		return core_accel_stage(accel, CORE_REASON_HOST_BUFFER);
	if (!comm || !core_awake) /* persistent ones outlive MPI_Finalize, on a session's */
		return core_accel_stage(accel, CORE_REASON_NO_IDENTITY);
	if (!comm->area)
		return core_accel_stage(accel, comm->no_area);
	if (!core_shape_clear(&accel->shape, comm->size))
		return core_accel_stage(accel, CORE_REASON_NO_MEMORY);
	reason = core_mpi_shape(call, comm, &accel->shape);
	return reason ? core_accel_stage(accel, reason) : UTIL_OK;
}

static enum util_status offer(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	if (!comm->area) /* a call before this one in the queue has failed */
		return core_accel_stage(accel, comm->no_area);
	if (accel->withdrawn && !core_meet_is_lost(comm))
		return core_accel_stage(accel, CORE_REASON_LATER_CALL);
	/* A call that has waited, in a queue too: others may have gone to the real MPI long ago. */
	if ((accel->nonblocking || accel->state == CORE_ACCEL_SLOT) &&
	    core_meet_anybody_past(comm, accel->number) && !core_meet_is_lost(comm)) {
		core_mixed_note(comm, accel->shape.coll, true);
		return core_accel_stage(accel, CORE_REASON_OTHERS_CHOICE);
	}
	/* All members on the node are through the last probe's call. */
	if (comm->links.together == CORE_TOGETHER_LATE)
		comm->links.together = CORE_TOGETHER_UNKNOWN;
	if (core_eager_is_left(accel))
		return core_accel_stage(accel, CORE_REASON_SHORT);
	if (core_meet_is_lost(comm))
		return core_failure_refuse(accel);
	if (core_mixed_is_habit(comm, &accel->shape) && !core_mixed_asks(accel->number))
		return core_accel_stage(accel, CORE_REASON_OTHERS_CHOICE);
	/* A rank with no data goes with those that have some, where they may be on devices. */
	if (!core_shape_has_data(&accel->shape) && !gpu_context_is_current() && !comm->accelerated)
		return core_accel_stage(accel, CORE_REASON_NO_DATA);
	return UTIL_OK;
}

/*
 * Some member is so far behind that there is no slot for the call. What the program has queued can
 * wait: a member that comes to the call has left the slot. And where ranks that stage calls for
 * themselves are to meet again (core_mixed_asks), all wait.
 */
static enum util_status wait_for_slot(struct core_accel *accel)
{
	if (!accel->nonblocking && !core_mixed_asks(accel->number))
		return core_accel_stage(accel, CORE_REASON_TOO_FAR_APART);
	if (accel->state != CORE_ACCEL_SLOT)
		core_accel_go(accel, CORE_ACCEL_SLOT);
	return core_failure_has_lost(accel) ? core_failure_refuse(accel) : UTIL_IN_PROGRESS;
}

/* Nothing is held while it waits for a slot, and all is looked at each time. */
static enum util_status step_offer(struct core_accel *accel)
{
	enum util_status status = offer(accel);

	if (status == UTIL_OK && !core_agree_has_slot(accel->comm, accel->number))
		status = wait_for_slot(accel);
	if (status != UTIL_OK)
		return status;
	core_reach_enter(accel);
	status = core_prepare_offer(accel);
	if (status == UTIL_OK)
		core_accel_go(accel, CORE_ACCEL_READY);
	return status;
}

/* Of what is on the stream nothing is left to others who get it. */
static enum util_status stage_withdrawn(struct core_accel *accel)
{
	enum util_status status = accel->eager.fetching ? gpu_stream_poll(accel->stream) : UTIL_OK;

	if (status == UTIL_IN_PROGRESS)
		return status;
	return core_meet_is_lost(accel->comm) ? core_failure_refuse(accel)
					      : core_accel_stage(accel, CORE_REASON_LATER_CALL);
}

bool core_accel_is_ahead(const struct core_accel *accel)
{
	return accel->state == CORE_ACCEL_SLOT;
}

void core_accel_withdraw(struct core_accel *accel)
{
	bool agrees = accel->state == CORE_ACCEL_AGREE && !accel->withdrawn;

	if (agrees && core_meet_is_lost(accel->comm))
		core_agree_give_up(&accel->agree);
	else if (agrees && core_agree_withdraw(&accel->agree))
		accel->reason = core_reason_text(CORE_REASON_LATER_CALL);
	accel->withdrawn = true;
}

void core_accel_finish(struct core_accel *accel)
{
	core_shape_release(&accel->shape);
	core_ready_close(accel);
	if (!accel->inside) /* it was staged at once, and has nothing else */
		return;
	core_reach_leave(accel);
	if (accel->reserved)
		core_reserve_give_back(accel);
	if (accel->times)
		core_times_end(accel);
	if (accel->schedule)
		core_schedule_put(accel->schedule);
	if (accel->launches)
		gpu_launch_close(&accel->launch);
	core_reserve_put_windows(accel);
	if (accel->scratch)
		gpu_scratch_put(accel->scratch);
	if (accel->comm && accel->comm->spans)
		net_rest_leave();
	if (accel->stream)
		gpu_stream_put(accel->stream);
}

uint64_t core_accel_moves(const struct core_accel *accel)
{
	return accel->moves + accel->steps.moves;
}

bool core_accel_carries(const struct core_accel *accel)
{
	bool steps = accel->state == CORE_ACCEL_RUN || accel->state == CORE_ACCEL_LAST;

	return steps && accel->running && core_steps_carry(&accel->steps);
}

static enum util_status start(struct core_accel *accel)
{
	enum util_status status;

	mark(accel, CORE_STATS_AGREE);
	core_note_where(accel->note, CORE_WHERE_LAUNCH);
	/* What was decided when somebody was lost may not have been agreed on by all. */
	if (core_meet_failed(accel->comm, accel->number)) {
		accel->linked = true;
		accel->reason = "another rank's failure";
		core_accel_keep(accel, UTIL_ERR_PEER);
		core_accel_go(accel, CORE_ACCEL_RUN);
		return UTIL_OK;
	}
	core_reach_again(accel);
	status = core_plan_make(accel);
	if (status == UTIL_STAGE)
		return status;
	if (core_reach_has_lost(accel)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "memory of another process, which was mapped, can't be mapped again");
		accel->result = UTIL_ERR_CUDA;
	}
	core_accel_keep(accel, status);
	if (accel->links.tries) {
		if (accel->result == UTIL_OK)
			core_accel_keep(accel, core_together_try(accel));
		core_accel_go(accel, CORE_ACCEL_TRY);
	} else {
		core_accel_begin(accel);
	}
	mark(accel, CORE_STATS_LAUNCH);
	return UTIL_OK;
}

/* `status`: of the kernel. */
static enum core_together what_probe_says(const struct core_accel *accel, enum util_status status)
{
	if (status == UTIL_OK && accel->result == UTIL_OK)
		return CORE_TOGETHER_YES;
	return status == UTIL_ERR_PEER && accel->launch.late ? CORE_TOGETHER_LATE
							     : CORE_TOGETHER_NO;
}

/* The kernel first, then the others' answers. */
static enum util_status wait_for_try(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;
	enum core_together together;

	if (accel->running)
		status = gpu_launch_poll(&accel->launch);
	if (status == UTIL_IN_PROGRESS)
		return status;
	if (accel->links.tries) {
		accel->links.tries = accel->running = false;
		if (status != UTIL_OK && status != UTIL_ERR_PEER)
			core_accel_keep(accel, status);
		core_meet_try(accel->comm, accel->number, what_probe_says(accel, status));
	}
	status = core_meet_tried(accel->comm, accel->number, &together);
	if (status == UTIL_OK)
		core_together_set(accel->comm, together);
	/* Who failed before it came here has nothing to tell. */
	if (status == UTIL_IN_PROGRESS) {
		core_failure_look(accel);
		if (accel->result != UTIL_OK)
			status = UTIL_OK;
	}
	return status;
}

/* Go through one state. UTIL_OK: the next one is due. */
static enum util_status step_accel(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	enum util_status status = UTIL_OK;

	switch (accel->state) {
	case CORE_ACCEL_OFFER:
	case CORE_ACCEL_SLOT:
		status = step_offer(accel);
		break;
	case CORE_ACCEL_READY:
		status = accel->withdrawn ? stage_withdrawn(accel) : core_vote_announce(accel);
		if (status == UTIL_OK)
			core_accel_go(accel, CORE_ACCEL_AGREE);
		break;
	case CORE_ACCEL_AGREE:
		status = core_vote_progress(accel);
		if (status == UTIL_OK)
			status = start(accel);
		break;
	case CORE_ACCEL_TRY:
		status = wait_for_try(accel);
		if (status == UTIL_OK) {
			core_links_decide(accel);
			core_accel_begin(accel);
		}
		break;
	case CORE_ACCEL_FILL:
		status = core_accel_wait_for_copies(accel);
		if (status == UTIL_OK)
			core_accel_muster(accel);
		break;
	case CORE_ACCEL_MUSTER:
		if (!core_meet_all_arrived(comm, accel->number, accel->windows.round + 1)) {
			core_failure_look(accel);
			if (!comm->lost)
				return UTIL_IN_PROGRESS;
		}
		core_accel_start_round(accel);
		break;
	case CORE_ACCEL_RUN:
		status = core_accel_wait_for_steps(accel);
		if (status == UTIL_OK)
			status = core_accel_wait_for_copies(accel);
		if (status == UTIL_OK && accel->comm->spans)
			core_note_where(accel->note, CORE_WHERE_WIRE);
		if (status == UTIL_OK)
			status = core_accel_drain(accel);
		if (status == UTIL_OK)
			core_accel_end_round(accel);
		break;
	case CORE_ACCEL_MEET:
		if (!core_failure_has_met(accel))
			return UTIL_IN_PROGRESS;
		accel->truncates |=
			core_meet_was_cut(comm, accel->number) && comm->rank == accel->shape.root;
		core_accel_start_last(accel);
		break;
	case CORE_ACCEL_LAST:
		status = core_accel_wait_for_steps(accel);
		if (status == UTIL_OK)
			status = core_accel_wait_for_copies(accel);
		if (status == UTIL_OK)
			core_accel_go(accel, CORE_ACCEL_DONE);
		break;
	case CORE_ACCEL_DONE:
		break;
	}
	return status;
}

/* Through the states, until something is to be waited for. */
static enum util_status go_on_accel(struct core_accel *accel)
{
	static const enum core_stats_stage stages[CORE_ACCEL_DONE] = {
		[CORE_ACCEL_OFFER] = CORE_STATS_CLASSIFY, [CORE_ACCEL_SLOT] = CORE_STATS_AGREE,
		[CORE_ACCEL_READY] = CORE_STATS_READY,    [CORE_ACCEL_AGREE] = CORE_STATS_LAUNCH,
		[CORE_ACCEL_FILL] = CORE_STATS_RUN,       [CORE_ACCEL_MUSTER] = CORE_STATS_RUN,
		[CORE_ACCEL_TRY] = CORE_STATS_RUN,        [CORE_ACCEL_RUN] = CORE_STATS_RUN,
		[CORE_ACCEL_MEET] = CORE_STATS_MEET,      [CORE_ACCEL_LAST] = CORE_STATS_LAST,
	};

	while (accel->state != CORE_ACCEL_DONE) {
		enum core_accel_state before = accel->state;
		enum util_status status = step_accel(accel);

		if (status != UTIL_OK)
			return status;
		mark(accel, stages[before]);
	}
	if (accel->result == UTIL_OK && accel->truncates)
		accel->result = UTIL_ERR_TRUNCATE;
	if (accel->result == UTIL_ERR_PEER)
		accel->result = core_failure_of_loss(accel->comm);
	return accel->result;
}

/*
 * What there is to send goes first; there is time to look for what has come in a wait, and as long
 * as something comes the caller need not be asked for more of it.
 */
enum util_status core_accel_progress(struct core_accel *accel)
{
	enum { MOST_LOOKS = 16 };
	enum util_status status;
	int looks = 0;
	bool moved;

	do {
		moved = accel->waits && accel->comm->spans && net_progress(NET_MAIN);
		status = go_on_accel(accel);
		accel->waits = status == UTIL_IN_PROGRESS;
	} while (accel->waits && moved && ++looks < MOST_LOOKS);
	return status;
}
