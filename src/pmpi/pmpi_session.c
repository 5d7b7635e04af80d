/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI sessions in a program that does not call MPI_Init. Who the job's processes are the library
 * learns from MPI_COMM_WORLD; so where GPUCOLL_SESSIONS says that it may, it initialises MPI with
 * the first session and finalises it with the last.
 */
#include "core/job/core_mpi_job.h"
#include "pmpi/pmpi_call.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <pthread.h>

/* Held while MPI is initialised, by the program, too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_ours;  /* MPI was initialised here, and is to be finalised here. Atomic */
static bool is_ended; /* it was finalised here. Under the lock */

void pmpi_session_lock(void)
{
	pthread_mutex_lock(&lock);
}

void pmpi_session_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

bool pmpi_session_hand_over(void)
{
	if (is_ended)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "MPI_Init after the last session was finalised, and with it MPI "
			 "(GPUCOLL_SESSIONS): MPI can't be initialised again");
	return __atomic_exchange_n(&is_ours, false, __ATOMIC_RELAXED);
}

/* A program that asks so as to initialise MPI itself, and finalise it, is to do so. */
int pmpi_own_Initialized(int (*next)(int *), int *flag)
{
	int result = next(flag);

	if (result == MPI_SUCCESS && __atomic_load_n(&is_ours, __ATOMIC_RELAXED) &&
	    !pmpi_is_inside())
		*flag = 0;
	return result;
}

static int num_open; /* the program's sessions. Written under the lock, atomic */

/* MPI may ask in MPI_Finalize, with locks that others have to wait for under ours. */
bool pmpi_session_is_open(void)
{
	return __atomic_load_n(&num_open, __ATOMIC_RELAXED) > 0;
}

#if PMPI_HAS_MPI4
/* Later sessions may ask for more than the first one; this serves all. */
static bool init(void)
{
	int was = 0, level, result = MPI_SUCCESS;

	pmpi_enter(PMPI_DOOR_MPI);
	PMPI_Initialized(&was);
	if (!was)
		result = PMPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	pmpi_leave();
	if (result != MPI_SUCCESS)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "GPUCOLL_SESSIONS: MPI could not be initialised: calls are staged");
	if (was || result != MPI_SUCCESS)
		return false;
	pmpi_start();
	return true;
}

/* Before the session, whose level would be MPI's otherwise. */
static void begin_first(void)
{
	util_config_load();
	if (is_ended)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "a session after the last one was finalised, and with it MPI "
			 "(GPUCOLL_SESSIONS): its communicators' calls are staged. Another session "
			 "that stays open keeps MPI");
	else if (util_config.sessions && !is_ours)
		__atomic_store_n(&is_ours, init(), __ATOMIC_RELAXED);
}

/* One more, or less. Returns how many there are then. */
static int count(int by)
{
	return __atomic_add_fetch(&num_open, by, __ATOMIC_RELAXED);
}

int pmpi_own_Session_init(int (*next)(MPI_Info, MPI_Errhandler, MPI_Session *), MPI_Info info,
			  MPI_Errhandler errhandler, MPI_Session *session)
{
	int result;

	if (pmpi_is_inside())
		return next(info, errhandler, session);
	pthread_mutex_lock(&lock);
	if (count(1) == 1)
		begin_first();
	pthread_mutex_unlock(&lock);
	__atomic_store_n(&core_mpi_job_has_sessions, true, __ATOMIC_RELAXED);
	pmpi_enter(PMPI_DOOR_MPI);
	result = next(info, errhandler, session);
	pmpi_leave();
	if (result == MPI_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	count(-1);
	pthread_mutex_unlock(&lock);
	return result;
}

/* Unless the program has done it. In it the program's callbacks may come here. */
static void finalize(void)
{
	int done = 0;

	PMPI_Finalized(&done);
	if (!done)
		PMPI_Finalize();
}

int pmpi_own_Session_finalize(int (*next)(MPI_Session *), MPI_Session *session)
{
	static _Thread_local const MPI_Session *ending;
	const MPI_Session *outer = ending;
	bool ends = false;
	int result;

	if (pmpi_is_inside() || session == ending || *session == MPI_SESSION_NULL)
		return next(session);
	pthread_mutex_lock(&lock);
	if (count(-1) == 0 && is_ours) {
		__atomic_store_n(&is_ours, false, __ATOMIC_RELAXED);
		is_ended = ends = true;
	}
	pthread_mutex_unlock(&lock);
	if (ends)
		finalize();
	/* The program's callbacks may come here, too; and once more this call, from a tool. */
	ending = session;
	result = next(session);
	ending = outer;
	if (result == MPI_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	count(1);
	pthread_mutex_unlock(&lock);
	return result;
}
#endif
