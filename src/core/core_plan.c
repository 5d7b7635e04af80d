/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the members' offers to a schedule, and from this rank's steps of it to a kernel: blocks and
 * pieces become addresses and bytes.
 */
#include "core/core_accel.h"
#include "core/core_mpi.h"
#include "core/core_schedule.h"

#include <string.h>

enum { SLICE_ALIGNMENT = 16 }; /* where 16-byte accesses can begin */

static bool has_window(const struct core_accel *accel, int rank, enum sched_buffer buffer)
{
	uint32_t flag = buffer == SCHED_IN ? CORE_OFFER_WINDOW_IN : CORE_OFFER_WINDOW_OUT;

	return core_agree_offer(&accel->agree, rank)->flags & flag;
}

/* ---- the algorithm ---- */

static enum sched_coll sched_coll_for(enum core_coll coll)
{
	switch (coll) {
	case CORE_BCAST:
		return SCHED_BCAST;
	case CORE_REDUCE:
		return SCHED_REDUCE;
	case CORE_ALLREDUCE:
		return SCHED_ALLREDUCE;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		return SCHED_REDUCE_SCATTER;
	case CORE_SCAN:
		return SCHED_SCAN;
	case CORE_EXSCAN:
		return SCHED_EXSCAN;
	case CORE_GATHER:
	case CORE_GATHERV:
		return SCHED_GATHER;
	case CORE_SCATTER:
	case CORE_SCATTERV:
		return SCHED_SCATTER;
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		return SCHED_ALLGATHER;
	default:
		return SCHED_ALLTOALL;
	}
}

/* One-shot repeats the work on every rank, which is free where each has a GPU for itself. */
static bool use_oneshot(const struct core_accel *accel)
{
	const struct core_agree *agreed = &accel->agree;

	if (accel->width || accel->shape.bytes > core_agree_offer(agreed, 0)->oneshot_max)
		return false;
	for (int i = 0; i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(agreed, i);

		if (offer->flags & CORE_OFFER_IN_PLACE)
			return false;
		for (int j = 0; j < i; j++) {
			if (core_agree_offer(agreed, j)->device == offer->device)
				return false;
		}
	}
	return true;
}

static const struct algo *choose(const struct core_accel *accel, enum sched_coll coll)
{
	switch (coll) {
	case SCHED_ALLREDUCE:
		return algo_find(use_oneshot(accel) ? "oneshot" : "twoshot", coll);
	case SCHED_REDUCE:
		return algo_find("twoshot", coll);
	default:
		return algo_find("direct", coll);
	}
}

/* As many rounds as the longest block needs with so many bytes for a round's slices. */
static void set_rounds(struct core_accel *accel, uint64_t bytes, int slices, uint64_t longest)
{
	accel->width = bytes / (uint64_t)slices / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	accel->rounds = (longest + accel->width - 1) / accel->width;
}

/* A window has a slice of each of the collective's blocks. */
static void plan_rounds(struct core_accel *accel, int slices)
{
	uint64_t longest = 0, window = UINT64_MAX;
	bool windows = false;

	for (int i = 0; i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(&accel->agree, i);

		longest = offer->longest > longest ? offer->longest : longest;
		window = offer->window < window ? offer->window : window;
		windows |= offer->flags & (CORE_OFFER_WINDOW_IN | CORE_OFFER_WINDOW_OUT);
	}
	accel->width = accel->half = accel->round = 0;
	accel->rounds = 1;
	if (!windows)
		return;
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

	if (accel->sched->request.coll != SCHED_GATHER || accel->comm->rank != shape->root)
		return false;
	for (int i = 0; i < accel->comm->size; i++) {
		if (core_agree_offer(&accel->agree, i)->in.bytes > shape->out.blocks[i].bytes)
			return true;
	}
	return false;
}

/* Windows have no one-shot form. */
static const char *reason_for(const struct core_accel *accel, const struct algo *algo)
{
	if (!accel->width)
		return algo->name;
	return !strcmp(algo->name, "twoshot") ? "twoshot through windows"
					      : "direct through windows";
}

