/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from and to device memory. See core_message.h. */
#include "core/p2p/core_mpi_message.h"

#include <stdio.h>
#include <stdlib.h>

/* As in enum core_mpi_message_flags. */
enum {
	SENDS = CORE_MESSAGE_SENDS,
	RECEIVES = CORE_MESSAGE_RECEIVES,
	REPLACES = CORE_MESSAGE_REPLACES,
	NONBLOCKING = CORE_MESSAGE_NONBLOCKING,
	PERSISTENT = CORE_MESSAGE_PERSISTENT,
	UNTOLD = CORE_MESSAGE_UNTOLD,
};

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

bool core_mpi_message_is(const struct core_message_call *call, int flags)
{
	return kinds[call->kind].flags & flags;
}

enum util_status core_mpi_message_pack(struct core_mpi_message *message)
{
	bool filled =
		core_mpi_message_is(&message->call, CORE_MESSAGE_REPLACES | CORE_MESSAGE_UNTOLD);
	enum util_status status = core_mpi_side_pack(&message->send);

	if (status == UTIL_OK && (filled || core_mpi_side_is_filled_first(&message->recv)))
		status = core_mpi_side_pack(&message->recv);
	return status;
}

static struct core_mpi_message *message_of(struct core_mpi_pending *pending)
{
	return (struct core_mpi_message *)pending;
}

static enum util_status prepare_message(struct core_mpi_pending *pending)
{
	return core_mpi_message_pack(message_of(pending));
}

/* To be unpacked is exactly what has come. */
static void arrive_message(struct core_mpi_pending *pending, const MPI_Status *status)
{
	struct core_mpi_message *message = message_of(pending);
	struct core_mpi_side *side = &message->recv;
	MPI_Count bytes = 0;
	int cancelled = 0;

	if (!side->staged)
		return;
	if (core_mpi_message_is(&message->call, CORE_MESSAGE_UNTOLD)) {
		core_mpi_side_unpack_all(side);
		return;
	}
	PMPI_Test_cancelled(status, &cancelled);
	if (cancelled || PMPI_Get_elements_x(status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes < 0)
		return;
	core_mpi_side_unpack(side, (size_t)bytes);
}

static enum util_status progress_message(struct core_mpi_pending *pending)
{
	return core_mpi_side_progress(&message_of(pending)->recv);
}

static void describe_message(const struct core_mpi_pending *pending, char *text, size_t bytes)
{
	const struct core_message_call *call = &((const struct core_mpi_message *)pending)->call;

	if (call->recvtype && call->source == MPI_ANY_SOURCE)
		snprintf(text, bytes, "from any rank");
	else if (call->message)
		snprintf(text, bytes, "of a message that was probed");
	else
		snprintf(text, bytes, "%s rank %d, tag %d", call->recvtype ? "from" : "to",
			 call->recvtype ? call->source : call->dest,
			 call->recvtype ? call->recvtag : call->sendtag);
}

void core_mpi_message_free(struct core_mpi_message *message)
{
	core_mpi_side_close(&message->send);
	core_mpi_side_close(&message->recv);
	free(message);
}

static void free_pending(struct core_mpi_pending *pending)
{
	core_mpi_message_free(message_of(pending));
}

const struct core_mpi_pending_kind core_mpi_message_kind = {
	.prepare = prepare_message,
	.arrive = arrive_message,
	.progress = progress_message,
	.describe = describe_message,
	.free = free_pending,
};
