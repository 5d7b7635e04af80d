/* SPDX-License-Identifier: BSD-3-Clause */
/* A message on its way, for the files that know MPI. See core_message.h. */
#ifndef CORE_MPI_MESSAGE_H
#define CORE_MPI_MESSAGE_H

#include "core/core_dense.h"
#include "core/core_message.h"
#include "core/core_mpi_handle.h"
#include "core/core_stage.h"

/* One of a message's buffers, and what the real MPI is given in its place. */
struct core_mpi_side {
	bool staged; /* else it is the application's own */
	struct core_operand operand;
	struct core_dense dense;
	struct core_stage stage; /* of data that MPI sends twice, as they lie: instead of `dense` */
	size_t element, room;    /* bytes of an element as MPI counts them, and in the stage */
	void *buffer;
	int64_t count;
	MPI_Datatype type;
	MPI_Datatype made; /* to be freed; MPI_DATATYPE_NULL: none */
};

struct core_mpi_message {
	struct core_mpi_message *next; /* in the table of requests */
	MPI_Request request;
	struct core_message_call call;
	struct core_mpi_side send, recv;
	bool persistent;
	bool active;  /* a persistent one: started, and not seen to be complete */
	bool arrived; /* what has come is unpacked */
};

/* Pack what is to be sent. Waits for the copies. */
enum util_status core_mpi_message_pack(struct core_mpi_message *message);

/* The operation is complete, as the status says: begin to unpack what has come, once. */
void core_mpi_message_arrive(struct core_mpi_message *message, const MPI_Status *status);

/* Give back all that the message holds; on the heap. */
void core_mpi_message_free(struct core_mpi_message *message);

/* The request of the message is under way, or persistent: its completion is to be noticed. */
void core_mpi_request_add(struct core_mpi_message *message);

/* Raise an error of ours on the communicator; returns MPI's code. */
int core_mpi_raise_on(MPI_Comm comm, enum util_status status);

#endif
