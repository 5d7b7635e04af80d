/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/comm/core_comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_comm *all; /* under the lock */

uint32_t core_comm_count_near(int size, const struct core_member *members)
{
	uint32_t near = 0;

	for (int i = 0; i < size; i++)
		near += members[i].local_rank >= 0;
	return near;
}

int core_comm_most_on_a_node(int size, const struct core_member *members)
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
static struct core_comm *allocate_comm(int size)
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

struct core_comm *core_comm_new(uint64_t id, int rank, int size, const struct core_member *members)
{
	struct core_comm *comm = allocate_comm(size);

	if (!comm)
		return NULL;
	comm->id = id;
	comm->rank = rank;
	comm->size = size;
	memset(comm->voted.reach, 0xff, sizeof(comm->voted.reach));
	memcpy(comm->members, members, (size_t)size * sizeof(*members));
	number_nodes(comm);
	number_near(comm);
	pthread_mutex_lock(&lock);
	comm->older = all;
	all = comm;
	pthread_mutex_unlock(&lock);
	return comm;
}

void core_comm_free(struct core_comm *comm)
{
	struct core_comm **link = &all;

	pthread_mutex_lock(&lock);
	while (*link != comm)
		link = &(*link)->older;
	*link = comm->older;
	pthread_mutex_unlock(&lock);
	free(comm);
}

void core_comm_draw_for(struct core_comm *comm, uint64_t id, core_handle real)
{
	pthread_mutex_lock(&lock);
	comm->of = id;
	comm->real = real;
	pthread_mutex_unlock(&lock);
}

void core_comm_visit_drawn(uint64_t id, void (*visit)(struct core_comm *comm, void *argument),
			   void *argument)
{
	pthread_mutex_lock(&lock);
	for (struct core_comm *comm = all; comm; comm = comm->older) {
		if (comm->of == id)
			visit(comm, argument);
	}
	pthread_mutex_unlock(&lock);
}

bool core_comm_is_there(const struct core_comm *comm, uint64_t id)
{
	const struct core_comm *one;
	bool found;

	pthread_mutex_lock(&lock);
	for (one = all; one && one != comm; one = one->older)
		;
	found = one && one->id == id;
	pthread_mutex_unlock(&lock);
	return found;
}
