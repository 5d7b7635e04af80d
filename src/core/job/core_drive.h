/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that go on beside the application (core_queue.h), as all who wait know them: as long
 * as there are some, nobody waits without driving them.
 */
#ifndef CORE_DRIVE_H
#define CORE_DRIVE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How many there are of which the application was not told that they are complete. One load: who
 * waits for one has been told of it by who began it.
 */
extern uint64_t core_drive_pending;

static inline bool core_drive_is_pending(void)
{
	return __builtin_expect(__atomic_load_n(&core_drive_pending, __ATOMIC_RELAXED) != 0, false);
}

/* Who drives them, by the functions below of these names. */
struct core_drive_calls {
	void (*step)(void), (*begin)(void), (*yield)(void), (*leave)(void);
};

/* Set once, before there are any. */
void core_drive_set(const struct core_drive_calls *calls);

/* In a forked child: there are none. */
void core_drive_forget(void);

/* Have them go on, if there are any, without waiting. May call MPI, as the next two. Any thread. */
void core_drive_step(void);

/* The same of those that were just added. */
void core_drive_begin(void);

/* Wait until nothing is in the way of a call that waits in the real MPI. */
void core_drive_yield(void);

/* Whether this thread is inside a call of MPI that a step makes. */
extern _Thread_local bool core_drive_holds __attribute__((tls_model("initial-exec")));

/* If it comes from the application then: it has left that by a jump out of an error handler. */
void core_drive_leave(void);

#endif
