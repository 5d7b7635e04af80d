/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_steps.h"
#include "algos/sched.h"
#include "core/core_agree.h"
#include "core/core_wire.h"

#include <stdio.h>
#include <string.h>

void core_steps_begin(struct core_steps *steps)
{
	steps->running = steps->truncates = false;
	memset(steps->lanes, 0, sizeof(steps->lanes));
	core_proxy_begin(steps);
}

static const struct gpu_work *lane_of(const struct core_steps *steps, uint32_t lane)
{
	return &steps->program->lanes[steps->phase][lane];
}

static uint32_t num_lanes(const struct core_steps *steps)
{
	return steps->program->num_lanes[steps->phase];
}

/* ---- messages ---- */

static const struct gpu_step *step_at(const struct core_steps *steps, uint32_t lane, uint32_t step)
{
	return &steps->program->steps[lane_of(steps, lane)->first_step + step];
}

static uint32_t num_operands(const struct gpu_step *step)
{
	return (uint32_t)step->num_sources + step->num_targets;
}

static uint64_t message_of(const struct gpu_operand *o, uint32_t round)
{
	return (uint64_t)round * o->per_round + o->message;
}

static bool is_far(const struct gpu_operand *o)
{
	return o->peer == GPU_PEER_FAR;
}

/* The rank at the link's other end. */
static int peer_of(const struct core_steps *steps, const struct gpu_operand *o)
{
	return core_program_link(steps->program, o)->peer;
}

/* See context_of in gpu_execute.cu. */
uint64_t core_steps_bytes(const struct core_steps *steps, const struct gpu_step *step,
			  uint32_t round)
{
	const struct gpu_execute_args *args = &steps->args;
	uint64_t bytes = steps->places[step->sized].bytes, offset = round * args->width;

	bytes = bytes > offset ? bytes - offset : 0;
	bytes = bytes < args->width ? bytes : args->width;
	return sched_range(bytes, args->unit, (int)args->pieces, step->piece, step->span).bytes;
}

/* The pair of pass_on, of the hosts at both ends; what kernels did before is done. */
static enum util_status look_near(const struct core_steps *steps, const struct gpu_operand *o,
				  uint32_t round)
{
	uint64_t k = message_of(o, round), slots = steps->args.num_slots, told;

	if (o->kind == GPU_OPERAND_SEND && k < slots)
		return UTIL_OK;
	if (o->kind == GPU_OPERAND_RECEIVE)
		told = core_agree_told(steps->comm, CORE_AGREE_TAILS, o->index);
	else
		told = core_agree_told(steps->comm, CORE_AGREE_HEADS, o->index) + slots;
	return told >= steps->args.epoch + k + 1 ? UTIL_OK : UTIL_IN_PROGRESS;
}

static enum util_status look_far(const struct core_steps *steps, const struct gpu_operand *o,
				 uint32_t round, uint64_t *bytes)
{
	uint64_t k = message_of(o, round);

	if (o->kind == GPU_OPERAND_SEND)
		return core_wire_has_room(steps->comm->wire, o->index, k);
	return core_wire_look(steps->comm->wire, o->index, k, bytes);
}

/* UTIL_OK: the message is there, or there is room for it. `*bytes`: how long one is that came from
 * another node, or 0. */
static enum util_status look(const struct core_steps *steps, const struct gpu_operand *o,
			     uint32_t round, uint64_t *bytes)
{
	*bytes = 0;
	if (!core_program_is_link(o))
		return UTIL_OK;
	return is_far(o) ? look_far(steps, o, round, bytes) : look_near(steps, o, round);
}

static void pass_on_near(const struct core_steps *steps, const struct gpu_operand *o,
			 uint32_t round)
{
	uint64_t value = steps->args.epoch + message_of(o, round) + 1;

	core_agree_tell(steps->comm, peer_of(steps, o),
			o->kind == GPU_OPERAND_SEND ? CORE_AGREE_TAILS : CORE_AGREE_HEADS,
			o->theirs, value);
}

