/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_mpi_muster.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

/*
 * Of messages on MPI_COMM_WORLD by which those that have come find out who has not. Only in a job
 * that is about to be ended: a process without the library could take them for the application's.
 */
enum { HERE_TAG = 0x67c0 };

/* While it is to come soon the core is only offered to others, which start up, too. */
static void rest(uint64_t since)
{
	static const struct timespec nap = {0, 200000};

	if (util_now() - since < 10000000) /* ns */
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* Hear of those that have come. */
static void listen_for(bool *here, int size, uint64_t ns)
{
	uint64_t since = util_now();
	MPI_Status status;
	int found;

	while (util_now() - since < ns) {
		PMPI_Iprobe(MPI_ANY_SOURCE, HERE_TAG, MPI_COMM_WORLD, &found, &status);
		if (!found) {
			rest(0);
			continue;
		}
		PMPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, HERE_TAG, MPI_COMM_WORLD,
			  MPI_STATUS_IGNORE);
		if (status.MPI_SOURCE < size)
			here[status.MPI_SOURCE] = true;
	}
}

/*
 * The first rank that does not answer; -1: unknown. All that have come do this at about the same
 * time.
 */
static int find_missing(int rank, int size)
{
	static const uint64_t patience = 3000000000; /* ns */
	bool *here = calloc((size_t)size, sizeof(*here));
	int missing = -1;

	if (!here)
		return -1;
	here[rank] = true;
	for (int i = 0; i < size; i++) {
		MPI_Request request;

		if (i != rank && PMPI_Isend(NULL, 0, MPI_BYTE, i, HERE_TAG, MPI_COMM_WORLD,
					    &request) == MPI_SUCCESS)
			PMPI_Request_free(&request);
	}
	listen_for(here, size, patience);
	for (int i = size - 1; i >= 0; i--)
		missing = here[i] ? missing : i;
	free(here);
	return missing;
}

static void complain(int rank, int size)
{
	static const char *const remedy =
		"all processes of a job must run under libgpucoll, or none: LD_PRELOAD has to "
		"reach all hosts, as by gpucoll-exec behind the launcher, mpirun -x LD_PRELOAD, "
		"mpiexec -genvlist LD_PRELOAD";
	bool ends = util_config.partial == UTIL_PARTIAL_ABORT;
	int missing = ends ? find_missing(rank, size) : -1;

	util_log_set_rank(rank);
	if (missing < 0)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "MPI_Init has waited %zu s for other ranks: %s", util_config.timeout,
			 remedy);
	else
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "MPI_Init has waited %zu s for rank %d of %d, perhaps among others: %s",
			 util_config.timeout, missing, size, remedy);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
		 ends ? "the job is ended (GPUCOLL_PARTIAL=sleep lets it go on without libgpucoll)"
		      : "libgpucoll goes to sleep (GPUCOLL_PARTIAL=sleep)");
	if (!ends)
		return;
	util_log_drain();
	PMPI_Abort(MPI_COMM_WORLD, 1);
}

bool core_mpi_muster(int rank, int size, MPI_Comm *copy)
{
	/* Not on the stack: who goes to sleep leaves MPI at work on them. */
	static MPI_Comm made = MPI_COMM_NULL;
	static MPI_Request request;
	uint64_t since = util_now();
	int done = 0;

	*copy = MPI_COMM_NULL;
	if (PMPI_Comm_idup(MPI_COMM_WORLD, &made, &request) != MPI_SUCCESS)
		return false;
	while (PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
		if (util_config.timeout && util_now() - since > UTIL_SECONDS(util_config.timeout)) {
			complain(rank, size);
			return false;
		}
		rest(since);
	}
	*copy = made;
	return done;
}
