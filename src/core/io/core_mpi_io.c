/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI-IO from and to device memory. See core_io.h. */
#include "core/call/core_flags.h"
#include "core/io/core_io.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/p2p/core_mpi_side.h"
#include "core/report/core_stats.h"
#include "core/request/core_mpi_table.h"
#include "util/util_log.h"

#include <stdio.h>
#include <stdlib.h>

struct transfer {
	struct core_mpi_pending pending; /* first; in the table only if the call is nonblocking */
	struct core_io_call call;        /* with the stage in place of the buffer */
	struct core_mpi_side side;
	struct transfer *next; /* of the split ones */
};

uint64_t core_io_pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct transfer *split; /* under the lock; one for each file, at most */

static struct transfer *transfer_of(struct core_mpi_pending *pending)
{
	return (struct transfer *)pending;
}

static void arrive_transfer(struct core_mpi_pending *pending, const MPI_Status *status)
{
	(void)status;
	if (!transfer_of(pending)->call.writes)
		core_mpi_side_unpack_all(&transfer_of(pending)->side);
}

static enum util_status progress_transfer(struct core_mpi_pending *pending)
{
	return core_mpi_side_progress(&transfer_of(pending)->side);
}

static void describe_transfer(const struct core_mpi_pending *pending, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s a file",
		 ((const struct transfer *)pending)->call.writes ? "to" : "from");
}

static void free_transfer(struct core_mpi_pending *pending)
{
	core_mpi_side_close(&transfer_of(pending)->side);
	free(pending);
}

static const struct core_mpi_pending_kind transfer_kind = {
	.arrive = arrive_transfer,
	.progress = progress_transfer,
	.describe = describe_transfer,
	.free = free_transfer,
};

static MPI_File file_of(const struct core_io_call *call)
{
	return (MPI_File)call->fh;
}

static int raise_on_file(const struct core_io_call *call, enum util_status status)
{
	int error = core_mpi_error_of(status);

	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s", call->name,
		 status == UTIL_ERR_NO_MEMORY ? "no memory" : "see above");
	PMPI_File_call_errhandler(file_of(call), error);
	return error;
}

/* If the operation has ended well, bring what was read to where it belongs. Takes the transfer. */
static int settle(struct transfer *transfer, int result)
{
	enum util_status copied = UTIL_OK;

	if (result == MPI_SUCCESS)
		copied = core_mpi_pending_settle(&transfer->pending, MPI_STATUS_IGNORE);
	if (copied != UTIL_OK)
		result = raise_on_file(&transfer->call, copied);
	free_transfer(&transfer->pending);
	return result;
}

/* Takes the transfer. */
static int run_nonblocking(struct transfer *transfer)
{
	MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
	int result = transfer->call.real(&transfer->call);

	if (result != MPI_SUCCESS) {
		free_transfer(&transfer->pending);
		return result;
	}
	PMPI_File_get_errhandler(file_of(&transfer->call), &handler);
	core_mpi_pending_heed(&transfer->pending, handler);
	return core_mpi_table_begin(&transfer->pending, *(MPI_Request *)transfer->call.request,
				    true);
}

/* The same. */
static int run_begin(struct transfer *transfer)
{
	int result = transfer->call.real(&transfer->call);

	if (result != MPI_SUCCESS) {
		free_transfer(&transfer->pending);
		return result;
	}
	__atomic_fetch_add(&core_io_pending, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	transfer->next = split;
	split = transfer;
	pthread_mutex_unlock(&lock);
	return result;
}

static struct transfer *take_split(const struct core_io_call *call)
{
	struct transfer **link = &split, *found;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->call.fh != call->fh)
		link = &(*link)->next;
	found = *link;
	if (found) {
		*link = found->next;
		__atomic_fetch_sub(&core_io_pending, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

int core_io_end(const struct core_io_call *call)
{
	struct transfer *transfer = take_split(call);
	struct core_io_call real = *call;
	int result;

	if (!transfer)
		return call->real(call);
	real.buf = transfer->side.buffer;
	result = real.real(&real);
	return settle(transfer, result);
}

static void count_transfer(const struct transfer *transfer, int64_t elements)
{
	struct core_stats_call stats = {.coll = CORE_COLL_NUM,
					.name = transfer->call.name,
					.path = CORE_PATH_STAGE,
					.why = "file",
					.comm = core_mpi_world(),
					.bytes = transfer->side.element * (size_t)elements};

	core_stats_add_since(&stats, transfer->pending.since);
}

/*
 * Also before it is read into, the stage gets what the buffer has: a file may end early, and says
 * so in a status of which MPIs differ about the details.
 */
static enum util_status open_transfer(struct transfer *transfer, const struct core_io_call *call)
{
	enum util_status status;

	core_mpi_pending_open(&transfer->pending, &transfer_kind, call->name, false);
	transfer->call = *call;
	transfer->side.always = true;
	status = core_mpi_side_open(&transfer->side, call->buf, call->count, call->datatype,
				    MPI_DATATYPE_NULL);
	if (status != UTIL_OK || !transfer->side.staged)
		return status;
	transfer->call.buf = transfer->side.buffer;
	transfer->call.count = transfer->side.count;
	transfer->call.datatype = (core_handle)transfer->side.type;
	return core_mpi_side_pack(&transfer->side);
}

/* Of a file that was closed in between, whose handle another one has now. */
static void drop_split(const struct core_io_call *call)
{
	struct transfer *stale = take_split(call);

	if (stale)
		free_transfer(&stale->pending);
}

int core_io_run(const struct core_io_call *call)
{
	struct transfer *transfer = calloc(1, sizeof(*transfer));
	enum util_status status;

	if (!transfer)
		return raise_on_file(call, UTIL_ERR_NO_MEMORY);
	if (call->form == CORE_IO_BEGIN)
		drop_split(call);
	status = open_transfer(transfer, call);
	if (status == UTIL_ERR_MPI || !transfer->side.staged) {
		free_transfer(&transfer->pending);
		return call->real(call);
	}
	if (status != UTIL_OK) {
		free_transfer(&transfer->pending);
		return raise_on_file(call, status);
	}
	count_transfer(transfer, call->count);
	switch (call->form) {
	case CORE_IO_NONBLOCKING:
		return run_nonblocking(transfer);
	case CORE_IO_BEGIN:
		return run_begin(transfer);
	default:
		return settle(transfer, transfer->call.real(&transfer->call));
	}
}
