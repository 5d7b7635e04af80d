/* SPDX-License-Identifier: BSD-3-Clause */
/* Who waits for enqueued calls: a thread that looks for lost ranks, and the communicator's end. */
#include "core/accel/core_standing.h"
#include "core/accel/core_standing_parts.h"
#include "core/agree/core_lost.h"
#include "core/agree/core_meet.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_progress.h"
#include "core/report/core_dump.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_standing *all; /* under the lock */

void core_standing_watch(struct core_standing *standing)
{
	pthread_mutex_lock(&lock);
	standing->next = all;
	all = standing;
	pthread_mutex_unlock(&lock);
}

void core_standing_unwatch(const struct core_standing *standing)
{
	struct core_standing **link = &all;

	pthread_mutex_lock(&lock);
	while (*link && *link != standing)
		link = &(*link)->next;
	if (*link)
		*link = standing->next;
	pthread_mutex_unlock(&lock);
}

bool core_standing_is_busy(const struct core_standing *standing)
{
	const struct gpu_enqueued *words = standing->words;

	return core_standing_load(&words->ended) < core_standing_load(&standing->tickets) ||
	       core_standing_load(&words->begun) > core_standing_load(&words->number) ||
	       core_standing_load(&words->exchanges_begun) >
		       core_standing_load(&words->exchanges) ||
	       core_standing_load(&words->behind) < core_standing_load(&standing->behind);
}

/* A message had not the size that its receiver knew, of which the others are to know. */
static bool is_mismatched(const struct core_standing *standing)
{
	return core_standing_load(&standing->words->mismatched) &&
	       !__atomic_load_n(&standing->words->abort, __ATOMIC_RELAXED);
}

static void tell_mismatch(const struct core_standing *standing)
{
	const struct gpu_enqueued *words = standing->words;

	util_log(
		UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		"rank %d has sent %llu bytes in an enqueued call to rank %d, which receives %llu%s",
		standing->comm->near[words->mismatched - 1],
		(unsigned long long)words->mismatched_sent, standing->comm->rank,
		(unsigned long long)words->mismatched_wanted,
		words->mismatched_sent == words->mismatched_wanted ? ", in another call" : "");
}

/* This rank alone has given up, and so has a kernel of it, for which the others' may wait. */
static bool is_missed(const struct core_standing *standing)
{
	return core_standing_load(&standing->words->failed) &&
	       __atomic_load_n(&standing->words->abort, __ATOMIC_RELAXED) &&
	       !core_meet_is_lost(standing->comm);
}

/* Repeated launches come without a word. */
static bool is_to_watch(const struct core_standing *standing)
{
	return __atomic_load_n(&standing->repeats, __ATOMIC_RELAXED) ||
	       core_standing_is_busy(standing) || is_mismatched(standing) || is_missed(standing);
}

void core_standing_look(struct core_standing *standing)
{
	struct core_comm *comm = standing->comm;
	bool mismatched;
	int rank;

	if (is_missed(standing))
		core_meet_lose(comm);
	/* Who has given up alone waits for the others at the end, and so looks for the lost. */
	if (__atomic_load_n(&standing->words->abort, __ATOMIC_RELAXED) && core_meet_is_lost(comm))
		return;
	mismatched = is_mismatched(standing);
	rank = core_lost_find(comm, comm->calls);
	if (rank >= 0 || mismatched)
		core_meet_lose(comm);
	/* Relaxed: it orders nothing. Another thread may look, too. */
	if (!core_meet_is_lost(comm) ||
	    __atomic_exchange_n(&standing->words->abort, 1, __ATOMIC_RELAXED))
		return;
	if (mismatched)
		tell_mismatch(standing);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "enqueued calls on a communicator of %d ranks are given up: %s", comm->size,
		 mismatched                   ? "sizes don't fit each other"
		 : core_meet_is_revoked(comm) ? "the communicator was revoked"
		 : rank >= 0                  ? "a rank is lost"
					      : "another rank could not go on, or is lost");
}

static bool has_work(void)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct core_standing *standing = all; standing && !found; standing = standing->next)
		found = is_to_watch(standing);
	pthread_mutex_unlock(&lock);
	return found;
}

/* The wait is the watch's pace: the host has no part in what goes well. */
static bool watch(void)
{
	static const struct timespec moment = {0, 20000000};

	nanosleep(&moment, NULL);
	pthread_mutex_lock(&lock);
	for (struct core_standing *standing = all; standing; standing = standing->next) {
		if (is_to_watch(standing))
			core_standing_look(standing);
	}
	pthread_mutex_unlock(&lock);
	return false;
}

static struct core_progress watcher = {
	.name = "gpucoll-watch", .is_there = has_work, .step = watch};

void core_standing_wake(struct core_standing *standing, bool captured)
{
	if (captured)
		__atomic_store_n(&standing->repeats, true, __ATOMIC_RELAXED);
	if (core_progress_start(&watcher))
		core_progress_wake(&watcher);
}

/*
 * Relaxed: a kernel that begins later, or whose beginning is not seen yet, finds the word if it has
 * to wait, and is missed then.
 */
void core_standing_abandon(struct core_standing *standing)
{
	__atomic_store_n(&standing->words->abort, 1, __ATOMIC_RELAXED);
}

static void report_loss(const struct core_standing *standing, const char *name)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "waiting for kernels of calls that are enqueued on communicator %s: %llu of them "
		 "have begun, %llu ended; goes on waiting",
		 name,
		 (unsigned long long)core_standing_load(&standing->words->begun) +
			 core_standing_load(&standing->words->exchanges_begun) -
			 CORE_STANDING_FIRST_CALL,
		 (unsigned long long)core_standing_load(&standing->words->number) +
			 core_standing_load(&standing->words->exchanges) -
			 CORE_STANDING_FIRST_CALL);
	core_dump("enqueued calls have waited long");
}

bool core_standing_drain(struct core_standing *standing, const char *name)
{
	static const uint64_t moment = UTIL_SECONDS(1) / 10; /* ns */
	uint64_t since = util_now(), looked = since;
	bool reported = util_config.timeout == 0;
	struct core_wait wait = {0};

	while (core_standing_is_busy(standing)) {
		core_mpi_drive(&wait);
		if (util_now() - looked < moment)
			continue;
		looked = util_now();
		core_standing_look(standing);
		if (gpu_stream_is_lost(standing->own)) {
			core_meet_lose(standing->comm);
			return false;
		}
		if (reported || looked - since < util_config.timeout * UTIL_SECONDS(1))
			continue;
		report_loss(standing, name);
		reported = true;
	}
	if (is_mismatched(standing))
		core_standing_look(standing);
	return true;
}

void core_standing_stop(void)
{
	core_progress_stop(&watcher);
}
