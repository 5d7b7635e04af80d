/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/net_rest.h"
#include "net/net_port.h"
#include "util/util_thread.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static pthread_t thread;
static sem_t work; /* posted when `busy` becomes true */
static atomic_bool ends;
/* Under the main port's lock. */
static bool running, busy; /* the thread is there, and has something to do */
static _Atomic int flushed;

/*
 * Under the lock. True: all is out. A flush that had to wait is followed by another one, for what
 * has been sent since it began.
 */
static bool flush(void)
{
	if (busy && atomic_load_explicit(&flushed, memory_order_acquire) == UTIL_IN_PROGRESS)
		return false;
	net_flush(NET_MAIN, &flushed);
	busy = atomic_load_explicit(&flushed, memory_order_acquire) == UTIL_IN_PROGRESS;
	return !busy;
}

static void move_messages(void)
{
	enum { SHORTEST = 20000, LONGEST = 1000000 }; /* ns */
	struct timespec nap = {0, SHORTEST};
	bool out = false;

	while (!out && !atomic_load(&ends)) {
		while (net_progress(NET_MAIN) && !atomic_load(&ends))
			;
		net_lock(NET_MAIN);
		out = flush();
		net_unlock(NET_MAIN);
		if (!out)
			nanosleep(&nap, NULL);
		nap.tv_nsec = nap.tv_nsec < LONGEST / 2 ? 2 * nap.tv_nsec : LONGEST;
	}
}

static void *run_rest(void *argument)
{
	(void)argument;
	while (!atomic_load(&ends)) {
		if (!sem_wait(&work))
			move_messages();
	}
	return NULL;
}

/* Under the lock. Without a thread the rest waits for the next call. */
static void wake(void)
{
	if (!running) {
		atomic_store(&ends, false);
		sem_init(&work, 0, 0);
		running = util_thread_start(&thread, "gpucoll-rest", run_rest, NULL) == UTIL_OK;
	}
	if (running)
		sem_post(&work);
}

void net_rest_leave(void)
{
	net_lock(NET_MAIN);
	if ((!busy || !running) && !flush())
		wake();
	net_unlock(NET_MAIN);
}

void net_rest_stop(void)
{
	if (running) {
		atomic_store(&ends, true);
		sem_post(&work);
		pthread_join(thread, NULL);
		sem_destroy(&work);
	}
	running = busy = false;
}
