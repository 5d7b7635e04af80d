/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_queue.h"
#include "core/accel/core_accel.h"
#include "core/agree/core_meet.h"
#include "core/core_mpi_check.h"
#include "core/exec/core_steps.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_progress.h"
#include "core/report/core_dump.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdio.h>

/* Held by who drives, never waited for. */
static pthread_mutex_t driving = PTHREAD_MUTEX_INITIALIZER;

/*
 * Of who drives: what the real MPI has, in turns; of which the results are being copied; and of
 * whose end the application is to be told.
 */
static struct core_queued *issued, *issued_last, *copying, *done;
static int num_copying;
static _Thread_local bool is_driving;
static _Thread_local struct core_queued *mine; /* for which this thread calls MPI, the innermost */

/* What a step is for. */
struct drive {
	bool calls;                 /* it may call MPI */
	bool yields;                /* what is not decided is to be staged */
	const struct core_comm *of; /* of this communicator; NULL: of all */
	uint64_t newest;            /* up to this ticket; 0: it does not yield at all */
	bool adds;                  /* calls were added: what there was before can wait */
	bool moved;                 /* something has come nearer */
};

static bool progress_alone(void);

static struct core_progress progress = {
	.name = "gpucoll-progress", .is_there = core_queue_list_any, .step = progress_alone};

bool core_queue_takes(const struct core_comm *comm)
{
	return comm->area && !comm->queue.closed && core_progress_start(&progress);
}

/* If the real MPI has it the communicator may have been freed. */
static void end_queued(struct core_queued *queued, enum util_status status)
{
	struct core_op *op = &queued->op;
	bool is_in_real = op->path != CORE_PATH_ACCEL;

	queued->status = status;
	queued->ended = true;
	queued->raised |= op->mpi_result != 0;
	if (status != UTIL_OK && is_in_real && core_op_is_issued(op)) {
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE, "%s failed", op->call.name);
	} else if (status != UTIL_OK) {
		bool quiet = op->comm->warned || status == UTIL_ERR_REVOKED;

		util_log(quiet ? UTIL_LOG_INFO : UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s failed, call %llu on communicator %#llx of %d ranks", op->call.name,
			 (unsigned long long)op->number, (unsigned long long)op->comm->id,
			 op->comm->size);
		if (!quiet)
			core_dump("a call has failed");
		op->comm->warned |= op->comm->lost;
		if (is_in_real) /* where the others are */
			core_meet_retire(op->comm);
	}
	core_op_finish(op);
}

static void push(struct core_queued **list, struct core_queued *queued)
{
	queued->next = *list;
	*list = queued;
}

/* What the real MPI has goes round, so that no step asks about all. */
static void push_issued(struct core_queued *queued)
{
	queued->next = NULL;
	*(issued ? &issued_last->next : &issued) = queued;
	issued_last = queued;
}

static struct core_queued *pop_issued(void)
{
	struct core_queued *queued = issued;

	issued = queued->next;
	return queued;
}

static void end_one_left(struct core_queued *queued)
{
	bool was_issued = core_op_is_issued(&queued->op);

	queued->raised = true;
	end_queued(queued, UTIL_ERR_MPI);
	if (!was_issued)
		core_queue_list_remove_head(queued->op.comm);
	push(&done, queued);
}

/* The calls that the thread was in, inside that for `queued`, were left by a jump; NULL: all. */
static void end_left(const struct core_queued *queued)
{
	struct core_queued *outer;

	for (; mine != queued; mine = outer) {
		outer = mine->outer;
		end_one_left(mine);
	}
}

static void leave_pass(void)
{
	pthread_mutex_lock(&driving);
	end_left(NULL);
	pthread_mutex_unlock(&driving);
	core_drive_holds = false;
}

/*
 * Progress by the call, or a test. An error handler of the application may be called in it, call
 * MPI itself, or never return: so others may drive meanwhile, and nothing is held but this
 * operation.
 */
static enum util_status call_mpi(struct core_queued *queued)
{
	enum util_status status;

	queued->held = true;
	queued->outer = mine;
	mine = queued;
	core_drive_holds = true;
	is_driving = false;
	pthread_mutex_unlock(&driving);
	status = core_op_progress(&queued->op, CORE_OP_ALL);
	pthread_mutex_lock(&driving);
	is_driving = true;
	end_left(queued);
	mine = queued->outer;
	core_drive_holds = mine != NULL;
	queued->held = false;
	return status;
}

