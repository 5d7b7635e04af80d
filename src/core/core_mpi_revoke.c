/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_revoke.h"
#include "core/agree/core_meet.h"
#include "core/core_mpi_bound.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/mpi/core_mpi_raise.h"

#include <stdlib.h>

/* The MPI's communicators behind those that were drawn. */
struct list {
	core_handle *real;
	size_t num;
};

/* Under the lock of all communicators: nothing of the MPI is to be called. */
static void revoke_drawn(struct core_comm *comm, void *argument)
{
	struct list *list = argument;
	core_handle *longer;

	if (comm->area)
		core_meet_revoke(comm);
	if (!comm->real)
		return;
	longer = realloc(list->real, (list->num + 1) * sizeof(*longer));
	if (!longer) /* its request may wait until it is freed */
		return;
	list->real = longer;
	list->real[list->num++] = comm->real;
}

void core_mpi_revoke(core_handle comm)
{
	struct core_comm *state = core_mpi_comm_find(comm);
	struct list list = {NULL, 0};

	if (!state)
		return;
	if (state->area)
		core_meet_revoke(state);
	core_comm_visit_drawn(state->id, revoke_drawn, &list);
	for (size_t i = 0; i < list.num; i++)
		core_mpi_revoke_real(list.real[i]);
	free(list.real);
	core_check_revoke(state->check);
	core_mpi_bound_revoke(comm);
}
