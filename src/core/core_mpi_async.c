/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking and persistent collectives (docs/decisions/0018-nonblocking-collectives.md).
 * Those that may be accelerated are queued (core_mpi_queued.h, core_mpi_persistent.h). All others
 * are the real MPI's, on stages in host memory; what is to be copied out hangs at their requests
 * (src/core/request).
 */
#include "core/core_mpi_async.h"
#include "core/agree/core_meet.h"
#include "core/call/core_flags.h"
#include "core/call/core_reason.h"
#include "core/choose/core_choice.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_ordered.h"
#include "core/core_mpi_persistent.h"
#include "core/core_mpi_queued.h"
#include "core/core_number.h"
#include "core/core_queue.h"
#include "core/core_real.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/mpi/core_mpi_type.h"
#include "core/report/core_journal.h"
#include "core/report/core_stats.h"
#include "core/request/core_mpi_table.h"
#include "core/stage/core_staging.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdio.h>
#include <stdlib.h>

enum copying {
	COPYING_NOTHING,
	COPYING_DUE, /* what the collective has brought is to be copied out */
	COPYING_OUT,
};

struct async {
	struct core_mpi_pending pending; /* first */
	struct core_call call;           /* with the stages in place of the buffers */
	struct core_staging staging;
	enum copying copying; /* under pending.settling */
	int size;             /* of the communicator */
};

static struct async *async_of(struct core_mpi_pending *pending)
{
	return (struct async *)pending;
}

static enum util_status wait_for_call(enum util_status (*progress)(struct core_staging *),
				      struct core_staging *staging)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = progress(staging)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	return status;
}

/*
 * The call waits for earlier work on the buffers and for the copies, as cudaMemcpy would; for no
 * other process.
 */
static enum util_status fill(struct core_mpi_pending *pending)
{
	struct core_staging *staging = &async_of(pending)->staging;
	enum util_status status = wait_for_call(core_staging_ready, staging);

	if (status == UTIL_OK)
		status = core_staging_copy_in(staging);
	if (status == UTIL_OK)
		status = wait_for_call(core_staging_poll, staging);
	core_staging_rest(staging);
	return status;
}

static void arrive_async(struct core_mpi_pending *pending, const MPI_Status *status)
{
	(void)status;
	async_of(pending)->copying = COPYING_DUE;
}

static enum util_status progress_async(struct core_mpi_pending *pending)
{
	struct async *async = async_of(pending);
	enum util_status status = UTIL_OK;

	if (async->copying == COPYING_NOTHING)
		return UTIL_OK;
	if (async->copying == COPYING_DUE && core_ordered_end(&async->call) != MPI_SUCCESS)
		status = UTIL_ERR_MPI;
	else if (async->copying == COPYING_DUE)
		status = core_staging_copy_out(&async->staging);
	async->copying = COPYING_OUT;
	if (status == UTIL_OK)
		status = core_staging_poll(&async->staging);
	if (status == UTIL_IN_PROGRESS)
		return status;
	core_staging_rest(&async->staging);
	async->copying = COPYING_NOTHING;
	return status;
}

/* Its communicator may have been freed by now, so it has no name. */
static void describe_async(const struct core_mpi_pending *pending, char *text, size_t bytes)
{
	snprintf(text, bytes, "on a communicator of %d ranks",
		 ((const struct async *)pending)->size);
}

static void free_async(struct core_mpi_pending *pending)
{
	core_staging_close(&async_of(pending)->staging);
	core_ordered_close(&async_of(pending)->call);
	free(pending);
}

static const struct core_mpi_pending_kind async_kind = {
	.prepare = fill,
	.arrive = arrive_async,
	.progress = progress_async,
	.describe = describe_async,
	.free = free_async,
};

/* One call of the application's, as the others of its communicator are to see it. */
struct place {
	struct core_comm *comm; /* NULL: nobody counts */
	uint64_t number;        /* of the call on it; a persistent one has none */
	uint64_t since;         /* util_now */
	const char *why;        /* the reason for which it is staged, if it is */
};

/* Persistent calls are matched by their initialisation, and so are not counted. */
static struct place place_of(const struct core_call *call)
{
	struct place place = {.since = util_now(),
			      .why = core_reason_text(CORE_REASON_NONBLOCKING)};

	if (!call->persistent) {
		place.comm = core_number(call, &place.number);
		return place;
	}
	if (core_awake)
		place.comm = core_mpi_comm_find(call->comm);
	place.why = core_reason_text(CORE_REASON_PERSISTENT);
	return place;
}

static void count_call(const struct core_call *call, const struct place *place, enum core_path path,
		       uint64_t bytes)
{
	struct core_stats_call stats = {.coll = call->coll,
					.name = call->name,
					.path = path,
					.why = path == CORE_PATH_STAGE ? place->why
								       : "host buffers",
					.comm = call->comm,
					.bytes = bytes};

	core_last_path = path;
	core_choice_forget();
	if (path == CORE_PATH_PASS && !util_config.stats)
		return;
	if (path == CORE_PATH_PASS)
		stats.bytes = core_mpi_call_bytes(call);
	core_stats_add_since(&stats, place->since);
}

