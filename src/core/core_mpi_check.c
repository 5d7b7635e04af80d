/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_check.h"
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/core_mpi_args.h"
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

/* How far a check is; each step but the last is an operation of the real MPI that has been begun.
 */
enum step {
	STEP_ARGS,    /* all tell all what they have come to */
	STEP_BLOCKS,  /* each tells each what it sends, if it is an exchange */
	STEP_VERDICT, /* whether somebody has found something, if so */
	STEP_DONE
};

struct check {
	struct check *next; /* in its lane */
	enum step step;
	uint64_t number; /* as the journal has it */
	bool waited_for; /* a thread waits for it, and frees it */
	bool broken;     /* the MPI could not do it, as after a loss: it says nothing */
	_Atomic bool done;
	int error;                        /* MPI_SUCCESS, or what is to be raised */
	struct core_mpi_args mine, *args; /* of all ranks */
	bool exchanges;
	/* What each rank sends to each, and takes from each, in bytes; -1: not known. */
	int64_t *sends, *takes, *comes;
	int found, worst;
	MPI_Request request;
};

/*
 * Those of a communicator, the oldest first. Their first steps are begun as they come, so on
 * `firsts` they have the order of the calls. The other steps are the oldest one's alone, so on
 * `rest` they have that order, too.
 */
struct core_checks {
	struct core_checks *next; /* of all lanes */
	MPI_Comm comm;            /* the application's; MPI_COMM_NULL: it has been freed */
	MPI_Comm firsts, rest;
	int rank, size;
	char name[64]; /* when the communicator was made, or freed */
	struct check *first, **end;
};

uint64_t core_check_pending;

/*
 * Who has it begins and tests operations of the lanes. No error handler is called then: the lanes'
 * communicators return their errors.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_checks *lanes; /* under the lock */

/* ---- what the ranks have told ---- */

static void say(const struct core_checks *lane, const struct check *check, const char *text)
{
	char name[64];

	if (lane->comm == MPI_COMM_NULL)
		snprintf(name, sizeof(name), "%s", lane->name);
	else
		core_mpi_name((core_handle)lane->comm, name, sizeof(name));
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "GPUCOLL_CHECK: %s (operation %llu of communicator %s)", text,
		 (unsigned long long)check->number, name);
	util_log_drain(); /* before somebody ends the job */
}

/* The same on all ranks, of which the first says it. */
static int look_at_args(const struct core_checks *lane, const struct check *check)
{
	char one[160], other[160], text[480];
	const char *what;
	int error;

	for (int i = 0; i < lane->size; i++) {
		if (!check->args[i].nowhere)
			continue;
		snprintf(
			text, sizeof(text),
			"rank %d gives %s the buffer %#llx, which is neither memory of the host nor "
			"of a device: has it been freed?",
			i, check->args[i].name, (unsigned long long)check->args[i].nowhere);
		if (lane->rank == i)
			say(lane, check, text);
		return MPI_ERR_BUFFER;
	}
	for (int i = 1; i < lane->size; i++) {
		error = core_mpi_args_compare(&check->args[0], &check->args[i], &what);
		if (error == MPI_SUCCESS)
			continue;
		core_mpi_args_describe(&check->args[0], one, sizeof(one));
		core_mpi_args_describe(&check->args[i], other, sizeof(other));
		snprintf(text, sizeof(text), "%s differs: rank 0 is at %s, rank %d at %s", what,
			 one, i, other);
		if (lane->rank == 0)
			say(lane, check, text);
		return error;
	}
	return MPI_SUCCESS;
}

/* On this rank. */
static int look_at_blocks(const struct core_checks *lane, const struct check *check)
{
	char text[200];

	for (int i = 0; i < lane->size; i++) {
		if (check->comes[i] == check->takes[i] || check->comes[i] < 0 ||
		    check->takes[i] < 0)
			continue;
		snprintf(text, sizeof(text),
			 "%s: rank %d sends rank %d %lld bytes, which takes %lld", check->mine.name,
			 i, lane->rank, (long long)check->comes[i], (long long)check->takes[i]);
		say(lane, check, text);
		return MPI_ERR_COUNT;
	}
	return MPI_SUCCESS;
}

