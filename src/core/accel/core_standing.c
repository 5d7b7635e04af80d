/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_standing.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_place.h"
#include "core/accel/core_plan.h"
#include "core/accel/core_standing_parts.h"
#include "core/agree/core_meet.h"
#include "core/call/core_coll.h"
#include "core/call/core_layout.h"
#include "gpu/gpu_ipc.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_word.h"

#include <stdlib.h>
#include <string.h>

/* Bytes: a program may have many such communicators, each with an arena to its end. */
enum { MOST_ARENA = 16 << 20 };

/* ---- the beginning and the end ---- */

static enum util_status open_words(struct core_standing *standing)
{
	enum util_status status = gpu_staging_get_pinned(
		sizeof(*standing->words), gpu_stream_where(standing->own), &standing->block);

	if (status != UTIL_OK)
		return status;
	standing->words = standing->block->base;
	memset(standing->words, 0, sizeof(*standing->words));
	standing->words->number = standing->words->begun = CORE_STANDING_FIRST_CALL;
	standing->address = gpu_staging_device_address(standing->block, standing->own);
	return standing->address ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

enum util_status core_standing_open(struct core_comm *comm, struct gpu_stream *stream,
				    struct core_standing **out)
{
	struct core_standing *standing = calloc(1, sizeof(*standing));
	enum util_status status;

	*out = NULL;
	if (!standing)
		return UTIL_ERR_NO_MEMORY;
	standing->comm = comm;
	standing->device = gpu_stream_where(stream)->device;
	comm->standing = comm->links.wanted = true;
	comm->links.most_arena = MOST_ARENA;
	status = gpu_stream_get(gpu_stream_where(stream), &standing->own);
	if (status == UTIL_OK)
		status = open_words(standing);
	if (status == UTIL_OK)
		status = gpu_launch_all(standing->own);
	if (status == UTIL_OK)
		status = core_standing_take_buffers(standing);
	if (status != UTIL_OK) {
		core_standing_close(standing, true);
		return status;
	}
	*out = standing;
	return UTIL_OK;
}

static void put_mappings(const struct core_standing *standing)
{
	for (int i = 0; i < GPU_NUM_SHARED; i++) {
		for (int j = 0; j < standing->comm->num_near; j++) {
			if (standing->arenas[i][j].mapping)
				gpu_mapping_put(standing->arenas[i][j].mapping);
		}
	}
}

static void free_held(struct core_standing *standing, bool idle)
{
	struct core_standing_held *held;

	while ((held = standing->held)) {
		standing->held = held->next;
		if (idle)
			gpu_scratch_put(held->memory);
		free(held);
	}
}

void core_standing_close(struct core_standing *standing, bool idle)
{
	core_standing_unwatch(standing);
	core_standing_put_buffers(standing);
	free_held(standing, idle);
	if (idle) {
		gpu_launch_put_back(standing->device, standing->drawn);
		core_standing_free_tables(standing, true);
		put_mappings(standing);
		if (standing->block)
			gpu_staging_put(standing->block);
		if (standing->own)
			gpu_stream_put(standing->own);
	}
	free(standing);
}

/* ---- its state ---- */

int *core_standing_barrier(const struct core_standing *standing)
{
	return standing->words->barrier;
}

bool core_standing_is_lost(const struct core_standing *standing)
{
	return core_meet_is_lost(standing->comm);
}

bool core_standing_takes_calls(const struct core_standing *standing)
{
	return !__atomic_load_n(&standing->words->abort, __ATOMIC_RELAXED) &&
	       !core_standing_is_lost(standing);
}

bool core_standing_is_in_vain(const struct core_standing *standing)
{
	return core_standing_is_lost(standing) || gpu_stream_is_lost(standing->own);
}

bool core_standing_take_failure(struct core_standing *standing)
{
	if (!__atomic_load_n(&standing->words->failed, __ATOMIC_RELAXED))
		return false;
	/* First: by the word it is seen that the others miss a kernel of this rank. */
	core_standing_look(standing);
	return __atomic_exchange_n(&standing->words->failed, 0, __ATOMIC_RELAXED) != 0;
}

/* ---- calls ---- */

/* Whether kernels on the standing's device reach the buffer. */
static bool is_reached(const struct core_standing *standing, const struct core_buffer *buffer)
{
	const struct gpu_pointer *by = gpu_stream_where(standing->own);
	void *base = (void *)buffer->address;

	return buffer->lo == buffer->hi ||
	       (gpu_pointer_is_reached(core_address(base, buffer->lo), by) &&
		gpu_pointer_is_reached(core_address(base, buffer->hi - 1), by));
}

static void set_facts(struct core_standing *standing)
{
	struct core_accel *accel = &standing->accel;
	const struct core_shape *shape = &accel->shape;
	uint64_t in = core_buffer_longest(&shape->in), out = core_buffer_longest(&shape->out);

	accel->facts = standing->facts;
	accel->facts.enqueued = true;
	accel->facts.coll = shape->coll;
	accel->facts.knows_sizes = shape->coll != CORE_GATHER && shape->coll != CORE_SCATTER;
	accel->facts.common.longest = in > out ? in : out;
	accel->facts.common.wish = standing->wishes[core_coll_sched(shape->coll)];
	accel->facts.common.any |= shape->padded != GPU_TYPE_NONE ? CORE_OFFER_PADDED : 0;
}

enum util_status core_standing_follow(struct core_standing *standing, struct gpu_stream *on,
				      uint64_t *number)
{
	uint64_t words = standing->address + offsetof(struct gpu_enqueued, behind);
	enum util_status status;

	*number = core_standing_load(&standing->behind) + 1;
	status = gpu_word_store(on, words, *number);
	if (status == UTIL_OK)
		__atomic_store_n(&standing->behind, *number, __ATOMIC_RELEASE);
	return status;
}

bool core_standing_has_come(const struct core_standing *standing, uint64_t number)
{
	return core_standing_load(&standing->words->behind) >= number;
}

/* This rank's buffers. */
static void set_reach(struct core_standing *standing)
{
	struct core_accel *accel = &standing->accel;
	int me = core_comm_number(standing->comm, standing->comm->rank);

	accel->stream = standing->own;
	accel->reached.in[me].address = accel->shape.in.address;
	accel->reached.out[me].address = accel->shape.out.address;
}

/*
 * What is too small stays, as launches that use it may be repeated: all of them together are no
 * more than twice what was asked for at most.
 */
static enum util_status hold(struct core_standing *standing, size_t bytes, struct gpu_scratch **out)
{
	struct core_standing_held *held = standing->held;
	enum util_status status;

