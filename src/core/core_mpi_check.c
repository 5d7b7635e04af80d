/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_check.h"
#include "core/core_mpi_check_parts.h"
#include "core/call/core_coll.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_dump.h"
#include "core/report/core_journal.h"
#include "core/request/core_requests.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t core_check_pending;

/*
 * Who has it begins and tests operations of the lanes. No error handler is called then: the lanes'
 * communicators return their errors.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_checks *lanes; /* under the lock */
static atomic_int num_enqueued;   /* that are pending */

/* ---- how they tell it ---- */

static void free_check(struct core_check *check)
{
	free(check->args);
	free(check->sends);
	free(check);
}

/* Who has no memory would leave the others waiting. */
static void *must(void *memory)
{
	if (memory)
		return memory;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "GPUCOLL_CHECK: no memory");
	PMPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

static struct core_check *create(const struct core_call *call, const char *name,
				 const struct core_comm *comm, uint64_t number)
{
	struct core_check *check = must(calloc(1, sizeof(*check)));
	size_t size = (size_t)comm->size;

	check->number = number;
	check->mine = core_mpi_args_of(call, name, comm);
	check->args = must(calloc(size, sizeof(*check->args)));
	check->exchanges = call && core_mpi_args_is_exchange(call);
	check->request = MPI_REQUEST_NULL;
	if (!check->exchanges)
		return check;
	check->sends = must(calloc(3 * size, sizeof(*check->sends)));
	check->takes = check->sends + size;
	check->comes = check->takes + size;
	/* A root that there is not is the real MPI's to refuse, and arrays are not to be read for
	 * it. */
	if (!core_coll_is_rooted(call->coll) || (call->root >= 0 && call->root < comm->size))
		core_mpi_args_blocks(call, comm, check->sends, check->takes);
	return check;
}

/* What is begun then may never end (core_op.c). Others' processes hear of the two one by one. */
static bool is_revoked(const struct core_checks *lane)
{
	return core_mpi_is_revoked((core_handle)lane->firsts) ||
	       core_mpi_is_revoked((core_handle)lane->rest);
}

/* Under the lock, as all up to the next line of dashes. */
static void tell_args(struct core_checks *lane, struct core_check *check)
{
	check->broken |= lane->broken || is_revoked(lane) ||
			 PMPI_Iallgather(&check->mine, sizeof(check->mine), MPI_BYTE, check->args,
					 sizeof(check->mine), MPI_BYTE, lane->firsts,
					 &check->request) != MPI_SUCCESS;
	*lane->end = check;
	lane->end = &check->next;
}

static void tell_blocks(struct core_checks *lane, struct core_check *check)
{
	check->broken |= is_revoked(lane) ||
			 PMPI_Ialltoall(check->sends, 1, MPI_INT64_T, check->comes, 1, MPI_INT64_T,
					lane->rest, &check->request) != MPI_SUCCESS;
	check->step = CORE_CHECK_BLOCKS;
}

/* After which nobody ends the job before it was said why. */
static void tell_verdict(struct core_checks *lane, struct core_check *check, int found)
{
	check->found = found;
	check->broken |= is_revoked(lane) ||
			 PMPI_Iallreduce(&check->found, &check->worst, 1, MPI_INT, MPI_MAX,
					 lane->rest, &check->request) != MPI_SUCCESS;
	check->step = CORE_CHECK_VERDICT;
}

