/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_plan.h"
#include "core/accel/core_links.h"
#include "core/accel/core_mapped.h"
#include "core/accel/core_say.h"
#include "core/agree/core_terms.h"
#include "core/call/core_coll.h"
#include "core/choose/core_choice.h"
#include "core/choose/core_choices.h"
#include "core/comm/core_graph.h"

#include <stdio.h>
#include <string.h>

/* ---- the algorithm ---- */

/*
 * Of what others may do for this rank, whose error it is all the same: senders that send more than
 * the root expects, a root that sends more than this rank does.
 */
static bool is_sent_too_much(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	const struct core_comm *comm = accel->comm;

	if (accel->sched->request.coll == SCHED_SCATTER && accel->sched->request.all_mapped)
		return shape->out.num_blocks &&
		       core_agree_table(&accel->agree, shape->root)[comm->rank].bytes >
			       shape->out.blocks[0].bytes;
	if (accel->sched->request.coll != SCHED_GATHER || comm->rank != shape->root)
		return false;
	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];

		if (core_agree_offer(&accel->agree, rank)->regions[CORE_REGION_IN].bytes >
		    shape->out.blocks[rank].bytes)
			return true;
	}
	return false;
}

/* Windows have no one-shot form. */
static const char *direct_name(const struct core_accel *accel, const struct algo *algo)
{
	if (!accel->windows.rounds.width)
		return algo->name;
	return !strcmp(algo->name, "twoshot") ? "twoshot through windows"
					      : "direct through windows";
}

/*
 * Why an enqueued call can't be done so, apart from what its facts say; CORE_REASON_NONE: it can.
 * Launches that follow on each other have nothing but their arguments to be told by.
 */
static enum core_reason why_not_enqueued(const struct core_accel *accel)
{
	const struct sched *sched = accel->sched;
	int places = 2 * sched_num_blocks(&sched->request) + sched->scratch_blocks + 2;

	if (accel->touches)
		return CORE_REASON_NOT_MAPPED;
	if (accel->schedule->program->most_lanes > GPU_FEW_LANES)
		return CORE_REASON_LAUNCH_LANES;
	if (places > GPU_FEW_PLACES)
		return CORE_REASON_LAUNCH_PLACES;
	if (!accel->steps.args.waits)
		return CORE_REASON_CANT_WAIT;
	return CORE_REASON_NONE;
}

/* On the way to an algorithm: the first reason against one, and the status of the last. */
struct attempt {
	enum core_reason reason;
	const char *refusal; /* the same in the algorithm's words, or the reason's text */
	enum util_status status;
};

static void note_refusal(struct attempt *attempt, enum core_reason reason, const char *refusal)
{
	if (attempt->reason)
		return;
	attempt->reason = reason;
	attempt->refusal = refusal ? refusal : core_reason_text(reason);
}

/* Why the algorithm can't be taken, before its schedule is looked at. */
static enum core_reason why_not(const struct core_accel *accel, const struct algo *algo,
				bool shared)
{
	enum core_reason why = algo->needs & ALGO_NEEDS_MAPPED
				       ? core_mapped_refuse(&accel->facts, algo, shared,
							    accel->windows.rounds.width != 0)
				       : core_terms_refuse(&accel->facts);

	if (!why && algo->needs & ALGO_NEEDS_NODES_MAPPED &&
	    !core_summary_is_mapped(&accel->facts.common))
		return CORE_REASON_NOT_MAPPED;
	return why;
}

/*
 * Take the algorithm's schedule. Returns why it can't be had, or not be done in this call, or
 * CORE_REASON_NONE; `*status` says whether the call can go on without it.
 */
static enum core_reason take_schedule(struct core_accel *accel, const struct algo_choice *choice,
				      const struct sched_request *request, enum util_status *status)
{
	struct sched_request mine = *request;
	enum core_reason why;

	mine.channels = choice->channels;
	*status = core_schedule_take(accel->comm, choice->algo, &mine, &accel->schedule, &why);
	if (*status != UTIL_OK)
		return why ? why : CORE_REASON_NO_SCHEDULE;
	accel->sched = accel->schedule->sched;
	accel->linked = !(choice->algo->needs & ALGO_NEEDS_MAPPED);
	accel->touches = accel->schedule->program->is_mapped;
	accel->links.proto = choice->proto;
	why = accel->linked ? core_links_make(accel) : CORE_REASON_NONE;
	if (!why && accel->facts.enqueued)
		why = why_not_enqueued(accel);
	if (!why)
		return CORE_REASON_NONE;
	core_schedule_put(accel->schedule);
	accel->schedule = NULL;
	return why;
}

