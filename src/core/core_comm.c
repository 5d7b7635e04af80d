/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_comm.h"
#include "algos/algo_direct.h"

#include <stdlib.h>
#include <string.h>

static void find_area(struct core_comm *comm, bool one_node)
{
	if (!comm->slot)
		comm->no_area = "no room on the node's board";
	else if (!one_node)
		comm->no_area = "communicator of several nodes";
	else if (comm->size == 1)
		comm->no_area = "one process";
	else if (comm->size > ALGO_MAX_RANKS)
		comm->no_area = "more ranks than a kernel takes";
	else if (!(comm->area = core_board_area(comm->slot)))
		comm->no_area = "no shared memory";
}

struct core_comm *core_comm_create(uint64_t id, int rank, int size, uint32_t local_members,
				   const int *local_ranks)
{
	struct core_comm *comm =
		calloc(1, sizeof(*comm) + (size_t)size * sizeof(comm->local_ranks[0]));
	bool one_node = local_members == (uint32_t)size;

	if (!comm)
		return NULL;
	comm->id = id;
	comm->rank = rank;
	comm->size = size;
	if (one_node)
		memcpy(comm->local_ranks, local_ranks, (size_t)size * sizeof(comm->local_ranks[0]));
	comm->slot = core_board_join(id, local_members);
	find_area(comm, one_node);
	return comm;
}

void core_comm_destroy(struct core_comm *comm)
{
	/* A communicator may be freed after the board came down in MPI_Finalize. */
	if (comm->slot && core_board_is_up())
		core_board_leave(comm->slot);
	free(comm);
}

bool core_comm_knows(const struct core_comm *comm, uint64_t buffer_id)
{
	for (int i = 0; i < CORE_COMM_KNOWN_EXPORTS; i++) {
		if (comm->known_exports[i] == buffer_id)
			return true;
	}
	return false;
}

void core_comm_learn(struct core_comm *comm, uint64_t buffer_id)
{
	if (buffer_id && !core_comm_knows(comm, buffer_id))
		comm->known_exports[comm->next_known++ % CORE_COMM_KNOWN_EXPORTS] = buffer_id;
}

void core_comm_forget(struct core_comm *comm)
{
	memset(comm->known_exports, 0, sizeof(comm->known_exports));
}
