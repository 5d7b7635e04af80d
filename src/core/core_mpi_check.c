/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_check.h"
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_predefined.h"
#include "core/report/core_dump.h"
#include "core/report/core_journal.h"
#include "core/request/core_requests.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all ranks tell all others. Bytes without meaning are zero, as all of it is compared. */
struct head {
	char name[CORE_ENTRY_NAME];
	int64_t bytes; /* that all are to have alike; -1: there is no such number */
	int32_t root;  /* -1: none */
	uint8_t type, op;
	bool has_op;
};

struct check {
	struct check *next;
	MPI_Comm comm;
	uint64_t number; /* as the journal has it */
	int rank, size;
	struct head mine, *heads;
	/* What each rank sends to each, and takes from each, in bytes; -1: not known. */
	bool exchanges;
	int64_t *sends, *takes, *comes;
	MPI_Request requests[2];
};

uint64_t core_check_pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct check *pending, **pending_end = &pending; /* under the lock; the oldest first */

/* ---- what a rank has to tell ---- */

static int64_t bytes_of(int64_t count, core_handle handle)
{
	MPI_Datatype type = core_mpi_as_type(handle);
	MPI_Count size;

	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
		return -1;
	return count * (int64_t)size;
}

static int64_t block_bytes(const struct core_mpi_blocks *blocks, int i)
{
	if (blocks->each_type && !blocks->types) /* the real MPI refuses that */
		return -1;
	return bytes_of(core_mpi_block_count(blocks, i), core_mpi_block_type(blocks, i));
}

static bool is_gather(enum core_coll coll)
{
	return coll == CORE_GATHER || coll == CORE_GATHERV;
}

static bool is_scatter(enum core_coll coll)
{
	return coll == CORE_SCATTER || coll == CORE_SCATTERV;
}

static bool is_allgather(enum core_coll coll)
{
	return coll == CORE_ALLGATHER || coll == CORE_ALLGATHERV;
}

static bool is_alltoall(enum core_coll coll)
{
	return coll == CORE_ALLTOALL || coll == CORE_ALLTOALLV || coll == CORE_ALLTOALLW;
}

static struct head head_of(const struct core_call *call, const char *name)
{
	struct head head;

	memset(&head, 0, sizeof(head));
	snprintf(head.name, sizeof(head.name), "%s", name);
	head.bytes = head.root = -1;
	if (!call)
		return head;
	if (core_coll_is_rooted(call->coll))
		head.root = call->root;
	if (core_coll_reduces(call->coll) || call->coll == CORE_BCAST) {
		head.type = core_mpi_type_number(call->recvtype);
		if (!call->recvcounts)
			head.bytes = bytes_of(call->recvcount, call->recvtype);
	}
	head.has_op = core_coll_reduces(call->coll);
	head.op = head.has_op ? core_mpi_op_number(call->op) : 0;
	return head;
}

/* The blocks in which this rank has nothing to do with another stay at 0. */
static void fill_exchange(struct check *check, const struct core_call *call)
{
	struct core_mpi_blocks out = core_mpi_sent_blocks(call, check->size),
			       in = core_mpi_received_blocks(call, check->size);
	bool in_place = core_mpi_is_in_place(call->sendbuf), is_root = check->rank == call->root;
	int64_t mine = -1; /* to each */

	if (is_gather(call->coll) || is_allgather(call->coll))
		mine = in_place ? block_bytes(&in, check->rank)
				: bytes_of(call->sendcount, call->sendtype);

	for (int i = 0; i < check->size; i++) {
		if (is_alltoall(call->coll)) {
			check->takes[i] = block_bytes(&in, i);
			check->sends[i] = in_place ? check->takes[i] : block_bytes(&out, i);
		} else if (is_allgather(call->coll)) {
			check->takes[i] = block_bytes(&in, i);
			check->sends[i] = mine;
		} else if (is_gather(call->coll)) {
			check->takes[i] = is_root ? block_bytes(&in, i) : 0;
			check->sends[i] = i == call->root ? mine : 0;
		} else {
			check->sends[i] = is_root ? block_bytes(&out, i) : 0;
			check->takes[i] =
				i == call->root ? bytes_of(call->recvcount, call->recvtype) : 0;
		}
	}
	/* In place a root's block to itself is not described. */
	if ((is_gather(call->coll) && is_root && in_place) ||
	    (is_scatter(call->coll) && is_root && core_mpi_is_in_place(call->recvbuf)))
		check->sends[check->rank] = check->takes[check->rank] = -1;
}

/* ---- what the ranks have told ---- */

