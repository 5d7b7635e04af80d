/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of messages of a stream communicator, each as one kernel (docs/decisions/0030). */
#include "core/accel/core_standing.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_links.h"
#include "core/accel/core_standing_parts.h"
#include "util/util_log.h"

#include <stdlib.h>
#include <string.h>

/* ---- where the FIFOs are ---- */

/*
 * In an arena's eighth (core_arena_layout_share): 128 KiB at least, so that each of GPU_MAX_PEERS
 * ranks has a FIFO of 1 KiB beside the words. There are two ranks at least.
 */
_Static_assert(GPU_MAX_PEERS * 1024 + GPU_EXCHANGE_WORDS + 4 * 8 * GPU_MAX_PEERS <= 128 << 10,
	       "the least room is enough for FIFOs of 1 KiB");
static uint64_t fifo_bytes(uint64_t room, uint64_t lanes)
{
	uint64_t words = gpu_exchange_words(lanes), bytes = GPU_EXCHANGE_MOST_FIFO;

	while (bytes > (room - words) / lanes)
		bytes /= 2;
	return bytes;
}

_Static_assert(2 * (GPU_MAX_PEERS - 1) + 1 <= GPU_EXCHANGE_MOST_ROUTES, "and one of copies");

/*
 * From what all members know alike: the bytes of an arena, its half, and the blocks of a kernel. A
 * pair has as many lanes as use most of the room, the more the better, but no more than there are
 * blocks: a block has one end of a route at most.
 */
void core_standing_lay_out_fifos(struct core_standing *standing, uint64_t arena, unsigned blocks)
{
	enum { ENOUGH = 32 << 10 }; /* bytes of a FIFO, rather than more lanes */
	uint64_t room = arena - 2 * standing->half, others = (uint64_t)standing->comm->num_near - 1;
	unsigned most = blocks < GPU_EXCHANGE_MOST_LANES ? blocks : GPU_EXCHANGE_MOST_LANES;

	standing->fifos = 2 * standing->half;
	standing->lanes = 1;
	standing->fifo_bytes = fifo_bytes(room, others);
	for (unsigned lanes = 2; lanes <= most; lanes++) {
		uint64_t bytes = fifo_bytes(room, others * lanes);

		if (bytes < ENOUGH || bytes * lanes < standing->fifo_bytes * standing->lanes)
			continue;
		standing->lanes = lanes;
		standing->fifo_bytes = bytes;
	}
}

uint64_t core_standing_fifo_words(const struct core_standing *standing)
{
	uint64_t others = (uint64_t)standing->comm->num_near - 1;

	return gpu_exchange_words(others * standing->lanes);
}

/* ---- a group's ends ---- */

/* What a launch is made from. */
struct group {
	const struct core_standing *standing;
	const struct core_standing_message *messages;
	int num;
	/* Of each rank, by its number, and direction, the first message; of each, the next; or -1.
	 */
	int first[CORE_MAX_NEAR][2], *next;
	struct gpu_exchange_route *routes; /* NULL: they are counted only */
	struct gpu_exchange_buffer *buffers;
	uint32_t num_routes, num_buffers;
	uint32_t used;           /* blocks, as bits */
	uint64_t bytes, longest; /* of a lane's part */
};

static void add_buffer(struct group *g, uint64_t address, uint64_t bytes)
{
	if (g->routes)
		g->buffers[g->num_buffers] = (struct gpu_exchange_buffer){address, bytes};
	g->num_buffers++;
}

/* The block of the first lane; of copies, which no other rank knows of, that of the first turn. */
static uint32_t block_of(const struct group *g, enum gpu_exchange_kind kind, int peer)
{
	const struct core_comm *comm = g->standing->comm;
	uint32_t me = (uint32_t)core_comm_number(comm, comm->rank);

	if (kind == GPU_EXCHANGE_COPY)
		return 0;
	return gpu_exchange_block((uint32_t)comm->num_near, me, (uint32_t)peer, g->standing->drawn);
}

