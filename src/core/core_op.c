/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_op.h"
#include "core/accel/core_accel.h"
#include "core/accel/core_ready.h"
#include "core/accel/core_say.h"
#include "core/agree/core_meet.h"
#include "core/core_mpi_ordered.h"
#include "core/core_real.h"
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_journal.h"
#include "core/stage/core_still.h"
#include "util/util_config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void go(struct core_op *op, enum core_op_state state)
{
	op->state = state;
	core_note_where(&op->note, CORE_WHERE_ALL_BUT_DONE + (enum core_where)state);
}

/*
 * Leave the accelerated path: from here on it is a call of the real MPI, alone. A datatype that MPI
 * refuses is left to it, too: it knows the right error.
 */
static enum util_status start_staging(struct core_op *op)
{
	enum util_status status;

	op->why = op->accel.reason;
	op->ready = op->accel.ready;
	core_accel_finish(&op->accel);
	go(op, CORE_OP_READY);
	op->call.op = core_mpi_real_op(&op->call);
	if (op->comm)
		core_meet_pass(op->comm, op->number);
	status = op->staging == &op->own ? core_staging_open(&op->own, &op->call) : UTIL_OK;
	if (status == UTIL_OK && op->call.request)
		status = core_ordered_open(&op->call);
	if (status != UTIL_OK)
		return status;
	op->path = op->staging->num_stages ? CORE_PATH_STAGE : CORE_PATH_PASS;
	if (!op->staging->num_stages)
		op->why = "host buffers";
	op->bytes = core_staging_bytes(op->staging);
	return UTIL_OK;
}

void core_op_start(struct core_op *op, const struct core_call *call, struct core_comm *comm,
		   uint64_t number)
{
	memset(op, 0, offsetof(struct core_op, accel));
	op->call = *call;
	op->comm = comm;
	op->number = number;
	op->staging = &op->own;
	op->path = CORE_PATH_STAGE;
	op->why = "";
	op->state = CORE_OP_ACCEL;
	op->accel_status = core_accel_start(&op->accel, call, comm, number);
}

void core_op_look_still(const struct core_op *op)
{
	if (__builtin_expect(util_config.check & UTIL_CHECK_STREAMS, 0) &&
	    op->accel_status == UTIL_OK)
		core_still_look(&op->accel.shape, core_call_name(&op->call));
}

void core_op_note(struct core_op *op, const struct core_note *note)
{
	op->note = *note;
	op->accel.note = &op->note;
	core_note_where(&op->note, CORE_WHERE_OFFER);
}

void core_op_note_end(const struct core_op *op, enum util_status status)
{
	struct core_journal_end end = {.where = status == UTIL_OK ? CORE_WHERE_ENDED
								  : CORE_WHERE_FAILED,
				       .path = op->path,
				       .why = op->why,
				       .bytes = op->bytes};

	core_journal_end(&op->note, &end);
}

/* UTIL_OK: the next state is due, which is staging unless it has been done. */
static enum util_status progress_accel(struct core_op *op, enum core_op_may may)
{
	if (op->accel_status == UTIL_OK)
		op->accel_status = core_accel_progress(&op->accel);
	if (op->accel_status == UTIL_STAGE && op->accel.marks &&
	    core_ready_poll(&op->accel) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	if (op->accel_status == UTIL_STAGE)
		return may > CORE_OP_ALONE ? start_staging(op) : UTIL_IN_PROGRESS;
	if (op->accel_status == UTIL_IN_PROGRESS) {
		op->accel_status = UTIL_OK;
		return UTIL_IN_PROGRESS;
	}
	op->path = CORE_PATH_ACCEL;
	op->why = op->accel.reason;
	op->bytes = core_shape_bytes(&op->accel.shape);
	go(op, CORE_OP_DONE);
	return op->accel_status;
}

/*
 * In Open MPI 5.0 one in three nonblocking collectives that are begun on a revoked communicator
 * never ends. A persistent one's may have been freed; its own state says it.
 */
static bool is_revoked(const struct core_op *op)
{
	return op->call.persistent ? core_meet_is_revoked(op->comm)
				   : core_mpi_is_revoked(op->call.comm);
}

/*
 * A call that the real MPI refused leaves the device as it was: what is in the stage is nobody's
 * result.
 */
static enum util_status make_call(struct core_op *op)
{
	if (op->call.request && is_revoked(op))
		return UTIL_ERR_REVOKED;
	if (!op->call.request && op->call.coll != CORE_REDUCE_LOCAL)
		core_drive_yield();
	/* A nonblocking one may be called for by another thread than the communicator's calls. */
	if (op->comm && !op->call.request) {
		op->mpi_result = core_real_make(&op->call, &op->comm);
	} else {
		op->mpi_result = op->call.real(&op->call);
		if (op->mpi_result && op->comm)
			core_meet_retire(op->comm);
	}
	return op->mpi_result ? UTIL_ERR_MPI : UTIL_OK;
}

/* The communicator may have been freed by now. */
static enum util_status wait_for_request(struct core_op *op)
{
	enum util_status status = op->call.request ? op->test(op) : UTIL_OK;

