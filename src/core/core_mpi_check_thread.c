/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at the checks of enqueued calls while the application waits for its stream. */
#include "core/core_mpi_check.h"
#include "core/core_mpi_check_parts.h"
#include "core/job/core_progress.h"

static void (*guard)(void (*inside)(void));

static bool step(void)
{
	guard(core_check_look_enqueued);
	return false;
}

static struct core_progress looker = {
	.name = "gpucoll-check", .is_there = core_check_has_enqueued, .step = step};

void core_check_set_guard(void (*of)(void (*inside)(void)))
{
	guard = of;
}

void core_check_wake_thread(void)
{
	int level = MPI_THREAD_SINGLE;

	PMPI_Query_thread(&level);
	if (level == MPI_THREAD_MULTIPLE && core_progress_start(&looker))
		core_progress_wake(&looker);
}

void core_check_stop_thread(void)
{
	core_progress_stop(&looker);
}