enum util_status core_plan_make(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct sched_request request = {.coll = sched_coll_for(shape->coll),
					.ranks = accel->comm->size,
					.root = shape->root,
					.in_place = shape->in_place,
					.channels = 1};
	const struct algo *algo;
	enum util_status status;

	plan_rounds(accel, sched_num_blocks(&request));
	algo = choose(accel, request.coll);
	accel->reason = reason_for(accel, algo);
	status = core_schedule_take(accel->comm, algo, &request, &accel->schedule);
	if (status == UTIL_OK)
		accel->sched = accel->schedule->sched;
	if (status == UTIL_OK)
		accel->truncates = is_sent_too_much(accel);
	/* It is too late to stage the call. */
	return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_CUDA : status;
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

/* A block of this rank's buffer; `index`, which it has among the buffer's. */
static struct core_block own_block(const struct core_accel *accel, const struct core_place *place,
				   int *index)
{
	const struct core_buffer *mine =
		place->buffer == SCHED_IN ? &accel->shape.in : &accel->shape.out;

	*index = mine->num_blocks > 1 ? place->block : 0;
	return mine->blocks[*index];
}

/* A block of another's buffer that concerns this rank. Who has one for each rank told where they
 * are, but for what is where it is for all. */
static struct core_block others_block(const struct core_accel *accel,
				      const struct core_place *place, int *index)
{
	int me = accel->comm->rank;

	*index = 0;
	switch (accel->sched->request.coll) {
	case SCHED_ALLTOALL:
	case SCHED_SCATTER:
	case SCHED_GATHER:
		*index = me;
		return core_agree_table(&accel->agree, place->rank)[me];
	case SCHED_REDUCE_SCATTER:
		*index = place->block;
		return accel->shape.in.blocks[place->block];
	case SCHED_ALLGATHER:
		return (struct core_block){0,
					   core_agree_offer(&accel->agree, place->rank)->in.bytes};
	default:
		return (struct core_block){0, accel->shape.bytes};
	}
}

/* Where a place of the program is in the round. In the second phase everything is in this rank's
 * memory, and whole. */
static struct gpu_place look_up(const struct core_accel *accel, const struct core_place *place,
				uint32_t phase)
{
	bool mine = place->rank == accel->comm->rank;
	const struct core_reach *reach = place->buffer == SCHED_IN ? accel->in : accel->out;
	uint64_t address = reach[place->rank].address;
	struct core_block block;
	int index = 0;

	if (place->buffer == SCHED_HOLD) {
		block = (struct core_block){0, accel->shape.own.bytes};
		address = accel->scratch ? accel->scratch->address : 0;
	} else {
		block = mine ? own_block(accel, place, &index) : others_block(accel, place, &index);
	}
	if (phase == 0)
		block = slice(accel, accel->round, block,
			      place->buffer != SCHED_HOLD &&
				      has_window(accel, place->rank, place->buffer),
			      index);
	else if (place->buffer == SCHED_OUT)
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
	struct gpu_place *places = accel->steps.args.places;
	uint32_t sent = step->swap ? 1 : 0; /* what this rank receives, or takes */
	uint64_t least = places[step->sized].bytes, longest = 0;

	for (uint32_t i = 0; i < (uint32_t)step->num_sources + step->num_targets; i++) {
		uint64_t bytes = places[o[i].index].bytes;

		if (o[i].kind != GPU_OPERAND_PLACE)
			continue;
		longest = i == sent ? bytes : longest;
		least = bytes < least ? bytes : least;
	}
	/* Who pushes its block does not know; see is_sent_too_much. */
	if (accel->sched->request.coll != SCHED_GATHER)
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

	for (int i = 0; i < program->num_places; i++)
		accel->steps.args.places[i] = look_up(accel, &program->places[i], phase);
	for (uint32_t i = 0; i < program->num_lanes[phase]; i++) {
		const struct gpu_work *lane = &program->lanes[phase][i];

		for (uint32_t j = 0; j < lane->num_steps; j++) {
			const struct gpu_step *step = &program->steps[lane->first_step + j];
			uint64_t block = cut_step(accel, step);
			uint64_t bytes = sched_piece(accel->sched, block, (int)step->piece).bytes;

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

	args->steps = program->memory->address;
	args->operands = args->steps + program->num_steps * sizeof(struct gpu_step);
	args->type = accel->shape.type;
	args->op = accel->shape.op;
	args->pieces = (uint32_t)accel->sched->pieces;
	args->unit = (uint32_t)sched_unit(accel->sched);
	args->width = 0;
	args->waits = 0;
	args->protocol = GPU_PROTOCOL_SIMPLE;
}

/* Direct steps: the more blocks the more there is to do. */
static void set_blocks(struct core_accel *accel, uint32_t phase, struct volume volume)
{
	const struct core_program *program = accel->schedule->program;
	struct gpu_execute_args *args = &accel->steps.args;
	uint32_t num = program->num_lanes[phase] ? program->lanes[phase][0].num_steps : 0;

	args->parts = gpu_launch_blocks(volume.total, gpu_launch_most(&accel->launch));
	/* The teams are of one size, so the copies must be nearly so. */
	args->spread = program->spreads[phase] && num <= args->parts &&
		       volume.longest * num <= 2 * volume.total;
	accel->steps.bytes = volume.total;
	accel->steps.rounds = 1;
}

static enum util_status begin_phase(struct core_accel *accel, uint32_t phase)
{
	struct core_program *program = accel->schedule->program;
	struct volume volume;
	enum util_status status;

	if (!program->num_lanes[phase] || !accel->launches)
		return UTIL_OK;
	status = core_program_upload(program, accel->stream);
	if (status != UTIL_OK)
		return status;
	accel->steps.comm = accel->comm;
	accel->steps.program = program;
	accel->steps.launch = &accel->launch;
	accel->steps.phase = phase;
	volume = set_places(accel, phase);
	set_args(accel);
	set_blocks(accel, phase, volume);
	core_steps_begin(&accel->steps);
	accel->running = volume.total > 0;
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