/* Whether the algorithm was taken. */
static bool take_algo(struct core_accel *accel, const struct algo_choice *choice,
		      const struct sched_request *request, struct attempt *attempt)
{
	struct sched_request alike = *request;
	const char *refusal;
	enum core_reason why;

	/*
	 * Whether a call is in place is a matter of all in an alltoall, and of each rank elsewhere.
	 */
	alike.in_place &= request->coll == SCHED_ALLTOALL;
	attempt->status = UTIL_OK;
	refusal = algo_refuses(choice->algo, &alike, core_coll_sizes_differ(accel->shape.coll));
	if (refusal) {
		note_refusal(attempt, CORE_REASON_NO_ALGORITHM, refusal);
		return false;
	}
	why = why_not(accel, choice->algo, request->all_mapped);
	if (!why)
		why = take_schedule(accel, choice, request, &attempt->status);
	if (why)
		note_refusal(attempt, why, NULL);
	return !why;
}

static bool is_fatal(enum util_status status)
{
	return status != UTIL_OK && status != UTIL_ERR_UNSUPPORTED;
}

/* The fastest that is possible of those that the wish grants. */
static bool take_fastest(struct core_accel *accel, struct sched_request *request,
			 const struct algo_wish *wish, struct attempt *attempt)
{
	struct algo_choice choices[CORE_CHOICE_MOST];
	struct sched_request alike = *request;
	int num;

	/* Where its GPU is is not known, and there can be no messages. */
	if (accel->facts.common.any_without_data)
		return false;
	alike.in_place = accel->facts.common.any & CORE_OFFER_IN_PLACE;
	num = core_choice_make(accel->comm, &accel->facts, &alike,
			       core_mapped_is_possible(&accel->facts), wish, choices, &accel->gdr);
	attempt->status = num < 0 ? UTIL_ERR_NO_MEMORY : UTIL_OK;
	request->num_rings = alike.num_rings;
	request->rings = alike.rings;
	request->gpus = alike.gpus;
	for (int i = 0; i < num && !is_fatal(attempt->status); i++) {
		if (take_algo(accel, &choices[i], request, attempt))
			return true;
		/* The next call brings what it takes. */
		accel->comm->links.wanted |= !(choices[i].algo->needs & ALGO_NEEDS_MAPPED);
	}
	return false;
}

/* The first that the wish grants. */
static enum sched_proto proto_of(const struct algo_wish *wish)
{
	int proto = SCHED_SIMPLE;

	while (wish->protos && !(wish->protos >> proto & 1))
		proto++;
	return (enum sched_proto)proto;
}

/* Any way at all, in the order of the catalogue: what can't be fused may be stepped, and so on. */
static bool take_any(struct core_accel *accel, const struct sched_request *request,
		     const struct algo_wish *wish, struct attempt *attempt)
{
	bool differ = core_coll_sizes_differ(accel->shape.coll);

	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		struct algo_choice choice = {.algo = algo,
					     .channels = wish->channels ? wish->channels : 1,
					     .proto = proto_of(wish)};

		if (!(algo->colls >> request->coll & 1) || !algo_wish_grants(wish, algo) ||
		    (!wish->algos && algo_refuses(algo, request, differ)))
			continue;
		if (take_algo(accel, &choice, request, attempt))
			return true;
		if (is_fatal(attempt->status))
			return false;
	}
	return false;
}

/* The names of the algorithms that the wish grants, or of all that are not refused. */
static void list_algos(const struct core_accel *accel, const struct sched_request *request,
		       const struct algo_wish *wish, char *text, size_t bytes)
{
	bool differ = core_coll_sizes_differ(accel->shape.coll);
	size_t used = 0;

	*text = '\0';
	for (const struct algo *algo = algo_catalogue; algo->name && used < bytes; algo++) {
		if (!(algo->colls >> request->coll & 1) ||
		    (wish ? !algo_wish_grants(wish, algo)
			  : algo_refuses(algo, request, differ) != NULL))
			continue;
		used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "",
					 algo->name);
	}
}

static void complain_about_algos(const struct core_accel *accel,
				 const struct sched_request *request, const char *why)
{
	char wanted[160], possible[160], text[256];

	list_algos(accel, request, &accel->facts.common.wish, wanted, sizeof(wanted));
	list_algos(accel, request, NULL, possible, sizeof(possible));
	snprintf(text, sizeof(text), "%s; there are: %s", why, possible);
	core_say_complaint(accel, CORE_COMPLAINT_ALGO, "GPUCOLL_ALGO", wanted, text);
}

