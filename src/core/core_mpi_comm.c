/* SPDX-License-Identifier: BSD-3-Clause */
/* Identities of communicators, and what else there is to ask of one. */
#include "core/core_mpi_comm.h"
#include "core/agree/core_lost.h"
#include "core/agree/core_meet.h"
#include "core/call/core_mpi_handle.h"
#include "core/comm/core_board.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_mpi_graph.h"
#include "core/core_comm_life.h"
#include "core/core_mpi_check.h"
#include "core/core_queue.h"
#include "core/job/core_mpi_job.h"
#include "core/report/core_journal.h"
#include "util/util_log.h"

#include <stdatomic.h>
#include <stdlib.h>

static int comm_keyval = MPI_KEYVAL_INVALID; /* on communicators: a struct core_comm */

/* Changes whenever a communicator gets or loses its state; see core_mpi_comm_find. */
static _Atomic uint64_t comm_generation = 1;

static void bump_generation(void)
{
	atomic_fetch_add_explicit(&comm_generation, 1, memory_order_release);
}

static void end_state(struct core_comm *state)
{
	bump_generation();
	core_comm_life_end(state);
}

static int delete_comm(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm;
	(void)keyval;
	(void)extra;
	core_check_close(value);
	core_journal_forget(value);
	core_queue_close(value, end_state);
	bump_generation();
	return MPI_SUCCESS;
}

void core_mpi_comm_start(void)
{
	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_comm, &comm_keyval, NULL);
}

void core_mpi_comm_stop(void)
{
	if (comm_keyval == MPI_KEYVAL_INVALID)
		return;
	if (core_mpi_comm_find((core_handle)MPI_COMM_WORLD))
		PMPI_Comm_delete_attr(MPI_COMM_WORLD, comm_keyval);
	PMPI_Comm_free_keyval(&comm_keyval);
	bump_generation();
}

/* Who the members are. False: some are of another job (spawn), which has other boards. */
static bool find_members(MPI_Comm comm, int size, struct core_member *members)
{
	MPI_Group group, world;
	bool all = true;

	PMPI_Comm_group(comm, &group);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	for (int i = 0; i < size && all; i++) {
		int rank = MPI_UNDEFINED;

		PMPI_Group_translate_ranks(group, 1, &i, world, &rank);
		all = rank != MPI_UNDEFINED;
		if (all)
			members[i] = core_mpi_member(rank);
	}
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
	return all;
}

/* A job in which one member has the communicator's state and another not would wait for ever. */
static void no_memory(MPI_Comm comm, int size)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "no memory for a communicator of %d ranks", size);
	PMPI_Abort(comm, 1);
}

/* The lowest rank of its node among the members. */
static bool is_first_of_node(int rank, const struct core_member *members)
{
	for (int i = 0; i < rank; i++) {
		if (members[i].node == members[rank].node)
			return false;
	}
	return true;
}

/* Once, as a program that has so many has more. */
static void tell_no_room(int size, int most)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&told))
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "a communicator or persistent call of %d ranks, and perhaps later ones, "
			 "has no room on a node's board, for %d at a time, or /dev/shm is full: "
			 "its calls are staged. Free those that are not used any more",
			 size, most);
}

/* Where not so many are taken; if there may be as many as there are, that need not be counted. */
static bool take_slot(uint64_t id, int size, const struct core_member *members, unsigned most)
{
	if (most < CORE_BOARD_SLOTS && core_board_used() >= most)
		return false;
	return core_comm_life_take_slot(id, size, members);
}

