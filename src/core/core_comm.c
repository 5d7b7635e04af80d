/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_agree.h"
#include "core/core_choice.h"
#include "core/core_graph.h"
#include "core/core_leaving.h"
#include "core/core_net.h"
#include "core/core_schedule.h"
#include "core/core_shape.h"

#include <stdlib.h>
#include <string.h>

static uint32_t count_near(int size, const struct core_member *members)
{
	uint32_t near = 0;

	for (int i = 0; i < size; i++)
		near += members[i].local_rank >= 0;
	return near;
}

static int most_on_a_node(int size, const struct core_member *members)
{
	int counts[CORE_MAX_RANKS] = {0}, most = 0;

	for (int i = 0; i < size; i++) {
		int first = 0;

		while (members[first].node != members[i].node)
			first++;
		most = ++counts[first] > most ? counts[first] : most;
	}
	return most;
}

bool core_comm_spans(int size, const struct core_member *members)
{
	for (int i = 1; i < size; i++) {
		if (members[i].node != members[0].node)
			return true;
	}
	return false;
}

const char *core_comm_why_no_slot(int size, const struct core_member *members)
{
	if (size == 1)
		return "one process";
	if (size > CORE_MAX_RANKS)
		return "more ranks than a schedule is made for";
	if (most_on_a_node(size, members) > CORE_MAX_NEAR)
		return "more ranks of a node than a kernel takes";
	if (!core_comm_spans(size, members))
		return NULL;
	for (int i = 0; i < size; i++) {
		if (!core_mpi_node_has_driver(members[i].node))
			return "a node has no CUDA driver";
	}
	return core_net_is_up() ? NULL : "several nodes, without a network";
}

static struct core_board_slot *join_board(uint64_t id, int size, const struct core_member *members)
{
	uint32_t near = count_near(size, members);

	return core_board_join(id, near,
			       core_agree_area_bytes(core_mpi_job.local_size, (int)near, size,
						     core_comm_spans(size, members)));
}

bool core_comm_take_slot(uint64_t id, int size, const struct core_member *members)
{
	return join_board(id, size, members) != NULL;
}

static uint64_t machine_of(const struct core_comm *comm, int node)
{
	return core_mpi_node_machine(comm->members[comm->speakers[node]].node);
}

/* Number the members' nodes. */
static void number_nodes(struct core_comm *comm)
{
	for (int i = 0; i < comm->size; i++) {
		int first = 0;

		while (comm->members[first].node != comm->members[i].node)
			first++;
		if (first == i)
			comm->speakers[comm->num_nodes++] = i;
		comm->nodes[i] = first == i ? comm->num_nodes - 1 : comm->nodes[first];
	}
	comm->node = comm->nodes[comm->rank];
	for (int i = 0; i < comm->num_nodes; i++) {
		for (int j = 0; j < i; j++)
			comm->neighbors |= machine_of(comm, i) == machine_of(comm, j);
	}
}

/* Number the members on this node. */
static void number_near(struct core_comm *comm)
{
	for (int i = 0; i < comm->size; i++) {
		comm->numbers[i] = CORE_FAR;
		if (!core_comm_is_near(comm, i))
			continue;
		comm->numbers[i] = comm->num_near;
		comm->near[comm->num_near++] = i;
	}
}

/* With room for the arrays behind the members. */
static struct core_comm *allocate(int size)
{
	enum { ARRAYS = 4 };
	size_t members = (size_t)size * sizeof(struct core_member);
	struct core_comm *comm =
		calloc(1, sizeof(*comm) + members + ARRAYS * (size_t)size * sizeof(int));

	if (!comm)
		return NULL;
	comm->nodes = (int *)((char *)comm->members + members);
	comm->speakers = comm->nodes + size;
	comm->near = comm->speakers + size;
	comm->numbers = comm->near + size;
	return comm;
}

static bool join(struct core_comm *comm)
{
	comm->slot = join_board(comm->id, comm->size, comm->members);
	comm->area = core_board_area(comm->slot);
	comm->no_area = comm->area ? NULL : "no shared memory";
	comm->spans = comm->area && comm->num_nodes > 1;
	return !comm->spans || core_net_add(comm) == UTIL_OK;
}

struct core_comm *core_comm_create(uint64_t id, int rank, int size,
				   const struct core_member *members, const char *no_slot)
{
	struct core_comm *comm = allocate(size);

	if (!comm)
		return NULL;
	comm->id = id;
	comm->rank = rank;
	comm->size = size;
	comm->no_area = no_slot;
	memset(comm->reach, 0xff, sizeof(comm->reach));
	memcpy(comm->members, members, (size_t)size * sizeof(*members));
	number_nodes(comm);
	number_near(comm);
	if (no_slot || join(comm))
		return comm;
	free(comm);
	return NULL;
}

/* A member that is still in the last call may yet say in our arena what it has read. */
static bool is_idle(struct core_comm *comm)
{
	return !comm->slot || !core_board_is_up() || core_agree_all_passed(comm, comm->calls - 1);
}

static void leave(struct core_comm *comm)
{
	uint64_t ready[CORE_BOARD_REMEMBERED];

	if (comm->spans)
		core_agree_last_ready(comm, ready);
	/* Members may have stopped calling at different calls. */
	if (comm->lost)
		core_board_publish(comm->slot, UINT64_MAX);
	core_board_leave(comm->slot, comm->spans ? ready : NULL);
}

void core_comm_destroy(struct core_comm *comm)
{
	if (comm->spans)
		core_net_remove(comm);
	if (!core_arena_is_open(&comm->arena) || is_idle(comm))
		core_arena_close(&comm->arena, true);
	else
		core_leaving_keep(comm);
	/* A communicator may be freed after the board came down in MPI_Finalize. */
	if (comm->slot && core_board_is_up())
		leave(comm);
	core_leaving_look();
	core_schedule_drop(comm);
	core_choice_drop(comm);
	core_graph_free(comm->graph);
	core_known_clear(&comm->known);
	free(comm);
}
