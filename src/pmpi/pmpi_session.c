/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI sessions in a program that does not call MPI_Init. Who the job's processes are the library
 * learns from MPI_COMM_WORLD; so where GPUCOLL_SESSIONS says that it may, it initialises MPI with
 * the first session and finalises it with the last.
 */
#include "pmpi/pmpi_call.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here, also while MPI starts */
static bool is_ours; /* MPI was initialised here, and is to be finalised here */

bool pmpi_session_hand_over(void)
{
	bool was_ours;

	if (pmpi_is_inside()) /* as when it is done here */
		return false;
	pthread_mutex_lock(&lock);
	was_ours = is_ours;
	is_ours = false;
	pthread_mutex_unlock(&lock);
	return was_ours;
}

#if PMPI_HAS_MPI4
static int num_open;  /* the program's sessions */
static bool is_ended; /* what was begun here */

/* Sessions may each ask for another level, the later ones too: this is one that serves all. */
static bool init(void)
{
	int was = 0, level;

	pmpi_enter(PMPI_DOOR_MPI);
	PMPI_Initialized(&was);
	if (!was && PMPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "GPUCOLL_SESSIONS: MPI could not be initialised: calls are staged");
		was = true;
	}
	pmpi_leave();
	if (!was)
		pmpi_start();
	return !was;
}

int pmpi_own_Session_init(int (*next)(MPI_Info, MPI_Errhandler, MPI_Session *), MPI_Info info,
			  MPI_Errhandler errhandler, MPI_Session *session)
{
	bool is_inside = pmpi_is_inside();
	int result = next(info, errhandler, session);

	if (result != MPI_SUCCESS || is_inside)
		return result;
	util_config_load();
	pthread_mutex_lock(&lock);
	if (is_ended)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "a session after the last one was finalised, and with it MPI "
			 "(GPUCOLL_SESSIONS): its communicators' calls are staged. Another session "
			 "that stays open keeps MPI");
	else if (!num_open && util_config.sessions)
		is_ours = init();
	num_open++;
	pthread_mutex_unlock(&lock);
	return result;
}

/* Unless the program has done it. */
static void finalize(void)
{
	int done = 0;

	PMPI_Finalized(&done);
	if (!done)
		PMPI_Finalize();
}

int pmpi_own_Session_finalize(int (*next)(MPI_Session *), MPI_Session *session)
{
	if (!pmpi_is_inside()) {
		pthread_mutex_lock(&lock);
		if (!--num_open && is_ours) {
			is_ours = false;
			is_ended = true;
			finalize();
		}
		pthread_mutex_unlock(&lock);
	}
	return next(session);
}
#endif