static void pass_on_far(const struct core_steps *steps, const struct gpu_step *step,
			const struct gpu_operand *o, uint32_t round)
{
	uint64_t k = message_of(o, round);

	if (o->kind == GPU_OPERAND_SEND)
		core_wire_send(steps->comm, peer_of(steps, o), o->index, o->theirs, steps->call, k,
			       core_steps_bytes(steps, step, round));
	else
		core_wire_consume(steps->comm->wire, o->index, k);
}

static void pass_on(const struct core_steps *steps, const struct gpu_step *step,
		    const struct gpu_operand *o, uint32_t round)
{
	if (!core_program_is_link(o))
		return;
	if (is_far(o))
		pass_on_far(steps, step, o, round);
	else
		pass_on_near(steps, o, round);
}

static bool has_messages(const struct core_steps *steps, const struct gpu_step *step)
{
	const struct gpu_operand *o = &steps->program->operands[step->first];

	for (uint32_t i = 0; i < num_operands(step); i++) {
		if (core_program_is_link(&o[i]))
			return true;
	}
	return false;
}

static enum util_status look_at_step(struct core_steps *steps, const struct gpu_step *step,
				     uint32_t round)
{
	const struct gpu_operand *o = &steps->program->operands[step->first];
	enum util_status status = UTIL_OK;
	uint64_t bytes;

	for (uint32_t i = 0; i < num_operands(step) && status == UTIL_OK; i++) {
		status = look(steps, &o[i], round, &bytes);
		steps->truncates |= bytes && bytes > core_steps_bytes(steps, step, round);
	}
	return status;
}

/* ---- launches ---- */

/* Steps of the lane's round that can be launched together: one that may have messages, and those
 * after it that have none. */
static uint32_t count_ready(struct core_steps *steps, uint32_t lane, enum util_status *failure)
{
	uint32_t first = steps->lanes[lane].step, num = lane_of(steps, lane)->num_steps, i;
	enum util_status status;

	if (steps->lanes[lane].round == steps->rounds)
		return 0;
	status = look_at_step(steps, step_at(steps, lane, first), steps->lanes[lane].round);
	if (status != UTIL_OK && status != UTIL_IN_PROGRESS)
		*failure = status;
	if (status != UTIL_OK)
		return 0;
	for (i = first + 1; i < num && !has_messages(steps, step_at(steps, lane, i)); i++)
		;
	return i - first;
}

static uint32_t collect(struct core_steps *steps, struct gpu_work *work, enum util_status *failure)
{
	uint32_t num = 0;

	for (uint32_t i = 0; i < num_lanes(steps); i++) {
		const struct gpu_work *lane = lane_of(steps, i);

		if (steps->args.waits) {
			steps->lanes[i].launched = lane->num_steps;
			work[num++] = (struct gpu_work){lane->first_step, lane->num_steps, 0,
							steps->rounds};
			continue;
		}
		steps->lanes[i].launched = count_ready(steps, i, failure);
		if (steps->lanes[i].launched)
			work[num++] = (struct gpu_work){lane->first_step + steps->lanes[i].step,
							steps->lanes[i].launched,
							steps->lanes[i].round, 1};
	}
	return num;
}

static bool is_at_end(const struct core_steps *steps)
{
	for (uint32_t i = 0; i < num_lanes(steps); i++) {
		if (steps->lanes[i].round < steps->rounds)
			return false;
	}
	return true;
}

/* What was launched has been done. */
static void advance(struct core_steps *steps, uint32_t lane)
{
	uint32_t *round = &steps->lanes[lane].round, *step = &steps->lanes[lane].step;
	uint32_t end = *step + steps->lanes[lane].launched;

	if (steps->args.waits) {
		*round = steps->rounds;
		return;
	}
	for (; *step < end; (*step)++) {
		const struct gpu_step *done = step_at(steps, lane, *step);

		for (uint32_t i = 0; i < num_operands(done); i++)
			pass_on(steps, done, &steps->program->operands[done->first + i], *round);
	}
	if (*step == lane_of(steps, lane)->num_steps) {
		*step = 0;
		(*round)++;
	}
}

