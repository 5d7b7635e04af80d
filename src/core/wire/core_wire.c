/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_wire.h"
#include "core/wire/core_mail.h"
#include "core/wire/core_wire_memory.h"
#include "net/net_port.h"
#include "util/util_log.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A message that waits for its slot to be free. */
struct held {
	struct held *next;
	uint32_t link, message;
	struct net_payload *payload;
};

struct incoming {
	uint64_t read; /* messages, in order */
	struct {
		uint64_t message; /* + 1: the one that is in it, or on its way */
		uint64_t bytes;
		_Atomic int status;
		uint64_t placed; /* + 1: the one that is to go to `to` instead */
		uint64_t to, room;
	} slots[CORE_WIRE_MAX_SLOTS];
	/* See core_wire_mark; NULL: all have slots. */
	const uint8_t *marks;
	uint32_t per_round;
	unsigned mask;
	/* See core_wire_expect. */
	int rank;
	uint32_t theirs;
	uint64_t total;
};

/* A message that its receiver has not said yet that it has room for. */
struct put_off {
	bool waits;
	int rank;
	struct net_header header;
	struct net_data data;
};

struct outgoing {
	_Atomic int status[CORE_WIRE_MAX_SLOTS]; /* of the last message from the slot */
	uint64_t read;                           /* messages, by credit, as the receiver has said */
	struct put_off put_off[CORE_WIRE_MAX_SLOTS];
};

/* All is guarded by the main port's lock, but for statuses, which the port sets. */
struct core_wire {
	struct gpu_shm *ahead;  /* what comes in, then what goes out */
	uint64_t ahead_address; /* for kernels */
	struct core_wire_arena in[CORE_WIRE_NUM_PLACES], out[CORE_WIRE_NUM_PLACES];
	enum core_wire_place place; /* the call's */
	bool has_device; /* there are those on the device, for the last stream asked for */
	size_t bytes;    /* of each */
	size_t refused;  /* that could not be had, or are there */
	uint64_t call;   /* + 1 */
	bool laid_out;
	bool by_credit; /* messages go when the receiver has said that there is room */
	int num_put_off;
	bool all_fetched;
	uint64_t start, slot_bytes;
	uint32_t num_slots;
	bool failed; /* a message can't be had */
	bool lends;  /* messages of the call go from or to the application's memory */
	bool used;   /* `incoming` has been, by the call or one before it */
	struct held *held;
	struct incoming incoming[GPU_MAX_LINKS];
	struct outgoing outgoing[GPU_MAX_LINKS];
};

struct core_wire *core_wire_create(void)
{
	return calloc(1, sizeof(struct core_wire));
}

static void drop_held(struct core_wire *wire)
{
	struct held *entry;

	while ((entry = wire->held)) {
		wire->held = entry->next;
		net_payload_drop(entry->payload);
		free(entry);
	}
}

static int status_at(const _Atomic int *status)
{
	return atomic_load_explicit(status, memory_order_acquire);
}

/* Of a call that has failed; UCX has not seen them. */
static void drop_put_off(struct core_wire *wire)
{
	for (int i = 0; i < GPU_MAX_LINKS && wire->num_put_off; i++) {
		struct outgoing *out = &wire->outgoing[i];

		for (int j = 0; j < CORE_WIRE_MAX_SLOTS; j++) {
			if (!out->put_off[j].waits)
				continue;
			out->put_off[j].waits = false;
			atomic_store_explicit(&out->status[j], UTIL_OK, memory_order_relaxed);
			wire->num_put_off--;
		}
	}
}

/* UCX is at work on some slot. */
static bool is_busy(const struct core_wire *wire)
{
	for (int i = 0; i < GPU_MAX_LINKS; i++) {
		for (int j = 0; j < CORE_WIRE_MAX_SLOTS; j++) {
			if (status_at(&wire->incoming[i].slots[j].status) == UTIL_IN_PROGRESS ||
			    status_at(&wire->outgoing[i].status[j]) == UTIL_IN_PROGRESS)
				return true;
		}
	}
	return false;
}

