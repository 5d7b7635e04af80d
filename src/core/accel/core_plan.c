/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the members' offers to a schedule, and from this rank's steps of it to a kernel: blocks and
 * pieces become addresses and bytes.
 */
#include "core/accel/core_plan.h"
#include "core/accel/core_choice.h"
#include "core/call/core_coll.h"
#include "core/accel/core_eager.h"
#include "core/comm/core_graph.h"
#include "core/accel/core_links.h"
#include "core/accel/core_say.h"
#include "core/exec/core_steps.h"
#include "core/accel/core_terms.h"
#include "core/wire/core_arena.h"
#include "util/util_log.h"

#include <stdio.h>
#include <string.h>

enum { SLICE_ALIGNMENT = 16 }; /* where 16-byte accesses can begin */

static bool has_window(const struct core_accel *accel, int rank, enum sched_buffer buffer)
{
	uint32_t flag = buffer == SCHED_IN ? CORE_OFFER_WINDOW_IN : CORE_OFFER_WINDOW_OUT;

	return core_agree_offer(&accel->agree, rank)->flags & flag;
}

/* ---- the algorithm ---- */

/* As many rounds as the longest block needs with so many bytes for a round's slices. */
static void set_rounds(struct core_accel *accel, uint64_t bytes, int slices, uint64_t longest)
{
	accel->width = bytes / (uint64_t)slices / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	accel->rounds = (longest + accel->width - 1) / accel->width;
}

/* A window has a slice of each of the collective's blocks. */
static void plan_rounds(struct core_accel *accel, int slices)
{
	uint64_t longest = accel->common.longest, window = UINT64_MAX;

	accel->width = accel->half = accel->round = 0;
	accel->rounds = 1;
	if (!(accel->common.any & (CORE_OFFER_WINDOW_IN | CORE_OFFER_WINDOW_OUT)))
		return;
	for (int i = 0; i < accel->comm->num_near; i++) {
		const struct core_offer *offer =
			core_agree_offer(&accel->agree, accel->comm->near[i]);

		window = offer->window < window ? offer->window : window;
	}
	set_rounds(accel, window, slices, longest);
	if (accel->rounds == 1)
		return;
	accel->half = window / 2 / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	set_rounds(accel, accel->half, slices, longest);
}

/* Senders that send more than the root expects: the root knows, and it is the root's error. */
static bool is_sent_too_much(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	const struct core_comm *comm = accel->comm;

	if (accel->sched->request.coll != SCHED_GATHER || comm->rank != shape->root)
		return false;
	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];

		if (core_agree_offer(&accel->agree, rank)->in.bytes > shape->out.blocks[rank].bytes)
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

static bool is_all_mapped(const struct core_accel *accel)
{
	return !accel->comm->spans && core_terms_all_reach(accel->comm, CORE_REACH_BUFFERS);
}

/* Why an algorithm on mapped memory can't be taken, where that is not in the catalogue. */
static const char *why_not_mapped(const struct core_accel *accel, const struct algo *algo,
				  enum sched_coll coll)
{
	if (!is_all_mapped(accel))
		return "memory that can't be mapped";
	/* See others_write and others_read in core_prepare.c. */
	if (algo->needs & ALGO_NEEDS_ALL_MAPPED)
		return coll == SCHED_BCAST ? "receive buffers are not offered to others"
					   : "send buffers are not offered to others";
	if (strcmp(algo->name, "oneshot"))
		return NULL;
	if (accel->width)
		return "it can't go through windows";
	if (accel->common.any & CORE_OFFER_IN_PLACE)
		return "it can't work in place, as some rank does";
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
		why = linked ? core_terms_refuse(accel)
			     : why_not_mapped(accel, algo, request->coll);
	if (!why && algo->needs & ALGO_NEEDS_NODES_MAPPED &&
	    !core_summary_is_mapped(&accel->common))
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
	if (accel->common.any_without_data)
		return false;
	alike.in_place = accel->common.any & CORE_OFFER_IN_PLACE;
	num = core_choice_make(accel, &alike, is_all_mapped(accel), wish, choices);
	attempt->status = num < 0 ? UTIL_ERR_NO_MEMORY : UTIL_OK;
	request->num_rings = alike.num_rings;
	request->rings = alike.rings;
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

