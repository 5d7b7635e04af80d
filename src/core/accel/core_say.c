/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_say.h"
#include "core/accel/core_proof.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/choose/core_choice.h"
#include "core/exec/core_steps.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdio.h>

const char *core_say_linked_name(const struct core_accel *accel)
{
	enum { STEPPED = GPU_PROTOCOL_NUM, BY_GDR, WAYS, MOST_ALGOS = 64 };
	static const char *const ways[WAYS] = {"fused simple", "fused ll", "fused ll128", "stepped",
					       "stepped gdr"};
	static char names[MOST_ALGOS][WAYS][32];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct gpu_execute_args *args = &accel->steps.args;
	int way = args->waits ? (int)args->protocol : accel->gdr ? BY_GDR : STEPPED;
	char *name = names[(accel->schedule->algo - algo_catalogue) % MOST_ALGOS][way];

	pthread_mutex_lock(&lock);
	if (!*name)
		snprintf(name, sizeof(names[0][0]), "%s %s", accel->schedule->algo->name,
			 ways[way]);
	pthread_mutex_unlock(&lock);
	return name;
}

void core_say_complaint(const struct core_accel *accel, enum core_complaint kind,
			const char *option, const char *value, const char *why)
{
	if (accel->comm->complained >> kind & 1 || accel->comm->rank)
		return;
	accel->comm->complained |= 1U << kind;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s=%s is not possible for %s: %s", option, value,
		 core_coll_name(accel->shape.coll), why);
}

static int missing(const struct core_accel *accel)
{
	int rank = core_agree_missing(&accel->agree);

	return rank < 0 && accel->comm->spans ? core_nodes_missing(accel->comm) : rank;
}

void core_say_what_is_awaited(const struct core_accel *accel, char *text, size_t bytes)
{
	int rank;

	switch (accel->state) {
	case CORE_ACCEL_SLOT:
		snprintf(text, bytes, "ranks that are calls behind");
		break;
	case CORE_ACCEL_OFFER:
	case CORE_ACCEL_READY:
		snprintf(text, bytes, "earlier work on the buffers to finish");
		break;
	case CORE_ACCEL_AGREE:
		if (core_proof_missing(accel) >= 0) {
			snprintf(text, bytes,
				 "rank %d of %d to try whether devices reach each other's memory",
				 core_proof_missing(accel), accel->comm->size);
			break;
		}
		rank = missing(accel);
		if (rank < 0)
			snprintf(text, bytes,
				 "ranks to map what call %llu of communicator %#llx is to touch",
				 (unsigned long long)accel->number,
				 (unsigned long long)accel->comm->id);
		else
			snprintf(text, bytes,
				 "rank %d of %d to come to call %llu of communicator %#llx", rank,
				 accel->comm->size, (unsigned long long)accel->number,
				 (unsigned long long)accel->comm->id);
		break;
	case CORE_ACCEL_FILL:
		snprintf(text, bytes, "a copy on the device");
		break;
	case CORE_ACCEL_TRY:
		snprintf(text, bytes,
			 "ranks that share a GPU to try whether their kernels run together");
		break;
	case CORE_ACCEL_RUN:
		if (accel->linked)
			core_steps_describe(&accel->steps, text, bytes);
		else
			snprintf(text, bytes, "its kernel or copies");
		break;
	case CORE_ACCEL_LAST:
		snprintf(text, bytes, "its kernel or copies");
		break;
	case CORE_ACCEL_MUSTER:
		snprintf(
			text, bytes, "rank %d of %d to be ready for round %llu of %llu",
			core_meet_not_arrived(accel->comm, accel->number, accel->windows.round + 1),
			accel->comm->size, (unsigned long long)accel->windows.round + 1,
			(unsigned long long)accel->windows.rounds.num);
		break;
	default:
		snprintf(text, bytes, "rank %d of %d to do its part in round %llu of %llu",
			 core_meet_behind(accel->comm, accel->number), accel->comm->size,
			 (unsigned long long)accel->windows.round + 1,
			 (unsigned long long)accel->windows.rounds.num);
		break;
	}
}

void core_say_note_choice(const struct core_accel *accel)
{
	const struct sched_request *request;
	struct algo_choice way;

	core_choice_forget();
	/* Times are kept of exchanges of all only. */
	if (accel->eager.taken || !accel->schedule || accel->sched->request.pairs)
		return;
	request = &accel->sched->request;
	way = (struct algo_choice){.algo = accel->schedule->algo,
				   .channels = request->channels,
				   .proto = accel->linked ? accel->steps.args.protocol
							  : SCHED_SIMPLE};
	core_choice_note(accel->comm, request->coll, accel->facts.common.longest, &way);
}
