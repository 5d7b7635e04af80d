/* SPDX-License-Identifier: BSD-3-Clause */
/* A message on its way, for the files that know MPI. See core_message.h. */
#ifndef CORE_MPI_MESSAGE_H
#define CORE_MPI_MESSAGE_H

#include "core/p2p/core_message.h"
#include "core/p2p/core_mpi_side.h"

#include <pthread.h>

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
	struct core_mpi_message *next; /* in the table of requests */
	MPI_Request request;
	struct core_message_call call;
	uint64_t since; /* util_now when it was called for */
	struct core_mpi_side send, recv;
	bool persistent;
	bool active;  /* a persistent one: started, and not seen to be complete */
	bool arrived; /* what has come is unpacked, or being unpacked */
	/*
	 * Of who unpacks. Recursive, as an error handler that is called meanwhile may complete the
	 * request, too.
	 */
	pthread_mutex_t unpacking;
	/* Of core_mpi_table.c, under its lock: threads that found the entry, which may be gone. */
	int finders;
	bool gone;
};

/* Pack what is to be sent. Waits for the copies. */
enum util_status core_mpi_message_pack(struct core_mpi_message *message);

/*
 * The operation is complete, as the status says: unpack what has come, once, and wait for the
 * copies. Other threads that do this meanwhile wait, too.
 */
enum util_status core_mpi_message_unpack(struct core_mpi_message *message,
					 const MPI_Status *status);

/* The two halves of that, between which other messages may begin. */
void core_mpi_message_unpack_begin(struct core_mpi_message *message, const MPI_Status *status);
enum util_status core_mpi_message_unpack_end(struct core_mpi_message *message);

/* Give back all that the message holds; on the heap. */
void core_mpi_message_free(struct core_mpi_message *message);

#endif