	list_algos(accel, request, &accel->common.wish, wanted, sizeof(wanted));
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
	struct algo_wish wish = accel->common.wish;
	struct attempt attempt = {0};
	bool taken = take_wished(accel, request, &wish, &attempt);

	if (!taken && wish.algos && !is_fatal(attempt.status)) {
		/*
		 * That a call without data is done in another way nobody needs to know; and that
		 * one of neighbours is nobody asked for.
		 */
		if (!accel->common.any_without_data && !request->pairs)
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

enum util_status core_plan_make(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct sched_request request = {.coll = core_coll_sched(shape->coll),
					.ranks = accel->comm->size,
					.root = shape->root,
					.in_place = shape->in_place,
					.pairs = core_graph_pairs(accel->comm, shape->coll),
					.channels = 1,
					.num_nodes = accel->comm->num_nodes,
					.nodes = accel->comm->nodes};
	enum util_status status = UTIL_OK;
	const char *why = NULL;

	accel->width = 0;
	if (accel->common.all & CORE_OFFER_EAGER)
		return take_eager(accel, &request);
	plan_rounds(accel, sched_num_blocks(&request));
	why = choose(accel, &request, &status);
	if (why && accel->comm->spans && !accel->common.arena)
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

/* ---- blocks ---- */

/* Where the round's slices begin in windows. */
static int64_t window_start(const struct core_accel *accel, uint64_t round)
{
	return round % 2 ? (int64_t)accel->half : 0;
}

/* A round's slice of a block of this rank's or another's buffer; in a window it is the index-th. */
static struct core_block slice(const struct core_accel *accel, uint64_t round,
			       struct core_block block, bool windowed, int index)
{
	uint64_t start = round * accel->width, rest;

	if (!accel->width)
		return block;
	if (start >= block.bytes)
		return (struct core_block){0, 0};
	rest = block.bytes - start;
	block.offset = windowed ? window_start(accel, round) + (int64_t)accel->width * index
				: block.offset + (int64_t)start;
	block.bytes = rest < accel->width ? rest : accel->width;
	return block;
}

/*
 * An alltoall in place has but one buffer, in which blocks of the input stand where those of the
 * output do.
 */
static bool is_one_buffer(const struct core_accel *accel)
{
	return accel->shape.in_place && accel->sched->request.coll == SCHED_ALLTOALL;
}

/* A block of this rank's buffer; `index`, which it has among the buffer's. */
static struct core_block own_block(const struct core_accel *accel, const struct core_place *place,
				   int *index)
{
	const struct core_buffer *mine = place->buffer == SCHED_IN && !is_one_buffer(accel)
						 ? &accel->shape.in
						 : &accel->shape.out;

	*index = mine->num_blocks > 1 ? place->block : 0;
	return mine->blocks[*index];
}

/*
 * A block of another's buffer that concerns this rank. Who has one for each rank told where they
 * are, but for what is where it is for all.
 */
static struct core_block others_block(const struct core_accel *accel,
				      const struct core_place *place, int *index)
{
	*index = 0;
	switch (accel->sched->request.coll) {
	case SCHED_ALLTOALL:
	case SCHED_SCATTER:
	case SCHED_GATHER:
		*index = place->block;
		return core_agree_table(&accel->agree, place->rank)[place->block];
	case SCHED_REDUCE_SCATTER:
		*index = place->block;
		return accel->shape.in.blocks[place->block];
	case SCHED_ALLGATHER:
		if (place->buffer == SCHED_OUT)
			return core_agree_table(&accel->agree, place->rank)[place->block];
		return (struct core_block){0,
					   core_agree_offer(&accel->agree, place->rank)->in.bytes};
	default:
		return (struct core_block){0, accel->shape.bytes};
	}
}

/* Scratch blocks stand in the arena; the one of a number is as long as the collective's. */
static struct gpu_place scratch_place(const struct core_accel *accel,
				      const struct core_place *place)
{
	const struct core_shape *shape = &accel->shape;
	const struct core_buffer *like = shape->in.num_blocks ? &shape->in : &shape->out;
	uint64_t start = accel->scratch_start + (uint64_t)place->block * accel->steps.args.width;

	return (struct gpu_place){
		accel->comm->arena->device->address + start,
		like->blocks[like->num_blocks > place->block ? place->block : 0].bytes};
}

/* Where the place's buffer, of a member on this node, begins for this process. */
static uint64_t address_of(const struct core_accel *accel, const struct core_place *place)
{
	const struct core_reach *reach =
		place->buffer == SCHED_IN && !is_one_buffer(accel) ? accel->in : accel->out;

	return reach[core_comm_number(accel->comm, place->rank)].address;
}

/*
 * Where a place of the program is in the round. In the second phase everything is in this rank's
 * memory, and whole.
 */
static struct gpu_place look_up(struct core_accel *accel, const struct core_place *place,
				uint32_t phase)
{
	bool mine = place->rank == accel->comm->rank;
	struct core_block block;
	uint64_t address;
	int index = 0;

	if (accel->eager && place->buffer == SCHED_IN)
		return core_eager_bring(accel, place->rank, place->block, &accel->eager_used);
	if (place->buffer == SCHED_SCRATCH)
		return scratch_place(accel, place);
	if (place->buffer == SCHED_HOLD) {
		block = (struct core_block){0, accel->shape.own.bytes};
		address = accel->scratch ? accel->scratch->address : 0;
	} else {
		block = mine ? own_block(accel, place, &index) : others_block(accel, place, &index);
		address = address_of(accel, place);
	}
	if (phase == 0 && accel->width)
		block = slice(accel, accel->round, block,
			      place->buffer != SCHED_HOLD &&
				      has_window(accel, place->rank, place->buffer),
			      index);
	else if (phase > 0 && place->buffer == SCHED_OUT)
		address = accel->shape.out.address;
	return (struct gpu_place){address + (uint64_t)block.offset, block.bytes};
}

/*
 * A sender's block may be longer than its receiver's, which is an error of the program: the step is
 * cut to what all its places have. Returns that.
 */
static uint64_t cut_step(struct core_accel *accel, const struct gpu_step *step)
{
	const struct core_program *program = accel->schedule->program;
	const struct gpu_operand *o = &program->operands[step->first];
	struct gpu_place *places = accel->steps.places;
	uint32_t sent = step->swap ? 1 : 0; /* what this rank receives, or takes */
	uint64_t least = places[step->sized].bytes, longest = 0;

	for (uint32_t i = 0; i < (uint32_t)step->num_sources + step->num_targets; i++) {
		uint64_t bytes;

		if (core_program_is_link(&o[i]))
			continue;
		bytes = places[o[i].index].bytes;
		longest = i == sent ? bytes : longest;
		least = bytes < least ? bytes : least;
	}
	/* Who pushes its block does not know; see is_sent_too_much. */
	if (accel->eager || accel->sched->request.coll != SCHED_GATHER)
		accel->truncates |= longest > least;
	places[step->sized].bytes = least;
	return least;
}

/* What the steps of a phase move to each of their targets. */
struct volume {
	uint64_t total, longest;
};

static struct volume set_places(struct core_accel *accel, uint32_t phase)
{
	const struct core_program *program = accel->schedule->program;
	struct volume volume = {0};

	accel->eager_used = 0;
	accel->steps.places = program->entries ? program->entries : accel->steps.args.places;
	for (int i = 0; i < program->num_places; i++)
		accel->steps.places[i] = look_up(accel, &program->places[i], phase);
	for (uint32_t i = 0; i < program->num_lanes[phase]; i++) {
		const struct gpu_work *lane = &program->lanes[phase][i];

		for (uint32_t j = 0; j < lane->num_steps; j++) {
			const struct gpu_step *step = &program->steps[lane->first_step + j];
			uint64_t block = cut_step(accel, step);
			uint64_t bytes = sched_range(block, sched_unit(accel->sched),
						     accel->sched->pieces, step->piece, step->span)
						 .bytes;

			volume.total += bytes;
			volume.longest = bytes > volume.longest ? bytes : volume.longest;
		}
	}
	return volume;
}

/* ---- launches ---- */

/* What all launches of the call have alike. */
static void set_args(struct core_accel *accel)
{
	const struct core_program *program = accel->schedule->program;
	struct gpu_execute_args *args = &accel->steps.args;

	args->table = program->table;
	args->steps = program->address;
	args->operands = args->steps + program->num_steps * sizeof(struct gpu_step);
	args->type = accel->shape.type;
	args->op = accel->shape.op;
	args->pieces = (uint32_t)accel->sched->pieces;
	args->unit = (uint32_t)sched_unit(accel->sched);
}

/* Steps without messages: the more blocks the more there is to do. */
static void set_direct(struct core_accel *accel, uint32_t phase, struct volume volume)
{
	const struct core_program *program = accel->schedule->program;
	struct gpu_execute_args *args = &accel->steps.args;
	uint32_t num = program->num_lanes[phase] ? program->lanes[phase][0].num_steps : 0;

	args->parts = gpu_launch_blocks(volume.total, gpu_launch_most(&accel->launch));
	/* The teams are of one size, so the copies must be nearly so. */
	args->spread = program->spreads[phase] && num <= args->parts &&
		       volume.longest * num <= 2 * volume.total;
	args->width = 0;
	args->waits = 0;
	args->protocol = GPU_PROTOCOL_SIMPLE;
	accel->steps.carry = 0;
	accel->steps.bytes = volume.total;
	accel->steps.rounds = 1;
}

static enum util_status begin_phase(struct core_accel *accel, uint32_t phase)
{
	struct core_program *program = accel->schedule->program;
	struct volume volume;
	enum util_status status;

	/* Without data there is nothing to write, but perhaps a message that is too long. */
	if (accel->eager && !accel->launches)
		set_places(accel, phase);
	if (!program->num_lanes[phase] || !accel->launches)
		return UTIL_OK;
	status = core_program_upload(program, accel->stream);
	if (status != UTIL_OK)
		return status;
	accel->steps.comm = accel->comm;
	accel->steps.call = accel->number;
	accel->steps.program = program;
	accel->steps.launch = &accel->launch;
	accel->steps.phase = phase;
	volume = set_places(accel, phase);
	accel->running = volume.total > 0 || (accel->linked && phase == 0);
	if (!accel->running)
		return UTIL_OK;
	status = core_program_fill(program, accel->stream);
	if (status != UTIL_OK) {
		accel->running = false;
		return status;
	}
	set_args(accel);
	if (accel->linked && phase == 0)
		core_links_set_args(accel);
	else
		set_direct(accel, phase, volume);
	core_steps_begin(&accel->steps);
	return UTIL_OK;
}

enum util_status core_plan_begin(struct core_accel *accel)
{
	return begin_phase(accel, 0);
}

enum util_status core_plan_begin_last(struct core_accel *accel)
{
	return accel->sched->phases > 1 ? begin_phase(accel, 1) : UTIL_OK;
}

/* ---- windows ---- */

/* In place, the rank's own block of an allgather or scatter stays where it is. */
static bool stays(const struct core_accel *accel, const struct core_buffer *buffer, int index)
{
	enum sched_coll coll = accel->sched->request.coll;

	if (buffer != &accel->shape.out || !accel->shape.in_place)
		return false;
	return coll == SCHED_SCATTER || (coll == SCHED_ALLGATHER && index == accel->comm->rank);
}

/* Between a buffer's blocks and their slices in its window. */
static enum util_status copy_slices(struct core_accel *accel, uint64_t round,
				    const struct core_buffer *buffer,
				    const struct gpu_scratch *window, bool out)
{
	enum util_status status = UTIL_OK;

	for (int i = 0; i < buffer->num_blocks && status == UTIL_OK; i++) {
		struct core_block user = slice(accel, round, buffer->blocks[i], false, i);
		struct core_block ours = slice(accel, round, buffer->blocks[i], true, i);
		void *at_user = (void *)(buffer->address + (uint64_t)user.offset);
		void *at_window = (void *)(window->address + (uint64_t)ours.offset);

		if (user.bytes && !stays(accel, buffer, i))
			status = gpu_stream_copy_pieces(accel->copies, out ? at_user : at_window,
							out ? at_window : at_user, user.bytes);
	}
	return status;
}

enum util_status core_plan_fill(struct core_accel *accel, uint64_t round)
{
	const struct core_shape *shape = &accel->shape;

	if (accel->window_in)
		return copy_slices(accel, round, &shape->in, accel->window_in, false);
	/* Blocks that are swapped in place are input, too. */
	if (accel->window_out && shape->in_place && !shape->in.num_blocks)
		return copy_slices(accel, round, &shape->out, accel->window_out, false);
	return UTIL_OK;
}

enum util_status core_plan_drain(struct core_accel *accel, uint64_t round)
{
	/* The result of a reduce_scatter in place waits in scratch. */
	if (!accel->window_out || accel->scratch)
		return UTIL_OK;
	return copy_slices(accel, round, &accel->shape.out, accel->window_out, true);
}