static bool is_told(struct core_check *check)
{
	int done = 0;

	core_requests_pass = true;
	check->broken |= PMPI_Test(&check->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
	return done || check->broken;
}

/* Go on until something is to be waited for. */
static void advance(struct core_checks *lane, struct core_check *check)
{
	while (check->step != CORE_CHECK_DONE && is_told(check)) {
		int error = MPI_SUCCESS;

		if (check->broken)
			check->step = CORE_CHECK_DONE;
		switch (check->step) {
		case CORE_CHECK_ARGS:
			error = core_check_find_args(lane, check);
			if (error != MPI_SUCCESS)
				tell_verdict(lane, check, error);
			else if (check->exchanges)
				tell_blocks(lane, check);
			else
				check->step = CORE_CHECK_DONE;
			break;
		case CORE_CHECK_BLOCKS:
			tell_verdict(lane, check, core_check_find_blocks(lane, check));
			break;
		case CORE_CHECK_VERDICT:
			check->error = check->worst;
			check->step = CORE_CHECK_DONE;
			break;
		case CORE_CHECK_DONE:
			break;
		}
	}
}

/* As long as there is one, waits of the application drive (core_requests.h, core_drive.h). */
static void count_pending(bool more)
{
	uint64_t one = more ? 1 : UINT64_MAX;

	__atomic_fetch_add(&core_check_pending, one, __ATOMIC_RELAXED);
	__atomic_fetch_add(&core_drive_pending, one, __ATOMIC_RELAXED);
	__atomic_fetch_add(&core_requests_pending, one, __ATOMIC_RELAXED);
}

static void count_enqueued(bool more)
{
	count_pending(more);
	atomic_fetch_add(&num_enqueued, more ? 1 : -1);
}

/* Some of the others have made no more: what was begun never ends, and the MPI may write to it. */
static void give_up_rest(struct core_checks *lane)
{
	for (struct core_check *check = lane->first; check; check = check->next)
		count_enqueued(false);
	lane->first = NULL;
	lane->end = &lane->first;
	lane->broken = true;
}

/* Under the lock, so that `fail` is not told after its end. */
static void tell_fail(struct core_checks *lane, struct core_check *check)
{
	if (check->error == MPI_SUCCESS)
		return;
	if (lane->fail)
		lane->fail(lane->argument, check->error);
	check->error = MPI_SUCCESS;
	give_up_rest(lane);
}

/*
 * Bring the lane's checks on. Returns one that is done and that nobody waits for, which is the
 * caller's; NULL: there is none.
 */
static struct core_check *drive_lane(struct core_checks *lane)
{
	struct core_check *check;

	while ((check = lane->first)) {
		advance(lane, check);
		if (check->step != CORE_CHECK_DONE)
			return NULL;
		lane->first = check->next;
		if (!lane->first)
			lane->end = &lane->first;
		if (lane->enqueued)
			tell_fail(lane, check);
		if (!check->waited_for)
			return check;
		/* Release: who waits sees the error. */
		atomic_store_explicit(&check->done, true, memory_order_release);
	}
	return NULL;
}

/* ---- of a call ---- */

int core_check_raise(core_handle comm, int error)
{
	return core_mpi_raise_error(comm, error);
}

/* An error handler may leave by a jump, so nothing is held then. */
static void forget(struct core_check *check, MPI_Comm comm, bool enqueued)
{
	int error = check->error;

	if (enqueued)
		count_enqueued(false);
	else
		count_pending(false);
	free_check(check);
	if (error != MPI_SUCCESS)
		core_check_raise(comm == MPI_COMM_NULL ? core_mpi_world() : (core_handle)comm,
				 error);
}

/* The library's own thread calls no error handlers, and so looks at those of enqueued calls only.
 */
static void look(bool enqueued)
{
	struct core_check *check;
	bool is_enqueued = false;
	MPI_Comm comm;

	do {
		check = NULL;
		comm = MPI_COMM_NULL;
		if (pthread_mutex_trylock(&lock))
			return;
		for (struct core_checks *lane = lanes; lane && !check; lane = lane->next) {
			if (!enqueued || lane->enqueued)
				check = drive_lane(lane);
			comm = lane->comm;
			is_enqueued = lane->enqueued;
		}
		pthread_mutex_unlock(&lock);
		if (check)
			forget(check, comm, is_enqueued);
	} while (check);
}

void core_check_look(void)
{
	look(false);
}

void core_check_look_enqueued(void)
{
	look(true);
}

bool core_check_has_enqueued(void)
{
	return atomic_load(&num_enqueued) > 0;
}

static void report_check(const struct core_check *check, const struct core_note *note)
{
	static const char words[] = "the other ranks to come to a collective (GPUCOLL_CHECK=args)";

	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s has waited %zu s for %s and goes on waiting",
		 check->mine.name, util_config.timeout, words);
	core_journal_say(note, words);
	core_dump("a call has waited long");
}

static void wait_for_check(struct core_check *check, const struct core_note *note)
{
	uint64_t since = util_now(), patience = UTIL_SECONDS(util_config.timeout);
	bool reported = !util_config.timeout;
	struct core_wait wait = {0};

	/* Acquire: the pair of drive_lane. */
	while (!atomic_load_explicit(&check->done, memory_order_acquire)) {
		core_check_look();
		core_mpi_drive(&wait);
		if (reported || util_now() - since < patience)
			continue;
		reported = true;
		report_check(check, note);
	}
}

static void begin_check(struct core_checks *lane, struct core_check *check)
{
	if (lane->enqueued)
		count_enqueued(true);
	else if (!check->waited_for)
		count_pending(true);
	pthread_mutex_lock(&lock);
	tell_args(lane, check);
	pthread_mutex_unlock(&lock);
}

static int run_check(struct core_checks *lane, struct core_check *check, bool nonblocking,
		     const struct core_note *note)
{
	int error;

	check->waited_for = !nonblocking;
	begin_check(lane, check);
	if (nonblocking)
		return MPI_SUCCESS;
	core_note_where(note, CORE_WHERE_CHECK);
	wait_for_check(check, note);
	error = check->error;
	free_check(check);
	return error;
}

