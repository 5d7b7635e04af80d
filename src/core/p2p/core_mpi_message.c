/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from and to device memory. See core_message.h. */
#include "core/p2p/core_mpi_message.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/mpi/core_mpi_type.h"
#include "core/p2p/core_mpi_table.h"
#include "core/report/core_stats.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>

/* UNTOLD: what the status tells is of another request, or nothing, in MPICH 4.0. */
enum { SENDS = 1, RECEIVES = 2, REPLACES = 4, NONBLOCKING = 8, PERSISTENT = 16, UNTOLD = 32 };

static const struct {
	const char *name;
	int flags;
} kinds[CORE_MESSAGE_NUM] = {
	[CORE_SEND] = {"MPI_Send", SENDS},
	[CORE_BSEND] = {"MPI_Bsend", SENDS},
	[CORE_SSEND] = {"MPI_Ssend", SENDS},
	[CORE_RSEND] = {"MPI_Rsend", SENDS},
	[CORE_RECV] = {"MPI_Recv", RECEIVES},
	[CORE_MRECV] = {"MPI_Mrecv", RECEIVES},
	[CORE_SENDRECV] = {"MPI_Sendrecv", SENDS | RECEIVES},
	[CORE_SENDRECV_REPLACE] = {"MPI_Sendrecv_replace", RECEIVES | REPLACES},
	[CORE_ISEND] = {"MPI_Isend", SENDS | NONBLOCKING},
	[CORE_IBSEND] = {"MPI_Ibsend", SENDS | NONBLOCKING},
	[CORE_ISSEND] = {"MPI_Issend", SENDS | NONBLOCKING},
	[CORE_IRSEND] = {"MPI_Irsend", SENDS | NONBLOCKING},
	[CORE_IRECV] = {"MPI_Irecv", RECEIVES | NONBLOCKING},
	[CORE_IMRECV] = {"MPI_Imrecv", RECEIVES | NONBLOCKING},
	[CORE_ISENDRECV] = {"MPI_Isendrecv", SENDS | RECEIVES | NONBLOCKING | UNTOLD},
	[CORE_ISENDRECV_REPLACE] = {"MPI_Isendrecv_replace",
				    RECEIVES | REPLACES | NONBLOCKING | UNTOLD},
	[CORE_SEND_INIT] = {"MPI_Send_init", SENDS | PERSISTENT},
	[CORE_BSEND_INIT] = {"MPI_Bsend_init", SENDS | PERSISTENT},
	[CORE_SSEND_INIT] = {"MPI_Ssend_init", SENDS | PERSISTENT},
	[CORE_RSEND_INIT] = {"MPI_Rsend_init", SENDS | PERSISTENT},
	[CORE_RECV_INIT] = {"MPI_Recv_init", RECEIVES | PERSISTENT},
};

const char *core_message_name(enum core_message_kind kind)
{
	return kinds[kind].name;
}

static bool is(const struct core_message_call *call, int flags)
{
	return kinds[call->kind].flags & flags;
}

enum util_status core_mpi_message_pack(struct core_mpi_message *message)
{
	bool filled = is(&message->call, REPLACES | UNTOLD);
	enum util_status status = core_mpi_side_pack(&message->send);

	if (status == UTIL_OK && (filled || core_mpi_side_is_filled_first(&message->recv)))
		status = core_mpi_side_pack(&message->recv);
	return status;
}

