/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From this rank's steps of a schedule to a kernel: blocks and pieces become addresses and bytes.
 */
#include "core/accel/core_place.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_links.h"
#include "core/accel/core_times.h"
#include "core/accel/core_window.h"
#include "core/exec/core_steps.h"
#include "core/job/core_wait.h"
#include "core/report/core_trace.h"
#include "core/wire/core_arena.h"

#include <string.h>

/* ---- blocks ---- */

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

/* Of a buffer that is one block. */
static struct core_block whole(const struct core_accel *accel, const struct core_place *place)
{
	const struct core_offer *offer = core_agree_offer(&accel->agree, place->rank);
	int number = place->buffer == SCHED_IN ? CORE_REGION_IN : CORE_REGION_OUT;

	return (struct core_block){0, offer->regions[number].bytes};
}

/* Of an output that has one for each rank: see is_regular in core_prepare.c. */
static struct core_block regular(const struct core_accel *accel, const struct core_place *place)
{
	uint64_t bytes = accel->shape.bytes;

	return (struct core_block){(int64_t)bytes * place->block, bytes};
}

/*
 * A block of another's buffer that concerns this rank, or one whose work this one does; and its
 * number in the buffer. Who has one for each rank told where they are, but for what is where it is
 * for all.
 */
static struct core_block others_block(const struct core_accel *accel,
				      const struct core_place *place, int *index)
{
	enum sched_coll coll = accel->sched->request.coll;
	bool in = place->buffer == SCHED_IN;

	*index = place->block;
	if (coll == SCHED_ALLTOALL && !in && !is_one_buffer(accel))
		return regular(accel, place);
	if (coll == SCHED_ALLGATHER && !in && !accel->comm->spans)
		return regular(accel, place);
	if (coll == SCHED_ALLTOALL || (coll == SCHED_SCATTER && in) ||
	    (coll == SCHED_GATHER && !in) || (coll == SCHED_ALLGATHER && !in))
		return core_agree_table(&accel->agree, place->rank)[place->block];
	if (coll == SCHED_REDUCE_SCATTER && in)
		return accel->shape.in.blocks[place->block];
	*index = 0;
	if (coll == SCHED_REDUCE_SCATTER)
		return (struct core_block){0, accel->shape.in.blocks[place->block].bytes};
	if (coll == SCHED_SCATTER || coll == SCHED_GATHER || coll == SCHED_ALLGATHER)
		return whole(accel, place);
	return (struct core_block){0, accel->shape.bytes};
}

/* Scratch blocks stand in the arena; the one of a number is as long as the collective's. */
static struct gpu_place scratch_place(const struct core_accel *accel,
				      const struct core_place *place)
{
	const struct core_shape *shape = &accel->shape;
	const struct core_buffer *like = shape->in.num_blocks ? &shape->in : &shape->out;
	uint64_t start =
		accel->links.scratch_start + (uint64_t)place->block * accel->steps.args.width;

	return (struct gpu_place){
		accel->comm->arena->device->address + start,
		like->blocks[like->num_blocks > place->block ? place->block : 0].bytes};
}

/* Where the place's buffer, of a member on this node, begins for this process. */
static uint64_t address_of(const struct core_accel *accel, const struct core_place *place)
{
	const struct core_reach *reach = place->buffer == SCHED_IN && !is_one_buffer(accel)
						 ? accel->reached.in
						 : accel->reached.out;

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

	if (accel->eager.taken && place->buffer == SCHED_IN)
		return core_eager_bring(accel, place->rank, place->block, &accel->eager.used);
	if (place->buffer == SCHED_SCRATCH)
		return scratch_place(accel, place);
	if (place->buffer == SCHED_HOLD) {
		block = (struct core_block){0, accel->shape.own.bytes};
		address = accel->scratch ? accel->scratch->address : 0;
	} else {
		block = mine ? own_block(accel, place, &index) : others_block(accel, place, &index);
		address = address_of(accel, place);
	}
	if (phase == 0 && accel->windows.rounds.width)
		block = core_rounds_slice(
			&accel->windows.rounds, accel->windows.round, block,
			place->buffer != SCHED_HOLD &&
				core_window_is_used(&accel->agree, place->rank, place->buffer),
			index);
	else if (phase > 0 && place->buffer == SCHED_OUT)
		address = accel->shape.out.address;
	return (struct gpu_place){address + (uint64_t)block.offset, block.bytes};
}

/*
 * Whether what is too long for the step's target is this rank's error. Who pushes its block into
 * the root's buffer has none.
 */
