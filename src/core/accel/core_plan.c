/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_plan.h"
#include "core/accel/core_links.h"
#include "core/accel/core_say.h"
#include "core/accel/core_window.h"
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
	if (!accel->width)
		return algo->name;
	return !strcmp(algo->name, "twoshot") ? "twoshot through windows"
					      : "direct through windows";
}

static const char *const not_offered = "buffers that others need not touch are not offered to them";

static bool is_all_mapped(const struct core_accel *accel)
{
	return !accel->comm->spans && !accel->enqueued &&
	       core_terms_all_reach(accel->comm, CORE_REACH_BUFFERS);
}

/* Why an algorithm on mapped memory can't be taken, where that is not in the catalogue. */
static const char *why_not_mapped(const struct core_accel *accel, const struct algo *algo,
				  bool all_mapped)
{
	if (!is_all_mapped(accel))
		return "memory that can't be mapped";
	/* See others_write and others_read in core_prepare.c. */
	if (algo->needs & ALGO_NEEDS_ALL_MAPPED && !all_mapped)
		return not_offered;
	if (strcmp(algo->name, "oneshot"))
		return NULL;
	if (accel->width)
		return "it can't go through windows";
	if (accel->facts.common.any & CORE_OFFER_IN_PLACE)
		return "it can't work in place, as some rank does";
	return NULL;
}

/* Whether to be in place is the root's matter, by which nobody else's steps change. */
static bool is_roots_matter(enum sched_coll coll)
{
	return coll == SCHED_GATHER || coll == SCHED_SCATTER;
}

/* Of one that does the work of all on a GPU: two blocks for each two of its ranks and all. */
static bool has_too_many_places(const struct core_comm *comm, enum sched_coll coll)
{
	struct sched_request request = {.coll = coll, .ranks = comm->size};
	bool square = !is_roots_matter(coll) && sched_num_blocks(&request) > 1;

	return square && 2 * comm->size * core_choices_most_sharers(comm) > GPU_MAX_PLACES;
}

/*
 * Whether ranks may do others' work in all buffers of the call. Who is in place is each rank's own
 * matter, and shapes its schedule: where one does the work of several, they must be alike.
 */
static bool is_all_shared(const struct core_accel *accel, enum sched_coll coll)
{
	const struct core_summary *common = &accel->facts.common;

	if (!(common->all & CORE_OFFER_EXPORTED) || accel->comm->spans ||
	    has_too_many_places(accel->comm, coll))
		return false;
	if (!(common->any & CORE_OFFER_IN_PLACE) || is_roots_matter(coll))
		return true;
	/* See algo_direct.c: in place results are in order where blocks are of one size. */
	if (accel->shape.coll == CORE_REDUCE_SCATTER)
		return false;
	return common->all & CORE_OFFER_IN_PLACE;
}

/*
 * Why an enqueued call can't be done so, apart from what its facts say; NULL: it can. Launches that
 * follow on each other have nothing but their arguments to be told by.
 */
static const char *why_not_enqueued(const struct core_accel *accel)
{
	const struct sched *sched = accel->sched;
	int places = 2 * sched_num_blocks(&sched->request) + sched->scratch_blocks + 2;

	if (accel->touches)
		return "memory that can't be mapped";
	if (accel->schedule->program->most_lanes > GPU_FEW_LANES)
		return "it has more lanes than a launch's arguments";
	if (places > GPU_FEW_PLACES)
		return "it has more places than a launch's arguments";
	if (!accel->steps.args.waits)
		return "its kernels can't wait";
	return NULL;
}

/*
 * Take the algorithm, unless there is a reason against it, which is returned; `status` is that of
 * taking its schedule.
 */
