/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that send and receive. See core_message.h. */
#include "core/mpi/core_mpi_raise.h"
#include "core/mpi/core_mpi_type.h"
#include "core/p2p/core_mpi_message.h"
#include "core/report/core_stats.h"
#include "core/request/core_mpi_table.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>

/* Or is sent on, in one call. */
static bool comes_from_somebody(const struct core_message_call *call)
{
	if (call->message)
		return *(const MPI_Message *)call->message != MPI_MESSAGE_NO_PROC;
	return call->source != MPI_PROC_NULL ||
	       (core_mpi_message_is(call, CORE_MESSAGE_REPLACES) && call->dest != MPI_PROC_NULL);
}

static enum util_status open_sides(struct core_mpi_message *message)
{
	const struct core_message_call *call = &message->call;
	enum util_status status = UTIL_OK;

	message->send.made = message->recv.made = MPI_DATATYPE_NULL;
	if (core_mpi_message_is(call, CORE_MESSAGE_SENDS) && call->dest != MPI_PROC_NULL)
		status = core_mpi_side_open(&message->send, call->sendbuf, call->sendcount,
					    call->sendtype, MPI_PACKED);
	if (status == UTIL_OK && core_mpi_message_is(call, CORE_MESSAGE_RECEIVES) &&
	    comes_from_somebody(call))
		status = core_mpi_side_open(&message->recv, call->recvbuf, call->recvcount,
					    call->recvtype, MPI_PACKED);
	if (status == UTIL_OK && message->recv.stage.block) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s: the datatype has bytes that belong to several elements, which can't "
			 "be received",
			 core_message_name(call->kind));
		status = UTIL_ERR_UNSUPPORTED;
	}
	return status;
}

/* As the real MPI is called. */
static struct core_message_call replace(const struct core_mpi_message *message)
{
	struct core_message_call real = message->call;

	if (message->send.staged) {
		real.sendbuf = message->send.buffer;
		real.sendcount = message->send.count;
		real.sendtype = (core_handle)message->send.type;
	}
	if (message->recv.staged) {
		real.recvbuf = message->recv.buffer;
		real.recvcount = message->recv.count;
		real.recvtype = (core_handle)message->recv.type;
	}
	return real;
}

static int run_blocking(struct core_mpi_message *message)
{
	struct core_message_call real = replace(message);
	MPI_Status own, *status = real.status;
	enum util_status copied = UTIL_OK;
	int result;

	if (status == MPI_STATUS_IGNORE)
		status = &own;
	real.status = status;
	result = real.real(&real);
	if (result == MPI_SUCCESS)
		copied = core_mpi_pending_settle(&message->pending, status);
	if (copied == UTIL_OK)
		return result;
	/* A matched one's communicator is not known any more. */
	return core_mpi_raise_on(message->call.comm ? message->call.comm : core_mpi_world(),
				 copied);
}

/*
 * In MPICH receives from somebody have handles of their own; and to ask about one that has failed
 * would raise its error here.
 */
static bool may_be_asked_for(const struct core_mpi_message *message)
{
#ifdef OPEN_MPI
	(void)message;
	return true;
#else
	return !message->recv.staged;
#endif
}

/* Takes the message. */
static int run_nonblocking(struct core_mpi_message *message)
{
	struct core_message_call real = replace(message);
	int result = real.real(&real);

	if (result != MPI_SUCCESS) {
		core_mpi_message_free(message);
		return result;
	}
	return core_mpi_table_begin(&message->pending, *(MPI_Request *)real.request,
				    may_be_asked_for(message));
}

/* An error handler may have freed the communicator. */
static void count_message(const struct core_mpi_message *message, int result, double seconds)
{
	const struct core_mpi_side *sides[] = {&message->send, &message->recv};
	const int64_t counts[] = {message->call.sendcount, message->call.recvcount};
	struct core_stats_call stats = {.coll = CORE_COLL_NUM,
					.name = core_message_name(message->call.kind),
					.path = CORE_PATH_STAGE,
					.why = "point to point",
					.comm = message->call.comm,
					.comm_name = result ? "unknown" : NULL,
					.seconds = seconds};

	for (int i = 0; i < 2; i++) {
		if (sides[i]->staged)
			stats.bytes += sides[i]->element * (size_t)counts[i];
	}
	core_stats_add_traced(&stats);
}

static void heed_errors(struct core_mpi_message *message)
{
	core_handle comm = message->call.comm ? message->call.comm : core_mpi_world();

	core_mpi_pending_heed_comm(&message->pending, comm);
}

static int fail_message(struct core_mpi_message *message, enum util_status status)
{
	core_handle comm = message->call.comm ? message->call.comm : core_mpi_world();

	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s",
		 core_message_name(message->call.kind),
		 status == UTIL_ERR_NO_MEMORY ? "no memory" : "see above");
	core_mpi_message_free(message);
	return core_mpi_raise_on(comm, status);
}

int core_message_run(const struct core_message_call *call)
{
	uint64_t start = util_now();
	struct core_mpi_message *message = calloc(1, sizeof(*message));
	enum util_status status;
	int result;

	if (!message)
		return core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	core_mpi_note_comm(call->comm);
	message->call = *call;
	core_mpi_pending_open(&message->pending, &core_mpi_message_kind,
			      core_message_name(call->kind),
			      core_mpi_message_is(call, CORE_MESSAGE_PERSISTENT));
	status = open_sides(message);
	if (status == UTIL_ERR_MPI || (!message->send.staged && !message->recv.staged)) {
		core_mpi_message_free(message);
		return call->real(call);
	}
	if (status == UTIL_OK && !message->pending.persistent)
		status = core_mpi_message_pack(message);
	if (status != UTIL_OK)
		return fail_message(message, status);
	if (core_mpi_message_is(call, CORE_MESSAGE_NONBLOCKING | CORE_MESSAGE_PERSISTENT)) {
		heed_errors(message);
		count_message(message, MPI_SUCCESS, 0);
		return run_nonblocking(message);
	}
	result = run_blocking(message);
	count_message(message, result, 1e-9 * (double)(util_now() - start));
	core_mpi_message_free(message);
	return result;
}
