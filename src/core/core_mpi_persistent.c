/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A persistent collective has the state of a communicator of its own, over the same processes, of
 * which its starts are the calls (docs/decisions/0021-persistent-collectives.md). The real MPI's
 * own persistent request, on stages, is started in those rounds only that are to be staged. A rank
 * with host buffers starts it each time, which has the round staged; other ranks do not see it:
 * they have a receive of nothing from the process itself.
 */
#include "core/core_mpi_persistent.h"
#include "core/accel/core_accel.h"
#include "core/accel/core_ready.h"
#include "core/agree/core_meet.h"
#include "core/core_comm_life.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_ordered.h"
#include "core/core_mpi_queued.h"
#include "core/core_mpi_revoke.h"
#include "core/core_real.h"
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi_hold.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/p2p/core_message.h"
#include "core/report/core_journal.h"
#include "core/request/core_mpi_table.h"
#include "core/wire/core_arena_layout.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct persistent {
	struct core_mpi_queued base; /* first */
	struct core_call call;       /* on the application's buffers */
	struct core_call real;       /* the same on stages */
	struct core_staging staging; /* from the initialisation on */
	struct core_comm *comm;      /* NULL: it has none yet */
	int tag;                     /* of the message to oneself */
	struct core_mpi_hold hold;
	/*
	 * For the exchanges of sums in order, which may be begun in any order; and that the message
	 * to oneself is of the session that the call's communicator is of.
	 */
	MPI_Comm own;
	bool quiet; /* whether errors are returned; base.pending.quiet is of this round only */
};

static struct persistent *persistent_of(struct core_mpi_pending *pending)
{
	return (struct persistent *)pending;
}

/* ---- tags of messages to oneself ---- */

/* Those that were given back, the last one first, of as many as were ever drawn. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *free_tags, num_free, num_drawn;

/* -1: no memory. */
static int draw_tag(void)
{
	int tag = -1, *larger;

	pthread_mutex_lock(&lock);
	if (num_free) {
		tag = free_tags[--num_free];
	} else {
		larger = realloc(free_tags, ((size_t)num_drawn + 1) * sizeof(*larger));
		if (larger) {
			free_tags = larger;
			tag = num_drawn++;
		}
	}
	pthread_mutex_unlock(&lock);
	return tag;
}

static void put_tag(int tag)
{
	pthread_mutex_lock(&lock);
	free_tags[num_free++] = tag;
	pthread_mutex_unlock(&lock);
}

/* ---- rounds ---- */

/* Where the process's message to itself goes, and its rank there. */
static MPI_Comm comm_to_oneself(const struct persistent *persistent, int *rank)
{
	*rank = core_mpi_job.rank;
	if (persistent->own == MPI_COMM_NULL)
		return core_mpi_private_comm;
	PMPI_Comm_rank(persistent->own, rank);
	return persistent->own;
}

static void complete(struct core_queued *part)
{
	struct core_mpi_queued *queued = core_mpi_queued_of(part);
	const struct persistent *persistent = persistent_of(&queued->pending);
	bool outer = core_message_passes;
	int rank, result;
	MPI_Comm comm = comm_to_oneself(persistent, &rank);

	core_mpi_queued_count(queued);
	/* As the real MPI says: no round is to be begun in it again. */
	if (part->status == UTIL_ERR_REVOKED)
		core_meet_revoke(persistent->comm);
	core_message_passes = true;
	result = PMPI_Send(NULL, 0, MPI_BYTE, rank, persistent->tag, comm);
	core_message_passes = outer;
	if (result == MPI_SUCCESS)
		return;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "%s: a process can't send itself that it is complete", queued->pending.name);
	PMPI_Abort(MPI_COMM_WORLD, result);
}

static int start_hidden(const struct core_call *call)
{
	core_requests_pass = true;
	return PMPI_Start(call->request);
}

/* What is staged is a call of its own each time, on the stages. */
static void use_real(const struct persistent *persistent, struct core_call *call)
{
	call->sendbuf = persistent->real.sendbuf;
	call->recvbuf = persistent->real.recvbuf;
	call->comm = (core_handle)persistent->own;
}

