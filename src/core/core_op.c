/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_op.h"
#include "core/accel/core_accel.h"
#include "core/accel/core_say.h"
#include "core/agree/core_meet.h"
#include "core/mpi/core_mpi.h"
#include "gpu/gpu_pointer.h"
#include "util/util_log.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Whether two operands, which begin at the same address, are to be one buffer for the real MPI. */
static bool share_stage(const struct core_operand *a, const struct core_operand *b)
{
	return !a->apart && !b->apart && a->address == b->address && a->lo < a->hi && b->lo < b->hi;
}

/* Make a stage for an operand and all that share it. */
static enum util_status open_stage(struct core_op *op, size_t index,
				   const struct gpu_pointer *where)
{
	const struct core_operand *operand = &op->operands[index];
	ptrdiff_t lo = operand->lo, hi = operand->hi;
	struct core_stage *stage = &op->stages[op->num_stages];

	for (size_t i = 0; i < op->num_operands; i++) {
		const struct core_operand *other = &op->operands[i];

		if (i == index || !share_stage(operand, other))
			continue;
		lo = other->lo < lo ? other->lo : lo;
		hi = other->hi > hi ? other->hi : hi;
		op->stage_of[i] = stage;
	}
	op->stage_of[index] = stage;
	op->num_stages++;
	return core_stage_open(stage, operand->address, lo, hi, where,
			       stage == op->stages ? NULL : op->stages);
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
			 "a datatype with gaps of more than 2 GiB of data in one element can't be "
			 "staged");
	if (status != UTIL_OK)
		return status;
	if (where->memory == GPU_MEMORY_HOST)
		classify_runs(operand, where);
	return UTIL_OK;
}

static enum util_status open_stages(struct core_op *op)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < op->num_operands && status == UTIL_OK; i++) {
		struct core_operand *operand = &op->operands[i];
		struct gpu_pointer where;

		if (operand->lo == operand->hi)
			continue;
		status = classify(operand, &where);
		if (status == UTIL_OK && !op->stage_of[i] && where.memory != GPU_MEMORY_HOST)
			status = open_stage(op, i, &where);
	}
	return status;
}

static void replace_buffers(struct core_op *op)
{
	for (size_t i = 0; i < op->num_operands; i++) {
		if (!op->stage_of[i])
			continue;
		if (op->operands[i].is_send)
			op->call.sendbuf = op->stage_of[i]->host_address;
		else
			op->call.recvbuf = op->stage_of[i]->host_address;
	}
}

/*
 * Leave the accelerated path: from here on it is a call of the real MPI, alone. A datatype that MPI
 * refuses is left to it, too: it knows the right error.
 */
static enum util_status start_staging(struct core_op *op)
{
	enum util_status status;

	op->why = op->accel.reason;
	core_accel_finish(&op->accel);
	op->state = CORE_OP_READY;
	op->call.op = core_mpi_real_op(&op->call);
	if (op->comm)
		core_meet_pass(op->comm, op->number);
	status = core_mpi_operands(&op->call, op->operands, &op->num_operands);
	if (status == UTIL_OK)
		status = open_stages(op);
	if (status != UTIL_OK && (status != UTIL_ERR_MPI || op->num_stages))
		return status;
	op->path = op->num_stages ? CORE_PATH_STAGE : CORE_PATH_PASS;
	if (!op->num_stages)
		op->why = "host buffers";
	replace_buffers(op);
	for (size_t i = 0; i < op->num_operands; i++)
		op->bytes += op->stage_of[i] ? core_operand_bytes(&op->operands[i]) : 0;
	return UTIL_OK;
}

void core_op_start(struct core_op *op, const struct core_call *call, struct core_comm *comm,
		   uint64_t number)
{
	memset(op, 0, offsetof(struct core_op, accel));
	op->call = *call;
	op->comm = comm;
	op->number = number;
	op->path = CORE_PATH_STAGE;
	op->why = "";
	op->state = CORE_OP_ACCEL;
	op->accel_status = core_accel_start(&op->accel, call, comm, number);
}