/* On one node, who draws the id also takes the slot, so that one broadcast is enough. */
static enum core_reason take_slots(MPI_Comm comm, uint64_t *id, int rank, int size,
				   const struct core_member *members, unsigned most)
{
	enum core_reason why = core_comm_life_why_no_slot(size, members);
	bool first = is_first_of_node(rank, members);
	enum { NO_ROOM, LOST, WELL };
	int mine = WELL, all = WELL;
	bool agreed;
	uint64_t identity[2] = {0, 1}; /* the id, and whether there is a slot */

	if (rank == 0)
		identity[0] = core_mpi_draw_id();
	if (rank == 0 && !why)
		identity[1] = take_slot(identity[0], size, members, most);
	if (PMPI_Bcast(identity, sizeof(identity), MPI_BYTE, 0, comm) != MPI_SUCCESS)
		identity[0] = 0;
	*id = identity[0];
	all = identity[1] ? WELL : NO_ROOM;
	if (*id && !why && all == WELL && core_comm_spans(size, members)) {
		if (core_lost_has_some(size, members))
			mine = LOST;
		if (first && rank && !take_slot(*id, size, members, most))
			mine = NO_ROOM;
		agreed = PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS;
		if (!agreed)
			all = NO_ROOM;
		/* Else others of the node may have joined. */
		if (agreed && all != WELL && first && mine != NO_ROOM)
			core_board_cancel(*id);
	}
	if (why || all == WELL)
		return why;
	if (all == LOST)
		return CORE_REASON_NODE_LOST;
	if (rank == 0)
		tell_no_room(size, (int)most);
	return CORE_REASON_BOARD_FULL;
}

static struct core_comm *begin_state(MPI_Comm comm, int rank, int size,
				     const struct core_member *members, unsigned most,
				     bool needs_neighbors)
{
	struct core_comm *state;
	uint64_t id;
	enum core_reason why = take_slots(comm, &id, rank, size, members, most);

	if (!id)
		return NULL;
	state = core_comm_life_begin(id, rank, size, members, why);
	if (!state || (!why && needs_neighbors && !core_mpi_find_graph(comm, state)))
		no_memory(comm, size);
	return state;
}

/* With `most` slots of a board taken at most. NULL: the processes have no identity. */
static struct core_comm *draw(MPI_Comm comm, unsigned most, bool needs_neighbors)
{
	struct core_comm *state = NULL;
	struct core_member *members;
	int rank, size;

	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	members = malloc((size_t)size * sizeof(*members));
	if (!members)
		no_memory(comm, size);
	if (find_members(comm, size, members))
		state = begin_state(comm, rank, size, members, most, needs_neighbors);
	free(members);
	return state;
}

void core_mpi_comm_identify(core_handle handle)
{
	MPI_Comm comm = core_mpi_as_comm(handle);
	struct core_comm *state;
	int inter = 0;

	if (comm == MPI_COMM_NULL || comm_keyval == MPI_KEYVAL_INVALID)
		return;
	PMPI_Comm_test_inter(comm, &inter);
	state = inter ? NULL : draw(comm, CORE_BOARD_SLOTS, true);
	if (!state)
		return;
	if (PMPI_Comm_set_attr(comm, comm_keyval, state) != MPI_SUCCESS)
		no_memory(comm, state->size);
	core_journal_know(state);
	core_check_open(state, handle);
	bump_generation();
}

struct core_comm *core_mpi_comm_draw(core_handle handle, bool needs_neighbors)
{
	struct core_comm *parent = core_mpi_comm_find(handle),
			 *state = draw(core_mpi_as_comm(handle), CORE_BOARD_SLOTS / 2,
				       needs_neighbors);

	if (state && !state->slot) {
		core_comm_life_end(state);
		return NULL;
	}
	if (!state)
		return NULL;
	if (parent)
		core_comm_draw_for(state, parent->id, 0);
	/* Who revokes that, in another thread, then says so, and has found this one, or not yet. */
	if (parent && parent->area && state->area && core_meet_is_revoked(parent))
		core_meet_revoke(state);
	core_journal_know(state);
	return state;
}

/*
 * Called for every collective, so each thread remembers its last answer. It holds as long as no
 * communicator has got or lost its state since: a program that frees a communicator and uses
 * another with the same handle has ordered the two itself.
 */
struct core_comm *core_mpi_comm_find(core_handle handle)
{
	static _Thread_local struct {
		uint64_t generation;
		core_handle handle;
		struct core_comm *state;
	} last;
	uint64_t generation = atomic_load_explicit(&comm_generation, memory_order_acquire);
	struct core_comm *state = NULL;
	int found = 0;

	if (last.generation == generation && last.handle == handle)
		return last.state;
	if (comm_keyval == MPI_KEYVAL_INVALID || core_mpi_as_comm(handle) == MPI_COMM_NULL)
		return NULL;
	PMPI_Comm_get_attr(core_mpi_as_comm(handle), comm_keyval, &state, &found);
	last.generation = generation;
	last.handle = handle;
	last.state = found ? state : NULL;
	return last.state;
}