static enum util_status finish_launch(struct core_steps *steps)
{
	enum util_status status = core_proxy_is_moving(steps) ? gpu_launch_look(steps->launch)
							      : gpu_launch_poll(steps->launch);

	if (status == UTIL_IN_PROGRESS)
		return status;
	steps->running = false;
	for (uint32_t i = 0; i < num_lanes(steps) && status == UTIL_OK; i++)
		advance(steps, i);
	return status;
}

/* What the kernel waits for comes through this process, and what it leaves goes on from here, also
 * when it has ended. */
static enum util_status finish(struct core_steps *steps)
{
	enum util_status carried = core_proxy_progress(steps);
	enum util_status status = steps->running ? finish_launch(steps) : UTIL_OK;

	if (carried == UTIL_OK || carried == UTIL_IN_PROGRESS)
		return status == UTIL_OK && is_at_end(steps) ? carried : status;
	if (steps->running)
		gpu_launch_abort(steps->launch);
	return carried;
}

enum util_status core_steps_progress(struct core_steps *steps)
{
	struct gpu_work work[GPU_MAX_LANES];
	enum util_status status = finish(steps);
	uint32_t num;

	if (status != UTIL_OK || is_at_end(steps))
		return status;
	num = collect(steps, work, &status);
	if (status != UTIL_OK)
		return status;
	if (!num)
		return UTIL_IN_PROGRESS;
	status = gpu_launch_execute(steps->launch, &steps->args, work, num, steps->bytes);
	if (status == UTIL_OK) {
		steps->running = true;
		return UTIL_IN_PROGRESS;
	}
	/* A kernel that could be loaded can be launched. */
	return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_CUDA : status;
}

enum util_status core_steps_settle(struct core_steps *steps)
{
	if (steps->running && gpu_launch_poll(steps->launch) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	steps->running = false;
	return UTIL_OK;
}

/* ---- what is waited for ---- */

/* The first thing, of the lane's next step. NULL: nothing. */
static const struct gpu_operand *awaited(const struct core_steps *steps, uint32_t lane)
{
	uint32_t round = steps->lanes[lane].round;
	const struct gpu_step *step;
	uint64_t bytes;

	if (round == steps->rounds)
		return NULL;
	step = step_at(steps, lane, steps->lanes[lane].step);
	for (uint32_t i = 0; i < num_operands(step); i++) {
		const struct gpu_operand *o = &steps->program->operands[step->first + i];

		if (look(steps, o, round, &bytes) == UTIL_IN_PROGRESS)
			return o;
	}
	return NULL;
}

void core_steps_describe(const struct core_steps *steps, char *text, size_t bytes)
{
	const struct gpu_operand *o = NULL;
	uint32_t lane = 0;

	if (core_proxy_describe(steps, text, bytes))
		return;
	if (steps->running) {
		snprintf(text, bytes, "%s",
			 steps->args.waits ? "its kernel, or messages of other ranks"
					   : "its kernel");
		return;
	}
	while (lane < num_lanes(steps) && !(o = awaited(steps, lane)))
		lane++;
	if (!o)
		snprintf(text, bytes, "copies, or messages to other nodes to be fetched");
	else if (o->kind == GPU_OPERAND_RECEIVE)
		snprintf(text, bytes, "message %llu of rank %d",
			 (unsigned long long)message_of(o, steps->lanes[lane].round),
			 peer_of(steps, o));
	else
		snprintf(text, bytes, "room for message %llu to rank %d",
			 (unsigned long long)message_of(o, steps->lanes[lane].round),
			 peer_of(steps, o));
}