/* ---- how they tell it ---- */

static void free_check(struct check *check)
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

static struct check *create(const struct core_call *call, const char *name,
			    const struct core_comm *comm)
{
	struct check *check = must(calloc(1, sizeof(*check)));
	size_t size = (size_t)comm->size;

	check->number = comm->made - 1;
	check->mine = core_mpi_args_of(call, name, comm->rank);
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
		core_mpi_args_blocks(call, comm->rank, comm->size, check->sends, check->takes);
	return check;
}

/* What is begun then may never end (core_mpi_enqueue.c). */
static bool is_revoked(const struct core_checks *lane)
{
	return core_mpi_is_revoked((core_handle)lane->rest);
}

/* Under the lock, as all up to the next line of dashes. */
static void tell_args(struct core_checks *lane, struct check *check)
{
	check->broken |=
		is_revoked(lane) || PMPI_Iallgather(&check->mine, sizeof(check->mine), MPI_BYTE,
						    check->args, sizeof(check->mine), MPI_BYTE,
						    lane->firsts, &check->request) != MPI_SUCCESS;
	*lane->end = check;
	lane->end = &check->next;
}

static void tell_blocks(struct core_checks *lane, struct check *check)
{
	check->broken |= is_revoked(lane) ||
			 PMPI_Ialltoall(check->sends, 1, MPI_INT64_T, check->comes, 1, MPI_INT64_T,
					lane->rest, &check->request) != MPI_SUCCESS;
	check->step = STEP_BLOCKS;
}

/* After which nobody ends the job before it was said why. */
static void tell_verdict(struct core_checks *lane, struct check *check, int found)
{
	check->found = found;
	check->broken |= is_revoked(lane) ||
			 PMPI_Iallreduce(&check->found, &check->worst, 1, MPI_INT, MPI_MAX,
					 lane->rest, &check->request) != MPI_SUCCESS;
	check->step = STEP_VERDICT;
}

