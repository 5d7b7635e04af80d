/* SPDX-License-Identifier: BSD-3-Clause */
/* What the other nodes' speakers have sent, until it is wanted. */
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/agree/core_nodes_parts.h"
#include "core/agree/core_record.h"
#include "core/wire/core_mail.h"
#include "net/net_port.h"

#include <stdlib.h>
#include <string.h>

enum { ACK_EVERY = 32 }; /* messages of a round */

void core_nodes_drop_until(struct core_nodes *nodes, uint64_t call)
{
	struct core_nodes_early **link = &nodes->early, *entry;

	while ((entry = *link)) {
		if (entry->call >= call) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		free(entry);
	}
}

static void acknowledge(const struct core_comm *comm, const struct net_header *header)
{
	struct net_header ack = *header;

	ack.kind = CORE_MAIL_ACK;
	core_mail_tell(comm, core_nodes_speaker_at(comm, -(1 << header->link)), &ack, NULL, 0,
		       NULL);
}

static void on_ready(struct core_comm *comm, const struct net_header *header,
		     struct net_payload *payload)
{
	struct core_nodes *nodes = comm->agreement;
	size_t bytes = net_payload_bytes(payload);
	const void *data = net_payload_data(payload);
	struct core_nodes_early *entry;

	if (header->link >= (uint32_t)nodes->rounds || !data ||
	    bytes < sizeof(struct core_nodes_ready) || bytes > core_nodes_most_bytes(comm))
		return;
	if (header->message % ACK_EVERY == 0)
		acknowledge(comm, header);
	/* Here the call may have gone to the real MPI long ago. */
	if (core_meet_is_past(comm, comm->rank, header->call))
		return;
	entry = malloc(offsetof(struct core_nodes_early, message) + bytes);
	if (!entry) {
		net_lose((int)header->from);
		return;
	}
	entry->call = header->call;
	entry->round = header->link;
	entry->bytes = bytes;
	memcpy(&entry->message, data, bytes);
	entry->next = nodes->early;
	nodes->early = entry;
}

static void on_ack(struct core_nodes *nodes, const struct net_header *header)
{
	if (header->link < (uint32_t)nodes->rounds)
		nodes->underway[header->link] = nodes->number[header->link] - header->message;
}

static void note(uint64_t *last, uint64_t call)
{
	if (*last < call + 1)
		*last = call + 1;
}

static void receive_from_node(struct core_comm *comm, const struct net_header *header,
			      struct net_payload *payload)
{
	struct core_nodes *nodes = comm->agreement;

	if (header->kind == CORE_MAIL_READY)
		on_ready(comm, header, payload);
	else if (header->kind == CORE_MAIL_ACK)
		on_ack(nodes, header);
	else if (header->kind == CORE_MAIL_LOST && header->link)
		core_meet_revoke(comm);
	else if (header->kind == CORE_MAIL_LOST)
		core_meet_lose(comm);
	else if (header->kind == CORE_MAIL_STAGED)
		note(&nodes->staged, header->call);
	else if (header->kind == CORE_MAIL_COMMITTED)
		note(&nodes->committed, header->call);
	else if (header->kind == CORE_MAIL_TAKEN_BACK)
		note(&nodes->prevented, header->call);
}

void core_nodes_handle_mail(void)
{
	core_mail_handle(CORE_MAIL_READY, receive_from_node);
	core_mail_handle(CORE_MAIL_ACK, receive_from_node);
	core_mail_handle(CORE_MAIL_STAGED, receive_from_node);
	core_mail_handle(CORE_MAIL_COMMITTED, receive_from_node);
	core_mail_handle(CORE_MAIL_TAKEN_BACK, receive_from_node);
	core_mail_handle(CORE_MAIL_LOST, receive_from_node);
}

bool core_nodes_is_sent(const struct core_comm *comm, int node, int round, int rank)
{
	int back = node - comm->nodes[rank], known = 1 << round;

	back += back < 0 ? comm->num_nodes : 0;
	return back < known && back < comm->num_nodes - known;
}

/*
 * The records that come from the node in the round, in order of ranks. UTIL_ERR_PEER: they are
 * damaged.
 */
static enum util_status take_records(const struct core_agree *agree, int node,
				     const unsigned char *from, size_t bytes)
{
	const struct core_comm *comm = agree->comm;
	const unsigned char *end = from + bytes;
	struct core_nodes_label label;

	for (int i = 0; i < comm->size; i++) {
		if (!core_nodes_is_sent(comm, node, comm->agreement->round, i))
			continue;
		if ((size_t)(end - from) < sizeof(label))
			return UTIL_ERR_PEER;
		memcpy(&label, from, sizeof(label));
		from += sizeof(label);
		if (label.rank != (uint32_t)i ||
		    core_nodes_padded(label.bytes) > (size_t)(end - from) ||
		    !core_record_is_sound(comm, (const void *)from, label.bytes))
			return UTIL_ERR_PEER;
		memcpy(core_agree_record(agree, i), from, label.bytes);
		from += core_nodes_padded(label.bytes);
	}
	return from == end ? UTIL_OK : UTIL_ERR_PEER;
}

enum util_status core_nodes_take_early(const struct core_agree *agree)
{
	struct core_nodes *nodes = agree->comm->agreement;
	struct core_nodes_early **link = &nodes->early, *entry;
	enum util_status status = UTIL_OK;

	while ((entry = *link) &&
	       (entry->call != agree->call || entry->round != (uint32_t)nodes->round))
		link = &entry->next;
	if (!entry)
		return UTIL_IN_PROGRESS;
	*link = entry->next;
	core_summary_add(&nodes->common, &entry->message.summary);
	if (entry->message.summary.all & CORE_OFFER_EAGER)
		status =
			take_records(agree, core_nodes_at(agree->comm, -(1 << nodes->round)),
				     entry->message.records, entry->bytes - sizeof(entry->message));
	free(entry);
	return status;
}