static void queue(struct persistent *persistent)
{
	struct core_mpi_queued *base = &persistent->base;
	struct core_op *op = &base->queued.op;
	uint64_t number = persistent->comm->calls++;
	struct core_note note;

	base->queued.complete = complete;
	base->queued.status = UTIL_OK;
	base->pending.quiet = persistent->quiet;
	core_op_start(op, &persistent->call, persistent->comm, number);
	if (op->call.in_order)
		use_real(persistent, &op->call);
	note = core_journal_begin(&persistent->call, persistent->comm, number);
	core_op_note(op, &note);
	op->staging = &persistent->staging;
	op->test = core_mpi_queued_test;
	core_ready_mark(&op->accel);
	core_queue_add(&base->queued); /* core_drive_begin follows */
}

/* Others may have started it, and go on. */
static void give_up(struct persistent *persistent)
{
	core_meet_retire(persistent->comm);
}

static enum util_status prepare_start(struct core_mpi_pending *pending)
{
	(void)pending;
	return UTIL_OK;
}

static void started(struct core_mpi_pending *pending, bool well)
{
	if (well)
		queue(persistent_of(pending));
	else
		give_up(persistent_of(pending));
}

/* Who begins it once more meanwhile does not wait for this rank but in the MPI. */
static void end_comm(struct core_comm *comm)
{
	core_meet_retire(comm);
	core_journal_forget(comm);
	core_comm_life_end(comm);
}

/* Who revokes it at the same time has done so, or does not find it. */
static void forget_comm(struct core_comm *comm)
{
	core_mpi_revoke_hold();
	core_comm_draw_for(comm, 0, 0);
	core_mpi_revoke_release();
}

static void free_persistent(struct core_mpi_pending *pending)
{
	struct persistent *persistent = persistent_of(pending);

	if (persistent->comm)
		forget_comm(persistent->comm);
	if (persistent->base.hidden != MPI_REQUEST_NULL) {
		core_requests_pass = true;
		PMPI_Request_free(&persistent->base.hidden);
	}
	core_mpi_hold_release(&persistent->hold);
	if (persistent->own != MPI_COMM_NULL)
		PMPI_Comm_free(&persistent->own);
	if (persistent->tag >= 0)
		put_tag(persistent->tag);
	if (persistent->comm)
		end_comm(persistent->comm);
	core_staging_close(&persistent->staging);
	core_mpi_kept_release(&persistent->base.kept);
	free(persistent);
}

static const struct core_mpi_pending_kind persistent_kind = {
	.stays = true,
	.prepare = prepare_start,
	.started = started,
	.arrive = core_mpi_queued_arrive,
	.progress = core_mpi_queued_progress,
	.describe = core_mpi_queued_describe,
	.free = free_persistent,
};

/* ---- ranks with host buffers ---- */

static enum util_status pass(struct core_mpi_pending *pending)
{
	static const struct core_journal_end end = {.where = CORE_WHERE_GIVEN};
	const struct core_call *call = &persistent_of(pending)->call;
	struct core_comm *comm = persistent_of(pending)->comm;
	uint64_t number = comm->calls++;
	struct core_note note = core_journal_begin(call, comm, number);

	core_meet_pass(comm, number);
	core_journal_end(&note, &end);
	return UTIL_OK;
}

static void passed(struct core_mpi_pending *pending, bool well)
{
	if (!well)
		give_up(persistent_of(pending));
}

static void arrive_nothing(struct core_mpi_pending *pending, const MPI_Status *status)
{
	(void)pending;
	(void)status;
}

static void describe_host(const struct core_mpi_pending *pending, char *text, size_t bytes)
{
	snprintf(text, bytes, "on a communicator of %d ranks",
		 ((const struct core_mpi_queued *)pending)->size);
}

static const struct core_mpi_pending_kind host_kind = {
	.stays = true,
	.prepare = pass,
	.started = passed,
	.arrive = arrive_nothing,
	.progress = prepare_start,
	.describe = describe_host,
	.free = free_persistent,
};