/*
 * While this process carries messages for a kernel, it does nothing for other calls: the driver may
 * have it wait for that kernel. Whether that is so for this one; NULL: for what the real MPI has.
 */
static bool must_wait(const struct core_queued *queued)
{
	return core_steps_any_carry() && !(queued && queued->op.state == CORE_OP_ACCEL &&
					   core_accel_carries(&queued->op.accel));
}

/*
 * Whether the rank goes on to a call that the others may make before they come to this one. There
 * is no use in waiting a moment for others that are calls behind.
 */
static bool is_to_yield(const struct core_queued *queued, const struct drive *drive)
{
	const struct core_op *op = &queued->op;

	if ((drive->of && drive->of != op->comm) || queued->ticket > drive->newest)
		return false;
	return drive->yields || (op->state == CORE_OP_ACCEL && core_accel_is_ahead(&op->accel));
}

/* Returns whether others may have driven meanwhile. */
static bool drive_queue(struct core_comm *comm, struct drive *drive)
{
	struct core_queued *queued = __atomic_load_n(&comm->queue.head, __ATOMIC_RELAXED), *next;
	enum util_status status;
	bool let_others = false;
	uint64_t moves;

	for (; queued && !queued->held && !must_wait(queued); queued = next) {
		moves = core_op_moves(&queued->op);
		if (is_to_yield(queued, drive))
			core_op_withdraw(&queued->op);
		status = comm->queue.end
				 ? UTIL_ERR_MPI
				 : core_op_progress(&queued->op,
						    drive->calls ? CORE_OP_LOCAL : CORE_OP_ALONE);
		if (status == UTIL_IN_PROGRESS && drive->calls && core_op_is_to_call(&queued->op)) {
			status = call_mpi(queued);
			let_others = true;
		}
		drive->moved |= core_op_moves(&queued->op) != moves;
		if (status == UTIL_IN_PROGRESS && !core_op_is_issued(&queued->op))
			return let_others;
		drive->moved = true;
		/* The communicator may be gone as soon as its queue is empty. */
		if (status != UTIL_IN_PROGRESS)
			end_queued(queued, status);
		next = core_queue_list_remove_head(comm);
		if (status == UTIL_IN_PROGRESS)
			push_issued(queued);
		else
			push(&done, queued);
	}
	return let_others;
}

/*
 * Where others may have driven the list is another one, so begin again. That ends: a call has gone
 * to the real MPI each time.
 */
static void drive_queues(struct drive *drive)
{
	enum { MOST_ADDED = 4 };
	struct core_comm *comm = core_queue_list_next(NULL), *next;
	int num = 0;

	/* Communicators that had nothing in their queues stand first. */
	for (; comm && (!drive->adds || num++ < MOST_ADDED); comm = next) {
		next = core_queue_list_next(comm);
		if (drive_queue(comm, drive))
			next = core_queue_list_next(NULL);
	}
}

static void finish(struct core_queued *queued, enum util_status status)
{
	end_queued(queued, status);
	push(&done, queued);
}

/* Copies to the device are begun for a few at a time, as each needs a stream. */
static void drive_copying(void)
{
	struct core_queued **link = &copying, *queued;
	enum util_status status;

	while ((queued = *link)) {
		status = core_op_progress(&queued->op, CORE_OP_LOCAL);
		if (status == UTIL_IN_PROGRESS) {
			link = &queued->next;
			continue;
		}
		*link = queued->next;
		num_copying--;
		finish(queued, status);
	}
}

static void drive_issued(void)
{
	enum { MOST_TESTS = 2, MOST_COPIES = 8 };
	struct core_queued *queued;
	enum util_status status;
	int tests = 0;

	if (must_wait(NULL))
		return;
	drive_copying();
	while (issued && tests < MOST_TESTS && num_copying < MOST_COPIES) {
		queued = pop_issued();
		status = call_mpi(queued);
		if (status != UTIL_IN_PROGRESS) {
			finish(queued, status);
		} else if (core_op_is_to_call(&queued->op)) {
			push_issued(queued);
			tests++;
		} else {
			push(&copying, queued);
			num_copying++;
		}
	}
}

