/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_op.h"

#include <string.h>

/* An earlier operand whose stage this one shares: it begins at the same address and is not kept
 * apart. */
static struct core_stage *shared_stage(struct core_op *op, size_t index)
{
	for (size_t i = 0; i < index && !op->operands[index].apart; i++) {
		if (op->operands[i].address == op->operands[index].address)
			return op->stage_of[i];
	}
	return NULL;
}

/* Make a stage for an operand, wide enough for the later ones that will share it. */
static enum util_status open_stage(struct core_op *op, size_t index,
				   const struct gpu_pointer *where)
{
	const struct core_operand *operand = &op->operands[index];
	ptrdiff_t lo = operand->lo, hi = operand->hi;
	struct core_stage *stage = &op->stages[op->num_stages];
	enum util_status status;

	for (size_t i = index + 1; i < op->num_operands; i++) {
		const struct core_operand *other = &op->operands[i];

		if (other->apart || other->address != operand->address || other->lo == other->hi)
			continue;
		lo = other->lo < lo ? other->lo : lo;
		hi = other->hi > hi ? other->hi : hi;
	}
	status = core_stage_open(stage, operand->address, lo, hi, where);
	if (status != UTIL_OK)
		return status;
	op->num_stages++;
	op->stage_of[index] = stage;
	return UTIL_OK;
}

/*
 * What memory the operand is. The address need not be in it (a displacement leads there), so the
 * first byte touched is looked at; under MPI_BOTTOM, where each run has its own address, the first
 * of each until one is device memory. Host memory among them is copied through the stage as well.
 */
static void classify(const struct core_operand *operand, struct gpu_pointer *where)
{
	gpu_pointer_classify(core_address(operand->address, operand->lo), where);
	for (size_t i = 0; !operand->address && i < operand->num_pieces; i++) {
		const struct core_piece *piece = &operand->pieces[i];

		for (size_t j = 0; where->memory == GPU_MEMORY_HOST && j < piece->map->num_runs;
		     j++)
			gpu_pointer_classify(
				core_address(NULL, piece->offset + piece->map->runs[j].offset),
				where);
	}
}

static enum util_status open_stages(struct core_op *op)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < op->num_operands && status == UTIL_OK; i++) {
		const struct core_operand *operand = &op->operands[i];
		struct gpu_pointer where;

		if (operand->lo == operand->hi)
			continue;
		op->stage_of[i] = shared_stage(op, i);
		if (op->stage_of[i])
			continue;
		classify(operand, &where);
		if (where.memory != GPU_MEMORY_HOST)
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

enum util_status core_op_start(struct core_op *op, const struct core_call *call)
{
	enum util_status status;

	memset(op, 0, sizeof(*op));
	op->call = *call;
	op->state = CORE_OP_READY;
	status = core_mpi_operands(call, op->operands, &op->num_operands);
	if (status == UTIL_OK)
		status = open_stages(op);
	if (status == UTIL_OK)
		replace_buffers(op);
	return status;
}

bool core_op_is_staged(const struct core_op *op)
{
	return op->num_stages > 0;
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
		enum util_status status = gpu_stream_poll(op->stages[i].stream);

		if (status != UTIL_OK)
			return status;
	}
	return UTIL_OK;
}

/* A call that the real MPI refused leaves the device as it was: what is in the stage is nobody's
 * result. */
static enum util_status make_call(struct core_op *op)
{
	op->mpi_result = op->call.real(&op->call);
	return op->mpi_result ? UTIL_ERR_MPI : start_copies(op, true);
}

enum util_status core_op_progress(struct core_op *op)
{
	enum util_status status = UTIL_OK;

	while (op->state != CORE_OP_DONE) {
		switch (op->state) {
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
	for (size_t i = 0; i < op->num_stages; i++)
		core_stage_close(&op->stages[i]);
	for (size_t i = 0; i < CORE_MAX_OPERANDS; i++)
		core_operand_release(&op->operands[i]);
}