/* ---- the initialisation ---- */

/* What the ranks tell each other; of each number the largest counts. */
struct says {
	uint64_t device;    /* whether a buffer is in device memory */
	uint64_t refuses;   /* whether the call can't be accelerated, as far as this rank sees */
	uint64_t no_memory; /* whether there was none for a stage */
	uint64_t bytes;     /* of this rank's buffers */
	uint64_t sessions;  /* whether its program has some, of which the communicator may be */
};

static bool can_be_accelerated(struct persistent *persistent, struct core_comm *parent,
			       bool *has_data, uint64_t *bytes)
{
	struct core_op *op = &persistent->base.queued.op;
	bool can;

	core_op_start(op, &persistent->call, parent, 0);
	can = op->accel_status == UTIL_OK;
	*has_data = can && core_shape_has_data(&op->accel.shape);
	*bytes = can ? core_shape_bytes(&op->accel.shape) : 0;
	core_accel_finish(&op->accel);
	return can;
}

/* Who has no data goes with those who have it on devices. */
static bool look_at_parent(struct persistent *persistent, struct core_comm *parent,
			   struct says *says)
{
	struct core_mpi_queued *base = &persistent->base;
	enum util_status status;
	bool has_data;

	if (!core_queue_takes(parent) ||
	    (!can_be_accelerated(persistent, parent, &has_data, &says->bytes) &&
	     !persistent->call.in_order) ||
	    core_mpi_keep(&base->kept, &persistent->call, parent) != UTIL_OK)
		return false;
	persistent->real = persistent->call;
	status = core_staging_open(&persistent->staging, &persistent->real);
	says->no_memory = status == UTIL_ERR_NO_MEMORY;
	if (status != UTIL_OK)
		return false;
	says->device = persistent->staging.num_stages > 0;
	if (has_data && !says->device && !persistent->call.in_order)
		base->pending.kind = &host_kind;
	return true;
}

/* NULL: no memory. */
static struct persistent *prepare_call(const struct core_call *call, struct core_comm *parent,
				       bool looks, struct says *says)
{
	struct persistent *persistent = calloc(1, sizeof(*persistent));

	looks |= call->in_order;
	*says = (struct says){
		.refuses = true,
		.sessions = __atomic_load_n(&core_mpi_job_has_sessions, __ATOMIC_RELAXED)};
	if (!persistent)
		return NULL;
	core_mpi_pending_open(&persistent->base.pending, looks ? &persistent_kind : &host_kind,
			      call->name, true);
	persistent->base.hidden = MPI_REQUEST_NULL;
	persistent->base.queued.ended = true;
	persistent->tag = -1;
	persistent->own = MPI_COMM_NULL;
	persistent->call = persistent->real = *call;
	says->refuses = looks && !look_at_parent(persistent, parent, says);
	return persistent;
}

/* Whether all ranks are to have the call here, which all see alike. */
static bool agree(const struct core_call *call, struct says *says)
{
	struct says mine = *says;

	return PMPI_Allreduce(&mine, says, sizeof(mine) / sizeof(uint64_t), MPI_UINT64_T, MPI_MAX,
			      core_mpi_as_comm(call->comm)) == MPI_SUCCESS &&
	       (says->device || call->in_order) && !says->refuses;
}

static int make_request(struct persistent *persistent, MPI_Request *request)
{
	bool outer = core_message_passes;
	MPI_Comm comm;
	int rank, result;

	persistent->tag = draw_tag();
	if (persistent->tag < 0)
		return core_mpi_raise(&persistent->call, UTIL_ERR_NO_MEMORY);
	comm = comm_to_oneself(persistent, &rank);
	core_message_passes = true;
	result = PMPI_Recv_init(NULL, 0, MPI_BYTE, rank, persistent->tag, comm, request);
	core_message_passes = outer;
	return result == MPI_SUCCESS ? result
				     : core_mpi_raise(&persistent->call, UTIL_ERR_NO_MEMORY);
}

