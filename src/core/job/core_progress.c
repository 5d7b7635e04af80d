/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_progress.h"
#include "util/util_thread.h"

#include <sched.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * While something moves it mostly goes on within microseconds. What does not move may wait for
 * another rank's call, for hours.
 */
static void drive(const struct core_progress *progress)
{
	enum { SHORTEST = 5000, LONGEST = 1000000 }; /* ns */
	struct timespec nap = {0, SHORTEST};

	while (progress->is_there() && !atomic_load(&progress->ends)) {
		if (progress->step()) {
			nap.tv_nsec = SHORTEST;
			sched_yield();
			continue;
		}
		nanosleep(&nap, NULL);
		nap.tv_nsec = nap.tv_nsec < LONGEST / 2 ? 2 * nap.tv_nsec : LONGEST;
	}
}

static void *run_progress(void *argument)
{
	struct core_progress *progress = argument;

	while (!atomic_load(&progress->ends)) {
		if (sem_wait(&progress->posts))
			continue;
		/* Exchange: what was there before somebody found it set is seen. */
		atomic_exchange(&progress->woken, false);
		drive(progress);
	}
	return NULL;
}

bool core_progress_start(struct core_progress *progress)
{
	if (atomic_load(&progress->runs))
		return true;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&progress->runs)) {
		atomic_store(&progress->ends, false);
		atomic_store(&progress->woken, false);
		sem_init(&progress->posts, 0, 0);
		atomic_store(&progress->runs, util_thread_start(&progress->thread, progress->name,
								run_progress, progress) == UTIL_OK);
	}
	pthread_mutex_unlock(&lock);
	return atomic_load(&progress->runs);
}

void core_progress_wake(struct core_progress *progress)
{
	if (!atomic_exchange(&progress->woken, true))
		sem_post(&progress->posts);
}

void core_progress_stop(struct core_progress *progress)
{
	pthread_mutex_lock(&lock);
	if (atomic_load(&progress->runs)) {
		atomic_store(&progress->ends, true);
		sem_post(&progress->posts);
		pthread_join(progress->thread, NULL);
		sem_destroy(&progress->posts);
		atomic_store(&progress->runs, false);
	}
	pthread_mutex_unlock(&lock);
}
