/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/stage/core_staging.h"
#include "gpu/gpu_pointer.h"
#include "util/util_log.h"

/* Whether two operands, which begin at the same address, are to be one buffer for the real MPI. */
static bool share_stage(const struct core_operand *a, const struct core_operand *b)
{
	return !a->apart && !b->apart && a->address == b->address && a->lo < a->hi && b->lo < b->hi;
}

/* Make a stage for an operand and all that share it. */
static enum util_status open_stage(struct core_staging *staging, size_t index,
				   const struct gpu_pointer *where)
{
	const struct core_operand *operand = &staging->operands[index];
	ptrdiff_t lo = operand->lo, hi = operand->hi;
	struct core_stage *stage = &staging->stages[staging->num_stages];

	for (size_t i = 0; i < staging->num_operands; i++) {
		const struct core_operand *other = &staging->operands[i];

		if (i == index || staging->apart || !share_stage(operand, other))
			continue;
		lo = other->lo < lo ? other->lo : lo;
		hi = other->hi > hi ? other->hi : hi;
		staging->stage_of[i] = stage;
	}
	staging->stage_of[index] = stage;
	staging->num_stages++;
	return core_stage_open(stage, operand->address, lo, hi, where, staging->on);
}

/* More runs than this are an array with gaps, whose ends tell what it is. */
enum { MAX_RUNS_LOOKED_AT = 64 };

/* The first run that is in device memory: of a structure's members some may be, its ends not. */
static void classify_runs(const struct core_operand *operand, struct gpu_pointer *where)
{
	for (size_t i = 0; i < operand->num_pieces; i++) {
		const struct core_piece *piece = &operand->pieces[i];
		size_t num = piece->map->num_runs;

		if (operand->address && num > MAX_RUNS_LOOKED_AT)
			continue;
		for (size_t j = 0; where->memory == GPU_MEMORY_HOST && j < num; j++)
			gpu_pointer_classify(
				core_address(operand->address,
					     piece->offset + piece->map->runs[j].offset),
				where);
	}
}

static bool has_gaps(const struct core_operand *operand)
{
	for (size_t i = 0; i < operand->num_maps; i++) {
		if (operand->maps[i].size && operand->maps[i].runs != &operand->maps[i].only_run)
			return true;
	}
	return false;
}

/*
 * What memory the operand is. Its address need not be in it (displacements and datatypes lead
 * there), so its ends are looked at, and the runs of types with gaps, whose members may be
 * anywhere. Host memory among device memory is copied through the stage as well.
 */
static enum util_status classify(struct core_operand *operand, struct gpu_pointer *where)
{
	enum util_status status;

	gpu_pointer_classify(core_address(operand->address, operand->lo), where);
	if (where->memory == GPU_MEMORY_HOST)
		gpu_pointer_classify(core_address(operand->address, operand->hi - 1), where);
	if (!has_gaps(operand))
		return UTIL_OK;
	status = core_mpi_find_runs(operand);
	/* Host memory is none of our business, whatever its type. */
	if (status != UTIL_OK && where->memory == GPU_MEMORY_HOST)
		return UTIL_OK;
	if (status == UTIL_ERR_UNSUPPORTED)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "a datatype that is a distributed array or has bytes twice can't be "
			 "staged where an element has more than 2 GiB");
	if (status != UTIL_OK)
		return status;
	if (where->memory == GPU_MEMORY_HOST)
		classify_runs(operand, where);
	return UTIL_OK;
}

static enum util_status open_stages(struct core_staging *staging)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < staging->num_operands && status == UTIL_OK; i++) {
		struct core_operand *operand = &staging->operands[i];
		struct gpu_pointer where;

		if (operand->lo == operand->hi)
			continue;
		status = classify(operand, &where);
		if (status == UTIL_OK && !staging->stage_of[i] && where.memory != GPU_MEMORY_HOST)
			status = open_stage(staging, i, &where);
	}
	return status;
}

static void replace_buffers(const struct core_staging *staging, struct core_call *call)
{
	for (size_t i = 0; i < staging->num_operands; i++) {
		if (!staging->stage_of[i])
			continue;
		if (staging->operands[i].is_send)
			call->sendbuf = staging->stage_of[i]->host_address;
		else
			call->recvbuf = staging->stage_of[i]->host_address;
	}
}

enum util_status core_staging_open(struct core_staging *staging, struct core_call *call)
{
	enum util_status status =
		core_mpi_operands(call, staging->operands, &staging->num_operands);

	if (status == UTIL_OK)
		status = open_stages(staging);
	/* The real MPI may not look at the type before it looks at the other, device buffer. */
	if (status == UTIL_ERR_MPI)
		return staging->num_stages ? UTIL_ERR_TYPE : UTIL_OK;
	if (status == UTIL_OK)
		replace_buffers(staging, call);
	return status;
}

size_t core_staging_bytes(const struct core_staging *staging)
{
	size_t bytes = 0;

	for (size_t i = 0; i < staging->num_operands; i++)
		bytes += staging->stage_of[i] ? core_operand_bytes(&staging->operands[i]) : 0;
	return bytes;
}

static enum util_status take_streams(struct core_staging *staging)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < staging->num_stages && status == UTIL_OK; i++)
		status = core_stage_take_stream(&staging->stages[i], i ? staging->stages : NULL);
	return status;
}

enum util_status core_staging_ready(struct core_staging *staging)
{
	enum util_status status = take_streams(staging);

	for (size_t i = 0; i < staging->num_stages && status == UTIL_OK; i++)
		status = core_stage_poll_legacy(&staging->stages[i]);
	return status;
}

static enum util_status begin_copies(struct core_staging *staging, bool out)
{
	enum util_status status = take_streams(staging);

	for (size_t i = 0; i < staging->num_operands && status == UTIL_OK; i++) {
		const struct core_operand *operand = &staging->operands[i];
		struct core_stage *stage = staging->stage_of[i];

		if (stage && out && operand->out)
			status = core_stage_copy_out(stage, operand);
		else if (stage && !out && operand->in)
			status = core_stage_copy_in(stage, operand);
	}
	return status;
}

enum util_status core_staging_copy_in(struct core_staging *staging)
{
	return begin_copies(staging, false);
}

enum util_status core_staging_copy_out(struct core_staging *staging)
{
	return begin_copies(staging, true);
}

enum util_status core_staging_poll(struct core_staging *staging)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < staging->num_stages && status == UTIL_OK; i++)
		status = core_stage_poll(&staging->stages[i]);
	return status;
}

bool core_staging_is_whole(const struct core_staging *staging)
{
	for (size_t i = 0; i < staging->num_operands; i++) {
		if (!staging->stage_of[i] && staging->operands[i].lo < staging->operands[i].hi)
			return false;
	}
	return true;
}

void core_staging_settle(struct core_staging *staging)
{
	for (size_t i = 0; i < staging->num_stages; i++)
		core_stage_settle(&staging->stages[i]);
}

/* The last one first: it may have the first one's stream. */
void core_staging_rest(struct core_staging *staging)
{
	for (size_t i = staging->num_stages; i-- > 0;)
		core_stage_rest(&staging->stages[i]);
}

void core_staging_close(struct core_staging *staging)
{
	while (staging->num_stages)
		core_stage_close(&staging->stages[--staging->num_stages]);
	for (size_t i = 0; i < CORE_MAX_OPERANDS; i++)
		core_operand_release(&staging->operands[i]);
}
