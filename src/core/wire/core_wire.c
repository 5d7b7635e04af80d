/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/core_wire.h"
#include "core/wire/core_mail.h"
#include "core/wire/core_wire_parts.h"
#include "net/net_port.h"

#include <stdlib.h>

struct core_wire *core_wire_create(void)
{
	return calloc(1, sizeof(struct core_wire));
}

/* Of a call that has failed; UCX has not seen them. */
static void drop_put_off(struct core_wire *wire)
{
	for (int i = 0; i < GPU_MAX_LINKS && wire->num_put_off; i++) {
		struct core_wire_outgoing *out = &wire->outgoing[i];

		for (int j = 0; j < CORE_WIRE_MAX_SLOTS; j++) {
			if (!out->put_off[j].waits)
				continue;
			out->put_off[j].waits = false;
			atomic_store_explicit(&out->status[j], UTIL_OK, memory_order_relaxed);
			wire->num_put_off--;
		}
	}
}

static bool is_coming(const struct core_wire *wire, uint32_t link)
{
	for (int i = 0; i < CORE_WIRE_MAX_SLOTS; i++) {
		if (core_wire_status_at(&wire->incoming[link].slots[i].status) == UTIL_IN_PROGRESS)
			return true;
	}
	return false;
}

static bool is_going(const struct core_wire *wire, uint32_t link)
{
	for (int i = 0; i < CORE_WIRE_MAX_SLOTS; i++) {
		if (core_wire_status_at(&wire->outgoing[link].status[i]) == UTIL_IN_PROGRESS)
			return true;
	}
	return false;
}

/* UCX is at work on some slot. */
static bool is_busy(const struct core_wire *wire)
{
	for (uint32_t i = 0; i < GPU_MAX_LINKS; i++) {
		if (is_coming(wire, i) || is_going(wire, i))
			return true;
	}
	return false;
}

/* What UCX may still touch, after a failure, is left to the end of the process. */
void core_wire_free(struct core_wire *wire)
{
	if (!wire)
		return;
	if (core_mail_is_up())
		core_wire_in_drop_held(wire);
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
static void grow_arenas(struct core_wire *wire, size_t bytes, struct gpu_stream *stream)
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
		grow_arenas(wire, bytes, stream);
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
	core_wire_in_drop_held(wire);
	wire->call = call + 1;
	wire->laid_out = wire->lends = false;
	drop_put_off(wire);
	if (wire->used)
		forget_messages(wire);
	wire->used = false;
	net_unlock(NET_MAIN);
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
	core_wire_in_take_held(wire);
	net_unlock(NET_MAIN);
}

enum util_status core_wire_has_room(struct core_wire *wire, uint32_t link, uint64_t message)
{
	return (enum util_status)core_wire_status_at(
		&wire->outgoing[link].status[message % wire->num_slots]);
}

static bool has_credit(const struct core_wire *wire, const struct core_wire_outgoing *out,
		       uint64_t message)
{
	return !wire->by_credit || message < out->read + wire->num_slots;
}

static void receive_credit(struct core_comm *comm, const struct net_header *header,
			   struct net_payload *payload)
{
	struct core_wire *wire = comm->wire;
	struct core_wire_outgoing *out;
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
		struct core_wire_put_off *message = &out->put_off[slot];

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
	core_mail_handle(CORE_MAIL_DATA, core_wire_in_receive);
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
	struct core_wire_outgoing *out = &wire->outgoing[link];
	uint64_t slot = message % wire->num_slots;
	struct net_header header = {.kind = CORE_MAIL_DATA,
				    .comm = comm->id,
				    .call = call,
				    .link = theirs,
				    .message = (uint32_t)message};
	struct net_data data = {.at = from ? (char *)from
					   : core_wire_slot_at(wire, wire->out, link, message),
				.bytes = bytes,
				.device = wire->place == CORE_WIRE_ON_DEVICE,
				.fetched = is_fetched(wire, message, bytes)};

	wire->lends |= from != 0;
	net_lock(NET_MAIN);
	if (has_credit(wire, out, message)) {
		core_mail_send(comm, rank, &header, &data, &out->status[slot]);
	} else {
		out->put_off[slot] = (struct core_wire_put_off){true, rank, header, data};
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
				(enum util_status)core_wire_status_at(&wire->outgoing[i].status[j]);

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
	core_wire_in_drop_held(wire);
	drop_put_off(wire);
	has = wire->lends && is_busy(wire);
	net_unlock(NET_MAIN);
	return has;
}

void core_wire_look_at(struct core_wire *wire, uint32_t link, bool *coming, bool *going)
{
	net_lock(NET_MAIN);
	*coming = is_coming(wire, link);
	*going = is_going(wire, link);
	net_unlock(NET_MAIN);
}
