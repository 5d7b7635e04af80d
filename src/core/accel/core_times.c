/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_times.h"
#include "core/accel/core_accel_call.h"
#include "core/report/core_trace.h"

#include <string.h>

enum { BYTES = GPU_MAX_RINGS * sizeof(struct gpu_times) };

void core_times_begin(struct core_accel *accel)
{
	if (!accel->note || !accel->note->trace)
		return;
	if (!accel->times) {
		if (gpu_staging_get(BYTES, gpu_stream_where(accel->stream), &accel->times) !=
		    UTIL_OK)
			return;
		memset(accel->times->base, 0, BYTES);
	}
	accel->steps.args.times = gpu_staging_device_address(accel->times, accel->stream);
}

/* ---- what they say ---- */

/* On the device's clock. 0: there is none. */
static uint64_t last_end(const struct gpu_times *rings)
{
	uint64_t last = 0;

	for (int i = 0; i < GPU_MAX_RINGS; i++) {
		uint64_t num = rings[i].num;

		if (num && rings[i].last[(num - 1) % GPU_MAX_TIMES].ended > last)
			last = rings[i].last[(num - 1) % GPU_MAX_TIMES].ended;
	}
	return last;
}

static const struct gpu_step *find_step(const struct core_program *program, uint32_t first)
{
	for (uint32_t i = 0; i < program->num_steps; i++) {
		if (program->steps[i].first == first)
			return &program->steps[i];
	}
	return NULL;
}

static bool has(const struct gpu_operand *operands, uint32_t num, enum gpu_operand_kind kind)
{
	for (uint32_t i = 0; i < num; i++) {
		if (operands[i].kind == kind)
			return true;
	}
	return false;
}

/* The names that NCCL has for such steps. */
static const char *step_name(const struct core_program *program, const struct gpu_step *step)
{
	static const char *const names[2][2][4] = {
		/* what is done with the target: nothing, copy, send, both */
		{{"copy", "copy", "send", "copySend"},
		 {"reduce", "reduceCopy", "reduceSend", "reduceCopySend"}},
		{{"recv", "recv", "recvSend", "recvCopySend"},
		 {"recvReduce", "recvReduceCopy", "recvReduceSend", "recvReduceCopySend"}},
	};
	const struct gpu_operand *sources = &program->operands[step->first];
	const struct gpu_operand *targets = sources + step->num_sources;
	bool receives = has(sources, step->num_sources, GPU_OPERAND_RECEIVE);
	bool sends = has(targets, step->num_targets, GPU_OPERAND_SEND);
	bool copies = has(targets, step->num_targets, GPU_OPERAND_PLACE) ||
		      has(targets, step->num_targets, GPU_OPERAND_SCRATCH);

	if (step->swap)
		return "swap";
	return names[receives][step->num_sources > 1][2 * sends + copies];
}

/* Stepped, a launch has the lanes that are ready, and those only. */
static int lane_of(const struct core_accel *accel, uint32_t step, int ring)
{
	const struct core_program *program = accel->schedule->program;
	const struct core_steps *steps = &accel->steps;

	if (steps->args.waits || steps->args.spread)
		return ring;
	for (int phase = 0; phase < CORE_MAX_PHASES; phase++) {
		for (uint32_t i = 0; i < program->num_lanes[phase]; i++) {
			const struct gpu_work *lane = &program->lanes[phase][i];

			if (step >= lane->first_step && step < lane->first_step + lane->num_steps)
				return (int)i;
		}
	}
	return ring;
}

static void tell_step(const struct core_accel *accel, int ring, const struct gpu_time *time,
		      uint64_t shift)
{
	const struct core_program *program = accel->schedule->program;
	const struct gpu_step *step = find_step(program, time->first);
	struct core_trace_step said = {.round = time->round,
				       .began = time->began + shift,
				       .ready = time->ready + shift,
				       .ended = time->ended + shift};

	if (!step)
		return;
	if (!core_program_has_links(program, step))
		said.ready = said.began;
	said.name = step_name(program, step);
	said.number = (uint32_t)(step - program->steps);
	said.lane = lane_of(accel, said.number, ring);
	core_trace_step(accel->note->trace, &said);
}

/*
 * The device's clock is another one, and may drift: the last step is put where the host saw that
 * the kernel had ended.
 */
static void tell_all(const struct core_accel *accel, const struct gpu_times *rings)
{
	uint64_t shift = accel->steps.ended_at - last_end(rings);

	for (int lane = 0; lane < GPU_MAX_RINGS; lane++) {
		uint64_t num = rings[lane].num;
		uint64_t i = num > GPU_MAX_TIMES ? num - GPU_MAX_TIMES : 0;

		for (; i < num; i++)
			tell_step(accel, lane, &rings[lane].last[i % GPU_MAX_TIMES], shift);
	}
}

void core_times_end(struct core_accel *accel)
{
	const struct gpu_times *rings = accel->times->base;

	if (accel->result == UTIL_OK && last_end(rings))
		tell_all(accel, rings);
	gpu_staging_put(accel->times);
	accel->times = NULL;
}
