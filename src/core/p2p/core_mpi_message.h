/* SPDX-License-Identifier: BSD-3-Clause */
/* A message on its way, for the files that know MPI. See core_message.h. */
#ifndef CORE_MPI_MESSAGE_H
#define CORE_MPI_MESSAGE_H

#include "core/p2p/core_message.h"
#include "core/p2p/core_mpi_side.h"
#include "core/request/core_mpi_pending.h"

/* What a kind does. UNTOLD: its status tells of another request, or nothing, in MPICH 4.0. */
enum core_mpi_message_flags {
	CORE_MESSAGE_SENDS = 1 << 0,
	CORE_MESSAGE_RECEIVES = 1 << 1,
	CORE_MESSAGE_REPLACES = 1 << 2,
	CORE_MESSAGE_NONBLOCKING = 1 << 3,
	CORE_MESSAGE_PERSISTENT = 1 << 4,
	CORE_MESSAGE_UNTOLD = 1 << 5,
};

/* Whether the call's kind does any of this. */
bool core_mpi_message_is(const struct core_message_call *call, int flags);

struct core_mpi_message {
	struct core_mpi_pending pending; /* first; also of a blocking call, in no table */
	struct core_message_call call;
	struct core_mpi_side send, recv;
};

extern const struct core_mpi_pending_kind core_mpi_message_kind;

/* Pack what is to be sent. Waits for the copies. What has come is unpacked by
 * core_mpi_pending_settle. */
enum util_status core_mpi_message_pack(struct core_mpi_message *message);

/* Give back all that the message holds; on the heap. */
void core_mpi_message_free(struct core_mpi_message *message);

#endif
