/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the application gets is a generalized request, which completes when the queue says that the
 * operation has ended (core_queue.h). The real MPI's own request, of one that is staged, it never
 * sees.
 */
#include "core/core_mpi_queued.h"
#include "core/accel/core_accel.h"
#include "core/accel/core_ready.h"
#include "core/call/core_flags.h"
#include "core/choose/core_choice.h"
#include "core/core_mpi_check.h"
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_journal.h"
#include "core/report/core_stats.h"
#include "core/request/core_mpi_table.h"
#include "util/util_config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the operation ---- */

enum util_status core_mpi_queued_test(struct core_op *op)
{
	int done = 0;

	core_requests_pass = true;
	op->mpi_result = PMPI_Test(op->call.request, &done, MPI_STATUS_IGNORE);
	if (op->mpi_result != MPI_SUCCESS)
		return core_mpi_status_of(op->mpi_result);
	return done ? UTIL_OK : UTIL_IN_PROGRESS;
}

void core_mpi_queued_count(struct core_mpi_queued *queued)
{
	const struct core_op *op = &queued->queued.op;
	struct core_stats_call stats = {.coll = op->call.coll,
					.name = op->call.name,
					.path = op->path,
					.why = op->why,
					.comm_name = queued->comm_name,
					.bytes = op->bytes};

	if (queued->queued.status == UTIL_ERR_MPI)
		queued->queued.status = core_mpi_status_of(op->mpi_result);
	if (op->path == CORE_PATH_ACCEL && util_config.stats)
		core_stats_add_stages(op->accel.spent);
	core_stats_add_since(&stats, queued->queued.since);
	core_op_note_end(op, queued->queued.status);
	queued->pending.quiet |= queued->queued.raised;
}

struct core_mpi_queued *core_mpi_queued_of(struct core_queued *part)
{
	return (struct core_mpi_queued *)((char *)part - offsetof(struct core_mpi_queued, queued));
}

static void complete(struct core_queued *part)
{
	struct core_mpi_queued *queued = core_mpi_queued_of(part);

	core_mpi_queued_count(queued);
	PMPI_Grequest_complete(queued->pending.request);
}

/* ---- the generalized request ---- */

static int query(void *extra, MPI_Status *status)
{
	(void)extra;
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_ANY_SOURCE;
	status->MPI_TAG = MPI_ANY_TAG;
	return MPI_SUCCESS;
}

/* What hangs at the request in our table goes with its entry there. */
static int forget(void *extra)
{
	(void)extra;
	return MPI_SUCCESS;
}

/* MPI has no collective cancelled. */
static int cancel(void *extra, int complete)
{
	(void)extra;
	(void)complete;
	return MPI_SUCCESS;
}

/* ---- the entry in the table of requests ---- */

void core_mpi_queued_arrive(struct core_mpi_pending *pending, const MPI_Status *status)
{
	(void)status;
	core_last_path = ((struct core_mpi_queued *)pending)->queued.op.path;
	core_choice_forget();
}

enum util_status core_mpi_queued_progress(struct core_mpi_pending *pending)
{
	return ((struct core_mpi_queued *)pending)->queued.status;
}

void core_mpi_queued_describe(const struct core_mpi_pending *pending, char *text, size_t bytes)
{
	const struct core_mpi_queued *queued = (const struct core_mpi_queued *)pending;
	char awaited[160];

	core_queue_describe(&queued->queued, awaited, sizeof(awaited));
	snprintf(text, bytes, "call %llu on a communicator of %d ranks, for %s",
		 (unsigned long long)queued->queued.op.number, queued->size, awaited);
}

static void free_queued(struct core_mpi_pending *pending)
{
	core_mpi_kept_release(&((struct core_mpi_queued *)pending)->kept);
	free(pending);
}

static const struct core_mpi_pending_kind queued_kind = {
	.stays = true,
	.arrive = core_mpi_queued_arrive,
	.progress = core_mpi_queued_progress,
	.describe = core_mpi_queued_describe,
	.free = free_queued,
};

/* ---- the call ---- */

void core_mpi_queued_note_comm(struct core_mpi_queued *queued, const struct core_comm *comm,
			       core_handle handle)
{
	queued->size = comm->size;
	if (util_config.stats || util_config.debug >= UTIL_LOG_INFO)
		core_mpi_name(handle, queued->comm_name, sizeof(queued->comm_name));
}

/* The operation is started. False: it is to be staged at once. */
static bool prepare_queued(struct core_mpi_queued *queued, const struct core_call *call,
			   struct core_comm *comm, uint64_t number)
{
	struct core_op *op = &queued->queued.op;

	core_op_start(op, call, comm, number);
	if (op->accel_status != UTIL_OK)
		return false;
	op->test = core_mpi_queued_test;
	op->call.request = &queued->hidden;
	if (core_mpi_keep(&queued->kept, &op->call, comm) == UTIL_OK)
		return true;
	op->accel.reason = core_reason_text(CORE_REASON_NO_MEMORY);
	return false;
}

enum util_status core_mpi_queued_run(const struct core_call *call, struct core_comm *comm,
				     uint64_t number, int *result, const char **why)
{
	struct core_mpi_queued *queued = calloc(1, sizeof(*queued));
	struct core_note note;
	MPI_Request request;

	if (!queued)
		return UTIL_ERR_NO_MEMORY;
	core_mpi_pending_open(&queued->pending, &queued_kind, call->name, false);
	if (!prepare_queued(queued, call, comm, number) ||
	    PMPI_Grequest_start(query, forget, cancel, NULL, &request) != MPI_SUCCESS) {
		*why = queued->queued.op.accel.reason;
		core_accel_finish(&queued->queued.op.accel);
		free_queued(&queued->pending);
		return UTIL_STAGE;
	}
	core_mpi_pending_heed_comm(&queued->pending, call->comm);
	core_mpi_queued_note_comm(queued, comm, call->comm);
	note = core_journal_begin(call, comm, number);
	core_op_note(&queued->queued.op, &note);
	core_op_look_still(&queued->queued.op);
	core_check_call(call, comm, &note); /* which does not block, and so finds nothing yet */
	core_ready_mark(&queued->queued.op.accel);
	queued->queued.complete = complete;
	*(MPI_Request *)call->request = request;
	*result = core_mpi_table_begin(&queued->pending, request, false);
	core_queue_add(&queued->queued);
	core_drive_begin();
	return UTIL_OK;
}
