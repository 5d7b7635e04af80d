/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The links between nodes (core_wire.h) alone: ranks in one process, whose messages go through a
 * made-up network that delivers in any order. Each call has links at random; senders fill slots as
 * soon as they are free, receivers lay out, read and consume when it is their turn; some calls
 * break off, and what is still under way of them comes in the next one.
 */
#include "../draw.h"
#include "core/job/core_mpi_job.h"
#include "core/wire/core_mail.h"
#include "core/wire/core_wire.h"
#include "core/wire/core_wire_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
	RANKS = 3,
	LINKS = 3, /* of a rank, in either direction */
	CALLS = 12,
	SLOT_BYTES = 64,
	MOST_MESSAGES = 40,
	PER_ROUND = 4,
	START = 128, /* of the slots, in arenas */
	ARENA_BYTES = START + LINKS * CORE_WIRE_MAX_SLOTS * SLOT_BYTES,
	POISON = 0xEE
};

/* ---- the network ---- */

/* Its data leave the sender when it departs, or, of one that is fetched, when it is taken. */
struct net_payload {
	struct net_payload *next;
	int to;
	struct net_header header;
	const char *at;
	size_t bytes;
	bool fetched, departed, kept, dropped;
	_Atomic int *sent; /* the sender's status; NULL: nobody waits */
	char *target;      /* once it is taken */
	_Atomic int *taken;
	char copy[SLOT_BYTES];
};

/* A link of the call, with what each end has done. */
struct link {
	int from, to;
	uint32_t ours, theirs; /* its numbers */
	uint64_t total, sent, placed, read;
	size_t sizes[MOST_MESSAGES];
	char targets[MOST_MESSAGES][SLOT_BYTES]; /* the application's, of those that are marked */
	uint8_t marks[PER_ROUND];
};

static struct world {
	struct core_comm *comms[RANKS];
	bool laid_out[RANKS];
	struct link links[RANKS * LINKS];
	int num_links;
	uint64_t call;
	uint32_t num_slots;
	bool by_gdr, by_sockets;
	struct net_payload *payloads;
	int num_payloads;
	uint64_t random;
} world;

static core_mail_handler *handlers[CORE_MAIL_NUM_KINDS];

static uint32_t pick(uint32_t below)
{
	return (uint32_t)(draw(&world.random) % below);
}

void net_lock(enum net_port port)
{
	(void)port;
}

void net_unlock(enum net_port port)
{
	(void)port;
}

bool net_takes_device_memory(void)
{
	return true;
}

void net_set_context(void (*enter)(void), void (*leave)(void))
{
	(void)enter;
	(void)leave;
}

bool core_mail_is_up(void)
{
	return true;
}

bool core_mail_is_by_sockets(void)
{
	return world.by_sockets;
}

void core_mail_handle(enum core_mail_kind kind, core_mail_handler *handler)
{
	handlers[kind] = handler;
}

static struct net_payload *post(int to, const struct net_header *header)
{
	struct net_payload *payload = calloc(1, sizeof(*payload));

	assert_non_null(payload);
	payload->to = to;
	payload->header = *header;
	payload->next = world.payloads;
	world.payloads = payload;
	world.num_payloads++;
	return payload;
}

void core_mail_tell(const struct core_comm *comm, int rank, const struct net_header *header,
		    const void *data, size_t bytes, _Atomic int *underway)
{
	(void)comm;
	(void)data;
	assert_int_equal(bytes, 0);
	assert_null(underway);
	post(rank, header)->departed = true;
}

void core_mail_send(const struct core_comm *comm, int rank, const struct net_header *header,
		    const struct net_data *data, _Atomic int *status)
{
	struct net_payload *payload = post(rank, header);

	(void)comm;
	assert_true(data->bytes <= SLOT_BYTES);
	assert_true(!data->device || data->fetched);
	payload->at = data->at;
	payload->bytes = data->bytes;
	payload->fetched = data->fetched && data->bytes;
	payload->sent = status;
	atomic_store(status, UTIL_IN_PROGRESS);
}

size_t net_payload_bytes(const struct net_payload *payload)
{
	return payload->bytes;
}

void net_payload_take(struct net_payload *payload, void *to, bool device, _Atomic int *status)
{
	assert_true(!device || payload->fetched || !payload->bytes);
	assert_null(payload->target);
	payload->target = to;
	payload->taken = status;
	atomic_store(status, UTIL_IN_PROGRESS);
}

struct net_payload *net_payload_keep(struct net_payload *payload)
{
	payload->kept = true;
	return payload;
}

void net_payload_drop(struct net_payload *kept)
{
	assert_true(kept->kept);
	kept->dropped = true;
}

static void forget(struct net_payload *payload)
{
	struct net_payload **link = &world.payloads;

	while (*link != payload)
		link = &(*link)->next;
	*link = payload->next;
	world.num_payloads--;
	if (payload->sent)
		atomic_store(payload->sent, UTIL_OK);
	free(payload);
}

