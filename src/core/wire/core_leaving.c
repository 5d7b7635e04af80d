/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_leaving.h"
#include "core/comm/core_board.h"
#include "core/job/core_mpi_job.h"
#include "core/wire/core_arena.h"

#include <pthread.h>
#include <stdlib.h>

struct leaving {
	struct leaving *next;
	struct core_arena arena;
	uint64_t id, calls; /* of the communicator; and how many it has had */
	int num_near;
	int local_ranks[]; /* of its members on this node */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct leaving *all; /* under the lock */

/* Without memory for this the arena's is lost, as what others may touch must not be used again. */
void core_leaving_keep(struct core_comm *comm)
{
	size_t locals = (size_t)comm->num_near * sizeof(int);
	struct leaving *leaving = malloc(sizeof(*leaving) + locals);

	if (leaving) {
		leaving->arena = *comm->arena;
		leaving->id = comm->id;
		leaving->calls = comm->calls;
		leaving->num_near = comm->num_near;
		for (int i = 0; i < comm->num_near; i++)
			leaving->local_ranks[i] = core_comm_local_rank(comm, comm->near[i]);
		pthread_mutex_lock(&lock);
		leaving->next = all;
		all = leaving;
		pthread_mutex_unlock(&lock);
	} else {
		core_arena_close(comm->arena, false);
	}
	*comm->arena = (struct core_arena){0};
}

struct look {
	const struct leaving *leaving;
	bool touched;
};

/* Under the board's lock: the counters are those of this communicator. */
static void look_at(const struct core_board_slot *slot, void *area, void *argument)
{
	struct look *look = argument;
	const struct leaving *leaving = look->leaving;

	(void)area;
	for (int i = 0; i < leaving->num_near; i++) {
		int local_rank = leaving->local_ranks[i];

		look->touched |= core_board_passed(slot, local_rank) < leaving->calls &&
				 !core_mpi_has_ended(local_rank);
	}
}

/* A slot that is the communicator's no more was left by all. */
static bool is_touched(const struct leaving *leaving)
{
	struct look look = {leaving, false};

	if (core_board_is_up())
		core_board_visit(leaving->id, look_at, &look);
	return look.touched;
}

static struct leaving *take_untouched(void)
{
	struct leaving **link = &all, *leaving, *taken = NULL;

	pthread_mutex_lock(&lock);
	while ((leaving = *link)) {
		if (is_touched(leaving)) {
			link = &leaving->next;
			continue;
		}
		*link = leaving->next;
		leaving->next = taken;
		taken = leaving;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

/* The driver may wait when memory is freed, so the lock is not held then. */
void core_leaving_look(void)
{
	struct leaving *taken = take_untouched(), *leaving;

	while ((leaving = taken)) {
		taken = leaving->next;
		core_arena_close(&leaving->arena, true);
		free(leaving);
	}
}