/* The buffers since `first`, if there are any; the longest message has so many bytes. */
static void add_route(struct group *g, enum gpu_exchange_kind kind, int peer, uint32_t first,
		      uint64_t most)
{
	uint64_t share = gpu_exchange_share(most, g->standing->lanes), longest;
	uint32_t lanes = (uint32_t)((most + share - 1) / share);
	struct gpu_exchange_route route = {.kind = (uint16_t)kind,
					   .peer = (uint16_t)peer,
					   .lanes = (uint16_t)lanes,
					   .first = first,
					   .num = g->num_buffers - first};

	if (!route.num)
		return;
	route.block = (uint16_t)block_of(g, kind, peer);
	if (g->routes)
		g->routes[g->num_routes] = route;
	g->num_routes++;
	for (uint32_t i = 0; i < lanes; i++)
		g->used |= 1U << (route.block + i) % g->standing->drawn;
	longest = share < most ? share : most;
	g->longest = longest > g->longest ? longest : g->longest;
}

/* False: no memory. */
static bool sort_messages(struct group *g)
{
	memset(g->first, -1, sizeof(g->first));
	g->next = malloc(((size_t)g->num + 1) * sizeof(*g->next));
	for (int i = g->num - 1; g->next && i >= 0; i--) {
		const struct core_standing_message *m = &g->messages[i];
		int *first = &g->first[core_comm_number(g->standing->comm, m->rank)][m->sends];

		if (!m->bytes)
			continue;
		g->next[i] = *first;
		*first = i;
	}
	return g->next != NULL;
}

static void add_direction(struct group *g, int peer, bool sends)
{
	uint32_t first = g->num_buffers;
	uint64_t most = 0;

	for (int i = g->first[peer][sends]; i >= 0; i = g->next[i]) {
		const struct core_standing_message *m = &g->messages[i];

		add_buffer(g, m->address, m->bytes);
		most = m->bytes > most ? m->bytes : most;
		g->bytes += m->bytes;
	}
	add_route(g, sends ? GPU_EXCHANGE_SEND : GPU_EXCHANGE_RECEIVE, peer, first, most);
}

/*
 * To oneself the k-th send is the k-th receive's. False: they don't fit each other, as a collective
 * with wrong sizes has it; NCCL's door looks before (nccl_call_check_own).
 */
static bool add_copies(struct group *g, int me)
{
	int to = g->first[me][false], from = g->first[me][true];
	uint32_t first = g->num_buffers;
	uint64_t most = 0;

	for (; from >= 0 && to >= 0; from = g->next[from], to = g->next[to]) {
		if (g->messages[from].bytes != g->messages[to].bytes)
			return false;
		add_buffer(g, g->messages[from].address, g->messages[from].bytes);
		add_buffer(g, g->messages[to].address, g->messages[to].bytes);
		most = g->messages[from].bytes > most ? g->messages[from].bytes : most;
		g->bytes += 2 * g->messages[from].bytes;
	}
	add_route(g, GPU_EXCHANGE_COPY, 0, first, most);
	return from == to;
}

/* Begin with the ranks behind this one: not all with the same. */
static bool add_all(struct group *g)
{
	const struct core_comm *comm = g->standing->comm;
	int num = comm->num_near, me = core_comm_number(comm, comm->rank);

	g->num_routes = g->num_buffers = g->used = 0;
	g->bytes = g->longest = 0;
	if (!add_copies(g, me))
		return false;
	for (int i = 1; i < num; i++) {
		add_direction(g, (me + i) % num, true);
		add_direction(g, (me + num - i) % num, false);
	}
	return true;
}

/* ---- tables that do not fit a launch's arguments ---- */

struct core_standing_table {
	struct core_standing_table *next;
	struct gpu_staging_block *block;
	uint64_t ticket; /* of its launch; 0: that may be repeated */
};

void core_standing_free_tables(struct core_standing *standing, bool all_of_them)
{
	struct core_standing_table **link = &standing->tables, *table;

	while ((table = *link)) {
		if (!all_of_them && (!table->ticket ||
				     core_standing_load(&standing->words->ended) < table->ticket)) {
			link = &table->next;
			continue;
		}
		*link = table->next;
		gpu_staging_put(table->block);
		free(table);
	}
}