static bool is_told(struct check *check)
{
	int done = 0;

	core_requests_pass = true;
	check->broken |= PMPI_Test(&check->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
	return done || check->broken;
}

/* Go on until something is to be waited for. */
static void advance(struct core_checks *lane, struct check *check)
{
	while (check->step != STEP_DONE && is_told(check)) {
		int error = MPI_SUCCESS;

		if (check->broken)
			check->step = STEP_DONE;
		switch (check->step) {
		case STEP_ARGS:
			error = look_at_args(lane, check);
			if (error != MPI_SUCCESS)
				tell_verdict(lane, check, error);
			else if (check->exchanges)
				tell_blocks(lane, check);
			else
				check->step = STEP_DONE;
			break;
		case STEP_BLOCKS:
			tell_verdict(lane, check, look_at_blocks(lane, check));
			break;
		case STEP_VERDICT:
			check->error = check->worst;
			check->step = STEP_DONE;
			break;
		case STEP_DONE:
			break;
		}
	}
}

/*
 * Bring the lane's checks on. Returns one that is done and that nobody waits for, which is the
 * caller's; NULL: there is none.
 */
static struct check *drive_lane(struct core_checks *lane)
{
	struct check *check;

	while ((check = lane->first)) {
		advance(lane, check);
		if (check->step != STEP_DONE)
			return NULL;
		lane->first = check->next;
		if (!lane->first)
			lane->end = &lane->first;
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
	PMPI_Comm_call_errhandler(core_mpi_as_comm(comm), error);
	return error;
}

/* As long as there is one, waits of the application drive (core_requests.h, core_drive.h). */
static void count_pending(bool more)
{
	uint64_t one = more ? 1 : UINT64_MAX;

	__atomic_fetch_add(&core_check_pending, one, __ATOMIC_RELAXED);
	__atomic_fetch_add(&core_drive_pending, one, __ATOMIC_RELAXED);
	__atomic_fetch_add(&core_requests_pending, one, __ATOMIC_RELAXED);
}

/* An error handler may leave by a jump, so nothing is held then. */
static void forget(struct check *check, MPI_Comm comm)
{
	int error = check->error;

	count_pending(false);
	free_check(check);
	if (error != MPI_SUCCESS)
		core_check_raise(comm == MPI_COMM_NULL ? core_mpi_world() : (core_handle)comm,
				 error);
}

void core_check_look(void)
{
	struct check *check;
	MPI_Comm comm;

	do {
		check = NULL;
		comm = MPI_COMM_NULL;
		if (pthread_mutex_trylock(&lock))
			return;
		for (struct core_checks *lane = lanes; lane && !check; lane = lane->next) {
			check = drive_lane(lane);
			comm = lane->comm;
		}
		pthread_mutex_unlock(&lock);
		if (check)
			forget(check, comm);
	} while (check);
}

static void report_check(const struct check *check, const struct core_note *note)
{
	static const char words[] = "the other ranks to come to a collective (GPUCOLL_CHECK=args)";

	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s has waited %zu s for %s and goes on waiting",
		 check->mine.name, util_config.timeout, words);
	core_journal_say(note, words);
	core_dump("a call has waited long");
}

static void wait_for_check(struct check *check, const struct core_note *note)
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

static int run_check(struct core_checks *lane, struct check *check, bool nonblocking,
		     const struct core_note *note)
{
	int error;

	check->waited_for = !nonblocking;
	if (nonblocking)
		count_pending(true);
	pthread_mutex_lock(&lock);
	tell_args(lane, check);
	pthread_mutex_unlock(&lock);
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
	return run_check(comm->check, create(call, core_call_name(call), comm),
			 call->request && !call->persistent, note);
}

int core_check_run_other(const char *name, bool nonblocking, struct core_comm *comm,
			 const struct core_note *note)
{
	return run_check(comm->check, create(NULL, name, comm), nonblocking, note);
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

void core_check_open(struct core_comm *comm, core_handle handle)
{
	struct core_checks *lane;

	if (!(util_config.check & UTIL_CHECK_ARGS) || comm->size < 2)
		return;
	lane = must(calloc(1, sizeof(*lane)));
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
		return;
	}
	pthread_mutex_lock(&lock);
	lane->next = lanes;
	lanes = lane;
	pthread_mutex_unlock(&lock);
	comm->check = lane;
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
void core_check_close(struct core_comm *comm)
{
	struct core_checks *lane = comm->check, **link = &lanes;
	bool drained;

	if (!lane)
		return;
	comm->check = NULL;
	drained = is_drained(lane);
	pthread_mutex_lock(&lock);
	core_mpi_name((core_handle)lane->comm, lane->name, sizeof(lane->name));
	lane->comm = MPI_COMM_NULL;
	while (drained && *link != lane)
		link = &(*link)->next;
	if (drained)
		*link = lane->next;
	pthread_mutex_unlock(&lock);
	if (!drained)
		return;
	PMPI_Comm_free(&lane->firsts);
	PMPI_Comm_free(&lane->rest);
	free(lane);
}

void core_check_revoke(struct core_comm *comm)
{
	if (!comm->check)
		return;
	core_mpi_revoke_real((core_handle)comm->check->firsts);
	core_mpi_revoke_real((core_handle)comm->check->rest);
}

void core_check_finish(void)
{
	struct core_checks *lane;

	for (lane = lanes; lane; lane = lane->next) {
		if (lane->first && !is_drained(lane))
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "GPUCOLL_CHECK: %s was begun here, and not by all ranks of its "
				 "communicator",
				 lane->first->mine.name);
	}
}