/* A duplicate would run the application's callbacks for attributes. */
static int split_off(struct persistent *persistent)
{
	MPI_Comm comm = core_mpi_as_comm(persistent->call.comm);
	MPI_Errhandler handler;
	int rank, result;

	PMPI_Comm_rank(comm, &rank);
	result = PMPI_Comm_split(comm, 0, rank, &persistent->own);
	if (result != MPI_SUCCESS)
		return result;
	PMPI_Comm_get_errhandler(comm, &handler);
	PMPI_Comm_set_errhandler(persistent->own, handler);
	return PMPI_Errhandler_free(&handler);
}

static int begin_in_order(struct persistent *persistent)
{
	int result = split_off(persistent);

	core_mpi_hold_keep(&persistent->hold, persistent->call.recvtype, persistent->call.op);
	if (result == MPI_SUCCESS)
		core_comm_draw_for(persistent->comm, persistent->comm->of,
				   (core_handle)persistent->own);
	return result;
}

/* Open MPI completes receives together only if they are of one session. */
static bool needs_session(const struct says *says)
{
#ifdef OPEN_MPI
	return says->sessions;
#else
	(void)says;
	return false;
#endif
}

static int begin_real(struct persistent *persistent, const struct says *says)
{
	int result = MPI_SUCCESS;

	if (persistent->call.in_order)
		return begin_in_order(persistent);
	if (needs_session(says))
		result = split_off(persistent);
	return result == MPI_SUCCESS ? core_real_call(&persistent->real, NULL) : result;
}

/* The real MPI's request, and the application's. */
static int begin_start(struct persistent *persistent, const struct says *says)
{
	struct core_mpi_pending *pending = &persistent->base.pending;
	MPI_Request *request = persistent->call.request;
	int result;

	if (pending->kind == &persistent_kind)
		persistent->real.request = &persistent->base.hidden;
	result = begin_real(persistent, says);
	persistent->call.request = &persistent->base.hidden;
	if (!persistent->call.in_order)
		persistent->call.real = start_hidden;
	if (result == MPI_SUCCESS && pending->kind == &persistent_kind)
		result = make_request(persistent, request);
	if (result == MPI_SUCCESS)
		return core_mpi_table_begin(pending, *request, false);
	give_up(persistent);
	free_persistent(pending);
	return result;
}

static bool any_order;

/* Intel MPI 2021, which has MPICH's ABI, is wrong where ranks start them in different orders. */
static void look_at_mpi(void)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int length;

	PMPI_Get_library_version(text, &length);
	any_order = !strstr(text, "Intel(R) MPI");
}

/* Whether the real MPI's may be started in any order, as those are that come to be staged. */
static bool start_in_any_order(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_at_mpi);
	return any_order;
}

enum util_status core_mpi_persistent_run(const struct core_call *call, struct core_comm *parent,
					 bool looks, int *result)
{
	struct persistent *persistent;
	struct says says;

	/* Nor are they to change places with nonblocking ones. */
	if (!call->in_order && !start_in_any_order()) {
		core_queue_yield(parent);
		parent->queue.closed = true;
	}
	if (!parent->slot || parent->queue.closed)
		return UTIL_STAGE;
	/* It waits for others, and pins memory, for which the driver may wait for kernels. */
	core_drive_yield();
	persistent = prepare_call(call, parent, looks, &says);
	if (agree(call, &says) && persistent)
		persistent->comm =
			core_mpi_comm_draw(call->comm, core_coll_is_neighbor(call->coll));
	if (!persistent || !persistent->comm) {
		if (persistent)
			free_persistent(&persistent->base.pending);
		if (!says.no_memory)
			return UTIL_STAGE;
		*result = core_mpi_raise(call, UTIL_ERR_NO_MEMORY);
		return UTIL_OK;
	}
	persistent->comm->links.most_arena = core_arena_layout_enough(says.bytes);
	core_mpi_queued_note_comm(&persistent->base, parent, call->comm);
	core_mpi_pending_heed_comm(&persistent->base.pending, call->comm);
	persistent->quiet = persistent->base.pending.quiet;
	*result = begin_start(persistent, &says);
	return UTIL_OK;
}
