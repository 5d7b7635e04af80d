/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_choices.h"
#include "core/job/core_machines.h"
#include "core/wire/core_mail.h"
#include "util/util_log.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * All there are, the last one used first; those without users are kept for the next communicator
 * like theirs.
 */
enum { MOST_KEPT = 16 };
static struct core_choices *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int local_number(const struct core_comm *comm, int rank)
{
	int number = 0;

	for (int i = 0; i < rank; i++)
		number += comm->nodes[i] == comm->nodes[rank];
	return number;
}

/*
 * On the GPU that its offer names. Those of other nodes are not seen here, so with several nodes
 * all ranks are taken to sit on their nodes' GPUs in turn.
 */
static struct core_seat seat_of(const struct core_facts *facts, int rank,
				const struct topo_machine *machine)
{
	const struct core_comm *comm = facts->comm;
	struct core_seat seat = {.node = comm->nodes[rank], .gpu = -1};
	int gpus = 0;

	if (!comm->spans) {
		seat.device = core_agree_offer(facts->agree, rank)->device;
		seat.gpu = machine ? core_machines_gpu(machine, seat.device) : -1;
		return seat;
	}
	seat.device = (uint64_t)local_number(comm, rank);
	while (machine && topo_machine_nth(machine, TOPO_GPU, gpus) >= 0)
		gpus++;
	if (gpus)
		seat.gpu = topo_machine_nth(machine, TOPO_GPU, (int)seat.device % gpus);
	return seat;
}

/* What the communicator's first rank sees, once. */
static void report_choices(const struct core_comm *comm, const struct core_choices *all)
{
	const struct algo_sample *whole = &all->cluster.parts[0];
	char orders[256] = "";
	size_t used = 0;

	if (comm->rank)
		return;
	for (int i = 0; i < whole->num_rings * comm->size && used < sizeof(orders); i++)
		used += (size_t)snprintf(orders + used, sizeof(orders) - used, "%s%d",
					 i % comm->size ? " " : ", ring ", whole->rings[i]);
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE, "%d ranks on %d nodes with %d GPUs%s", comm->size,
		 comm->num_nodes, whole->fabric->num_sites, orders);
}

/* Where the ranks of the call's communicator are. */
static void look_around(const struct core_facts *facts, struct core_choices *all)
{
	const struct core_comm *comm = facts->comm;

	all->ranks = comm->size;
	all->num_nodes = comm->num_nodes;
	for (int i = 0; i < comm->num_nodes; i++)
		all->machines[i] = core_machines_of(comm->members[comm->speakers[i]].node);
	for (int i = 0; i < comm->size; i++)
		all->seats[i] = seat_of(facts, i, all->machines[comm->nodes[i]]);
}

void core_choices_free_entry(struct core_choices_entry *entry)
{
	algo_table_free(entry->table);
	sched_pairs_free(entry->pairs);
	free(entry);
}

static void free_choices(struct core_choices *all)
{
	while (all->entries) {
		struct core_choices_entry *entry = all->entries;

		all->entries = entry->next;
		core_choices_free_entry(entry);
	}
	core_samples_free(&all->cluster);
	free(all);
}

/* NULL: no memory. */
static struct core_choices *make_choices(const struct core_choices *like)
{
	struct core_choices *all = malloc(sizeof(*all));
	const struct sched_fabric *fabric;
	bool sockets = core_mail_is_by_sockets();

	if (!all)
		return NULL;
	*all = *like;
	pthread_mutex_init(&all->lock, NULL);
	if (!core_samples_make(all->ranks, all->seats, all->num_nodes, all->machines, sockets,
			       &all->cluster)) {
		free_choices(all);
		return NULL;
	}
	fabric = all->cluster.parts[0].fabric;
	all->fullest_gpu = sched_fabric_fullest(fabric);
	all->key = (struct core_tuning_key){
		core_tuning_fingerprint(all->num_nodes, all->machines, sockets), all->ranks,
		all->num_nodes, fabric->num_sites};
	return all;
}

static bool is_seat(const struct core_seat *a, const struct core_seat *b)
{
	return a->node == b->node && a->gpu == b->gpu && a->device == b->device;
}

static bool are_alike(const struct core_choices *a, const struct core_choices *b)
{
	if (a->ranks != b->ranks || a->num_nodes != b->num_nodes)
		return false;
	for (int i = 0; i < a->num_nodes; i++) {
		if (a->machines[i] != b->machines[i])
			return false;
	}
	for (int i = 0; i < a->ranks; i++) {
		if (!is_seat(&a->seats[i], &b->seats[i]))
			return false;
	}
	return true;
}

/* Take those like these, or make them. */
static struct core_choices *take_choices(const struct core_choices *like)
{
	struct core_choices **link = &first, *all;

	pthread_mutex_lock(&lock);
	while ((all = *link) && !are_alike(all, like))
		link = &all->next;
	if (all)
		*link = all->next;
	else
		all = make_choices(like);
	if (all) {
		all->users++;
		all->next = first;
		first = all;
	}
	pthread_mutex_unlock(&lock);
	return all;
}

struct core_choices *core_choices_of(struct core_comm *comm, const struct core_facts *facts)
{
	struct core_choices *like;

	if (comm->choices)
		return comm->choices;
	like = calloc(1, sizeof(*like));
	if (!like)
		return NULL;
	look_around(facts, like);
	comm->choices = take_choices(like);
	free(like);
	if (comm->choices)
		report_choices(comm, comm->choices);
	return comm->choices;
}

int core_choices_most_sharers(const struct core_comm *comm)
{
	return comm->spans || !comm->choices ? 1 : comm->choices->fullest_gpu;
}

void core_choices_drop(struct core_comm *comm)
{
	struct core_choices **link = &first, *all = comm->choices;
	int idle = 0;

	comm->choices = NULL;
	if (!all)
		return;
	pthread_mutex_lock(&lock);
	all->users--;
	while ((all = *link)) {
		idle += !all->users;
		if (all->users || idle <= MOST_KEPT) {
			link = &all->next;
			continue;
		}
		*link = all->next;
		free_choices(all);
	}
	pthread_mutex_unlock(&lock);
}