/* What UCX may still touch, after a failure, is left to the end of the process. */
void core_wire_free(struct core_wire *wire)
{
	if (!wire)
		return;
	if (core_mail_is_up())
		drop_held(wire);
	drop_put_off(wire);
	if (is_busy(wire))
		return;
	core_wire_memory_close(wire->in);
	core_wire_memory_close(wire->out);
	if (wire->ahead)
		gpu_shm_free(wire->ahead);
	free(wire);
}

/*
 * To larger ones, if they can be had and UCX is not at work on these, as it may be after a failure.
 */
static void grow(struct core_wire *wire, size_t bytes, struct gpu_stream *stream)
{
	struct core_wire_arena in[CORE_WIRE_NUM_PLACES] = {0}, out[CORE_WIRE_NUM_PLACES] = {0};
	bool has_device,
		well = core_wire_memory_open(in, out, bytes, stream, &has_device) == UTIL_OK;

	net_lock(NET_MAIN);
	if (well && !is_busy(wire)) {
		/* What comes of the last call still has no place. */
		wire->laid_out = false;
		wire->call = 0;
		core_wire_memory_swap(wire->in, in);
		core_wire_memory_swap(wire->out, out);
		wire->bytes = bytes;
	}
	net_unlock(NET_MAIN);
	core_wire_memory_close(in);
	core_wire_memory_close(out);
}

enum util_status core_wire_open_ahead(struct core_wire *wire, struct gpu_stream *stream)
{
	return core_wire_memory_open_host(&wire->ahead, (size_t)2 * CORE_WIRE_AHEAD, stream,
					  &wire->ahead_address);
}

enum util_status core_wire_open(struct core_wire *wire, size_t bytes, struct gpu_stream *stream)
{
	enum util_status status = core_wire_open_ahead(wire, stream);

	/* What can't be had is not asked for again, as that costs all calls. */
	if (status == UTIL_OK && wire->bytes < bytes && wire->refused != bytes)
		grow(wire, bytes, stream);
	if (wire->bytes)
		wire->refused = bytes;
	if (status == UTIL_OK && !wire->bytes)
		status = UTIL_ERR_UNSUPPORTED;
	return status == UTIL_OK ? core_wire_memory_open(wire->in, wire->out, wire->bytes, stream,
							 &wire->has_device)
				 : status;
}

size_t core_wire_bytes(const struct core_wire *wire)
{
	return wire->bytes;
}

bool core_wire_takes_memory(const struct core_wire *wire)
{
	return wire->has_device;
}

uint64_t core_wire_inbox(const struct core_wire *wire)
{
	return wire->in[wire->place].address;
}

uint64_t core_wire_outbox(const struct core_wire *wire)
{
	return wire->out[wire->place].address;
}

void *core_wire_host_inbox(const struct core_wire *wire)
{
	return gpu_shm_host(wire->in[CORE_WIRE_ON_HOST].host);
}

void *core_wire_host_outbox(const struct core_wire *wire)
{
	return gpu_shm_host(wire->out[CORE_WIRE_ON_HOST].host);
}

void *core_wire_ahead_in(const struct core_wire *wire)
{
	return gpu_shm_host(wire->ahead);
}

void *core_wire_ahead_out(const struct core_wire *wire)
{
	return (char *)gpu_shm_host(wire->ahead) + CORE_WIRE_AHEAD;
}

uint64_t core_wire_ahead_address(const struct core_wire *wire)
{
	return wire->ahead_address;
}

/* `arenas`: those for what comes in, or for what goes out. */
static char *slot_at(const struct core_wire *wire, const struct core_wire_arena *arenas,
		     uint32_t link, uint64_t message)
{
	uint64_t slot = (uint64_t)link * wire->num_slots + message % wire->num_slots;

	return arenas[wire->place].base + wire->start + slot * wire->slot_bytes;
}

/* ---- messages that come ---- */

static bool is_marked(const struct incoming *in, uint32_t message)
{
	return in->marks && in->marks[message % in->per_round] & in->mask;
}

/* The message's slot is free when what was in it was read. */
static bool can_take(const struct core_wire *wire, uint32_t link, uint32_t message)
{
	const struct incoming *in = &wire->incoming[link];

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
	const struct incoming *in = &wire->incoming[link];
	uint32_t slot = message % wire->num_slots;

	if (is_marked(in, message) && bytes <= in->slots[slot].room)
		return (char *)in->slots[slot].to;
	return slot_at(wire, wire->in, link, message);
}

