/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/exec/core_schedule.h"
#include "algos/sched_verify.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <stdlib.h>

/* A program that goes through all roots of a large communicator has one for each. */
enum { MOST_KEPT = CORE_MAX_RANKS };

static void entry_free(struct core_schedule *entry)
{
	core_program_free(entry->program);
	sched_free(entry->sched);
	free(entry);
}

static bool is_same(const struct sched_request *a, const struct sched_request *b)
{
	return a->coll == b->coll && a->ranks == b->ranks && a->root == b->root &&
	       a->in_place == b->in_place && a->ordered == b->ordered &&
	       a->channels == b->channels && a->rings == b->rings && a->pairs == b->pairs &&
	       a->gpus == b->gpus && a->all_mapped == b->all_mapped;
}

/* The last one used comes first. */
static struct core_schedule *find_schedule(struct core_comm *comm, const struct algo *algo,
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
static void make_room_for_schedule(struct core_comm *comm)
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

static void log_refusal(const struct core_schedule *entry, enum util_log_level level,
			const char *why)
{
	const struct sched *sched = entry->sched;

	util_log(level, UTIL_SUBSYS_CORE, "the schedule %s for %s over %d ranks can't be used: %s",
		 sched->name, sched_coll_name(sched->request.coll), sched->request.ranks, why);
}

/* Sets why it can't be used, if that is so. UTIL_ERR_NO_MEMORY. */
static enum util_status prove_and_translate(struct core_schedule *entry,
					    const struct core_comm *comm)
{
	struct sched *sched = entry->sched;
	char proof[256];

	entry->program = core_program_make(sched, comm->rank, comm->numbers, &entry->why);
	if (!entry->program && !entry->why)
		return UTIL_ERR_NO_MEMORY;
	if (entry->why) {
		/* All ranks say the same. */
		if (comm->rank == 0)
			log_refusal(entry, UTIL_LOG_INFO, core_reason_text(entry->why));
	} else if ((util_config.check & UTIL_CHECK_SCHEDULES) &&
		   !sched_verify(sched, entry->algo->slots, proof, sizeof(proof))) {
		log_refusal(entry, UTIL_LOG_WARN, proof);
		entry->why = CORE_REASON_PROOF_FAILED;
	}
	/* Of many ranks they take much memory, and this one's are in the program. */
	sched_forget_steps(sched);
	return UTIL_OK;
}

/* What can't be used is kept too: it need not be made again to know that. */
static enum util_status add_schedule(struct core_comm *comm, const struct algo *algo,
				     const struct sched_request *request,
				     struct core_schedule **out)
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
				    const struct sched_request *request, struct core_schedule **out,
				    enum core_reason *why)
{
	enum util_status status = UTIL_OK;
	struct core_schedule *entry = find_schedule(comm, algo, request);

	*out = NULL;
	*why = CORE_REASON_NONE;
	if (!entry) {
		make_room_for_schedule(comm);
		status = add_schedule(comm, algo, request, &entry);
	}
	if (status != UTIL_OK)
		return status;
	*why = entry->why;
	if (entry->why)
		return UTIL_ERR_UNSUPPORTED;
	*out = entry;
	entry->users++;
	return UTIL_OK;
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
