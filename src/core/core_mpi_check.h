/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUCOLL_CHECK=args: before a collective operation the ranks of its communicator tell each other
 * what they have come to and with which arguments, by a collective operation of the real MPI on the
 * same communicator. So ranks that have come to different ones meet in this one.
 *
 * A nonblocking operation's is nonblocking, too, and is looked at when the library next has the
 * turn.
 */
#ifndef CORE_MPI_CHECK_H
#define CORE_MPI_CHECK_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "core/report/core_note.h"
#include "util/util_config.h"

/* Those that are pending. One load. */
extern uint64_t core_check_pending;

/*
 * Of a call; or of an operation without data, which has a name only. Blocks, unless the call is
 * nonblocking. Returns MPI_SUCCESS, or the error of which the communicator's error handler was told
 * on all ranks alike: then the call is not to be made.
 */
int core_check_run(const struct core_call *call, struct core_comm *comm,
		   const struct core_note *note);
int core_check_run_other(const char *name, bool nonblocking, struct core_comm *comm,
			 core_handle handle, const struct core_note *note);

/* Look at those that are pending; any thread that may call MPI. */
void core_check_look(void);

/* In MPI_Finalize: wait for them, for a moment. */
void core_check_finish(void);

static inline bool core_check_is_on(const struct core_comm *comm)
{
	return __builtin_expect(util_config.check & UTIL_CHECK_ARGS, 0) && comm && comm->size > 1;
}

/* core_check_run, where it is asked for. */
static inline int core_check_call(const struct core_call *call, struct core_comm *comm,
				  const struct core_note *note)
{
	return core_check_is_on(comm) ? core_check_run(call, comm, note) : 0;
}

#endif