void core_mpi_message_arrive(struct core_mpi_message *message, const MPI_Status *status)
{
	struct core_mpi_side *side = &message->recv;
	MPI_Count bytes = 0;
	int cancelled = 0;

	if (!side->staged || message->arrived)
		return;
	message->arrived = true;
	if (is(&message->call, UNTOLD)) {
		core_mpi_side_unpack(side, SIZE_MAX);
		return;
	}
	PMPI_Test_cancelled(status, &cancelled);
	if (cancelled || PMPI_Get_elements_x(status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes < 0)
		return;
	core_mpi_side_unpack(side, (size_t)bytes);
}

/* Of a persistent request that is not started the status is empty. */
void core_mpi_message_complete(struct core_mpi_message *message, const MPI_Status *status)
{
	if (!message->persistent || message->active)
		core_mpi_message_arrive(message, status);
}

/* ---- calls ---- */

/* Or is sent on, in one call. */
static bool comes_from_somebody(const struct core_message_call *call)
{
	if (call->message)
		return *(const MPI_Message *)call->message != MPI_MESSAGE_NO_PROC;
	return call->source != MPI_PROC_NULL || (is(call, REPLACES) && call->dest != MPI_PROC_NULL);
}

static enum util_status open_sides(struct core_mpi_message *message)
{
	const struct core_message_call *call = &message->call;
	enum util_status status = UTIL_OK;

	message->send.made = message->recv.made = MPI_DATATYPE_NULL;
	if (is(call, SENDS) && call->dest != MPI_PROC_NULL)
		status = core_mpi_side_open(&message->send, call->sendbuf, call->sendcount,
					    call->sendtype, MPI_PACKED);
	if (status == UTIL_OK && is(call, RECEIVES) && comes_from_somebody(call))
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

void core_mpi_message_free(struct core_mpi_message *message)
{
	core_mpi_side_close(&message->send);
	core_mpi_side_close(&message->recv);
	free(message);
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
	if (result == MPI_SUCCESS && message->recv.staged) {
		core_mpi_message_arrive(message, status);
		copied = core_dense_wait(&message->recv.dense);
	}
	return copied == UTIL_OK ? result : core_mpi_raise_on(message->call.comm, copied);
}

/*
 * Whether the request is complete as it is born: then its handle may be one that many have, and the
 * application will find it complete without us. In MPICH receives from somebody have handles of
 * their own; and to ask about one that has failed would raise its error here.
 */
static bool is_complete(struct core_mpi_message *message, MPI_Status *status)
{
	int complete = 0;

#ifndef OPEN_MPI
	if (message->recv.staged)
		return false;
#endif
	return !message->persistent &&
	       PMPI_Request_get_status(message->request, &complete, status) == MPI_SUCCESS &&
	       complete;
}

/* Takes the message. */
static int run_nonblocking(struct core_mpi_message *message)
{
	struct core_message_call real = replace(message);
	enum util_status copied = UTIL_OK;
	int result = real.real(&real);
	MPI_Status status;

	if (result != MPI_SUCCESS) {
		core_mpi_message_free(message);
		return result;
	}
	message->request = *(MPI_Request *)real.request;
	if (!is_complete(message, &status)) {
		core_mpi_table_add(message);
		return result;
	}
	core_mpi_message_arrive(message, &status);
	copied = core_dense_wait(&message->recv.dense);
	core_mpi_message_free(message);
	return copied == UTIL_OK ? result : core_mpi_raise_on(core_mpi_world(), copied);
}

static void count(const struct core_mpi_message *message, double seconds)
{
	const struct core_mpi_side *sides[] = {&message->send, &message->recv};
	const int64_t counts[] = {message->call.sendcount, message->call.recvcount};
	struct core_stats_call stats = {.coll = CORE_COLL_NUM,
					.name = core_message_name(message->call.kind),
					.path = CORE_PATH_STAGE,
					.why = "point to point",
					.comm = message->call.comm,
					.seconds = seconds};

	for (int i = 0; i < 2; i++) {
		if (sides[i]->staged)
			stats.bytes += sides[i]->element * (size_t)counts[i];
	}
	core_stats_add(&stats);
}

static int fail(struct core_mpi_message *message, enum util_status status)
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
	message->since = start;
	message->persistent = is(call, PERSISTENT);
	status = open_sides(message);
	if (status == UTIL_ERR_MPI || (!message->send.staged && !message->recv.staged)) {
		core_mpi_message_free(message);
		return call->real(call);
	}
	if (status == UTIL_OK && !message->persistent)
		status = core_mpi_message_pack(message);
	if (status != UTIL_OK)
		return fail(message, status);
	if (is(call, NONBLOCKING | PERSISTENT)) {
		count(message, 0);
		return run_nonblocking(message);
	}
	result = run_blocking(message);
	count(message, 1e-9 * (double)(util_now() - start));
	core_mpi_message_free(message);
	return result;
}