/* UTIL_OK: the next state is due, which is staging unless it has been done. */
static enum util_status progress_accel(struct core_op *op)
{
	if (op->accel_status == UTIL_OK)
		op->accel_status = core_accel_progress(&op->accel);
	if (op->accel_status == UTIL_STAGE)
		return start_staging(op);
	if (op->accel_status == UTIL_IN_PROGRESS) {
		op->accel_status = UTIL_OK;
		return UTIL_IN_PROGRESS;
	}
	op->path = CORE_PATH_ACCEL;
	op->why = op->accel.reason;
	op->bytes = core_accel_bytes(&op->accel);
	op->state = CORE_OP_DONE;
	return op->accel_status;
}

static enum util_status progress_ready(struct core_op *op)
{
	for (size_t i = 0; i < op->num_stages; i++) {
		enum util_status status = UTIL_OK;

		if (op->stages[i].pending)
			status = gpu_stream_poll_legacy(op->stages[i].stream);
		if (status != UTIL_OK)
			return status;
		op->stages[i].pending = false;
	}
	return UTIL_OK;
}

static enum util_status start_copies(struct core_op *op, bool out)
{
	for (size_t i = 0; i < op->num_operands; i++) {
		const struct core_operand *operand = &op->operands[i];
		struct core_stage *stage = op->stage_of[i];
		enum util_status status = UTIL_OK;

		if (stage && out && operand->out)
			status = core_stage_copy_out(stage, operand);
		else if (stage && !out && operand->in)
			status = core_stage_copy_in(stage, operand);
		if (status != UTIL_OK)
			return status;
	}
	return UTIL_OK;
}

static enum util_status poll_copies(struct core_op *op)
{
	for (size_t i = 0; i < op->num_stages; i++) {
		enum util_status status = core_stage_poll(&op->stages[i]);

		if (status != UTIL_OK)
			return status;
	}
	return UTIL_OK;
}

/*
 * A call that the real MPI refused leaves the device as it was: what is in the stage is nobody's
 * result.
 */
static enum util_status make_call(struct core_op *op)
{
	if (op->comm)
		op->comm->in_real = true;
	op->mpi_result = op->call.real(&op->call);
	if (op->comm)
		op->comm->in_real = false;
	if (!op->mpi_result)
		return start_copies(op, true);
	if (op->comm) /* refused here, and perhaps not elsewhere */
		core_meet_retire(op->comm);
	return UTIL_ERR_MPI;
}

enum util_status core_op_progress(struct core_op *op)
{
	enum util_status status = UTIL_OK;

	while (op->state != CORE_OP_DONE) {
		switch (op->state) {
		case CORE_OP_ACCEL:
			status = progress_accel(op);
			if (status != UTIL_OK)
				return status;
			continue; /* it has set the state */
		case CORE_OP_READY:
			status = progress_ready(op);
			if (status == UTIL_OK)
				status = start_copies(op, false);
			break;
		case CORE_OP_COPY_IN:
		case CORE_OP_COPY_OUT:
			status = poll_copies(op);
			break;
		case CORE_OP_CALL:
			status = make_call(op);
			break;
		case CORE_OP_DONE:
			break;
		}
		if (status != UTIL_OK)
			return status;
		op->state++;
	}
	return UTIL_OK;
}

void core_op_finish(struct core_op *op)
{
	if (op->path == CORE_PATH_ACCEL)
		core_accel_finish(&op->accel);
	while (op->num_stages)
		core_stage_close(&op->stages[--op->num_stages]);
	for (size_t i = 0; i < CORE_MAX_OPERANDS; i++)
		core_operand_release(&op->operands[i]);
}

uint64_t core_op_moves(const struct core_op *op)
{
	return (uint64_t)op->state + core_accel_moves(&op->accel);
}

void core_op_describe(const struct core_op *op, char *text, size_t bytes)
{
	static const char *const states[] = {
		[CORE_OP_ACCEL] = "",
		[CORE_OP_READY] = "earlier work on the buffers to finish",
		[CORE_OP_COPY_IN] = "the copy from the device",
		[CORE_OP_CALL] = "the real MPI",
		[CORE_OP_COPY_OUT] = "the copy to the device",
		[CORE_OP_DONE] = "nothing",
	};

	if (op->state == CORE_OP_ACCEL)
		core_say_what_is_awaited(&op->accel, text, bytes);
	else
		snprintf(text, bytes, "%s", states[op->state]);
}
