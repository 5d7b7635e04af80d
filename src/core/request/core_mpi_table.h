/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is to be done when requests complete, by their handles.
 *
 * A handle does not identify a request: the real MPI gives it to another one as soon as this one is
 * complete, perhaps in another thread. So an entry is taken out of the table before any call that
 * may complete its request, and put back if that did not.
 *
 * An error handler of the application may complete requests that the call which it comes from has
 * taken out: so what a thread has taken out can be found by it, and is that call's no more then.
 * All are thread-safe.
 */
#ifndef CORE_MPI_TABLE_H
#define CORE_MPI_TABLE_H

#include "core/request/core_mpi_pending.h"
#include "core/request/core_requests.h"

/*
 * The real MPI has begun the operation, with this request, which gets into the table. If it is
 * complete as it is born, its handle may be one that many have, and the application will find it
 * complete without us: so then all is done here, and the pending one is freed. `asks`: whether the
 * real MPI may be asked for that. Returns MPI_SUCCESS, or as core_mpi_pending_raise.
 */
int core_mpi_table_begin(struct core_mpi_pending *pending, MPI_Request request, bool asks);

/* Take the request's entry out; NULL: it has none. */
struct core_mpi_pending *core_mpi_table_take(MPI_Request request);

/*
 * The same of the first of the requests from `*index` on that has one, which is set to where it
 * was; `inside`: a call around this one has taken some.
 */
struct core_mpi_pending *core_mpi_table_take_next(const MPI_Request requests[], int count,
						  int *index, bool inside);

/*
 * Find the request's entry, which stays where it is: other threads may find it, too, or take it
 * out. It lives until core_mpi_table_release. NULL: there is none.
 */
struct core_mpi_pending *core_mpi_table_find(MPI_Request request);

/* Who has found it has done with it. */
void core_mpi_table_release(struct core_mpi_pending *pending);

/* Whether this thread has taken some. */
bool core_mpi_table_is_inside(void);

/* Put back what this thread took out. */
void core_mpi_table_put_back(struct core_mpi_pending *pending);

/* What this thread took out has no request any more, and is freed. */
void core_mpi_table_forget(struct core_mpi_pending *pending);

/* Of such a one: it goes elsewhere. */
void core_mpi_table_drop_taken(struct core_mpi_pending *pending);

/*
 * Whether this thread still has it, or a call inside this one has done with it. And how often that
 * has happened to any.
 */
bool core_mpi_table_has_taken(const struct core_mpi_pending *pending);
extern _Thread_local unsigned core_mpi_table_taken_over;

/*
 * Of one that was taken out: the request is complete, or was refused. Done with it, unless it is
 * persistent, which begins anew.
 */
void core_mpi_table_end(struct core_mpi_pending *pending, const MPI_Request *request);

/*
 * The same after a call that has ended so, or with an error, its `result`; what has come is copied
 * first. Returns MPI's result.
 */
int core_mpi_table_complete(struct core_mpi_pending *pending, const MPI_Request *request,
			    int result, const MPI_Status *status);

#endif