static void depart(struct net_payload *payload)
{
	if (!payload->fetched) {
		memcpy(payload->copy, payload->at, payload->bytes);
		payload->at = payload->copy;
		atomic_store(payload->sent, UTIL_OK);
		payload->sent = NULL;
	}
	payload->departed = true;
}

/* The handler takes it, keeps it, or leaves it. */
static void arrive(struct net_payload *payload)
{
	handlers[payload->header.kind](world.comms[payload->to], &payload->header, payload);
	if (!payload->target && !payload->kept)
		forget(payload);
}

static void move(struct net_payload *payload)
{
	memcpy(payload->target, payload->at, payload->bytes);
	atomic_store(payload->taken, UTIL_OK);
	forget(payload);
}

/* Something happens to one of what is under way. */
static void carry(void)
{
	struct net_payload *payload = world.payloads;

	if (!payload)
		return;
	for (uint32_t skip = pick((uint32_t)world.num_payloads); skip; skip--)
		payload = payload->next;
	if (!payload->departed && (payload->sent || payload->header.kind == CORE_MAIL_DATA))
		depart(payload);
	else if (payload->dropped)
		forget(payload);
	else if (payload->target)
		move(payload);
	else if (!payload->kept)
		arrive(payload);
}

/* ---- the two ends of a link ---- */

static unsigned char byte_of(const struct link *link, uint64_t message, size_t i)
{
	return (unsigned char)(world.call * 31 + message * 7 + link->ours +
			       (uint64_t)link->from * 3 + i);
}

static bool is_marked(const struct link *link, uint64_t message)
{
	return world.by_gdr && link->marks[message % PER_ROUND] & 1;
}

/* As core_proxy.c and kernels do. From the application's memory sometimes, by GPUDirect. */
static void send_next(struct link *link)
{
	static char user[RANKS * LINKS][MOST_MESSAGES][SLOT_BYTES];
	const struct core_comm *comm = world.comms[link->from];
	uint64_t message = link->sent;
	char *slot = core_wire_slot_at(comm->wire, comm->wire->out, link->ours, message);
	char *at = world.by_gdr && pick(2) ? user[link - world.links][message] : NULL;

	if (message == link->total || !world.laid_out[link->from] ||
	    core_wire_has_room(comm->wire, link->ours, message) != UTIL_OK)
		return;
	for (size_t i = 0; i < link->sizes[message]; i++)
		(at ? at : slot)[i] = (char)byte_of(link, message, i);
	core_wire_send(comm, link->to, link->ours, link->theirs, world.call, message, (uint64_t)at,
		       link->sizes[message]);
	link->sent++;
}

/* Half of those that are marked find less room than they need, and are then in their slots. */
static size_t room_of(const struct link *link, uint64_t message)
{
	return link->theirs % 2 ? SLOT_BYTES : link->sizes[message] / 2;
}

/* Marked messages are to be placed ahead of their turn, as far as that can be. */
static void place_next(struct link *link)
{
	struct core_wire *wire = world.comms[link->to]->wire;

	while (link->placed < link->total && !is_marked(link, link->placed))
		link->placed++;
	if (link->placed < link->total &&
	    core_wire_place(wire, link->theirs, link->placed, (uint64_t)link->targets[link->placed],
			    room_of(link, link->placed)))
		link->placed++;
}

static void receive_next(struct link *link)
{
	const struct core_comm *comm = world.comms[link->to];
	uint64_t message = link->read, bytes;
	enum util_status status;
	char *at;

	if (message == link->total || !world.laid_out[link->to])
		return;
	place_next(link);
	status = core_wire_look(comm->wire, link->theirs, message, &bytes);
	if (status == UTIL_IN_PROGRESS)
		return;
	assert_int_equal(status, UTIL_OK);
	assert_int_equal(bytes, link->sizes[message]);
	at = is_marked(link, message) && bytes <= room_of(link, message)
		     ? link->targets[message]
		     : core_wire_slot_at(comm->wire, comm->wire->in, link->theirs, message);
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal((unsigned char)at[i], byte_of(link, message, i));
	/* Nor has anything else been written there, as what is left of a call that broke off. */
	for (size_t i = bytes; at == link->targets[message] && i < SLOT_BYTES; i++)
		assert_int_equal(at[i], 0);
	memset(at, POISON, bytes);
	core_wire_consume(comm, link->theirs, message);
	link->read++;
}

static void lay_out(int rank)
{
	struct core_wire *wire = world.comms[rank]->wire;

	if (world.laid_out[rank])
		return;
	for (int i = 0; i < world.num_links; i++) {
		struct link *link = &world.links[i];

		if (link->to != rank)
			continue;
		core_wire_expect(wire, link->theirs, link->from, link->ours, link->total);
		if (world.by_gdr)
			core_wire_mark(wire, link->theirs, link->marks, PER_ROUND, 1);
	}
	core_wire_lay_out(wire, START, SLOT_BYTES, world.num_slots, world.by_gdr);
	world.laid_out[rank] = true;
}

