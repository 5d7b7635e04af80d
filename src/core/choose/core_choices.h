/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What communicators choose among: where their ranks sit on the machines of the job, and tables of
 * times for each kind of call. Those whose ranks sit alike share it.
 */
#ifndef CORE_CHOICES_H
#define CORE_CHOICES_H

#include "algos/algo_choose.h"
#include "core/agree/core_facts.h"
#include "core/choose/core_samples.h"
#include "core/choose/core_tuning.h"

#include <pthread.h>

enum { CORE_CHOICE_MOST = 8 };

/* One kind of call. */
struct core_choices_entry {
	struct core_choices_entry *next;
	struct sched_request request;
	struct sched_pairs *pairs; /* the request's, a copy */
	struct algo_setting setting;
	struct algo_table *table;
	/* The last question, which the next one often is. */
	uint64_t bytes;
	struct algo_wish wish;
	struct algo_choice choices[CORE_CHOICE_MOST];
	int num;         /* -1: there was none */
	double expected; /* us, by the model; NAN: it was not asked for */
};

/* What communicators whose ranks sit alike share. */
struct core_choices {
	struct core_choices *next;
	int ranks, num_nodes, users;
	struct core_seat seats[CORE_MAX_RANKS];
	const struct topo_machine *machines[CORE_MAX_RANKS]; /* by node */
	struct core_samples cluster;
	int fullest_gpu; /* ranks there */
	struct core_tuning_key key;
	pthread_mutex_t lock;               /* of what follows */
	struct core_choices_entry *entries; /* the last one used comes first */
};

/*
 * The communicator's, which stays as it is if ranks change their GPUs: what is chosen is right, if
 * slower. NULL: no memory.
 */
struct core_choices *core_choices_of(struct core_comm *comm, const struct core_facts *facts);

/*
 * How many of the communicator's ranks, which are all on one node, are on the GPU that has most; 1
 * before its first choice, and with several nodes. All come to the same answer after as many
 * choices.
 */
int core_choices_most_sharers(const struct core_comm *comm);

/* The communicator makes no more choices. Any thread. */
void core_choices_drop(struct core_comm *comm);

void core_choices_free_entry(struct core_choices_entry *entry);

#endif
