/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonblocking collectives that may be accelerated, as MPI's generalized requests. */
#ifndef CORE_MPI_QUEUED_H
#define CORE_MPI_QUEUED_H

#include "core/core_queue.h"
#include "core/mpi/core_mpi_kept.h"
#include "core/request/core_mpi_pending.h"

/* A call in the queue, and what the application's request stands for. */
struct core_mpi_queued {
	struct core_mpi_pending pending; /* first */
	struct core_queued queued;
	struct core_mpi_kept kept;
	MPI_Request hidden; /* the real MPI's, when it is staged */
	/* Of the communicator, which may have been freed when the call has ended. */
	char comm_name[64];
	int size;
};

/*
 * Queue call `number` of the communicator. UTIL_OK: `*result` is what the call is to return, and
 * its request is there. Else nothing was done, and the call is to be staged, for the reason `*why`.
 * Thread-safe.
 */
enum util_status core_mpi_queued_run(const struct core_call *call, struct core_comm *comm,
				     uint64_t number, int *result, const char **why);

/*
 * What persistent ones (core_mpi_persistent.h) have in common with these.
 *
 * Note the communicator of the call, for reports.
 */
void core_mpi_queued_note_comm(struct core_mpi_queued *queued, const struct core_comm *comm,
			       core_handle handle);

/* That of which this is the part. */
struct core_mpi_queued *core_mpi_queued_of(struct core_queued *part);

/* As `test` of struct core_op: the request is the call's. */
enum util_status core_mpi_queued_test(struct core_op *op);

/* Count a call that has ended, and note whether its error was raised. */
void core_mpi_queued_count(struct core_mpi_queued *queued);

/* As in struct core_mpi_pending_kind. */
void core_mpi_queued_arrive(struct core_mpi_pending *pending, const MPI_Status *status);
enum util_status core_mpi_queued_progress(struct core_mpi_pending *pending);
void core_mpi_queued_describe(const struct core_mpi_pending *pending, char *text, size_t bytes);

#endif