/* ---- calls ---- */

static void add_link(int from, int to, uint32_t ours, uint32_t theirs)
{
	struct link *link = &world.links[world.num_links++];

	*link = (struct link){.from = from,
			      .to = to,
			      .ours = ours,
			      .theirs = theirs,
			      .total = pick(MOST_MESSAGES + 1)};
	for (int i = 0; i < MOST_MESSAGES; i++)
		link->sizes[i] = pick(4) ? pick(SLOT_BYTES + 1) : 0;
	for (int i = 0; i < PER_ROUND; i++)
		link->marks[i] = (uint8_t)pick(4);
}

/* Each rank to the next one and to the one before. */
static void make_call(void)
{
	world.call++;
	world.num_slots = 1 + pick(CORE_WIRE_MAX_SLOTS);
	world.by_gdr = pick(2);
	world.by_sockets = pick(2);
	world.num_links = 0;
	for (int rank = 0; rank < RANKS; rank++) {
		add_link(rank, (rank + 1) % RANKS, 0, 2);
		add_link(rank, (rank + RANKS - 1) % RANKS, 1, 0);
		add_link(rank, (rank + 1) % RANKS, 2, 1);
	}
	for (int rank = 0; rank < RANKS; rank++) {
		core_wire_begin(world.comms[rank]->wire, world.call);
		world.laid_out[rank] = false;
	}
}

static bool is_done(void)
{
	for (int i = 0; i < world.num_links; i++) {
		if (world.links[i].read < world.links[i].total)
			return false;
	}
	for (int rank = 0; rank < RANKS; rank++) {
		if (!world.laid_out[rank] || core_wire_drain(world.comms[rank]->wire) != UTIL_OK)
			return false;
	}
	return true;
}

static void turn(void)
{
	struct link *link = &world.links[pick((uint32_t)world.num_links)];

	switch (pick(5)) {
	case 0:
		if (!pick(20))
			lay_out((int)pick(RANKS));
		break;
	case 1:
		send_next(link);
		break;
	case 2:
		receive_next(link);
		break;
	default:
		carry();
		break;
	}
}

/* UCX may be at work on the application's memory: until it is not, it may not be used again. */
static void break_off(void)
{
	bool has_memory = true;

	while (has_memory) {
		has_memory = false;
		for (int rank = 0; rank < RANKS; rank++)
			has_memory |= core_wire_has_memory(world.comms[rank]->wire);
		carry();
	}
}

static void make_world(uint64_t seed)
{
	struct core_member members[RANKS];

	world = (struct world){.random = seed};
	for (int rank = 0; rank < RANKS; rank++) {
		struct core_wire *wire = core_wire_create();

		for (int i = 0; i < RANKS; i++)
			members[i] = (struct core_member){i, i, i == rank ? 0 : -1};
		world.comms[rank] = core_comm_new(1, rank, RANKS, members);
		assert_non_null(world.comms[rank]);
		assert_non_null(wire);
		for (int place = 0; place < CORE_WIRE_NUM_PLACES; place++) {
			wire->in[place].base = calloc(1, ARENA_BYTES);
			wire->out[place].base = calloc(1, ARENA_BYTES);
			assert_non_null(wire->in[place].base);
			assert_non_null(wire->out[place].base);
		}
		wire->has_device = true;
		world.comms[rank]->wire = wire;
	}
}

static void free_world(void)
{
	while (world.payloads)
		forget(world.payloads);
	for (int rank = 0; rank < RANKS; rank++) {
		struct core_wire *wire = world.comms[rank]->wire;

		core_wire_in_drop_held(wire);
		for (int place = 0; place < CORE_WIRE_NUM_PLACES; place++) {
			free(wire->in[place].base);
			free(wire->out[place].base);
		}
		free(wire);
		core_comm_free(world.comms[rank]);
	}
}

/* One in `breaks` calls breaks off; 0: none. */
static void run(uint64_t seed, uint32_t breaks)
{
	enum { MOST_STEPS = 1000000 };

	make_world(seed);
	for (int call = 0; call < CALLS; call++) {
		int last = breaks && !pick(breaks) ? (int)pick(3000) : MOST_STEPS, step = 0;

		make_call();
		while (step < last && !is_done()) {
			turn();
			step++;
		}
		if (step == MOST_STEPS)
			fail_msg("seed %llu: call %d is not done after %d steps",
				 (unsigned long long)seed, call, MOST_STEPS);
		if (step == last)
			break_off();
	}
	free_world();
}

static void messages_come(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++)
		run(seed, 0);
}

static void calls_break_off(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++)
		run(seed, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_come),
		cmocka_unit_test(calls_break_off),
	};

	core_mpi_job.size = RANKS;
	core_wire_handle_mail();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
