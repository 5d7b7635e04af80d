/* SPDX-License-Identifier: BSD-3-Clause */
/* What libgpucoll has for the library of NCCL's interface (src/nccl), besides gpucoll.h. */
#ifndef PMPI_HOOKS_H
#define PMPI_HOOKS_H

#include "core/call/core_hooks.h"
#include "core/call/core_message_part.h"

/* The collective that this thread enqueues next has them. */
void gpucoll_hook_next(const struct core_hooks *hooks);

/* As core_enqueue_takes_groups, core_enqueue_group and core_enqueue_give_up (core_mpi_enqueue.h).
 */
bool gpucoll_hook_takes_groups(MPI_Comm comm);
int gpucoll_hook_group(const struct core_message_part *parts, int num, const char *name,
		       MPI_Comm comm, void *stream);
void gpucoll_hook_give_up(MPI_Comm comm);

/* As core_mpi_bound_has_calls and core_mpi_bound_abandon (core_mpi_bound.h). */
bool gpucoll_hook_has_calls(MPI_Comm comm);
bool gpucoll_hook_abandon(MPI_Comm comm, bool idle_too);

#endif
