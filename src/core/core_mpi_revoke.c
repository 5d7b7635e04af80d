/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_revoke.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/core_mpi_bound.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/mpi/core_mpi_raise.h"
#include "net/net_port.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Of those that were drawn for it: ids, and the MPI's communicators behind them, or 0. */
struct list {
	uint64_t *ids;
	core_handle *real;
	size_t num, room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void core_mpi_revoke_hold(void)
{
	pthread_mutex_lock(&lock);
}

void core_mpi_revoke_release(void)
{
	pthread_mutex_unlock(&lock);
}

/* Under the lock of all communicators: nothing of the MPI is to be called. */
static void revoke_drawn(struct core_comm *comm, void *argument)
{
	struct list *list = argument;

	if (comm->area)
		core_meet_revoke(comm);
	if (list->num < list->room) {
		list->ids[list->num] = comm->id;
		list->real[list->num] = comm->real;
	}
	list->num++;
}

/* Once more with more room, if need be. Without memory other nodes hear of it in their next call.
 */
static void revoke_all_drawn(uint64_t id, struct list *list)
{
	size_t room = 16;

	do {
		free(list->ids);
		free(list->real);
		list->ids = malloc(room * sizeof(*list->ids));
		list->real = malloc(room * sizeof(*list->real));
		list->room = list->ids && list->real ? room : 0;
		list->num = 0;
		core_comm_visit_drawn(id, revoke_drawn, list);
		room = list->num;
	} while (list->room && list->num > list->room);
	if (!list->room)
		list->num = 0;
}

/* Their members wait for nobody of this node, and so would not ask it. */
static void tell_nodes(struct core_comm *comm, const struct list *list)
{
	static const uint64_t patience = UTIL_SECONDS(2); /* ns */
	static const struct timespec moment = {0, 50000};
	uint64_t since = util_now();

	core_nodes_tell_revoked(comm, comm->id);
	for (size_t i = 0; i < list->num; i++)
		core_nodes_tell_revoked(comm, list->ids[i]);
	while (!core_nodes_has_told(comm) && util_now() - since < patience) {
		if (!net_progress(NET_MAIN)) /* no error handler is to be called here */
			nanosleep(&moment, NULL);
	}
}

void core_mpi_revoke(core_handle comm)
{
	struct core_comm *state = core_mpi_comm_find(comm);
	struct list list = {NULL};

	if (!state)
		return;
	if (state->area)
		core_meet_revoke(state);
	core_mpi_revoke_hold();
	revoke_all_drawn(state->id, &list);
	for (size_t i = 0; i < list.num; i++) {
		if (list.real[i])
			core_mpi_revoke_real(list.real[i]);
	}
	core_mpi_revoke_release();
	if (state->spans)
		tell_nodes(state, &list);
	free(list.ids);
	free(list.real);
	core_check_revoke(state->check);
	core_mpi_bound_revoke(comm);
}