static void take(struct core_wire *wire, uint32_t link, uint32_t message,
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

static void refuse(struct core_wire *wire, size_t bytes)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET, "a message of %zu bytes came for a slot of %llu",
		 bytes, (unsigned long long)wire->slot_bytes);
	wire->failed = true;
}

static void take_held(struct core_wire *wire)
{
	struct held **link = &wire->held, *entry;

	while ((entry = *link)) {
		if (!can_take(wire, entry->link, entry->message)) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		if (net_payload_bytes(entry->payload) <= wire->slot_bytes) {
			take(wire, entry->link, entry->message, entry->payload);
		} else {
			refuse(wire, net_payload_bytes(entry->payload));
			net_payload_drop(entry->payload);
		}
		free(entry);
	}
}

static void hold(struct core_wire *wire, const struct net_header *header,
		 struct net_payload *payload)
{
	struct held *entry = malloc(sizeof(*entry));

	if (entry)
		*entry = (struct held){wire->held, header->link, header->message,
				       net_payload_keep(payload)};
	if (!entry || !entry->payload) {
		wire->failed = true;
		free(entry);
		return;
	}
	wire->held = entry;
}

static void receive(struct core_comm *comm, const struct net_header *header,
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
		refuse(wire, net_payload_bytes(payload));
	else
		take(wire, header->link, header->message, payload);
}

/* ---- a call ---- */

static void forget_messages(struct core_wire *wire)
{
	for (int i = 0; i < GPU_MAX_LINKS; i++) {
		wire->incoming[i].read = wire->outgoing[i].read = 0;
		wire->incoming[i].marks = NULL;
		for (int j = 0; j < CORE_WIRE_MAX_SLOTS; j++)
			wire->incoming[i].slots[j].message = wire->incoming[i].slots[j].placed = 0;
	}
}

void core_wire_begin(struct core_wire *wire, uint64_t call)
{
	net_lock(NET_MAIN);
	drop_held(wire);
	wire->call = call + 1;
	wire->laid_out = wire->lends = false;
	drop_put_off(wire);
	if (wire->used)
		forget_messages(wire);
	wire->used = false;
	net_unlock(NET_MAIN);
}

void core_wire_mark(struct core_wire *wire, uint32_t link, const uint8_t *marks, uint32_t per_round,
		    unsigned mask)
{
	struct incoming *in = &wire->incoming[link];

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
	struct incoming *in = &wire->incoming[link];

	in->rank = rank;
	in->theirs = theirs;
	in->total = total;
}

bool core_wire_place(struct core_wire *wire, uint32_t link, uint64_t message, uint64_t to,
		     uint64_t room)
{
	struct incoming *in = &wire->incoming[link];
	uint64_t slot = message % wire->num_slots;
	bool is_free;

	net_lock(NET_MAIN);
	is_free = message < in->read + wire->num_slots;
	if (is_free) {
		in->slots[slot].placed = message + 1;
		in->slots[slot].to = to;
		in->slots[slot].room = room;
		wire->lends = true;
		take_held(wire);
	}
	net_unlock(NET_MAIN);
	return is_free;
}

void core_wire_lay_out(struct core_wire *wire, uint64_t start, uint64_t slot_bytes,
		       uint32_t num_slots, bool by_gdr)
{
	net_lock(NET_MAIN);
	wire->place = by_gdr && wire->has_device ? CORE_WIRE_ON_DEVICE : CORE_WIRE_ON_HOST;
	wire->start = start;
	wire->slot_bytes = slot_bytes;
	wire->num_slots = num_slots;
	wire->by_credit = !by_gdr && core_mail_is_by_sockets();
	wire->all_fetched = by_gdr;
	wire->laid_out = wire->used = true;
	take_held(wire);
	net_unlock(NET_MAIN);
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
		status = (enum util_status)status_at(&wire->incoming[link].slots[slot].status);
		*bytes = wire->incoming[link].slots[slot].bytes;
	}
	net_unlock(NET_MAIN);
	return status;
}

