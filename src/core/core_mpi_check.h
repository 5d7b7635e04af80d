/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUCOLL_CHECK=args: before a collective operation the ranks of its communicator tell each other
 * what they have come to and with which arguments, by a collective operation of the real MPI on a
 * communicator of its own. So ranks that have come to different ones meet in this one. It can't be
 * on the same communicator: a nonblocking call may wait in a queue (core_queue.h) on one rank when
 * another's is with the real MPI already.
 *
 * A nonblocking operation's is nonblocking, too, and is looked at when the library next has the
 * turn. So is an enqueued one's, which a thread looks at as well, where the MPI lets it: the
 * application may wait for the stream.
 */
#ifndef CORE_MPI_CHECK_H
#define CORE_MPI_CHECK_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_note.h"
#include "util/util_config.h"

/*
 * Give a communicator that has just got its state what the checks of its calls need. Collective
 * over it. And take that back.
 */
void core_check_open(struct core_comm *comm, core_handle handle);
void core_check_close(struct core_comm *comm);

/*
 * The same for what is enqueued on a communicator with the state `comm`; NULL: it is not checked.
 * `fail` is told what is wrong, by any thread, at any time up to the end of
 * core_check_close_enqueued; it is to call nothing of the MPI.
 */
struct core_checks *core_check_open_enqueued(const struct core_comm *comm, core_handle handle,
					     void (*fail)(void *argument, int error),
					     void *argument);
void core_check_close_enqueued(struct core_checks *checks); /* NULL is allowed */

/* A call is enqueued on it. */
void core_check_enqueued(struct core_checks *checks, const struct core_call *call,
			 const struct core_comm *comm);

/* The communicator is revoked: its checks end. NULL is allowed. */
void core_check_revoke(struct core_checks *checks);

/* The thread makes calls of MPI inside the guard. */
void core_check_set_guard(void (*guard)(void (*inside)(void)));

/* Those that are pending. One load. */
extern uint64_t core_check_pending;

/*
 * Of a call; or of an operation without data, which has a name only. Blocks, unless the call is
 * nonblocking. Returns MPI_SUCCESS, or, on all ranks alike, the error that is to be raised instead
 * of making the call; that of a nonblocking call is raised when it is seen.
 */
int core_check_run(const struct core_call *call, struct core_comm *comm,
		   const struct core_note *note);
int core_check_run_other(const char *name, bool nonblocking, struct core_comm *comm,
			 const struct core_note *note);

/* Have the communicator's error handler called. Returns the error. */
int core_check_raise(core_handle comm, int error);

/* Look at those that are pending; any thread that may call MPI. */
void core_check_look(void);

/* In MPI_Finalize: wait for them, for a moment. */
void core_check_finish(void);

static inline bool core_check_is_on(const struct core_comm *comm)
{
	return comm && __builtin_expect(comm->check != NULL, 0);
}

/* core_check_run, where it is asked for. */
static inline int core_check_call(const struct core_call *call, struct core_comm *comm,
				  const struct core_note *note)
{
	return core_check_is_on(comm) ? core_check_run(call, comm, note) : 0;
}

#endif
