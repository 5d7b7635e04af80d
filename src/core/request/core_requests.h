/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of the application that the library is to know of when they complete, as what they bring
 * is then copied to device memory.
 */
#ifndef CORE_REQUESTS_H
#define CORE_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * How many there are. One load: a thread that completes a request has been told of it by who made
 * it, and so sees that there is one.
 */
extern uint64_t core_requests_pending;

static inline bool core_requests_are_pending(void)
{
	return __atomic_load_n(&core_requests_pending, __ATOMIC_RELAXED) != 0;
}

/*
 * The thread's next completion call is to go to the real MPI as it is: the library's own calls come
 * to the wrappers, too.
 */
extern _Thread_local bool core_requests_pass __attribute__((tls_model("initial-exec")));

/* Look whether what was freed while it was under way has come. */
void core_requests_look(void);

/* This thread is in no call any more: forget what a call had that was left by a jump. */
void core_requests_left(void);

/* What this rank has pending, for a report: "; ...", or "". */
void core_requests_describe(char *text, size_t bytes);

/* Bring what was freed while it was under way to its end; in MPI_Finalize. */
void core_requests_finish(void);

#endif