	if (!held || held->memory->bytes < bytes) {
		if (held && bytes < 2 * held->memory->bytes)
			bytes = 2 * held->memory->bytes;
		held = calloc(1, sizeof(*held));
		status = held ? gpu_scratch_get(bytes, standing->own, &held->memory)
			      : UTIL_ERR_NO_MEMORY;
		if (status != UTIL_OK) {
			free(held);
			return status;
		}
		held->next = standing->held;
		standing->held = held;
	}
	*out = held->memory;
	return UTIL_OK;
}

enum util_status core_standing_aside(struct core_standing *standing, size_t bytes, void **out)
{
	struct gpu_scratch *memory = NULL;
	enum util_status status = hold(standing, bytes, &memory);

	*out = status == UTIL_OK ? (void *)memory->address : NULL;
	return status;
}

static void set_args(struct core_standing *standing, bool captured)
{
	struct gpu_execute_args *args = &standing->accel.steps.args;

	args->enqueued = standing->address;
	args->abort = standing->address + offsetof(struct gpu_enqueued, abort);
	args->half = standing->half;
	args->ranks = (uint32_t)standing->comm->num_near;
	args->rank = (uint32_t)core_comm_number(standing->comm, standing->comm->rank);
	args->ticket = captured ? 0 : core_standing_load(&standing->tickets) + 1;
}

static enum util_status launch(struct core_standing *standing, struct gpu_stream *on, bool captured)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status = UTIL_OK;
	uint64_t number;

	if (accel->shape.own.bytes && accel->shape.in_place)
		status = hold(standing, accel->shape.own.bytes, &accel->scratch);
	if (status == UTIL_OK)
		status = core_place_bring(accel);
	if (status != UTIL_OK)
		return status;
	set_args(standing, captured);
	status = core_place_leave(accel, on);
	if (status != UTIL_OK || captured)
		return status;
	__atomic_add_fetch(&standing->tickets, 1, __ATOMIC_RELEASE);
	/* The last steps' kernel, of which the first one's words know nothing. */
	return accel->schedule->program->num_lanes[1] ? core_standing_follow(standing, on, &number)
						      : UTIL_OK;
}

static enum util_status put_call(struct core_standing *standing, struct gpu_stream *on,
				 bool captured)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status;

	set_facts(standing);
	if (!accel->facts.common.longest) {
		accel->reason = core_reason_text(CORE_REASON_NO_DATA);
		return UTIL_OK;
	}
	set_reach(standing);
	status = core_plan_make_enqueued(accel);
	if (status == UTIL_OK)
		status = launch(standing, on, captured);
	if (status == UTIL_OK)
		core_standing_wake(standing, captured);
	/* Launches of it may be repeated: one use is the standing's, and ends with its schedules.
	 */
	if (accel->schedule && accel->schedule->users > 1)
		core_schedule_put(accel->schedule);
	return status;
}

enum util_status core_standing_put(struct core_standing *standing, const struct core_call *call,
				   struct gpu_stream *on, bool captured,
				   struct core_standing_call *out)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status;

	out->bytes = 0;
	out->refused = out->unreached = false;
	out->reason = core_reason_text(CORE_REASON_RANK_LOST);
	if (!core_standing_takes_calls(standing))
		return core_failure_of_loss(standing->comm);
	status = core_accel_start(accel, call, standing->comm, 0);
	out->refused = status != UTIL_OK;
	out->unreached = !out->refused && (!is_reached(standing, &accel->shape.in) ||
					   !is_reached(standing, &accel->shape.out));
	if (out->unreached)
		status = UTIL_STAGE;
	if (status == UTIL_OK) {
		out->bytes = core_shape_bytes(&accel->shape);
		status = put_call(standing, on, captured);
	}
	out->reason = out->unreached ? core_reason_text(CORE_REASON_NOT_REACHED) : accel->reason;
	core_shape_release(&accel->shape);
	return status;
}

void core_standing_give_up(struct core_standing *standing)
{
	core_meet_lose(standing->comm);
}