static void describe(const struct head *head, char *text, size_t bytes)
{
	char root[24] = "", data[80] = "";

	if (head->root >= 0)
		snprintf(root, sizeof(root), ", root %d", head->root);
	if (head->bytes >= 0)
		snprintf(data, sizeof(data), ", %lld bytes of %s", (long long)head->bytes,
			 core_mpi_type_word(head->type));
	snprintf(text, bytes, "%s%s%s%s%s", head->name, data, head->has_op ? ", " : "",
		 head->has_op ? core_mpi_op_word(head->op) : "", root);
}

/* MPI_SUCCESS, or the error that it is to differ so; with what differs. */
static int compare(const struct head *a, const struct head *b, const char **what)
{
	*what = "the collective";
	if (strcmp(a->name, b->name))
		return MPI_ERR_OTHER;
	*what = "the root";
	if (a->root != b->root)
		return MPI_ERR_ROOT;
	*what = "the operation";
	if (a->has_op != b->has_op || a->op != b->op)
		return MPI_ERR_OP;
	*what = "the number of bytes";
	if (a->bytes != b->bytes)
		return MPI_ERR_COUNT;
	/* Of a broadcast one may give a derived type of what the other gives plainly. */
	*what = "the type";
	if (a->type != b->type && (a->has_op || (a->type && b->type)))
		return MPI_ERR_TYPE;
	return MPI_SUCCESS;
}

static void where(const struct check *check, char *text, size_t bytes)
{
	char name[64];

	core_mpi_name((core_handle)check->comm, name, sizeof(name));
	snprintf(text, bytes, "operation %llu of communicator %s",
		 (unsigned long long)check->number, name);
}

/* The same on all ranks, of which the first says it, or each. */
static int look_at_heads(const struct check *check, bool each)
{
	char one[160], other[160], place[120];
	const char *what;

	for (int i = 1; i < check->size; i++) {
		int error = compare(&check->heads[0], &check->heads[i], &what);

		if (error == MPI_SUCCESS)
			continue;
		describe(&check->heads[0], one, sizeof(one));
		describe(&check->heads[i], other, sizeof(other));
		where(check, place, sizeof(place));
		if (check->rank == 0 || each)
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "GPUCOLL_CHECK: %s differs: rank 0 is at %s, rank %d at %s (%s)",
				 what, one, i, other, place);
		return error;
	}
	return MPI_SUCCESS;
}

/* On this rank. */
static int look_at_blocks(const struct check *check)
{
	char place[120];

	for (int i = 0; i < check->size; i++) {
		if (check->comes[i] == check->takes[i] || check->comes[i] < 0 ||
		    check->takes[i] < 0)
			continue;
		where(check, place, sizeof(place));
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "GPUCOLL_CHECK: %s: rank %d sends rank %d %lld bytes, which takes %lld "
			 "(%s)",
			 check->mine.name, i, check->rank, (long long)check->comes[i],
			 (long long)check->takes[i], place);
		return MPI_ERR_COUNT;
	}
	return MPI_SUCCESS;
}

/* ---- how they tell it ---- */

static void free_check(struct check *check)
{
	free(check->heads);
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

static struct check *open_check(const struct core_call *call, const char *name,
				const struct core_comm *comm, core_handle handle)
{
	struct check *check = must(calloc(1, sizeof(*check)));
	size_t size = (size_t)comm->size;

	check->comm = core_mpi_as_comm(handle);
	check->number = comm->made - 1;
	check->rank = comm->rank;
	check->size = comm->size;
	check->mine = head_of(call, name);
	check->heads = must(calloc(size, sizeof(*check->heads)));
	check->exchanges = call && (is_gather(call->coll) || is_scatter(call->coll) ||
				    is_allgather(call->coll) || is_alltoall(call->coll));
	check->requests[0] = check->requests[1] = MPI_REQUEST_NULL;
	if (!check->exchanges)
		return check;
	check->sends = must(calloc(3 * size, sizeof(*check->sends)));
	check->takes = check->sends + size;
	check->comes = check->takes + size;
	/* A root that there is not is the real MPI's to refuse, and arrays are not to be read for
	 * it. */
	if (!core_coll_is_rooted(call->coll) || (call->root >= 0 && call->root < comm->size))
		fill_exchange(check, call);
	return check;
}

static void tell_heads(struct check *check)
{
	PMPI_Iallgather(&check->mine, sizeof(check->mine), MPI_BYTE, check->heads,
			sizeof(check->mine), MPI_BYTE, check->comm, &check->requests[0]);
}

static void tell_blocks(struct check *check)
{
	PMPI_Ialltoall(check->sends, 1, MPI_INT64_T, check->comes, 1, MPI_INT64_T, check->comm,
		       &check->requests[1]);
}

static bool is_told(struct check *check)
{
	MPI_Status statuses[2];
	int done = 0;

	core_requests_pass = true;
	PMPI_Testall(2, check->requests, &done, statuses);
	return done;
}

static void wait_for(struct check *check, const struct core_note *note)
{
	static const char words[] = "the other ranks to come to a collective (GPUCOLL_CHECK=args)";
	uint64_t since = util_now(), patience = UTIL_SECONDS(util_config.timeout);
	bool reported = !util_config.timeout;
	struct core_wait wait = {0};

	while (!is_told(check)) {
		core_mpi_drive(&wait);
		if (reported || util_now() - since < patience)
			continue;
		reported = true;
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s has waited %zu s for %s and goes on waiting", check->mine.name,
			 util_config.timeout, words);
		core_journal_say(note, words);
		core_dump("a call has waited long");
	}
}

