/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_queue.h"
#include "core/agree/core_meet.h"
#include "core/core_progress.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_drive.h"
#include "core/report/core_stats.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdio.h>

/*
 * Held by who drives, never waited for. The queues' links are changed under `lists`, too, which is
 * held for moments only: the application appends, and only who drives takes out.
 */
static pthread_mutex_t driving = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;

static struct core_comm *busy;     /* communicators with something in the queue */
static struct core_queued *issued; /* the real MPI has them. Of who drives */
static struct core_queued *done;   /* to be completed by a thread of the application. The same */
static _Thread_local bool is_driving;

/* What a step is for. */
struct drive {
	bool calls;                 /* it may call MPI */
	bool yields;                /* what is not decided is to be staged */
	const struct core_comm *of; /* of this communicator; NULL: of all */
	bool moved;                 /* something has come nearer */
};

static bool has_work(void)
{
	return __atomic_load_n(&busy, __ATOMIC_ACQUIRE) != NULL;
}

static bool progress_alone(void);

static const struct core_progress_work work = {.is_there = has_work, .step = progress_alone};

bool core_queue_takes(const struct core_comm *comm)
{
	/* Over several nodes a node that is ready for a call can't take that back. */
	return comm->area && !comm->spans && core_progress_start(&work);
}

static void append(struct core_queued *queued)
{
	struct core_comm *comm = queued->op.comm;

	queued->next = NULL;
	pthread_mutex_lock(&lists);
	if (comm->queue.head) {
		comm->queue.tail->next = queued;
	} else {
		__atomic_store_n(&comm->queue.head, queued, __ATOMIC_RELEASE);
		comm->queue.next = busy;
		__atomic_store_n(&busy, comm, __ATOMIC_RELEASE);
	}
	comm->queue.tail = queued;
	pthread_mutex_unlock(&lists);
}

/*
 * By who drives. Returns the next one. If there is none the communicator may be gone.
 * Release: who finds the queue empty finds what was done for the last call done.
 */
static struct core_queued *remove_head(struct core_comm *comm)
{
	struct core_comm **link = &busy;
	struct core_queued *next;

	pthread_mutex_lock(&lists);
	next = comm->queue.head->next;
	while (!next && *link != comm)
		link = &(*link)->queue.next;
	if (!next)
		__atomic_store_n(link, comm->queue.next, __ATOMIC_RELEASE);
	__atomic_store_n(&comm->queue.head, next, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lists);
	return next;
}

static struct core_comm *next_busy(const struct core_comm *comm)
{
	struct core_comm *next;

	pthread_mutex_lock(&lists);
	next = comm ? comm->queue.next : busy;
	pthread_mutex_unlock(&lists);
	return next;
}

/* If the real MPI has it the communicator may have been freed. */
static void end(struct core_queued *queued, enum util_status status)
{
	struct core_op *op = &queued->op;
	bool is_in_real = op->path != CORE_PATH_ACCEL;

	queued->status = status;
	if (status != UTIL_OK && is_in_real && core_op_is_issued(op)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed", op->call.name);
	} else if (status != UTIL_OK) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s failed, call %llu on communicator %#llx of %d ranks", op->call.name,
			 (unsigned long long)op->number, (unsigned long long)op->comm->id,
			 op->comm->size);
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

static void drive_queue(struct core_comm *comm, struct drive *drive)
{
	struct core_queued *queued = __atomic_load_n(&comm->queue.head, __ATOMIC_RELAXED), *next;
	enum util_status status;
	uint64_t moves;

	for (; queued; queued = next) {
		moves = core_op_moves(&queued->op);
		if (drive->yields && (!drive->of || drive->of == comm))
			core_op_withdraw(&queued->op);
		status = core_op_progress(&queued->op, drive->calls);
		drive->moved |= core_op_moves(&queued->op) != moves;
		if (status == UTIL_IN_PROGRESS && !core_op_is_issued(&queued->op))
			return;
		drive->moved = true;
		if (status != UTIL_IN_PROGRESS)
			end(queued, status);
		next = remove_head(comm);
		push(status == UTIL_IN_PROGRESS ? &issued : &done, queued);
	}
}

static void drive_issued(void)
{
	struct core_queued **link = &issued, *queued;
	enum util_status status;

	while ((queued = *link)) {
		status = core_op_progress(&queued->op, true);
		if (status == UTIL_IN_PROGRESS) {
			link = &queued->next;
			continue;
		}
		*link = queued->next;
		end(queued, status);
		push(&done, queued);
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

/* Not in calls of MPI that a step makes itself. */
static void drive_all(struct drive *drive)
{
	struct core_comm *comm, *next;

	if (is_driving || pthread_mutex_trylock(&driving))
		return;
	is_driving = true;
	for (comm = next_busy(NULL); comm; comm = next) {
		next = next_busy(comm);
		drive_queue(comm, drive);
	}
	if (drive->calls) {
		drive_issued();
		complete_done();
	}
	is_driving = false;
	pthread_mutex_unlock(&driving);
}

static void step(void)
{
	struct drive drive = {.calls = true};

	drive_all(&drive);
}

void core_queue_add(struct core_queued *queued)
{
	queued->since = util_now();
	__atomic_fetch_add(&core_drive_pending, 1, __ATOMIC_RELAXED);
	append(queued);
	step();
	if (has_work())
		core_progress_wake();
}

static bool progress_alone(void)
{
	struct drive drive = {.calls = false};

	drive_all(&drive);
	return drive.moved;
}

static bool holds(const struct core_comm *comm)
{
	return comm ? core_queue_holds(comm) : has_work();
}

void core_queue_yield(struct core_comm *comm)
{
	static const uint64_t moment = 100000; /* ns */
	struct drive drive = {.calls = true, .of = comm};
	struct core_wait wait = {0};
	uint64_t since;

	if (is_driving || !holds(comm))
		return;
	since = util_now();
	for (;;) {
		drive.yields = util_now() - since > moment;
		drive_all(&drive);
		if (!holds(comm))
			return;
		core_mpi_drive(&wait);
	}
}

void core_queue_describe(const struct core_comm *comm, char *text, size_t bytes)
{
	const struct core_queued *head;

	*text = '\0';
	if (pthread_mutex_trylock(&driving))
		return;
	head = comm->queue.head;
	if (head)
		core_op_describe(&head->op, text, bytes);
	pthread_mutex_unlock(&driving);
}

static void yield_all(void)
{
	core_queue_yield(NULL);
}

void core_queue_start(void)
{
	core_drive_set(step, yield_all);
}

void core_queue_stop(void)
{
	core_progress_stop();
}
