/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network as communicators use it: which messages there are, whose they are, and the node's
 * service.
 *
 * What the messages of a communicator change is guarded by the lock of the main port (net_lock):
 * any thread that drives the port may be the one to receive them.
 */
#ifndef CORE_NET_H
#define CORE_NET_H

#include "core/core_agree.h"
#include "net/net_port.h"

/* Kinds of messages. To a process (the main port), which finds the communicator by its id: */
enum core_net_kind {
	CORE_NET_READY,  /* core_nodes.h: a node's members are ready for the call */
	CORE_NET_ACK,    /* ... and that such messages were seen */
	CORE_NET_STAGED, /* ... a node's members stage the call: the answer to ASK */
	CORE_NET_DATA,   /* core_wire.h */
	CORE_NET_CREDIT, /* ... there is room for more of that */
	CORE_NET_LOST,   /* the communicator has lost a member: an answer to ASK; or to a node */
	/* To a node (the service port): */
	CORE_NET_ASK,    /* does anybody there stage the call? Answered when that is sure */
	CORE_NET_FAILED, /* somebody here could not do its part in the call */
};

/*
 * Where the job has several nodes with CUDA drivers: bring up the network, and the node's service.
 * Collective over the job; all have it or none. core_net_stop: collective, too; nobody may be in a
 * call.
 */
void core_net_start(void);
void core_net_stop(void);
bool core_net_is_up(void);

/*
 * Whether messages between some of the job's nodes go by sockets. All processes have the same
 * answer.
 */
bool core_net_is_by_sockets(void);

/* Have the messages for a communicator of several nodes come to it, and no longer. */
enum util_status core_net_add(struct core_comm *comm);
void core_net_remove(struct core_comm *comm);

/*
 * Tell something of a call to the member's process; send it data; tell the services of all other
 * nodes. See net_tell and net_send.
 */
void core_net_tell(const struct core_comm *comm, int rank, const struct net_header *header,
		   const void *data, size_t bytes, _Atomic int *underway);
void core_net_send(const struct core_comm *comm, int rank, const struct net_header *header,
		   const struct net_data *data, _Atomic int *status);
void core_net_tell_nodes(const struct core_comm *comm, enum core_net_kind kind, uint64_t call,
			 _Atomic int *underway);

/* Have it found out when the member on another node is lost, from which messages are to come. */
void core_net_expect(const struct core_comm *comm, int rank);

/*
 * A member who is missed in the call: its process has ended, on this node, and it is not past the
 * call; or the connection to it was lost, or to its node's service, which all on other nodes are
 * if this node's own service has ended. -1: none.
 */
int core_net_find_lost(const struct core_comm *comm, uint64_t call);

/*
 * Whether processes on other nodes are known to be out of reach among such members: their
 * communicator, of several nodes, is not to be accelerated.
 */
bool core_net_has_lost_some(int size, const struct core_member *members);

/*
 * Break off the connections to all members on other nodes, so that UCX is done with all that it has
 * of them. They are lost then.
 */
void core_net_break_off(const struct core_comm *comm);

/*
 * A member on this node that is in the call, which this one knows to have failed; -1: none. Not one
 * whose process has ended, nor one that has not come: it finds the call failed if it does, touches
 * nobody's memory, and may have no reason to come.
 */
int core_net_find_behind(const struct core_agree *agree);

#endif
