/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_schedule.h"
#include "algos/sched_verify.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <stdlib.h>

/* A program that goes through all roots of a large communicator has one for each. */
enum { MOST_KEPT = 128 };

struct core_schedule {
	struct core_schedule *next;
	const struct algo *algo;
	struct sched *sched;
	int users;
};

static bool is_same(const struct sched_request *a, const struct sched_request *b)
{
	return a->coll == b->coll && a->ranks == b->ranks && a->root == b->root &&
	       a->in_place == b->in_place && a->channels == b->channels;
}

/* The last one used comes first. */
static struct core_schedule *find(struct core_comm *comm, const struct algo *algo,
				  const struct sched_request *request)
{
	struct core_schedule **link = &comm->schedules, *entry;

	while ((entry = *link) &&
	       (entry->algo != algo || !is_same(&entry->sched->request, request)))
		link = &entry->next;
	if (!entry)
		return NULL;
	*link = entry->next;
	entry->next = comm->schedules;
	comm->schedules = entry;
	return entry;
}

/* The oldest ones that nobody has taken. */
static void make_room(struct core_comm *comm)
{
	struct core_schedule **link = &comm->schedules, *entry;

	for (int i = 1; (entry = *link); i++) {
		if (i < MOST_KEPT || entry->users) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		sched_free(entry->sched);
		free(entry);
	}
}

/*
 * Whether this rank's steps are what one kernel for each phase does: one reduction, or copies of
 * one source to one target each, or swaps; no messages.
 */
static bool is_for_one_kernel(const struct sched *sched, const struct sched_lane *lane)
{
	const struct sched_step *first = &sched->steps[lane->first];
	bool reduces = first->num_sources > 1 && !first->swap;

	for (const struct sched_step *step = first; step < first + lane->num; step++) {
		const struct sched_operand *o = sched_sources(sched, step);

		for (int i = 0; i < step->num_sources + step->num_targets; i++) {
			if (o[i].fifo || o[i].buffer == SCHED_SCRATCH)
				return false;
		}
		if (step->swap != first->swap ||
		    (!reduces && step->num_sources + step->num_targets != 2))
			return false;
	}
	return lane->phase < 2 && (!reduces || lane->num == 1);
}

static bool can_be_stepped(const struct sched *sched, int rank)
{
	int lanes[2] = {0};

	for (uint32_t i = 0; i < sched->num_lanes; i++) {
		const struct sched_lane *lane = &sched->lanes[i];

		if (lane->rank != rank || !lane->num)
			continue;
		if (!is_for_one_kernel(sched, lane) || lanes[lane->phase]++)
			return false;
	}
	return true;
}

/* For the rank. */
static bool is_right(const struct sched *sched, const struct algo *algo, int rank)
{
	char why[256] = "no single kernel for each phase can do it";

	if (can_be_stepped(sched, rank) &&
	    (!util_config.check || sched_verify(sched, algo->slots, why, sizeof(why))))
		return true;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "the schedule %s for %s over %d ranks can't be used: %s", sched->name,
		 sched_coll_name(sched->request.coll), sched->request.ranks, why);
	return false;
}

enum util_status core_schedule_take(struct core_comm *comm, const struct algo *algo,
				    const struct sched_request *request, const struct sched **out)
{
	struct core_schedule *entry = find(comm, algo, request);
	struct sched *sched;

	if (!entry) {
		make_room(comm);
		sched = algo_make(algo, request);
		entry = sched ? calloc(1, sizeof(*entry)) : NULL;
		if (!entry || !is_right(sched, algo, comm->rank)) {
			sched_free(sched);
			free(entry);
			return entry ? UTIL_ERR_UNSUPPORTED : UTIL_ERR_NO_MEMORY;
		}
		*entry = (struct core_schedule){comm->schedules, algo, sched, 0};
		comm->schedules = entry;
	}
	entry->users++;
	*out = entry->sched;
	return UTIL_OK;
}

void core_schedule_put(struct core_comm *comm, const struct sched *sched)
{
	struct core_schedule *entry = comm->schedules;

	while (entry->sched != sched)
		entry = entry->next;
	entry->users--;
}

void core_schedule_drop(struct core_comm *comm)
{
	while (comm->schedules) {
		struct core_schedule *entry = comm->schedules;

		comm->schedules = entry->next;
		sched_free(entry->sched);
		free(entry);
	}
}
