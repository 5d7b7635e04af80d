/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A request of the real MPI whose completion the library is to know of: what it stands for, a
 * message or a collective, is embedded in a larger structure on the heap.
 */
#ifndef CORE_MPI_PENDING_H
#define CORE_MPI_PENDING_H

#include "core/call/core_mpi_handle.h"
#include "util/util_status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct core_mpi_pending;

struct core_mpi_pending_kind {
	/* The request is the library's own, which a call that was left by a jump has not touched.
	 */
	bool stays;
	/* Of a persistent one, before it is started: have what it sends in its stages. Waits. */
	enum util_status (*prepare)(struct core_mpi_pending *pending);
	/*
	 * Then: the request was started, or could not be. In no table's hands but its own any more.
	 * NULL: nothing is to be done.
	 */
	void (*started)(struct core_mpi_pending *pending, bool well);
	/* The operation is complete, as the status says: what it has brought is to be copied. */
	void (*arrive)(struct core_mpi_pending *pending, const MPI_Status *status);
	/*
	 * Go on copying; UTIL_IN_PROGRESS: call again. UTIL_OK also where there is nothing to copy,
	 * or not any more after an error.
	 */
	enum util_status (*progress)(struct core_mpi_pending *pending);
	/* From or to whom it is, for a report. */
	void (*describe)(const struct core_mpi_pending *pending, char *text, size_t bytes);
	/* Give back all that it holds, and itself. */
	void (*free)(struct core_mpi_pending *pending);
};

struct core_mpi_pending {
	const struct core_mpi_pending_kind *kind;
	struct core_mpi_pending *next; /* in the table of requests */
	MPI_Request request;
	const char *name; /* "MPI_Isend" */
	uint64_t since;   /* util_now when it was called for */
	bool persistent;
	bool active;            /* a persistent one: started, and not seen to be complete */
	bool prepared;          /* ... and being started, so that `started` is to be called */
	bool arrived;           /* what it has brought is copied, or being copied */
	bool quiet;             /* errors are returned, and nobody's handler is called */
	enum util_status error; /* of the copies, until it is started again */
	/*
	 * Of who copies. Recursive, as an error handler that is called meanwhile may complete the
	 * request, too.
	 */
	pthread_mutex_t settling;
	/* Of core_mpi_table.c, under its lock: threads that found the entry, which may be gone. */
	int finders;
	bool gone;
};

/* Of a zeroed one. */
void core_mpi_pending_open(struct core_mpi_pending *pending,
			   const struct core_mpi_pending_kind *kind, const char *name,
			   bool persistent);

/*
 * How errors are handled on what the call is made on: the handler, of which this takes the caller's
 * reference. When the request is complete a communicator may have been freed.
 */
void core_mpi_pending_heed(struct core_mpi_pending *pending, MPI_Errhandler handler);

/* The same of a call on the communicator. */
void core_mpi_pending_heed_comm(struct core_mpi_pending *pending, core_handle comm);

/*
 * The error of a status, raised on MPI_COMM_WORLD unless it is to be returned only
 * (pending->quiet). Returns MPI's code; MPI_SUCCESS of UTIL_OK.
 */
int core_mpi_pending_raise(bool quiet, enum util_status status);

/*
 * The operation is complete, as the status says: have what it has brought copied, once, and wait
 * for that. Other threads that do this meanwhile wait, too.
 */
enum util_status core_mpi_pending_settle(struct core_mpi_pending *pending,
					 const MPI_Status *status);

/* The two halves of that, between which others may begin; and a step in between. */
void core_mpi_pending_settle_begin(struct core_mpi_pending *pending, const MPI_Status *status);
enum util_status core_mpi_pending_progress(struct core_mpi_pending *pending);
enum util_status core_mpi_pending_settle_end(struct core_mpi_pending *pending);

#endif