/* What the real MPI has is not looked at any more. An error handler may free the communicator. */
static int make_noted(const struct core_call *call, const struct place *place, enum core_path path)
{
	struct core_note note = core_journal_begin(call, place->comm, place->number);
	struct core_journal_end end = {.path = path, .why = place->why};
	int result;

	core_check_call(call, place->comm,
			&note); /* which does not block, and so finds nothing yet */
	if (place->comm) {
		core_queue_yield(place->comm);
		core_meet_pass(place->comm, place->number);
	}
	core_note_where(&note, CORE_WHERE_REAL);
	if (path == CORE_PATH_STAGE && core_mpi_is_revoked(call->comm)) /* as in core_op.c */
		result = core_mpi_raise(call, UTIL_ERR_REVOKED);
	else
		result = core_real_call(call, place->comm);
	end.where = result ? CORE_WHERE_FAILED : CORE_WHERE_GIVEN;
	core_journal_end(&note, &end);
	return result;
}

/* After what is queued. Of a persistent one it is noted by run_persistent. */
static int call_real(const struct core_call *call, const struct place *place, enum core_path path)
{
	if (!call->persistent)
		return make_noted(call, place, path);
	if (place->comm)
		core_queue_yield(place->comm);
	return core_real_call(call, NULL);
}

/* Takes the operation. */
static int begin_async(struct async *async, const struct place *place)
{
	int result;

	PMPI_Comm_size(core_mpi_as_comm(async->call.comm), &async->size);
	core_mpi_pending_heed_comm(&async->pending, async->call.comm);
	result = call_real(&async->call, place, CORE_PATH_STAGE);
	if (result != MPI_SUCCESS) {
		free_async(&async->pending);
		return result;
	}
	count_call(&async->call, place, CORE_PATH_STAGE, core_staging_bytes(&async->staging));
	return core_mpi_table_begin(&async->pending, *(MPI_Request *)async->call.request, true);
}

static int pass(const struct core_call *call, const struct place *place)
{
	int result = call_real(call, place, CORE_PATH_PASS);

	if (result == MPI_SUCCESS)
		count_call(call, place, CORE_PATH_PASS, 0);
	return result;
}

/* The others are in the real MPI, without this process. */
static int fail_call(const struct core_call *call, const struct place *place,
		     enum util_status status)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s", call->name,
		 util_status_text(status));
	if (place->comm && !call->persistent) {
		core_queue_yield(place->comm);
		core_meet_retire(place->comm);
	}
	return core_mpi_raise(call, status);
}

static int stage(const struct core_call *call, const struct place *place)
{
	struct async *async = calloc(1, sizeof(*async));
	enum util_status status;

	if (!async)
		return fail_call(call, place, UTIL_ERR_NO_MEMORY);
	core_mpi_note_comm(call->comm);
	core_mpi_pending_open(&async->pending, &async_kind, call->name, call->persistent);
	async->call = *call;
	status = core_staging_open(&async->staging, &async->call);
	if (status == UTIL_OK && !async->staging.num_stages && !call->in_order) {
		free_async(&async->pending);
		return pass(call, place);
	}
	if (status == UTIL_OK && !call->persistent)
		status = fill(&async->pending);
	if (status == UTIL_OK)
		status = core_ordered_open(&async->call);
	if (status == UTIL_OK)
		return begin_async(async, place);
	free_async(&async->pending);
	return fail_call(call, place, status);
}

/* Of a persistent call, the real MPI's request. */
static int give_persistent(const struct core_call *call, const struct place *place, bool device)
{
	struct core_call real = *call;

	if (call->in_order)
		core_ordered_give_up(&real, place->comm ? "of which there are too many at a time"
							: "on a communicator that the library "
							  "does not know");
	return device ? stage(&real, place) : pass(&real, place);
}

/* The initialisation, which is one of the communicator's operations, and waits for the others. */
static int run_persistent(const struct core_call *call, const struct place *place, bool device)
{
	struct core_note note = core_journal_begin(call, place->comm, 0);
	struct core_journal_end end = {.path = CORE_PATH_PASS};
	int result = core_check_call(call, place->comm, &note), error = result;

	core_note_where(&note, CORE_WHERE_REAL);
	if (!error && !(place->comm &&
			core_mpi_persistent_run(call, place->comm, device, &result) == UTIL_OK))
		result = give_persistent(call, place, device);
	end.where = result ? CORE_WHERE_FAILED : CORE_WHERE_GIVEN;
	core_journal_end(&note, &end);
	return error ? core_check_raise(call->comm, error) : result;
}

int core_async_run_host(const struct core_call *call)
{
	struct place place = place_of(call);

	if (call->persistent)
		return run_persistent(call, &place, false);
	return call->in_order ? stage(call, &place) : pass(call, &place);
}

int core_async_run(const struct core_call *call)
{
	struct place place;
	int result;

	util_config_load(); /* a process with MPI sessions only has not been through core_start */
	place = place_of(call);
	if (call->persistent)
		return run_persistent(call, &place, true);
	if (place.comm && core_queue_takes(place.comm) &&
	    core_mpi_queued_run(call, place.comm, place.number, &result, &place.why) == UTIL_OK)
		return result;
	return stage(call, &place);
}