	if (status == UTIL_OK && op->call.ordered) {
		op->mpi_result = core_ordered_end(&op->call);
		status = op->mpi_result ? UTIL_ERR_MPI : UTIL_OK;
	}
	return status == UTIL_OK ? core_staging_copy_out(op->staging) : status;
}

/* What staging does besides waits in ways that call MPI. */
static bool is_allowed(const struct core_op *op, enum core_op_may may)
{
	if (op->state == CORE_OP_ACCEL || may == CORE_OP_ALL)
		return true;
	return may == CORE_OP_LOCAL && !core_op_is_to_call(op);
}

enum util_status core_op_progress(struct core_op *op, enum core_op_may may)
{
	enum util_status status = UTIL_OK;

	while (op->state != CORE_OP_DONE) {
		if (!is_allowed(op, may))
			return UTIL_IN_PROGRESS;
		switch (op->state) {
		case CORE_OP_ACCEL:
			status = progress_accel(op, may);
			if (status != UTIL_OK)
				return status;
			continue; /* it has set the state */
		case CORE_OP_READY:
			status = op->ready ? UTIL_OK : core_staging_ready(op->staging);
			if (status == UTIL_OK)
				status = core_staging_copy_in(op->staging);
			break;
		case CORE_OP_COPY_IN:
			status = core_staging_poll(op->staging);
			/* Many may be pending, and streams are few. */
			if (status == UTIL_OK && op->call.request)
				core_staging_rest(op->staging);
			break;
		case CORE_OP_COPY_OUT:
			status = core_staging_poll(op->staging);
			break;
		case CORE_OP_CALL:
			status = make_call(op);
			if (status != UTIL_OK || !op->call.request)
				break;
			/* Not complete yet, mostly, and each test costs as much as is pending. */
			go(op, CORE_OP_ISSUED);
			return UTIL_IN_PROGRESS;
		case CORE_OP_ISSUED:
			status = wait_for_request(op);
			break;
		case CORE_OP_DONE:
			break;
		}
		if (status != UTIL_OK)
			return status;
		go(op, op->state + 1);
	}
	return UTIL_OK;
}

void core_op_withdraw(struct core_op *op)
{
	if (op->state == CORE_OP_ACCEL)
		core_accel_withdraw(&op->accel);
}

void core_op_finish(struct core_op *op)
{
	if (op->path == CORE_PATH_ACCEL)
		core_accel_finish(&op->accel);
	core_staging_rest(op->staging);
	core_staging_close(&op->own);
	core_ordered_close(&op->call);
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
		[CORE_OP_ISSUED] = "the real MPI",
		[CORE_OP_COPY_OUT] = "the copy to the device",
		[CORE_OP_DONE] = "nothing",
	};

	if (op->state == CORE_OP_ACCEL)
		core_say_what_is_awaited(&op->accel, text, bytes);
	else
		snprintf(text, bytes, "%s", states[op->state]);
}