static bool is_received_here(const struct core_accel *accel, const struct gpu_step *step)
{
	const struct core_program *program = accel->schedule->program;
	const struct gpu_operand *target = &program->operands[step->first + step->num_sources];

	if (accel->sched->request.coll == SCHED_GATHER)
		return false;
	return step->swap || core_program_is_link(target) ||
	       program->places[target->index].rank == accel->comm->rank;
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
	/* Who does another's work does not know of its error; see is_sent_too_much. */
	if (accel->eager.taken || is_received_here(accel, step))
		accel->truncates |= longest > least;
	places[step->sized].bytes = least;
	return least;
}

/* What the steps of a phase move to each of their targets. */
struct volume {
	uint64_t total, longest;
	uint32_t steps, most_steps; /* how many there are, and of a lane */
};

static struct volume set_places(struct core_accel *accel, uint32_t phase)
{
	const struct core_program *program = accel->schedule->program;
	struct volume volume = {0};

	accel->eager.used = 0;
	accel->steps.places = program->entries ? program->entries : accel->steps.args.places;
	for (int i = 0; i < program->num_places; i++)
		accel->steps.places[i] = look_up(accel, &program->places[i], phase);
	for (uint32_t i = 0; i < program->num_lanes[phase]; i++) {
		const struct gpu_work *lane = &program->lanes[phase][i];

		volume.steps += lane->num_steps;
		if (lane->num_steps > volume.most_steps)
			volume.most_steps = lane->num_steps;
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
	args->times = 0;
	args->steps = args->operands = 0;
	if (core_program_is_short(program)) {
		memcpy(args->few_steps, program->steps,
		       program->num_steps * sizeof(struct gpu_step));
		memcpy(args->few_operands, program->operands,
		       program->num_operands * sizeof(struct gpu_operand));
	} else {
		args->steps = program->address;
		args->operands = args->steps + program->num_steps * sizeof(struct gpu_step);
	}
	args->type = accel->shape.op == GPU_OP_NONE ? accel->shape.padded : accel->shape.type;
	args->op = accel->shape.op;
	args->pieces = (uint32_t)accel->sched->pieces;
	args->unit = (uint32_t)sched_unit(accel->sched);
}

/* Steps without messages: the more blocks the more there is to do. */
static void set_direct(struct core_accel *accel, uint32_t phase, struct volume volume)
{
	const struct core_program *program = accel->schedule->program;
	struct gpu_execute_args *args = &accel->steps.args;
	uint32_t lanes = program->num_lanes[phase], most = gpu_launch_most(&accel->launch);

	args->parts = gpu_launch_blocks(volume.total, most) / lanes;
	/*
	 * One after the other short steps would take some us each. The teams are of one size, so
	 * the copies must be nearly so.
	 */
	args->spread = program->spreads[phase] && lanes * volume.most_steps <= most &&
		       volume.longest * volume.steps <= 2 * volume.total;
	if (args->spread && args->parts < volume.most_steps)
		args->parts = volume.most_steps;
	args->parts = args->parts ? args->parts : 1;
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
	if (accel->eager.taken && !accel->launches)
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
	if (core_trace_steps)
		core_times_begin(accel);
	core_steps_begin(&accel->steps);
	return UTIL_OK;
}

enum util_status core_place_begin(struct core_accel *accel)
{
	return begin_phase(accel, 0);
}

enum util_status core_place_begin_last(struct core_accel *accel)
{
	return accel->sched->phases > 1 ? begin_phase(accel, 1) : UTIL_OK;
}

/* ---- enqueued calls ---- */

enum util_status core_place_bring(struct core_accel *accel)
{
	struct core_program *program = accel->schedule->program;
	enum util_status status;

	if (core_program_is_there(program, accel->stream))
		return UTIL_OK;
	status = core_program_upload(program, accel->stream);
	return status == UTIL_OK ? core_wait_stream(accel->stream) : status;
}

/* All rounds of all lanes. */
static enum util_status leave_phase(struct core_accel *accel, struct gpu_stream *on, uint32_t phase)
{
	const struct core_program *program = accel->schedule->program;
	struct gpu_work work[GPU_MAX_LANES];
	uint32_t num = program->num_lanes[phase];

	for (uint32_t i = 0; i < num; i++) {
		work[i] = program->lanes[phase][i];
		work[i].first_round = 0;
		work[i].num_rounds = accel->steps.rounds;
	}
	return gpu_launch_leave(on, &accel->steps.args, work, num, accel->steps.bytes);
}

enum util_status core_place_leave(struct core_accel *accel, struct gpu_stream *on)
{
	struct volume volume;
	enum util_status status;

	set_places(accel, 0);
	set_args(accel);
	core_links_set_args(accel);
	status = leave_phase(accel, on, 0);
	if (status != UTIL_OK || !accel->schedule->program->num_lanes[1])
		return status;
	volume = set_places(accel, 1);
	if (!volume.total)
		return UTIL_OK;
	accel->steps.args.enqueued = 0;
	set_direct(accel, 1, volume);
	return leave_phase(accel, on, 1);
}
