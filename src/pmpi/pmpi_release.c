/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process should be told of the MPI that it runs with, and of how it was started. */
#include "core/call/core_flags.h"
#include "core/job/core_mpi_job.h"
#include "pmpi/pmpi_call.h"
#include "util/util_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
enum { BUILT_FOR = OMPI_MAJOR_VERSION };
static const char before_version[] = "Open MPI v";
#elif defined(MPICH_NUMVERSION)
enum { BUILT_FOR = MPICH_NUMVERSION / 10000000 };
static const char before_version[] = "MPICH Version:";
#else
enum { BUILT_FOR = 0 }; /* the standard ABI, of any MPI */
static const char before_version[] = "";
#endif

/* 0: it does not say, or is another MPI with the same ABI. */
static int running_version(void)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	const char *found;
	int length;

	if (!*before_version || PMPI_Get_library_version(text, &length) != MPI_SUCCESS)
		return 0;
	found = strstr(text, before_version);
	return found ? atoi(found + strlen(before_version)) : 0;
}

/* Releases with one soname do not have the same calls. */
static void look_at_release(void)
{
	int running = core_mpi_job.rank == 0 ? running_version() : 0;

	if (running > BUILT_FOR)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_PMPI,
			 "this libgpucoll was built for release %d of the MPI, and runs with "
			 "release %d: calls that are new in it are not taken. Build one for it, "
			 "see --with-mpi of configure",
			 BUILT_FOR, running);
}

static bool has_launcher;

static bool is_set(const char *name)
{
	return getenv(name) != NULL;
}

/* Before MPI_Init, in which Open MPI sets them for a process that was started alone. */
__attribute__((constructor)) static void note_launcher(void)
{
	has_launcher = is_set("PMIX_RANK") || is_set("PMI_RANK") || is_set("OMPI_COMM_WORLD_SIZE");
}

/*
 * srun has started several tasks, and the MPI does not know: each is a job of its own. One that was
 * started by an MPI's launcher, which srun may have started, has its variables.
 */
static void look_for_singletons(void)
{
	const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *task = getenv("SLURM_PROCID");

	if (core_mpi_job.size > 1 || has_launcher)
		return;
	if (!tasks || atoi(tasks) < 2 || !task || atoi(task))
		return;
	util_log(
		UTIL_LOG_WARN, UTIL_SUBSYS_PMPI,
		"srun has started %s tasks, but each is alone in its MPI_COMM_WORLD: the MPI was not "
		"told of the others. srun --mpi=LIST shows what it can do (Open MPI needs --mpi=pmix), "
		"or start the program by the MPI's mpirun",
		tasks);
}

void pmpi_look_at_start(void)
{
	look_at_release();
	look_for_singletons();
}
