/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that come on the links between nodes. */
#include "core/wire/core_mail.h"
#include "core/wire/core_wire.h"
#include "core/wire/core_wire_parts.h"
#include "net/net_port.h"
#include "util/util_log.h"

#include <stdlib.h>

void core_wire_in_drop_held(struct core_wire *wire)
{
	struct core_wire_held *entry;

	while ((entry = wire->held)) {
		wire->held = entry->next;
		net_payload_drop(entry->payload);
		free(entry);
	}
}

static bool is_marked(const struct core_wire_incoming *in, uint32_t message)
{
	return in->marks && in->marks[message % in->per_round] & in->mask;
}

/* The message's slot is free when what was in it was read. */
static bool can_take(const struct core_wire *wire, uint32_t link, uint32_t message)
{
	const struct core_wire_incoming *in = &wire->incoming[link];

	if (!wire->laid_out || message >= in->read + wire->num_slots)
		return false;
	return !is_marked(in, message) ||
	       in->slots[message % wire->num_slots].placed == message + UINT64_C(1);
}

/*
 * Where the message goes. One that is too long for its place goes to the slot, for its length to be
 * found out.
 */
static char *target_of(const struct core_wire *wire, uint32_t link, uint32_t message,
		       uint64_t bytes)
{
	const struct core_wire_incoming *in = &wire->incoming[link];
	uint32_t slot = message % wire->num_slots;

	if (is_marked(in, message) && bytes <= in->slots[slot].room)
		return (char *)in->slots[slot].to;
	return core_wire_slot_at(wire, wire->in, link, message);
}

static void take_message(struct core_wire *wire, uint32_t link, uint32_t message,
			 struct net_payload *payload)
{
	uint32_t slot = message % wire->num_slots;
	uint64_t bytes = net_payload_bytes(payload);

	wire->incoming[link].slots[slot].message = message + UINT64_C(1);
	wire->incoming[link].slots[slot].bytes = bytes;
	net_payload_take(payload, target_of(wire, link, message, bytes),
			 wire->place == CORE_WIRE_ON_DEVICE,
			 &wire->incoming[link].slots[slot].status);
}

static void refuse_message(struct core_wire *wire, size_t bytes)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET, "a message of %zu bytes came for a slot of %llu",
		 bytes, (unsigned long long)wire->slot_bytes);
	wire->failed = true;
}

void core_wire_in_take_held(struct core_wire *wire)
{
	struct core_wire_held **link = &wire->held, *entry;

	while ((entry = *link)) {
		if (!can_take(wire, entry->link, entry->message)) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		if (net_payload_bytes(entry->payload) <= wire->slot_bytes) {
			take_message(wire, entry->link, entry->message, entry->payload);
		} else {
			refuse_message(wire, net_payload_bytes(entry->payload));
			net_payload_drop(entry->payload);
		}
		free(entry);
	}
}

static void hold(struct core_wire *wire, const struct net_header *header,
		 struct net_payload *payload)
{
	struct core_wire_held *entry = malloc(sizeof(*entry));

	if (entry)
		*entry = (struct core_wire_held){wire->held, header->link, header->message,
						 net_payload_keep(payload)};
	if (!entry || !entry->payload) {
		wire->failed = true;
		free(entry);
		return;
	}
	wire->held = entry;
}

void core_wire_in_receive(struct core_comm *comm, const struct net_header *header,
			  struct net_payload *payload)
{
	struct core_wire *wire = comm->wire;

	if (header->call + 1 != wire->call || header->link >= GPU_MAX_LINKS)
		return;
	if (wire->laid_out && wire->by_credit && !can_take(wire, header->link, header->message)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "message %u of link %u came before there was room for it", header->message,
			 header->link);
		wire->failed = true;
		return;
	}
	if (!can_take(wire, header->link, header->message))
		hold(wire, header, payload);
	else if (net_payload_bytes(payload) > wire->slot_bytes)
		refuse_message(wire, net_payload_bytes(payload));
	else
		take_message(wire, header->link, header->message, payload);
}

void core_wire_mark(struct core_wire *wire, uint32_t link, const uint8_t *marks, uint32_t per_round,
		    unsigned mask)
{
	struct core_wire_incoming *in = &wire->incoming[link];

	net_lock(NET_MAIN);
	wire->used = true;
	in->marks = marks;
	in->per_round = per_round;
	in->mask = mask;
	net_unlock(NET_MAIN);
}

void core_wire_expect(struct core_wire *wire, uint32_t link, int rank, uint32_t theirs,
		      uint64_t total)
{
	struct core_wire_incoming *in = &wire->incoming[link];

	in->rank = rank;
	in->theirs = theirs;
	in->total = total;
}

bool core_wire_place(struct core_wire *wire, uint32_t link, uint64_t message, uint64_t to,
		     uint64_t room)
{
	struct core_wire_incoming *in = &wire->incoming[link];
	uint64_t slot = message % wire->num_slots;
	bool is_free;

	net_lock(NET_MAIN);
	is_free = message < in->read + wire->num_slots;
	if (is_free) {
		in->slots[slot].placed = message + 1;
		in->slots[slot].to = to;
		in->slots[slot].room = room;
		wire->lends = true;
		core_wire_in_take_held(wire);
	}
	net_unlock(NET_MAIN);
	return is_free;
}

enum util_status core_wire_look(struct core_wire *wire, uint32_t link, uint64_t message,
				uint64_t *bytes)
{
	uint32_t slot = (uint32_t)(message % wire->num_slots);
	enum util_status status = UTIL_IN_PROGRESS;

	net_lock(NET_MAIN);
	if (wire->failed) {
		status = UTIL_ERR_PEER;
	} else if (wire->incoming[link].slots[slot].message == message + 1) {
		status = (enum util_status)core_wire_status_at(
			&wire->incoming[link].slots[slot].status);
		*bytes = wire->incoming[link].slots[slot].bytes;
	}
	net_unlock(NET_MAIN);
	return status;
}

/*
 * Tell the sender how many were read, now and then, as long as there is something that waits for
 * it, or will.
 */
static void give_credit(const struct core_comm *comm, const struct core_wire_incoming *in)
{
	const struct core_wire *wire = comm->wire;
	uint64_t each = wire->num_slots > 1 ? wire->num_slots / 2 : 1;
	struct net_header header = {.kind = CORE_MAIL_CREDIT,
				    .comm = comm->id,
				    .call = wire->call - 1,
				    .link = in->theirs,
				    .message = (uint32_t)in->read};

	if (in->read % each == 0 && in->total > in->read - each + wire->num_slots)
		core_mail_tell(comm, in->rank, &header, NULL, 0, NULL);
}

void core_wire_consume(const struct core_comm *comm, uint32_t link, uint64_t message)
{
	struct core_wire *wire = comm->wire;

	net_lock(NET_MAIN);
	wire->incoming[link].read = message + 1;
	core_wire_in_take_held(wire);
	if (wire->by_credit)
		give_credit(comm, &wire->incoming[link]);
	net_unlock(NET_MAIN);
}
