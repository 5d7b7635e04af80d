/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Point-to-point messages whose buffers are in device memory: dense stages in host memory
 * (core_dense.h) that the real MPI sends from and receives into.
 *
 * A send is packed before the real MPI is called, so messages keep their order. What has come is
 * unpacked, exactly as many bytes as the status says, when the operation is first seen to be
 * complete; for nonblocking operations that is in one of MPI's completion calls
 * (src/core/request).
 */
#ifndef CORE_MESSAGE_H
#define CORE_MESSAGE_H

#include "core/call/core_call.h"

#include <stddef.h>

enum core_message_kind {
	CORE_SEND,
	CORE_BSEND,
	CORE_SSEND,
	CORE_RSEND,
	CORE_RECV,
	CORE_MRECV,
	CORE_SENDRECV,
	CORE_SENDRECV_REPLACE,
	CORE_ISEND,
	CORE_IBSEND,
	CORE_ISSEND,
	CORE_IRSEND,
	CORE_IRECV,
	CORE_IMRECV,
	CORE_ISENDRECV,
	CORE_ISENDRECV_REPLACE,
	CORE_SEND_INIT,
	CORE_BSEND_INIT,
	CORE_SSEND_INIT,
	CORE_RSEND_INIT,
	CORE_RECV_INIT,
	CORE_MESSAGE_NUM
};

/*
 * One call as the application made it; as struct core_call, with what the kind lacks being zero. A
 * buffer that is replaced is recvbuf.
 */
struct core_message_call {
	enum core_message_kind kind;
	const void *sendbuf;
	void *recvbuf;
	int64_t sendcount, recvcount;
	core_handle sendtype, recvtype;
	int dest, source, sendtag, recvtag;
	core_handle comm;
	void *message, *status, *request; /* MPI_Message *, MPI_Status *, MPI_Request * */
	/* The real MPI's function on these arguments. */
	int (*real)(const struct core_message_call *call);
};

/* "MPI_Isend" and so on. */
const char *core_message_name(enum core_message_kind kind);

/*
 * Carry out the call, one of whose buffers may be in device memory; returns what MPI returns.
 * Under the door's guard. Thread-safe.
 */
int core_message_run(const struct core_message_call *call);

/* The thread's next message is to go to the real MPI as it is. */
extern _Thread_local bool core_message_passes __attribute__((tls_model("initial-exec")));

#endif
