/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on streams of the application's: the rest of gpucoll.h's, besides what gen-wrappers.py
 * makes. */
#include "core/core_mpi_bound.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_enqueue.h"
#include "core/stream/core_stream.h"
#include "pmpi/pmpi_call.h"
#include "pmpi/pmpi_hooks.h"
#include "gpucoll/gpucoll.h" /* after mpi.h */

/* The engine's thread, in which calls come to the wrappers from the library only. */
static void work_inside(void (*work)(void))
{
	pmpi_enter(PMPI_DOOR_MPI);
	work();
	pmpi_leave();
}

void pmpi_start_streams(void)
{
	core_stream_set_guard(work_inside);
	core_check_set_guard(work_inside);
}

int pmpi_enqueue(const struct core_call *call, void *stream)
{
	int result;

	pmpi_enter(PMPI_DOOR_MPI);
	result = core_enqueue_run(call, stream);
	pmpi_leave();
	return result;
}

int pmpi_enqueue_message(const struct core_message_call *call, const char *name, void *stream)
{
	int result;

	pmpi_enter(PMPI_DOOR_MPI);
	result = core_enqueue_message(call, name, stream);
	pmpi_leave();
	return result;
}

void pmpi_end_comm(enum pmpi_door door, MPI_Comm comm)
{
	core_mpi_late_forget((core_handle)comm);
	if (pmpi_is_inside())
		return;
	pmpi_enter(door);
	core_mpi_bound_end((core_handle)comm);
	pmpi_leave();
}

/*
 * Before MPI_Finalize, in which MPICH takes no locks any more, and so before the library's end in
 * it.
 */
int pmpi_own_Finalize(int (*next)(void))
{
	if (!pmpi_is_inside()) {
		pmpi_enter(PMPI_DOOR_MPI);
		core_mpi_bound_stop();
		pmpi_leave();
	}
	return next();
}

/* The real MPI's barrier would be one more kind of call; what all have added to, all have come to.
 */
int gpucoll_barrier_enqueue(MPI_Comm comm, void *stream)
{
	const int *mine;
	int *all;

	core_mpi_bound_barrier_words((core_handle)comm, &mine, &all);
	return gpucoll_allreduce_enqueue(mine, all, 1, MPI_INT, MPI_SUM, comm, stream);
}

void gpucoll_hook_next(const struct core_hooks *hooks)
{
	core_enqueue_hook(hooks);
}

bool gpucoll_hook_takes_groups(MPI_Comm comm)
{
	bool takes;

	pmpi_enter(PMPI_DOOR_MPI);
	takes = core_enqueue_takes_groups((core_handle)comm);
	pmpi_leave();
	return takes;
}

int gpucoll_hook_group(const struct core_message_part *parts, int num, const char *name,
		       MPI_Comm comm, void *stream)
{
	int result;

	pmpi_enter(PMPI_DOOR_MPI);
	result = core_enqueue_group(parts, num, name, (core_handle)comm, stream);
	pmpi_leave();
	return result;
}

void gpucoll_hook_give_up(MPI_Comm comm)
{
	pmpi_enter(PMPI_DOOR_MPI);
	core_enqueue_give_up((core_handle)comm);
	pmpi_leave();
}

bool gpucoll_hook_has_calls(MPI_Comm comm)
{
	return core_mpi_bound_has_calls((core_handle)comm);
}

bool gpucoll_hook_abandon(MPI_Comm comm, bool idle_too)
{
	bool abandoned;

	pmpi_enter(PMPI_DOOR_MPI);
	abandoned = core_mpi_bound_abandon((core_handle)comm, idle_too);
	pmpi_leave();
	return abandoned;
}

int gpucoll_stream_comm(MPI_Comm comm, void *stream, MPI_Comm *newcomm)
{
	core_handle handle;
	int result;

	pmpi_enter(PMPI_DOOR_MPI);
	result = core_mpi_bound_open((core_handle)comm, stream, &handle);
	pmpi_leave();
	if (result == MPI_SUCCESS)
		*newcomm = (MPI_Comm)handle;
	return result;
}

int gpucoll_stream_error(MPI_Comm comm, int *error)
{
	int result;

	pmpi_enter(PMPI_DOOR_MPI);
	result = core_mpi_bound_take_error((core_handle)comm, error);
	pmpi_leave();
	return result;
}