static enum util_status take_table(struct core_standing *standing, const struct group *g,
				   uint64_t ticket, struct gpu_staging_block **out)
{
	size_t bytes = g->num_routes * sizeof(*g->routes) + g->num_buffers * sizeof(*g->buffers);
	struct core_standing_table *table = malloc(sizeof(*table));
	enum util_status status;

	if (!table)
		return UTIL_ERR_NO_MEMORY;
	status = gpu_staging_get_pinned(bytes, gpu_stream_where(standing->own), &table->block);
	if (status == UTIL_OK && !gpu_staging_device_address(table->block, standing->own)) {
		gpu_staging_put(table->block);
		status = UTIL_ERR_UNSUPPORTED;
	}
	if (status != UTIL_OK) {
		free(table);
		return status;
	}
	table->ticket = ticket;
	table->next = standing->tables;
	standing->tables = table;
	*out = table->block;
	return UTIL_OK;
}

/* Have the group in the launch's arguments, or where they say. */
static enum util_status write_group(struct core_standing *standing, struct group *g,
				    struct gpu_exchange_args *args)
{
	struct gpu_staging_block *block;
	enum util_status status;

	args->num_routes = g->num_routes;
	args->used = g->used;
	if (g->num_routes <= GPU_EXCHANGE_FEW_ROUTES &&
	    g->num_buffers <= GPU_EXCHANGE_FEW_BUFFERS) {
		g->routes = args->few_routes;
		g->buffers = args->few_buffers;
	} else {
		status = take_table(standing, g, args->ticket, &block);
		if (status != UTIL_OK)
			return status;
		args->routes = gpu_staging_device_address(block, standing->own);
		args->buffers = args->routes + g->num_routes * sizeof(*g->routes);
		g->routes = block->base;
		g->buffers = (struct gpu_exchange_buffer *)(void *)(g->routes + g->num_routes);
	}
	add_all(g);
	return UTIL_OK;
}

/* ---- the launch ---- */

static void set_exchange_args(const struct core_standing *standing, struct gpu_exchange_args *args,
			      bool captured)
{
	const struct core_comm *comm = standing->comm;

	*args = (struct gpu_exchange_args){
		.enqueued = standing->address,
		.ticket = captured ? 0 : core_standing_load(&standing->tickets) + 1,
		.words = standing->fifos,
		.fifo_bytes = standing->fifo_bytes,
		.ranks = (uint32_t)comm->num_near,
		.rank = (uint32_t)core_comm_number(comm, comm->rank),
		.lanes = standing->lanes,
		.blocks = standing->drawn};
	core_links_set_arenas(comm, standing->arenas, standing->own, &args->shm, args->mine,
			      args->theirs);
}

static enum util_status put_exchange(struct core_standing *standing, struct group *g, uint64_t id,
				     struct gpu_stream *on, bool captured)
{
	struct gpu_exchange_args args;
	enum util_status status;

	if (!add_all(g)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "rank %d's messages to itself are not those that it receives",
			 standing->comm->rank);
		return UTIL_ERR_UNSUPPORTED;
	}
	if (!g->num_routes)
		return UTIL_OK;
	set_exchange_args(standing, &args, captured);
	args.id = id;
	status = write_group(standing, g, &args);
	if (status == UTIL_OK)
		status = gpu_launch_exchange(on, &args, (unsigned)__builtin_popcount(g->used),
					     g->longest);
	if (status != UTIL_OK)
		return status;
	if (!captured)
		__atomic_add_fetch(&standing->tickets, 1, __ATOMIC_RELEASE);
	core_standing_wake(standing, captured);
	return UTIL_OK;
}

enum util_status core_standing_exchange(struct core_standing *standing,
					const struct core_standing_message *messages, int num,
					uint64_t id, struct gpu_stream *on, bool captured,
					struct core_standing_call *out)
{
	struct group g = {.standing = standing, .messages = messages, .num = num};
	enum util_status status = UTIL_ERR_NO_MEMORY;

	core_standing_free_tables(standing, false);
	out->reason = core_reason_text(CORE_REASON_RANK_LOST);
	if (!core_standing_takes_calls(standing))
		return core_failure_of_loss(standing->comm);
	out->reason = "messages by kernels";
	if (sort_messages(&g))
		status = put_exchange(standing, &g, id, on, captured);
	out->bytes = g.bytes;
	free(g.next);
	return status;
}
