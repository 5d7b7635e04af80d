/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_schedule.h"
#include "algos/sched_verify.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <stdlib.h>

/* A program that goes through all roots of a large communicator has one for each. */
enum { MOST_KEPT = 128 };

static void entry_free(struct core_schedule *entry)
{
	core_program_free(entry->program);
	sched_free(entry->sched);
	free(entry);
}

static bool is_same(const struct sched_request *a, const struct sched_request *b)
{
	return a->coll == b->coll && a->ranks == b->ranks && a->root == b->root &&
	       a->in_place == b->in_place && a->channels == b->channels && a->rings == b->rings;
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
		entry_free(entry);
	}
}

/* An error has been logged if it is not for lack of memory. */
static enum util_status prove_and_translate(struct core_schedule *entry,
					    const struct core_comm *comm)
{
	struct sched *sched = entry->sched;
	char proof[256];
	const char *why;

	entry->program = core_program_make(sched, comm->rank, comm->numbers, &why);
	if (!entry->program && !why)
		return UTIL_ERR_NO_MEMORY;
	if (entry->program && util_config.check &&
	    !sched_verify(sched, entry->algo->slots, proof, sizeof(proof)))
		why = proof;
	if (!why) {
		/* Of many ranks they take much memory, and this one's are in the program. */
		sched_forget_steps(sched);
		return UTIL_OK;
	}
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "the schedule %s for %s over %d ranks can't be used: %s", sched->name,
		 sched_coll_name(sched->request.coll), sched->request.ranks, why);
	return UTIL_ERR_UNSUPPORTED;
}

static enum util_status add(struct core_comm *comm, const struct algo *algo,
			    const struct sched_request *request, struct core_schedule **out)
{
	struct core_schedule *entry = calloc(1, sizeof(*entry));
	enum util_status status = UTIL_ERR_NO_MEMORY;

	if (!entry)
		return status;
	entry->algo = algo;
	entry->sched = algo_make(algo, request);
	if (entry->sched)
		status = prove_and_translate(entry, comm);
	if (status != UTIL_OK) {
		entry_free(entry);
		return status;
	}
	entry->next = comm->schedules;
	comm->schedules = *out = entry;
	return UTIL_OK;
}

enum util_status core_schedule_take(struct core_comm *comm, const struct algo *algo,
				    const struct sched_request *request, struct core_schedule **out)
{
	enum util_status status = UTIL_OK;

	*out = find(comm, algo, request);
	if (!*out) {
		make_room(comm);
		status = add(comm, algo, request, out);
	}
	if (status == UTIL_OK)
		(*out)->users++;
	return status;
}

void core_schedule_put(struct core_schedule *schedule)
{
	schedule->users--;
}

void core_schedule_drop(struct core_comm *comm)
{
	while (comm->schedules) {
		struct core_schedule *entry = comm->schedules;

		comm->schedules = entry->next;
		entry_free(entry);
	}
}
