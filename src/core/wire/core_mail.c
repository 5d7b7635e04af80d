/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_mail.h"
#include "util/util_log.h"

#include <stdlib.h>

/* A message whose communicator this process does not know yet. */
struct unclaimed {
	struct unclaimed *next;
	struct net_header header;
	struct net_payload *payload;
};

static bool up, by_sockets;
static core_mail_handler *handlers[CORE_MAIL_NUM_KINDS]; /* by kind; NULL: not for processes */
static struct core_comm *comms;                          /* of several nodes */
static struct unclaimed *unclaimed, **last_unclaimed = &unclaimed;
static size_t unclaimed_bytes;

bool core_mail_is_by_sockets(void)
{
	return by_sockets;
}

bool core_mail_is_up(void)
{
	return up;
}

/* ---- messages that come ---- */

static struct core_comm *find_comm(uint64_t id)
{
	struct core_comm *comm = comms;

	while (comm && comm->id != id)
		comm = comm->next;
	return comm;
}

static size_t bytes_of(const struct unclaimed *entry)
{
	return sizeof(*entry) + net_payload_bytes(entry->payload);
}

static void drop_oldest(void)
{
	struct unclaimed *oldest = unclaimed;

	unclaimed = oldest->next;
	if (!unclaimed)
		last_unclaimed = &unclaimed;
	unclaimed_bytes -= bytes_of(oldest);
	net_payload_drop(oldest->payload);
	free(oldest);
}

/*
 * Others may know a communicator a little earlier. Of one that this process has left, messages may
 * come too, which nobody will claim: so there are only so many.
 */
static void keep_mail(const struct net_header *header, struct net_payload *payload)
{
	enum { MOST = 1 << 20 }; /* bytes */
	struct unclaimed *entry;

	if (header->kind != CORE_MAIL_READY)
		return;
	entry = malloc(sizeof(*entry));
	if (entry)
		*entry = (struct unclaimed){NULL, *header, net_payload_keep(payload)};
	if (!entry || !entry->payload) {
		free(entry);
		net_lose((int)header->from);
		return;
	}
	*last_unclaimed = entry;
	last_unclaimed = &entry->next;
	unclaimed_bytes += bytes_of(entry);
	while (unclaimed_bytes > MOST) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "too many messages for communicators that this process does not know: one "
			 "for %#llx is dropped",
			 (unsigned long long)unclaimed->header.comm);
		drop_oldest();
	}
}

static void receive_mail(enum net_port port, const struct net_header *header,
			 struct net_payload *payload)
{
	struct core_comm *comm = find_comm(header->comm);

	(void)port;
	if (header->kind >= CORE_MAIL_NUM_KINDS || !handlers[header->kind])
		return;
	if (comm)
		handlers[header->kind](comm, header, payload);
	else
		keep_mail(header, payload);
}

static void claim(struct core_comm *comm)
{
	struct unclaimed **link = &unclaimed, *entry;

	while ((entry = *link)) {
		if (entry->header.comm != comm->id) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		unclaimed_bytes -= bytes_of(entry);
		handlers[entry->header.kind](comm, &entry->header, entry->payload);
		net_payload_drop(entry->payload);
		free(entry);
	}
	last_unclaimed = link;
}

void core_mail_open(struct core_comm *comm)
{
	net_lock(NET_MAIN);
	comm->next = comms;
	comms = comm;
	claim(comm);
	net_unlock(NET_MAIN);
}

/* Communicators may be freed after the network came down in MPI_Finalize. */
void core_mail_close(struct core_comm *comm)
{
	struct core_comm **link = &comms;

	if (up)
		net_lock(NET_MAIN);
	while (*link && *link != comm)
		link = &(*link)->next;
	if (*link)
		*link = comm->next;
	if (up)
		net_unlock(NET_MAIN);
}

/* ---- messages that go ---- */

int core_mail_leader(const struct core_member *member)
{
	return core_mpi_node_leader(member->node);
}

static int leader_of(const struct core_comm *comm, int rank)
{
	return core_mail_leader(&comm->members[rank]);
}

void core_mail_tell(const struct core_comm *comm, int rank, const struct net_header *header,
		    const void *data, size_t bytes, _Atomic int *underway)
{
	net_watch(leader_of(comm, rank));
	net_tell(NET_MAIN, comm->members[rank].process, NET_MAIN, header, data, bytes, underway);
}

void core_mail_send(const struct core_comm *comm, int rank, const struct net_header *header,
		    const struct net_data *data, _Atomic int *status)
{
	net_watch(leader_of(comm, rank));
	net_send(NET_MAIN, comm->members[rank].process, NET_MAIN, header, data, status);
}

void core_mail_tell_node(const struct core_comm *comm, int node, const struct net_header *header,
			 _Atomic int *underway)
{
	net_tell(NET_MAIN, leader_of(comm, comm->speakers[node]), NET_SERVICE, header, NULL, 0,
		 underway);
}

void core_mail_tell_nodes(const struct core_comm *comm, const struct net_header *header,
			  _Atomic int *underway)
{
	for (int i = 0; i < comm->num_nodes; i++) {
		if (i != comm->node)
			core_mail_tell_node(comm, i, header, underway);
	}
}

void core_mail_expect(const struct core_comm *comm, int rank)
{
	if (core_comm_is_near(comm, rank))
		return;
	net_watch(leader_of(comm, rank));
	net_expect(comm->members[rank].process);
}

/* ---- start and stop ---- */

void core_mail_handle(enum core_mail_kind kind, core_mail_handler *handler)
{
	handlers[kind] = handler;
}

void core_mail_listen(void)
{
	net_set_handler(NET_MAIN, receive_mail);
}

void core_mail_start(bool sockets)
{
	up = true;
	by_sockets = sockets;
}

void core_mail_hush(void)
{
	net_set_handler(NET_MAIN, NULL);
	net_lock(NET_MAIN);
	while (unclaimed)
		drop_oldest();
	net_unlock(NET_MAIN);
}

void core_mail_stop(void)
{
	up = false;
}
