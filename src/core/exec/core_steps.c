/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/exec/core_steps.h"
#include "algos/sched.h"
#include "core/agree/core_meet.h"
#include "core/exec/core_proxy.h"
#include "core/wire/core_wire.h"
#include "util/util_time.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic int num_carried; /* kernels of this process for which it carries messages */

bool core_steps_carry(const struct core_steps *steps)
{
	return steps->running && steps->proxy.num;
}

bool core_steps_any_carry(void)
{
	return atomic_load_explicit(&num_carried, memory_order_relaxed) > 0;
}

static void set_running(struct core_steps *steps, bool running)
{
	if (steps->running == running)
		return;
	steps->running = running;
	if (steps->proxy.num)
		atomic_fetch_add_explicit(&num_carried, running ? 1 : -1, memory_order_relaxed);
}

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

/* The pair of pass_on, of the hosts at both ends; what kernels did before is done. */
static enum util_status look_near(const struct core_steps *steps, const struct gpu_operand *o,
				  uint32_t round)
{
	uint64_t k = message_of(o, round), slots = steps->args.num_slots, told;

	if (o->kind == GPU_OPERAND_SEND && k < slots)
		return UTIL_OK;
	if (o->kind == GPU_OPERAND_RECEIVE)
		told = core_meet_told(steps->comm, CORE_MEET_TAILS, o->index);
	else
		told = core_meet_told(steps->comm, CORE_MEET_HEADS, o->index) + slots;
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

/*
 * UTIL_OK: the message is there, or there is room for it. `*bytes`: how long one is that came from
 * another node, or 0.
 */
static enum util_status look_at_operand(const struct core_steps *steps, const struct gpu_operand *o,
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

	core_meet_tell(steps->comm, peer_of(steps, o),
		       o->kind == GPU_OPERAND_SEND ? CORE_MEET_TAILS : CORE_MEET_HEADS, o->theirs,
		       value);
}

/* `from`: 0: its slot. */
static void send_far(const struct core_steps *steps, const struct gpu_step *step,
		     const struct gpu_operand *o, uint32_t round, uint64_t from)
{
	core_wire_send(steps->comm, peer_of(steps, o), o->index, o->theirs, steps->call,
		       message_of(o, round), from, core_walk_bytes(steps, step, round));
}

static void pass_on_far(const struct core_steps *steps, const struct gpu_step *step,
			const struct gpu_operand *o, uint32_t round)
{
	if (o->kind == GPU_OPERAND_SEND)
		send_far(steps, step, o, round, 0);
	else
		core_wire_consume(steps->comm, o->index, message_of(o, round));
}

static void pass_on_message(const struct core_steps *steps, const struct gpu_step *step,
			    const struct gpu_operand *o, uint32_t round)
{
	if (!core_program_is_link(o))
		return;
	if (is_far(o))
		pass_on_far(steps, step, o, round);
	else
		pass_on_near(steps, o, round);
}

static enum util_status look_at_step(struct core_steps *steps, const struct gpu_step *step,
				     uint32_t round)
{
	const struct gpu_operand *o = &steps->program->operands[step->first];
	enum util_status status = UTIL_OK;
	uint64_t bytes;

	for (uint32_t i = 0; i < num_operands(step) && status == UTIL_OK; i++) {
		status = look_at_operand(steps, &o[i], round, &bytes);
		steps->truncates |= bytes && bytes > core_walk_bytes(steps, step, round);
	}
	return status;
}

/* ---- steps that the network does ---- */

static void go_on_lane(struct core_steps *steps, uint32_t lane)
{
	steps->moves++;
	if (steps->lanes[lane].placed)
		steps->lanes[lane].placed--;
	if (++steps->lanes[lane].step == lane_of(steps, lane)->num_steps) {
		steps->lanes[lane].step = 0;
		steps->lanes[lane].round++;
	}
}

/* A step of a lane that is to come. */
struct coming {
	uint32_t round;
	const struct gpu_step *step;
	const struct gpu_operand *o;
	unsigned levels;
};

/* The n-th from the lane's next one on. False: there is none. */
static bool find_coming(const struct core_steps *steps, uint32_t lane, uint32_t n,
			struct coming *coming)
{
	const struct gpu_work *work = lane_of(steps, lane);
	uint32_t at = steps->lanes[lane].step + n;

	coming->round = steps->lanes[lane].round + at / work->num_steps;
	coming->step = step_at(steps, lane, at % work->num_steps);
	coming->o = &steps->program->operands[coming->step->first];
	coming->levels = steps->program->carries[coming->step - steps->program->steps];
	return coming->round < steps->rounds;
}

/* Whether the lane's next step is the network's. */
static bool is_carried(const struct core_steps *steps, uint32_t lane)
{
	struct coming next;

	return steps->carry && find_coming(steps, lane, 0, &next) && next.levels & steps->carry;
}

static bool receives(const struct coming *coming)
{
	return coming->o->kind == GPU_OPERAND_RECEIVE;
}

/* Where the step's chunk is in the application's memory. */
static uint64_t address_of(const struct core_steps *steps, const struct coming *coming)
{
	const struct gpu_operand *place = receives(coming) ? coming->o + 1 : coming->o;

	return steps->places[place->index].address +
	       core_walk_span(steps, coming->step, coming->round).offset;
}

/*
 * Say where messages go, also those of the steps after the next one, so that one is fetched while
 * another is on its way.
 */
static void place_next(struct core_steps *steps, uint32_t lane)
{
	enum { MOST = 2 * CORE_WIRE_MAX_SLOTS };
	uint32_t *placed = &steps->lanes[lane].placed;
	struct coming c;

	while (*placed < MOST && find_coming(steps, lane, *placed, &c) && c.levels & steps->carry) {
		if (receives(&c)) {
			if (*placed && !(c.levels & steps->early))
				return;
			if (!core_wire_place(steps->comm->wire, c.o->index,
					     message_of(c.o, c.round), address_of(steps, &c),
					     core_walk_bytes(steps, c.step, c.round)))
				return;
		}
		(*placed)++;
	}
}

static void pass_on_carried(const struct core_steps *steps, const struct coming *c)
{
	for (uint32_t i = 0; i < num_operands(c->step); i++) {
		const struct gpu_operand *o = &c->o[i];

		if (o->kind == GPU_OPERAND_SEND)
			send_far(steps, c->step, o, c->round, address_of(steps, c));
		else
			pass_on_message(steps, c->step, o, c->round);
	}
}

/* UTIL_OK: the lane's next step is done, but for what is on its way to others. */
static enum util_status carry(struct core_steps *steps, uint32_t lane)
{
	enum util_status status;
	struct coming next;

	place_next(steps, lane);
	find_coming(steps, lane, 0, &next);
	status = look_at_step(steps, next.step, next.round);
	if (status == UTIL_OK)
		pass_on_carried(steps, &next);
	return status;
}

/* Lanes that have steps in the launch wait for its end. */
static enum util_status carry_all(struct core_steps *steps)
{
	enum util_status status = UTIL_OK;

	for (uint32_t i = 0; i < num_lanes(steps); i++) {
		while (!steps->lanes[i].launched && is_carried(steps, i)) {
			status = carry(steps, i);
			if (status == UTIL_IN_PROGRESS)
				break;
			if (status != UTIL_OK)
				return status;
			go_on_lane(steps, i);
		}
	}
	return UTIL_OK;
}

/* ---- launches ---- */

/*
 * Steps of the lane's round that can be launched together: one that may have messages, and those
 * after it that have none.
 */
static uint32_t count_ready(struct core_steps *steps, uint32_t lane, enum util_status *failure)
{
	uint32_t first = steps->lanes[lane].step, num = lane_of(steps, lane)->num_steps, i;
	enum util_status status;

	if (steps->lanes[lane].round == steps->rounds || is_carried(steps, lane))
		return 0;
	status = look_at_step(steps, step_at(steps, lane, first), steps->lanes[lane].round);
	if (status != UTIL_OK && status != UTIL_IN_PROGRESS)
		*failure = status;
	if (status != UTIL_OK)
		return 0;
	for (i = first + 1;
	     i < num && !core_program_has_links(steps->program, step_at(steps, lane, i)); i++)
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
	if (steps->args.waits) {
		steps->lanes[lane].round = steps->rounds;
		return;
	}
	for (; steps->lanes[lane].launched; steps->lanes[lane].launched--) {
		const struct gpu_step *done = step_at(steps, lane, steps->lanes[lane].step);

		for (uint32_t i = 0; i < num_operands(done); i++)
			pass_on_message(steps, done, &steps->program->operands[done->first + i],
					steps->lanes[lane].round);
		go_on_lane(steps, lane);
	}
}

static enum util_status finish_launch(struct core_steps *steps)
{
	enum util_status status = core_proxy_is_moving(steps) ? gpu_launch_look(steps->launch)
							      : gpu_launch_poll(steps->launch);

	if (status == UTIL_IN_PROGRESS)
		return status;
	if (steps->args.times)
		steps->ended_at = util_now();
	steps->moves++;
	set_running(steps, false);
	for (uint32_t i = 0; i < num_lanes(steps) && status == UTIL_OK; i++)
		advance(steps, i);
	return status;
}

/*
 * What the kernel waits for comes through this process, and what it leaves goes on from here, also
 * when it has ended.
 */
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
	enum util_status status = finish(steps), carried;
	uint32_t num;

	if (status != UTIL_OK && status != UTIL_IN_PROGRESS)
		return status;
	carried = carry_all(steps);
	if (carried != UTIL_OK)
		return carried;
	if (status != UTIL_OK || is_at_end(steps))
		return status;
	num = collect(steps, work, &status);
	if (status != UTIL_OK)
		return status;
	if (!num)
		return UTIL_IN_PROGRESS;
	status = gpu_launch_execute(steps->launch, &steps->args, work, num, steps->bytes);
	if (status == UTIL_OK) {
		set_running(steps, true);
		return UTIL_IN_PROGRESS;
	}
	/* A kernel that could be loaded can be launched. */
	return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_CUDA : status;
}

enum util_status core_steps_settle(struct core_steps *steps)
{
	if (steps->running && gpu_launch_poll(steps->launch) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	set_running(steps, false);
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

		if (look_at_operand(steps, o, round, &bytes) == UTIL_IN_PROGRESS)
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
		snprintf(text, bytes, "copies, or messages to other nodes that are not out");
	else if (o->kind == GPU_OPERAND_RECEIVE)
		snprintf(text, bytes, "message %llu of rank %d",
			 (unsigned long long)message_of(o, steps->lanes[lane].round),
			 peer_of(steps, o));
	else
		snprintf(text, bytes, "room for message %llu to rank %d",
			 (unsigned long long)message_of(o, steps->lanes[lane].round),
			 peer_of(steps, o));
}
