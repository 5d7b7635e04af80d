/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_comm_life.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/agree/core_promise.h"
#include "core/choose/core_choices.h"
#include "core/comm/core_board.h"
#include "core/comm/core_graph.h"
#include "core/exec/core_schedule.h"
#include "core/wire/core_arena.h"
#include "core/wire/core_leaving.h"
#include "core/wire/core_mail.h"
#include "core/wire/core_wire.h"

#include <stdlib.h>

enum core_reason core_comm_life_why_no_slot(int size, const struct core_member *members)
{
	if (size == 1)
		return CORE_REASON_ONE_PROCESS;
	if (size > CORE_MAX_RANKS)
		return CORE_REASON_MANY_RANKS;
	if (core_comm_most_on_a_node(size, members) > CORE_MAX_NEAR)
		return CORE_REASON_MANY_NEAR;
	if (!core_comm_spans(size, members))
		return CORE_REASON_NONE;
	for (int i = 0; i < size; i++) {
		if (!core_mpi_node_has_driver(members[i].node))
			return CORE_REASON_NO_DRIVER;
	}
	return core_mail_is_up() ? CORE_REASON_NONE : CORE_REASON_NO_NETWORK;
}

static struct core_board_slot *join_board(uint64_t id, int size, const struct core_member *members)
{
	uint32_t near = core_comm_count_near(size, members);

	return core_board_join(id, near,
			       core_area_bytes(core_mpi_job.local_size, (int)near, size,
					       core_comm_spans(size, members)));
}

bool core_comm_life_take_slot(uint64_t id, int size, const struct core_member *members)
{
	return join_board(id, size, members) != NULL;
}

/* Have messages of other nodes come to it. */
static enum util_status open_wire(struct core_comm *comm)
{
	comm->agreement = core_nodes_create(comm);
	comm->wire = core_wire_create();
	if (!comm->agreement || !comm->wire) {
		core_nodes_free(comm->agreement);
		core_wire_free(comm->wire);
		return UTIL_ERR_NO_MEMORY;
	}
	core_mail_open(comm);
	return UTIL_OK;
}

/* Nobody finds it any more, then. The driver may wait for kernels when memory is unpinned. */
static void close_wire(struct core_comm *comm)
{
	core_mail_close(comm);
	core_nodes_free(comm->agreement);
	core_wire_free(comm->wire);
}

static bool join(struct core_comm *comm)
{
	comm->slot = join_board(comm->id, comm->size, comm->members);
	comm->area = core_board_area(comm->slot);
	comm->no_area = comm->area ? CORE_REASON_NONE : CORE_REASON_NO_SHARED_MEMORY;
	comm->spans = comm->area && comm->num_nodes > 1;
	return !comm->spans || open_wire(comm) == UTIL_OK;
}

struct core_comm *core_comm_life_begin(uint64_t id, int rank, int size,
				       const struct core_member *members, enum core_reason no_slot)
{
	struct core_comm *comm = core_comm_new(id, rank, size, members);

	if (!comm)
		return NULL;
	comm->no_area = no_slot;
	comm->arena = calloc(1, sizeof(*comm->arena));
	if (comm->arena && (no_slot || join(comm)))
		return comm;
	free(comm->arena);
	core_comm_free(comm);
	return NULL;
}

/* A member that is still in the last call may yet say in our arena what it has read. */
static bool is_idle(struct core_comm *comm)
{
	return !comm->slot || !core_board_is_up() || core_meet_all_passed(comm, comm->calls - 1);
}

static void leave_board(struct core_comm *comm)
{
	uint64_t ready[CORE_BOARD_REMEMBERED];

	if (comm->spans)
		core_promise_last(core_board_area(comm->slot), ready);
	/* Members may have stopped calling at different calls. */
	if (comm->lost)
		core_board_publish(comm->slot, UINT64_MAX);
	core_board_leave(comm->slot, comm->spans ? ready : NULL);
}

void core_comm_life_end(struct core_comm *comm)
{
	if (comm->spans)
		close_wire(comm);
	if (!core_arena_is_open(comm->arena) || is_idle(comm))
		core_arena_close(comm->arena, true);
	else
		core_leaving_keep(comm);
	/* A communicator may be freed after the board came down in MPI_Finalize. */
	if (comm->slot && core_board_is_up())
		leave_board(comm);
	core_leaving_look();
	core_schedule_drop(comm);
	core_choices_drop(comm);
	core_graph_free(comm->graph);
	core_known_clear(&comm->voted.known);
	free(comm->arena);
	core_comm_free(comm);
}