/* When MPI knows that one is complete another thread may free it. */
static void complete_done(void)
{
	struct core_queued *queued;

	while ((queued = done)) {
		done = queued->next;
		__atomic_fetch_sub(&core_drive_pending, 1, __ATOMIC_RELAXED);
		queued->complete(queued);
	}
}

static void drive_all(struct drive *drive)
{
	if (is_driving || pthread_mutex_trylock(&driving))
		return;
	is_driving = true;
	drive_queues(drive);
	if (drive->calls) {
		if (!drive->adds)
			drive_issued();
		complete_done();
	}
	is_driving = false;
	pthread_mutex_unlock(&driving);
}

static void step_queues(void)
{
	struct drive drive = {.calls = true};

	if (__atomic_load_n(&core_check_pending, __ATOMIC_RELAXED))
		core_check_look();
	drive_all(&drive);
}

void core_queue_add(struct core_queued *queued)
{
	queued->since = util_now();
	/* It may have been here before, and been left by a jump. */
	queued->raised = queued->ended = queued->held = false;
	__atomic_fetch_add(&core_drive_pending, 1, __ATOMIC_RELAXED);
	core_queue_list_append(queued);
}

static void begin_pass(void)
{
	struct drive drive = {.calls = true, .adds = true};

	drive_all(&drive);
	if (core_queue_list_any())
		core_progress_wake(&progress);
}

static bool progress_alone(void)
{
	struct drive drive = {.calls = false};

	drive_all(&drive);
	return drive.moved;
}

/* Whether this thread calls MPI for it, further out: who waits for that one waits for himself. */
static bool is_mine(const struct core_queued *queued)
{
	const struct core_queued *one = mine;

	while (one && one != queued)
		one = one->outer;
	return one != NULL;
}

void core_queue_yield(struct core_comm *comm)
{
	static const uint64_t moment = 100000; /* ns */
	struct drive drive = {.calls = true, .of = comm};
	struct core_wait wait = {0};
	uint64_t since;

	if (is_driving || !(comm ? core_queue_holds(comm) : core_queue_list_any()))
		return;
	since = util_now();
	drive.newest = core_queue_list_newest();
	/* What was there by now, but for what waits for this thread; others may go on queueing. */
	while (core_queue_list_has(comm, drive.newest, is_mine)) {
		drive.yields = util_now() - since > moment;
		drive_all(&drive);
		if (core_queue_list_has(comm, drive.newest, is_mine))
			core_mpi_drive(&wait);
	}
}

void core_queue_close(struct core_comm *comm, void (*end)(struct core_comm *comm))
{
	core_queue_yield(comm);
	if (!core_queue_holds(comm)) {
		end(comm);
		return;
	}
	core_meet_retire(comm);
	comm->queue.end = end;
}

static void describe_queued(const struct core_queued *queued, char *text, size_t bytes)
{
	if (queued->held)
		snprintf(text, bytes, "the real MPI");
	else if (queued->ended)
		snprintf(text, bytes, "the program to be told");
	else
		core_op_describe(&queued->op, text, bytes);
}

void core_queue_describe_first(const struct core_comm *comm, char *text, size_t bytes)
{
	const struct core_queued *first;

	snprintf(text, bytes, "earlier nonblocking calls");
	if (pthread_mutex_trylock(&driving))
		return;
	first = __atomic_load_n(&comm->queue.head, __ATOMIC_ACQUIRE);
	if (first)
		describe_queued(first, text, bytes);
	pthread_mutex_unlock(&driving);
}

void core_queue_describe(const struct core_queued *queued, char *text, size_t bytes)
{
	const struct core_queued *first = queued;

	snprintf(text, bytes, "what goes on");
	if (pthread_mutex_trylock(&driving))
		return;
	if (!queued->held && !queued->ended && !core_op_is_issued(&queued->op))
		first = __atomic_load_n(&queued->op.comm->queue.head, __ATOMIC_ACQUIRE);
	describe_queued(first ? first : queued, text, bytes);
	pthread_mutex_unlock(&driving);
}

static void yield_all(void)
{
	core_queue_yield(NULL);
}

void core_queue_start(void)
{
	static const struct core_drive_calls calls = {
		.step = step_queues, .begin = begin_pass, .yield = yield_all, .leave = leave_pass};

	core_drive_set(&calls);
}

void core_queue_stop(void)
{
	core_progress_stop(&progress);
}
