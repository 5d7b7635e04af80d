/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls from and to device memory. See core_rma.h. */
#include "core/call/core_flags.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/p2p/core_mpi_side.h"
#include "core/report/core_stats.h"
#include "core/request/core_mpi_table.h"
#include "core/rma/core_rma.h"
#include "util/util_hash.h"
#include "util/util_log.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * A call on its way. It hangs in a list of its window's until a synchronisation completes it, and,
 * if it has a request, in the table until that is complete: whichever comes first copies, the last
 * one frees.
 */
struct access {
	struct core_mpi_pending pending; /* first */
	struct core_rma_call call;       /* with the stages in place of the buffers */
	struct core_mpi_side origin, compare, result;
	/* Under the lock: */
	struct access *next, **link; /* in its list; link NULL: not in it */
	uint64_t number;
	int refs;
};

enum { NUM_LISTS = 256 };

uint64_t core_rma_pending; /* in lists */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct access *lists[NUM_LISTS]; /* under the lock; by window and target */
static uint64_t num_accesses;           /* so far; under the lock */

static struct access *access_of(struct core_mpi_pending *pending)
{
	return (struct access *)pending;
}

static struct access **list_of(core_handle win, int rank)
{
	return &lists[(size_t)((win + (core_handle)rank) * UTIL_GOLDEN >> 56) % NUM_LISTS];
}

/* Under the lock. */
static void insert(struct access *access)
{
	struct access **head = list_of(access->call.win, access->call.target_rank);

	access->next = *head;
	access->link = head;
	if (access->next)
		access->next->link = &access->next;
	*head = access;
	access->number = num_accesses++;
	access->refs++;
	__atomic_fetch_add(&core_rma_pending, 1, __ATOMIC_RELAXED);
}

/* Under the lock. False: it was not in its list, whose reference is the caller's otherwise. */
static bool take_out(struct access *access)
{
	if (!access->link)
		return false;
	*access->link = access->next;
	if (access->next)
		access->next->link = access->link;
	access->link = NULL;
	__atomic_fetch_sub(&core_rma_pending, 1, __ATOMIC_RELAXED);
	return true;
}

static void release_access(struct access *access)
{
	bool last;

	pthread_mutex_lock(&lock);
	last = --access->refs == 0;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	core_mpi_side_close(&access->origin);
	core_mpi_side_close(&access->compare);
	core_mpi_side_close(&access->result);
	free(access);
}

static void unlist(struct access *access)
{
	bool listed;

	pthread_mutex_lock(&lock);
	listed = take_out(access);
	pthread_mutex_unlock(&lock);
	if (listed)
		release_access(access);
}

/* ---- completion ---- */

static void arrive_access(struct core_mpi_pending *pending, const MPI_Status *status)
{
	(void)status;
	core_mpi_side_unpack_all(&access_of(pending)->result);
}

static enum util_status progress_access(struct core_mpi_pending *pending)
{
	return core_mpi_side_progress(&access_of(pending)->result);
}

static void describe_access(const struct core_mpi_pending *pending, char *text, size_t bytes)
{
	snprintf(text, bytes, "to rank %d", ((const struct access *)pending)->call.target_rank);
}

/* Its request is done with, and so it need not wait for a synchronisation. */
static void free_access(struct core_mpi_pending *pending)
{
	unlist(access_of(pending));
	release_access(access_of(pending));
}

static const struct core_mpi_pending_kind access_kind = {
	.arrive = arrive_access,
	.progress = progress_access,
	.describe = describe_access,
	.free = free_access,
};

static int raise_on_window(core_handle win, enum util_status status)
{
	int error = core_mpi_error_of(status);

	if (status == UTIL_OK)
		return MPI_SUCCESS;
	PMPI_Win_call_errhandler((MPI_Win)win, error);
	return error;
}

uint64_t core_rma_mark(void)
{
	uint64_t mark;

	pthread_mutex_lock(&lock);
	mark = num_accesses;
	pthread_mutex_unlock(&lock);
	return mark;
}

/* The first in the list that is to be completed, with a reference for the caller. NULL: none. */
static struct access *find_access(struct access *const *list, core_handle win, int rank,
				  uint64_t mark)
{
	struct access *access;

	pthread_mutex_lock(&lock);
	for (access = *list; access; access = access->next) {
		if (access->call.win == win && access->number < mark &&
		    (rank == CORE_RMA_ALL || access->call.target_rank == rank))
			break;
	}
	if (access)
		access->refs++;
	pthread_mutex_unlock(&lock);
	return access;
}

/*
 * It stays in its list until what it has read is in its place: another thread that synchronises
 * finds it there, and waits for that.
 */
static enum util_status complete_list(struct access **list, core_handle win, int rank,
				      uint64_t mark)
{
	enum util_status status = UTIL_OK, one;
	struct access *access;

	while ((access = find_access(list, win, rank, mark))) {
		one = core_mpi_pending_settle(&access->pending, MPI_STATUS_IGNORE);
		status = one != UTIL_OK ? one : status;
		unlist(access);
		release_access(access);
	}
	return status;
}

static enum util_status complete(core_handle win, int rank, uint64_t mark)
{
	enum util_status status = UTIL_OK, one;