static bool take_wished(struct core_accel *accel, struct sched_request *request,
			const struct algo_wish *wish, struct attempt *attempt)
{
	if (take_fastest(accel, request, wish, attempt))
		return true;
	return !is_fatal(attempt->status) && take_any(accel, request, wish, attempt);
}

/*
 * What the configuration wishes for, or else the fastest of all. Returns why there is none, or
 * CORE_REASON_NONE.
 */
static enum core_reason choose(struct core_accel *accel, struct sched_request *request,
			       enum util_status *status)
{
	struct algo_wish wish = accel->facts.common.wish;
	struct attempt attempt = {0};
	bool taken = take_wished(accel, request, &wish, &attempt);

	if (!taken && wish.algos && !is_fatal(attempt.status)) {
		/*
		 * Do not complain about calls without data, nor about neighbour collectives, which
		 * GPUCOLL_ALGO was not meant for, nor before ranks that share a GPU offer all.
		 */
		if (!accel->facts.common.any_without_data && !request->pairs &&
		    !accel->comm->standing &&
		    (attempt.reason != CORE_REASON_NOT_OFFERED ||
		     core_choices_most_sharers(accel->comm) == 1))
			complain_about_algos(accel, request, attempt.refusal);
		wish.algos = 0;
		attempt.reason = CORE_REASON_NONE;
		taken = take_wished(accel, request, &wish, &attempt);
	}
	*status = attempt.status;
	if (taken)
		return CORE_REASON_NONE;
	return attempt.reason ? attempt.reason : CORE_REASON_NOT_MAPPED;
}

/*
 * Inputs are copies that are there for each rank: nobody touches another's memory, and nothing is
 * in place, but for blocks that are where they belong.
 */
static enum util_status take_eager(struct core_accel *accel, struct sched_request *request)
{
	const struct algo *algo = algo_find("oneshot", request->coll);
	enum util_status status;
	enum core_reason why;

	request->in_place &= request->coll == SCHED_SCATTER || request->coll == SCHED_ALLGATHER;
	status = core_schedule_take(accel->comm, algo ? algo : algo_find("direct", request->coll),
				    request, &accel->schedule, &why);
	/* The others go on. */
	if (status != UTIL_OK)
		return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_SYSTEM : status;
	accel->sched = accel->schedule->sched;
	accel->eager.taken = true;
	accel->touches = false;
	accel->reason = "eager";
	return UTIL_OK;
}

static struct sched_request request_of(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;

	return (struct sched_request){.coll = core_coll_sched(shape->coll),
				      .ranks = accel->comm->size,
				      .root = shape->root,
				      .in_place = shape->in_place,
				      .ordered = core_shape_is_ordered(shape),
				      .pairs = core_graph_pairs(accel->comm, shape->coll),
				      .channels = 1,
				      .num_nodes = accel->comm->num_nodes,
				      .nodes = accel->comm->nodes};
}

enum util_status core_plan_make_enqueued(struct core_accel *accel)
{
	struct sched_request request = request_of(accel);
	enum util_status status = UTIL_OK;
	enum core_reason why;

	/* Of an alltoall all are in place, or none. */
	if (accel->shape.coll == CORE_ALLTOALL && !accel->shape.in_place)
		accel->facts.common.any &= ~(uint32_t)CORE_OFFER_IN_PLACE;
	why = choose(accel, &request, &status);
	if (why && !is_fatal(status))
		return core_accel_stage(accel, why);
	return status;
}

enum util_status core_plan_make(struct core_accel *accel)
{
	struct sched_request request = request_of(accel);
	enum util_status status = UTIL_OK;
	enum core_reason why;

	if (accel->facts.common.all & CORE_OFFER_EAGER)
		return take_eager(accel, &request);
	request.all_mapped = core_mapped_is_shared(&accel->facts);
	if (request.all_mapped && core_mapped_is_roots_matter(request.coll))
		request.in_place = accel->facts.common.any & CORE_OFFER_IN_PLACE;
	accel->windows.rounds = core_rounds_of(&accel->facts, sched_num_blocks(&request));
	why = choose(accel, &request, &status);
	if (why && accel->comm->spans && !accel->facts.common.arena)
		accel->comm->links.wanted = true;
	else if (why && !core_mapped_is_possible(&accel->facts))
		accel->comm->links.wanted = accel->comm->links.shm_wanted = true;
	/* Only what all find alike may have the call staged now. */
	if (why && !is_fatal(status))
		return core_accel_stage(accel, why);
	if (status != UTIL_OK)
		return status;
	if (!accel->linked)
		accel->reason = direct_name(accel, accel->schedule->algo);
	accel->truncates = is_sent_too_much(accel);
	return UTIL_OK;
}