int core_check_run(const struct core_call *call, struct core_comm *comm,
		   const struct core_note *note)
{
	return run_check(comm->check, create(call, core_call_name(call), comm, comm->made - 1),
			 call->request && !call->persistent, note);
}

int core_check_run_other(const char *name, bool nonblocking, struct core_comm *comm,
			 const struct core_note *note)
{
	return run_check(comm->check, create(NULL, name, comm, comm->made - 1), nonblocking, note);
}

void core_check_enqueued(struct core_checks *checks, const struct core_call *call,
			 const struct core_comm *comm)
{
	begin_check(checks, create(call, call->name, comm, checks->calls++));
	look(true);
	core_check_wake_thread();
}

/* ---- of a communicator ---- */

/* Not copies, with which the application's attributes would be copied. */
static bool split(MPI_Comm comm, int rank, MPI_Comm *made)
{
	if (PMPI_Comm_split(comm, 0, rank, made) != MPI_SUCCESS)
		return false;
	PMPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN);
	return true;
}

/* NULL: its calls are not checked. */
static struct core_checks *open_lane(const struct core_comm *comm, core_handle handle,
				     void (*fail)(void *argument, int error), void *argument)
{
	struct core_checks *lane;

	if (!(util_config.check & UTIL_CHECK_ARGS) || comm->size < 2)
		return NULL;
	lane = must(calloc(1, sizeof(*lane)));
	lane->enqueued = fail != NULL;
	lane->fail = fail;
	lane->argument = argument;
	lane->comm = core_mpi_as_comm(handle);
	lane->rank = comm->rank;
	lane->size = comm->size;
	lane->end = &lane->first;
	if (!split(lane->comm, comm->rank, &lane->firsts) ||
	    !split(lane->comm, comm->rank, &lane->rest)) {
		util_log(
			UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			"GPUCOLL_CHECK: the MPI gives no communicator to check another's calls on");
		free(lane);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	lane->next = lanes;
	lanes = lane;
	pthread_mutex_unlock(&lock);
	return lane;
}

void core_check_open(struct core_comm *comm, core_handle handle)
{
	comm->check = open_lane(comm, handle, NULL, NULL);
}

struct core_checks *core_check_open_enqueued(const struct core_comm *comm, core_handle handle,
					     void (*fail)(void *argument, int error),
					     void *argument)
{
	return open_lane(comm, handle, fail, argument);
}

/* Whether the lane has nothing in it any more, soon. */
static bool is_drained(struct core_checks *lane)
{
	static const uint64_t moment = UTIL_SECONDS(2);
	uint64_t since = util_now();
	struct core_wait wait = {0};
	bool drained = false;

	while (!drained && util_now() - since < moment) {
		core_check_look();
		pthread_mutex_lock(&lock);
		drained = !lane->first;
		pthread_mutex_unlock(&lock);
		if (!drained)
			core_mpi_drive(&wait);
	}
	return drained;
}

/* Others may come to a nonblocking call later: then it is looked at without its communicator. */
static void close_lane(struct core_checks *lane)
{
	struct core_checks **link = &lanes;
	bool drained = is_drained(lane);

	pthread_mutex_lock(&lock);
	core_mpi_name((core_handle)lane->comm, lane->name, sizeof(lane->name));
	lane->comm = MPI_COMM_NULL;
	lane->fail = NULL;
	while (drained && *link != lane)
		link = &(*link)->next;
	if (drained)
		*link = lane->next;
	pthread_mutex_unlock(&lock);
	if (!drained)
		return;
	if (lane->broken) { /* the MPI has yet operations on them */
		free(lane);
		return;
	}
	PMPI_Comm_free(&lane->firsts);
	PMPI_Comm_free(&lane->rest);
	free(lane);
}

void core_check_close(struct core_comm *comm)
{
	struct core_checks *lane = comm->check;

	comm->check = NULL; /* before an error handler makes a call on it */
	if (lane)
		close_lane(lane);
}

void core_check_close_enqueued(struct core_checks *checks)
{
	if (checks)
		close_lane(checks);
}

void core_check_revoke(struct core_checks *checks)
{
	if (!checks)
		return;
	core_mpi_revoke_real((core_handle)checks->firsts);
	core_mpi_revoke_real((core_handle)checks->rest);
}

void core_check_finish(void)
{
	struct core_checks *lane;

	core_check_stop_thread();
	for (lane = lanes; lane; lane = lane->next) {
		if (lane->first && !is_drained(lane))
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "GPUCOLL_CHECK: %s was begun here, and not by all ranks of its "
				 "communicator",
				 lane->first->mine.name);
	}
}