static const char *take(struct core_accel *accel, const struct algo_choice *choice,
			const struct sched_request *request, enum util_status *status)
{
	const struct algo *algo = choice->algo;
	struct sched_request mine = *request, alike = *request;
	bool linked = !(algo->needs & ALGO_NEEDS_MAPPED);
	const char *why;

	/*
	 * Whether a call is in place is a matter of all in an alltoall, and of each rank elsewhere.
	 */
	alike.in_place &= request->coll == SCHED_ALLTOALL;
	why = algo_refuses(algo, &alike, core_coll_sizes_differ(accel->shape.coll));

	if (!why)
		why = linked ? core_terms_refuse(&accel->facts)
			     : why_not_mapped(accel, algo, request->all_mapped);
	if (!why && algo->needs & ALGO_NEEDS_NODES_MAPPED &&
	    !core_summary_is_mapped(&accel->facts.common))
		why = "memory that can't be mapped";
	if (why)
		return why;
	mine.channels = choice->channels;
	*status = core_schedule_take(accel->comm, algo, &mine, &accel->schedule, &why);
	if (*status != UTIL_OK)
		return why ? why : "its schedule can't be had";
	accel->sched = accel->schedule->sched;
	accel->linked = linked;
	accel->touches = accel->schedule->program->is_mapped;
	accel->proto = choice->proto;
	why = linked ? core_links_make(accel) : NULL;
	if (!why && accel->enqueued)
		why = why_not_enqueued(accel);
	if (!why)
		return NULL;
	core_schedule_put(accel->schedule);
	accel->schedule = NULL;
	return why;
}

static bool is_fatal(enum util_status status)
{
	return status != UTIL_OK && status != UTIL_ERR_UNSUPPORTED;
}

/* On the way to an algorithm: the first reason against one, and the status of the last. */
struct attempt {
	const char *why;
	enum util_status status;
};

/* Whether the algorithm was taken. */
static bool try_to_take(struct core_accel *accel, const struct algo_choice *choice,
			const struct sched_request *request, struct attempt *attempt)
{
	const char *why;

	attempt->status = UTIL_OK;
	why = take(accel, choice, request, &attempt->status);
	attempt->why = attempt->why ? attempt->why : why;
	return !why;
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
	num = core_choice_make(accel->comm, &accel->facts, &alike, is_all_mapped(accel), wish,
			       choices, &accel->gdr);
	attempt->status = num < 0 ? UTIL_ERR_NO_MEMORY : UTIL_OK;
	request->num_rings = alike.num_rings;
	request->rings = alike.rings;
	request->gpus = alike.gpus;
	for (int i = 0; i < num && !is_fatal(attempt->status); i++) {
		if (try_to_take(accel, &choices[i], request, attempt))
			return true;
		/* The next call brings what it takes. */
		accel->comm->wants_links |= !(choices[i].algo->needs & ALGO_NEEDS_MAPPED);
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
		if (try_to_take(accel, &choice, request, attempt))
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
 * What the configuration wishes for, or else the fastest of all. Returns NULL, or why there is
 * none.
 */
static const char *choose(struct core_accel *accel, struct sched_request *request,
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
		    (attempt.why != not_offered || core_choices_most_sharers(accel->comm) == 1))
			complain_about_algos(accel, request, attempt.why);
		wish.algos = 0;
		attempt.why = NULL;
		taken = take_wished(accel, request, &wish, &attempt);
	}
	*status = attempt.status;
	return taken ? NULL : attempt.why ? attempt.why : "memory that can't be mapped";
}

/*
 * Inputs are copies that are there for each rank: nobody touches another's memory, and nothing is
 * in place, but for blocks that are where they belong.
 */
static enum util_status take_eager(struct core_accel *accel, struct sched_request *request)
{
	const struct algo *algo = algo_find("oneshot", request->coll);
	enum util_status status;
	const char *why;

	request->in_place &= request->coll == SCHED_SCATTER || request->coll == SCHED_ALLGATHER;
	status = core_schedule_take(accel->comm, algo ? algo : algo_find("direct", request->coll),
				    request, &accel->schedule, &why);
	/* The others go on. */
	if (status != UTIL_OK)
		return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_SYSTEM : status;
	accel->sched = accel->schedule->sched;
	accel->eager = true;
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
	const char *why;

	accel->enqueued = true;
	accel->width = 0;
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
	const char *why = NULL;

	accel->width = 0;
	if (accel->facts.common.all & CORE_OFFER_EAGER)
		return take_eager(accel, &request);
	request.all_mapped = is_all_shared(accel, request.coll);
	if (request.all_mapped && is_roots_matter(request.coll))
		request.in_place = accel->facts.common.any & CORE_OFFER_IN_PLACE;
	core_window_plan(accel, sched_num_blocks(&request));
	why = choose(accel, &request, &status);
	if (why && accel->comm->spans && !accel->facts.common.arena)
		accel->comm->wants_links = true;
	else if (why && !is_all_mapped(accel))
		accel->comm->wants_links = accel->comm->wants_shm = true;
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
