/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_failure.h"
#include "core/accel/core_links.h"
#include "core/agree/core_lost.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/report/core_dump.h"
#include "core/wire/core_wire.h"
#include "util/util_log.h"
#include "util/util_time.h"

enum util_status core_failure_of_loss(const struct core_comm *comm)
{
	if (core_meet_is_revoked(comm))
		return UTIL_ERR_REVOKED;
	for (int i = 0; i < comm->num_near; i++) {
		if (core_mpi_has_ended(core_comm_local_rank(comm, comm->near[i])))
			return UTIL_ERR_LOST;
	}
	return comm->spans && core_lost_has_some(comm->size, comm->members) ? UTIL_ERR_LOST
									    : UTIL_ERR_PEER;
}

enum util_status core_failure_refuse(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	comm->lost = true;
	if (comm->spans && !comm->told_loss)
		core_nodes_tell_failure(comm, accel->number);
	accel->reason = core_reason_text(CORE_REASON_RANK_LOST);
	core_meet_pass(comm, accel->number);
	return core_failure_of_loss(comm);
}

enum util_status core_failure_lose_device(struct core_accel *accel)
{
	core_meet_lose(accel->comm);
	core_failure_refuse(accel);
	return UTIL_ERR_CUDA;
}

enum util_status core_failure_stage(struct core_accel *accel, enum core_reason reason)
{
	return accel->stream && gpu_stream_is_lost(accel->stream) ? core_failure_lose_device(accel)
								  : core_accel_stage(accel, reason);
}

/* Look at what costs a system call or more only now and then; true then. */
static bool is_time_to_look(struct core_accel *accel)
{
	enum { POLLS = 256 };

	return ++accel->polls % POLLS == 0;
}

static void log_loss(const struct core_accel *accel, int rank)
{
	const struct core_comm *comm = accel->comm;

	if (core_meet_is_revoked(comm)) {
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE,
			 "communicator %#llx was revoked before call %llu was through",
			 (unsigned long long)comm->id, (unsigned long long)accel->number);
		return;
	}
	if (rank < 0)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "communicator %#llx has lost a rank in call %llu, as another rank says",
			 (unsigned long long)comm->id, (unsigned long long)accel->number);
	else
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "rank %d of communicator %#llx, rank %d of MPI_COMM_WORLD, is lost in "
			 "call %llu",
			 rank, (unsigned long long)comm->id, comm->members[rank].process,
			 (unsigned long long)accel->number);
	core_dump("a rank is lost");
}

/* Found here, or told by another. */
static bool has_lost_member(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	int rank;

	if (comm->lost)
		return true;
	rank = core_lost_find(comm, accel->number);
	if (rank >= 0)
		core_meet_lose(comm);
	if (!core_meet_is_lost(comm))
		return false;
	log_loss(accel, rank);
	comm->lost = true;
	return true;
}

/*
 * A failed or dead member will not do its part. A dead one will not pass the call either, so look
 * for dead members even after someone has reported a failure.
 */
static bool is_in_vain(struct core_accel *accel)
{
	bool lost = has_lost_member(accel);

	return lost || core_meet_failed(accel->comm, accel->number);
}

bool core_failure_has_lost(struct core_accel *accel)
{
	return core_meet_is_lost(accel->comm) || (is_time_to_look(accel) && has_lost_member(accel));
}

void core_failure_give_up(struct core_accel *accel)
{
	if (is_time_to_look(accel) && is_in_vain(accel))
		core_agree_give_up(&accel->agree);
}

void core_failure_look(struct core_accel *accel)
{
	if (!is_time_to_look(accel))
		return;
	if (accel->linked && accel->schedule)
		core_links_miss(accel);
	if (!is_in_vain(accel))
		return;
	if (accel->running)
		gpu_launch_abort(&accel->launch);
	core_accel_keep(accel, UTIL_ERR_PEER);
}

/*
 * Members that live are waited for, as they may still read this one's memory. Once all are past the
 * call, who was lost, or failed, in a later one takes nothing from it. That is asked again at the
 * end: a member that raised the flag which was seen here may have passed this call just before.
 */
bool core_failure_has_met(struct core_accel *accel)
{
	bool vain;

	if (core_meet_all_passed(accel->comm, accel->number))
		return true;
	vain = (is_time_to_look(accel) && is_in_vain(accel)) || accel->result != UTIL_OK;
	if (!vain || core_lost_find_behind(&accel->agree) >= 0)
		return false;
	if (!core_meet_all_passed(accel->comm, accel->number))
		core_accel_keep(accel, UTIL_ERR_PEER);
	return true;
}

/*
 * What other nodes should hear of a failure does not leave for ever, if it is they who are gone. A
 * message that does not come may be the first to tell of a loss: it is to be known to all before
 * the next call, which some of them could leave to the real MPI.
 */
static enum util_status tell_failure(struct core_accel *accel)
{
	static const uint64_t patience = UTIL_SECONDS(2); /* ns */

	if (!accel->failed_at) {
		accel->failed_at = util_now();
		has_lost_member(accel);
		core_nodes_tell_failure(accel->comm, accel->number);
	}
	return core_nodes_has_told(accel->comm) || util_now() - accel->failed_at > patience
		       ? UTIL_OK
		       : UTIL_IN_PROGRESS;
}

/*
 * What UCX reads from and writes to the application's memory must end before the application has
 * it back. Who is alive lets go of it soon; a connection to who does not is broken off.
 */
static enum util_status recall_memory(struct core_accel *accel)
{
	/* ns; and as much again for what was broken off */
	static const uint64_t patience = UTIL_SECONDS(2);
	uint64_t waited = util_now() - accel->failed_at;

	if (!core_wire_has_memory(accel->comm->wire))
		return UTIL_OK;
	if (waited > patience && !accel->broken_off) {
		accel->broken_off = true;
		core_links_break_off(accel);
	}
	if (waited <= 2 * patience)
		return UTIL_IN_PROGRESS;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "UCX does not let go of the buffers of call %llu of communicator %#llx, which has "
		 "failed",
		 (unsigned long long)accel->number, (unsigned long long)accel->comm->id);
	return UTIL_OK;
}

enum util_status core_failure_settle(struct core_accel *accel)
{
	enum util_status status = tell_failure(accel);

	return status == UTIL_OK ? recall_memory(accel) : status;
}

void core_failure_give_up_device(struct core_accel *accel)
{
	if (accel->result == UTIL_ERR_CUDA && accel->stream && gpu_stream_is_lost(accel->stream))
		core_meet_lose(accel->comm);
}