/* What one rank has found all are to know. */
static int worst_of(struct check *check, int mine, const struct core_note *note)
{
	int worst = mine;

	PMPI_Iallreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, check->comm, &check->requests[0]);
	wait_for(check, note);
	return worst;
}

static int run_blocking(struct check *check, const struct core_note *note)
{
	int error;

	tell_heads(check);
	wait_for(check, note);
	error = look_at_heads(check, false);
	if (error == MPI_SUCCESS && check->exchanges) {
		tell_blocks(check);
		wait_for(check, note);
		error = look_at_blocks(check);
	} else if (error == MPI_SUCCESS) {
		return error;
	}
	/* Nobody ends the job before it was said why. */
	if (error != MPI_SUCCESS)
		util_log_drain();
	error = worst_of(check, error, note);
	if (error != MPI_SUCCESS)
		PMPI_Comm_call_errhandler(check->comm, error);
	return error;
}

/* As long as there is one, waits of the application drive (core_requests.h, core_drive.h). */
static void put_off(struct check *check)
{
	tell_heads(check);
	if (check->exchanges)
		tell_blocks(check);
	pthread_mutex_lock(&lock);
	*pending_end = check;
	pending_end = &check->next;
	pthread_mutex_unlock(&lock);
	__atomic_fetch_add(&core_check_pending, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&core_drive_pending, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&core_requests_pending, 1, __ATOMIC_RELAXED);
}

static void forget(struct check *check)
{
	__atomic_fetch_sub(&core_requests_pending, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&core_drive_pending, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&core_check_pending, 1, __ATOMIC_RELAXED);
	free_check(check);
}

/* The oldest that all have told, of any communicator. */
static struct check *take_told(void)
{
	struct check *check = NULL;

	if (pthread_mutex_trylock(&lock))
		return NULL;
	for (struct check **link = &pending; *link && !check; link = &(*link)->next) {
		if (!is_told(*link))
			continue;
		check = *link;
		*link = check->next;
		if (!*link)
			pending_end = link;
		break;
	}
	pthread_mutex_unlock(&lock);
	return check;
}

/* An error handler may leave by a jump, so nothing is held then. */
void core_check_look(void)
{
	struct check *check;

	while (__atomic_load_n(&core_check_pending, __ATOMIC_RELAXED) && (check = take_told())) {
		MPI_Comm comm = check->comm;
		int error = look_at_heads(check, true);

		if (error == MPI_SUCCESS && check->exchanges)
			error = look_at_blocks(check);
		forget(check);
		if (error != MPI_SUCCESS)
			PMPI_Comm_call_errhandler(comm, error);
	}
}

void core_check_finish(void)
{
	static const uint64_t moment = UTIL_SECONDS(2);
	uint64_t since = util_now();
	struct core_wait wait = {0};

	while (core_check_pending && util_now() - since < moment) {
		core_check_look();
		core_mpi_drive(&wait);
	}
	if (core_check_pending)
		util_log(
			UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			"GPUCOLL_CHECK: %s was begun here, and not by all ranks of its communicator",
			pending->mine.name);
}

static int run(struct check *check, bool nonblocking, const struct core_note *note)
{
	int error;

	if (nonblocking) {
		put_off(check);
		return MPI_SUCCESS;
	}
	core_note_where(note, CORE_WHERE_CHECK);
	error = run_blocking(check, note);
	free_check(check);
	return error;
}

int core_check_run(const struct core_call *call, struct core_comm *comm,
		   const struct core_note *note)
{
	const char *name = call->name ? call->name : core_coll_name(call->coll);

	return run(open_check(call, name, comm, call->comm), call->request && !call->persistent,
		   note);
}

int core_check_run_other(const char *name, bool nonblocking, struct core_comm *comm,
			 core_handle handle, const struct core_note *note)
{
	return run(open_check(NULL, name, comm, handle), nonblocking, note);
}