/*
 * Tell the sender how many were read, now and then, as long as there is something that waits for
 * it, or will.
 */
static void give_credit(const struct core_comm *comm, const struct incoming *in)
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
	take_held(wire);
	if (wire->by_credit)
		give_credit(comm, &wire->incoming[link]);
	net_unlock(NET_MAIN);
}

enum util_status core_wire_has_room(struct core_wire *wire, uint32_t link, uint64_t message)
{
	return (enum util_status)status_at(&wire->outgoing[link].status[message % wire->num_slots]);
}

static bool has_credit(const struct core_wire *wire, const struct outgoing *out, uint64_t message)
{
	return !wire->by_credit || message < out->read + wire->num_slots;
}

static void receive_credit(struct core_comm *comm, const struct net_header *header,
			   struct net_payload *payload)
{
	struct core_wire *wire = comm->wire;
	struct outgoing *out;
	uint64_t next;

	(void)payload;
	if (header->call + 1 != wire->call || header->link >= GPU_MAX_LINKS || !wire->by_credit)
		return;
	out = &wire->outgoing[header->link];
	next = out->read + wire->num_slots;
	if (header->message > out->read)
		out->read = header->message;
	for (uint32_t i = 0; i < wire->num_slots; i++) {
		uint64_t slot = (next + i) % wire->num_slots;
		struct put_off *message = &out->put_off[slot];

		if (!message->waits || !has_credit(wire, out, message->header.message))
			continue;
		message->waits = false;
		wire->num_put_off--;
		core_mail_send(comm, message->rank, &message->header, &message->data,
			       &out->status[slot]);
	}
}

void core_wire_handle_mail(void)
{
	core_mail_handle(CORE_MAIL_DATA, receive);
	core_mail_handle(CORE_MAIL_CREDIT, receive_credit);
}

/* Fetched ones hold up their sender until there is room, whether they are short or not. */
static bool is_fetched(const struct core_wire *wire, uint64_t message, uint64_t bytes)
{
	if (wire->all_fetched)
		return true;
	return !wire->by_credit && (message >= wire->num_slots || bytes >= NET_LONG);
}

void core_wire_send(const struct core_comm *comm, int rank, uint32_t link, uint32_t theirs,
		    uint64_t call, uint64_t message, uint64_t from, uint64_t bytes)
{
	struct core_wire *wire = comm->wire;
	struct outgoing *out = &wire->outgoing[link];
	uint64_t slot = message % wire->num_slots;
	struct net_header header = {.kind = CORE_MAIL_DATA,
				    .comm = comm->id,
				    .call = call,
				    .link = theirs,
				    .message = (uint32_t)message};
	struct net_data data = {.at = from ? (char *)from : slot_at(wire, wire->out, link, message),
				.bytes = bytes,
				.device = wire->place == CORE_WIRE_ON_DEVICE,
				.fetched = is_fetched(wire, message, bytes)};

	wire->lends |= from != 0;
	net_lock(NET_MAIN);
	if (has_credit(wire, out, message)) {
		core_mail_send(comm, rank, &header, &data, &out->status[slot]);
	} else {
		out->put_off[slot] = (struct put_off){true, rank, header, data};
		wire->num_put_off++;
		atomic_store_explicit(&out->status[slot], UTIL_IN_PROGRESS, memory_order_relaxed);
	}
	net_unlock(NET_MAIN);
}

enum util_status core_wire_drain(struct core_wire *wire)
{
	for (uint32_t i = 0; i < GPU_MAX_LINKS; i++) {
		for (uint32_t j = 0; j < wire->num_slots; j++) {
			enum util_status status =
				(enum util_status)status_at(&wire->outgoing[i].status[j]);

			if (status != UTIL_OK)
				return status;
		}
	}
	return UTIL_OK;
}

bool core_wire_has_memory(struct core_wire *wire)
{
	bool has;

	net_lock(NET_MAIN);
	wire->call = 0;
	drop_held(wire);
	drop_put_off(wire);
	has = wire->lends && is_busy(wire);
	net_unlock(NET_MAIN);
	return has;
}
