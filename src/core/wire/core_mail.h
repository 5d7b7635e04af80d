/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of communicators between nodes: which there are, and whose they are.
 *
 * What the messages of a communicator change is guarded by the lock of the main port (net_lock):
 * any thread that drives the port may be the one to receive them.
 */
#ifndef CORE_MAIL_H
#define CORE_MAIL_H

#include "core/comm/core_comm.h"
#include "net/net_port.h"

/* Kinds of messages. To a process (the main port), which finds the communicator by its id: */
enum core_mail_kind {
	CORE_MAIL_READY,      /* core_nodes.h: a node's members are ready for the call */
	CORE_MAIL_ACK,        /* ... and that such messages were seen */
	CORE_MAIL_STAGED,     /* ... a node's members stage the call: the answer to ASK */
	CORE_MAIL_COMMITTED,  /* ... a nonblocking call is accelerated; answers TAKE_BACK, too */
	CORE_MAIL_TAKEN_BACK, /* ... it is staged: the other one */
	CORE_MAIL_DATA,       /* core_wire.h */
	CORE_MAIL_CREDIT,     /* ... there is room for more of that */
	/* The communicator has lost a member, or, by the header's `link`, was revoked: an answer to
	 * ASK; or to a node. */
	CORE_MAIL_LOST,
	/* To a node (the service port): */
	CORE_MAIL_ASK,       /* does anybody there stage the call? Answered when that is sure */
	CORE_MAIL_TAKE_BACK, /* to the first node: a nonblocking call had better be staged */
	CORE_MAIL_FAILED,    /* somebody here could not do its part in the call */
	CORE_MAIL_NUM_KINDS
};

/* What is to be done with a message of a kind to the process; under the main port's lock. */
typedef void core_mail_handler(struct core_comm *comm, const struct net_header *header,
			       struct net_payload *payload);

/* Have the handler called for messages of the kind. Before core_mail_listen. */
void core_mail_handle(enum core_mail_kind kind, core_mail_handler *handler);

/* By core_network.c, as the next three: from here on messages may come. */
void core_mail_listen(void);

/* From here on communicators may use them. `sockets`: they go by sockets. */
void core_mail_start(bool sockets);

/* From here on none comes. */
void core_mail_hush(void);

/* From here on nobody may use them. */
void core_mail_stop(void);

/* Whether communicators may use them. */
bool core_mail_is_up(void);

/*
 * Whether messages between some of the job's nodes go by sockets. All processes have the same
 * answer.
 */
bool core_mail_is_by_sockets(void);

/* Start to deliver messages to this communicator of several nodes. */
void core_mail_open(struct core_comm *comm);

/* Stop that; it may be freed after the network came down in MPI_Finalize. */
void core_mail_close(struct core_comm *comm);

/* The process that answers for the member's node. */
int core_mail_leader(const struct core_member *member);

/* Tell something of a call to the member's process; see net_tell. */
void core_mail_tell(const struct core_comm *comm, int rank, const struct net_header *header,
		    const void *data, size_t bytes, _Atomic int *underway);

/* Send data to the member's process; see net_send. */
void core_mail_send(const struct core_comm *comm, int rank, const struct net_header *header,
		    const struct net_data *data, _Atomic int *status);

/* Tell the service of another node, by its number in the communicator. */
void core_mail_tell_node(const struct core_comm *comm, int node, const struct net_header *header,
			 _Atomic int *underway);

/* Tell the services of all other nodes. */
void core_mail_tell_nodes(const struct core_comm *comm, const struct net_header *header,
			  _Atomic int *underway);

/* Watch the member's connection: a message from it, on another node, is waited for. */
void core_mail_expect(const struct core_comm *comm, int rank);

#endif
