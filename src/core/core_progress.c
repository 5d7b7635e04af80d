/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_progress.h"
#include "util/util_thread.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool runs, ends; /* changed under the lock */
static pthread_t thread;
static sem_t posts;
static const struct core_progress_work *work;
static atomic_bool woken; /* the semaphore was posted, and nobody has gone on */

/*
 * While something moves it mostly goes on within microseconds. What does not move may wait for
 * another rank's call, for hours.
 */
static void drive(void)
{
	enum { SHORTEST = 5000, LONGEST = 1000000 }; /* ns */
	struct timespec nap = {0, SHORTEST};

	while (work->is_there() && !atomic_load(&ends)) {
		if (work->step()) {
			nap.tv_nsec = SHORTEST;
			sched_yield();
			continue;
		}
		nanosleep(&nap, NULL);
		nap.tv_nsec = nap.tv_nsec < LONGEST / 2 ? 2 * nap.tv_nsec : LONGEST;
	}
}

static void *run(void *argument)
{
	(void)argument;
	while (!atomic_load(&ends)) {
		if (sem_wait(&posts))
			continue;
		/* Exchange: what was there before somebody found it set is seen. */
		atomic_exchange(&woken, false);
		drive();
	}
	return NULL;
}

bool core_progress_start(const struct core_progress_work *of)
{
	if (atomic_load(&runs))
		return true;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&runs)) {
		atomic_store(&ends, false);
		atomic_store(&woken, false);
		sem_init(&posts, 0, 0);
		work = of;
		atomic_store(&runs, util_thread_start(&thread, "gpucoll-progress", run) == UTIL_OK);
	}
	pthread_mutex_unlock(&lock);
	return atomic_load(&runs);
}

void core_progress_wake(void)
{
	if (!atomic_exchange(&woken, true))
		sem_post(&posts);
}

void core_progress_stop(void)
{
	pthread_mutex_lock(&lock);
	if (atomic_load(&runs)) {
		atomic_store(&ends, true);
		sem_post(&posts);
		pthread_join(thread, NULL);
		sem_destroy(&posts);
		atomic_store(&runs, false);
	}
	pthread_mutex_unlock(&lock);
}