	if (rank != CORE_RMA_ALL)
		return complete_list(list_of(win, rank), win, rank, mark);
	for (int i = 0; i < NUM_LISTS; i++) {
		one = complete_list(&lists[i], win, rank, mark);
		status = one != UTIL_OK ? one : status;
	}
	return status;
}

int core_rma_complete(core_handle win, int rank, uint64_t mark)
{
	return raise_on_window(win, complete(win, rank, mark));
}

void core_rma_forget(core_handle win)
{
	complete(win, CORE_RMA_ALL, UINT64_MAX);
}

/* ---- calls ---- */

static enum util_status open_side(struct core_mpi_side *side, const void *buffer, int64_t count,
				  core_handle type)
{
	side->always = true;
	return core_mpi_side_open(side, buffer, count, type, MPI_DATATYPE_NULL);
}

static enum util_status open_sides(struct access *access)
{
	const struct core_rma_call *call = &access->call;
	bool has_origin = call->origin_type && (MPI_Op)call->op != MPI_NO_OP;
	bool has_result = call->result_type || (call->single && call->result);
	enum util_status status = UTIL_OK;

	access->origin.made = access->compare.made = access->result.made = MPI_DATATYPE_NULL;
	if (has_origin)
		status = open_side(&access->origin, call->origin,
				   call->single ? 1 : call->origin_count, call->origin_type);
	if (status == UTIL_OK && call->compare)
		status = open_side(&access->compare, call->compare, 1, call->origin_type);
	if (status == UTIL_OK && has_result)
		status = open_side(&access->result, call->result,
				   call->single ? 1 : call->result_count,
				   call->single ? call->origin_type : call->result_type);
	return status;
}

static bool is_staged(const struct access *access)
{
	return access->origin.staged || access->compare.staged || access->result.staged;
}

/* Whether what is fetched may be less than its buffer has room for, as MPI_Get allows. */
static bool may_fetch_less(const struct access *access)
{
	const struct core_rma_call *call = &access->call;
	MPI_Count element;

	if (!access->result.staged || call->single)
		return false;
	return PMPI_Type_size_x((MPI_Datatype)call->target_type, &element) != MPI_SUCCESS ||
	       call->target_count * element != call->result_count * (int64_t)access->result.element;
}

/* What the MPI does not write is to be as it was: padding of elements, and all behind the last. */
static enum util_status pack(struct access *access)
{
	enum util_status status = core_mpi_side_pack(&access->origin);

	if (status == UTIL_OK)
		status = core_mpi_side_pack(&access->compare);
	if (status == UTIL_OK &&
	    (core_mpi_side_is_filled_first(&access->result) || may_fetch_less(access)))
		status = core_mpi_side_pack(&access->result);
	return status;
}

/* The counts and types of what lies in the stages are the application's. */
static void replace(struct access *access)
{
	if (access->origin.staged)
		access->call.origin = access->origin.buffer;
	if (access->compare.staged)
		access->call.compare = access->compare.buffer;
	if (access->result.staged)
		access->call.result = access->result.buffer;
}

/* Takes the caller's reference. */
static int begin_access(struct access *access)
{
	MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
	int result = access->call.real(&access->call);

	if (result != MPI_SUCCESS) {
		release_access(access);
		return result;
	}
	pthread_mutex_lock(&lock);
	insert(access);
	pthread_mutex_unlock(&lock);
	if (!access->call.request) {
		release_access(access);
		return result;
	}
	PMPI_Win_get_errhandler((MPI_Win)access->call.win, &handler);
	core_mpi_pending_heed(&access->pending, handler);
	return core_mpi_table_begin(&access->pending, *(MPI_Request *)access->call.request, true);
}

static void count_access(const struct access *access)
{
	const struct core_mpi_side *sides[] = {&access->origin, &access->compare, &access->result};
	struct core_stats_call stats = {.coll = CORE_COLL_NUM,
					.name = access->call.name,
					.path = CORE_PATH_STAGE,
					.why = "one-sided",
					.comm = core_mpi_world()};

	for (int i = 0; i < 3; i++) {
		if (sides[i]->staged)
			stats.bytes += core_operand_bytes(&sides[i]->operand);
	}
	core_stats_add_since(&stats, access->pending.since);
}

static enum util_status open_access(struct access *access, const struct core_rma_call *call)
{
	enum util_status status;

	core_mpi_pending_open(&access->pending, &access_kind, call->name, false);
	access->refs = 1;
	access->call = *call;
	status = open_sides(access);
	if (status != UTIL_OK || !is_staged(access))
		return status;
	replace(access);
	return pack(access);
}

static int fail_access(const struct core_rma_call *call, enum util_status status)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s", call->name,
		 status == UTIL_ERR_NO_MEMORY ? "no memory" : "see above");
	return raise_on_window(call->win, status);
}

int core_rma_run(const struct core_rma_call *call)
{
	struct access *access = calloc(1, sizeof(*access));
	enum util_status status;

	if (!access)
		return fail_access(call, UTIL_ERR_NO_MEMORY);
	status = open_access(access, call);
	if (status == UTIL_ERR_MPI || !is_staged(access)) {
		release_access(access);
		return call->real(call);
	}
	if (status != UTIL_OK) {
		release_access(access);
		return fail_access(call, status);
	}
	count_access(access);
	return begin_access(access);
}
