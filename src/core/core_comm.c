/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_agree.h"
#include "core/core_schedule.h"
#include "core/core_shape.h"

#include <stdlib.h>
#include <string.h>

bool core_comm_wants_slot(int size, uint32_t local_members)
{
	return local_members == (uint32_t)size && size > 1 && size <= CORE_MAX_RANKS;
}

bool core_comm_take_slot(uint64_t id, uint32_t members)
{
	return core_board_join(id, members) != NULL;
}

static const char *why_no_slot(int size, uint32_t local_members)
{
	if (local_members != (uint32_t)size)
		return "communicator of several nodes";
	if (size == 1)
		return "one process";
	return size > CORE_MAX_RANKS ? "more ranks than a kernel takes"
				     : "no room on the node's board";
}

struct core_comm *core_comm_create(uint64_t id, int rank, int size, uint32_t local_members,
				   const int *local_ranks, bool has_slot)
{
	struct core_comm *comm =
		calloc(1, sizeof(*comm) + (size_t)size * sizeof(comm->local_ranks[0]));

	if (!comm)
		return NULL;
	comm->id = id;
	comm->rank = rank;
	comm->size = size;
	memset(comm->reach, 0xff, sizeof(comm->reach));
	memcpy(comm->local_ranks, local_ranks, (size_t)size * sizeof(comm->local_ranks[0]));
	if (!has_slot) {
		comm->no_area = why_no_slot(size, local_members);
		return comm;
	}
	comm->slot = core_board_join(id, local_members);
	comm->area = core_board_area(comm->slot);
	comm->no_area = comm->area ? NULL : "no shared memory";
	return comm;
}

/* A member that is still in the last call may yet say in our arena what it has read. */
static bool is_idle(struct core_comm *comm)
{
	return !comm->slot || !core_board_is_up() || core_agree_all_passed(comm, comm->calls - 1);
}

void core_comm_destroy(struct core_comm *comm)
{
	core_arena_close(&comm->arena, is_idle(comm));
	/* A communicator may be freed after the board came down in MPI_Finalize. */
	if (comm->slot && core_board_is_up())
		core_board_leave(comm->slot);
	core_schedule_drop(comm);
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
