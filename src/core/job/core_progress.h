/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that go on with what is under way while the application computes. Each sleeps while there
 * is nothing, and in ever longer steps while nothing moves.
 */
#ifndef CORE_PROGRESS_H
#define CORE_PROGRESS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A thread and its work, in static memory that is zero but for the first three. */
struct core_progress {
	const char *name; /* at most 15 characters */
	bool (*is_there)(void);
	bool (*step)(void);     /* returns whether something has come nearer */
	atomic_bool runs, ends; /* changed under a lock */
	atomic_bool woken;      /* the semaphore was posted, and nobody has gone on */
	pthread_t thread;
	sem_t posts;
};

/* Have the thread. False: the process can't have one. Thread-safe. */
bool core_progress_start(struct core_progress *progress);

/* There is work. Thread-safe. */
void core_progress_wake(struct core_progress *progress);

/* End it, if it was started. */
void core_progress_stop(struct core_progress *progress);

#endif
