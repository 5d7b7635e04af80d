/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_comm.h"

#include <stdlib.h>

struct core_comm *core_comm_create(uint64_t id, uint32_t local_members)
{
	struct core_comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
	comm->id = id;
	comm->slot = core_board_join(id, local_members);
	return comm;
}

void core_comm_destroy(struct core_comm *comm)
{
	/* A communicator may be freed after the board came down in MPI_Finalize. */
	if (comm->slot && core_board_is_up())
		core_board_leave(comm->slot);
	free(comm);
}
