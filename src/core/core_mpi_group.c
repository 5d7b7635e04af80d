/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_group.h"
#include "core/call/core_coll.h"
#include "core/call/core_layout.h"
#include "core/core_mpi_packed.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_type.h"
#include "gpu/gpu_pointer.h"
#include "gpu/kernels/gpu_exchange.h"
#include "util/util_log.h"

#include <stdlib.h>

/* ---- of collectives ---- */

bool core_group_has_form_of(enum core_coll coll)
{
	switch (coll) {
	case CORE_GATHERV:
	case CORE_SCATTERV:
	case CORE_ALLGATHERV:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		return true;
	default:
		return core_coll_is_neighbor(coll);
	}
}

static enum util_status add_part(struct core_group *group, const struct core_message_part *part)
{
	if (part->count < 0 || (part->count && core_mpi_as_type(part->type) == MPI_DATATYPE_NULL))
		return UTIL_ERR_MPI;
	if (!part->count)
		return UTIL_OK;
	group->parts[group->num++] = *part;
	return UTIL_OK;
}

/* The i-th of the blocks, at the rank's; -1: there is nobody. */
static enum util_status add_block(struct core_group *group, const struct core_mpi_blocks *blocks,
				  int i, void *buffer, struct core_message_part part)
{
	MPI_Aint lb, extent = 0;

	part.count = core_mpi_block_count(blocks, i);
	if (part.rank < 0 || !part.count)
		return UTIL_OK;
	part.type = core_mpi_block_type(blocks, i);
	if (core_mpi_as_type(part.type) == MPI_DATATYPE_NULL)
		return UTIL_ERR_MPI;
	PMPI_Type_get_extent(core_mpi_as_type(part.type), &lb, &extent);
	part.buffer = core_address(buffer, core_mpi_block_offset(blocks, i, extent));
	return add_part(group, &part);
}

/* Of all ranks, but for `except`. */
static enum util_status add_blocks(struct core_group *group, const struct core_mpi_blocks *blocks,
				   const void *buffer, int except, struct core_message_part part)
{
	enum util_status status = UTIL_OK;

	if (core_mpi_lacks_arrays(blocks) || core_mpi_lacks_types(blocks))
		return UTIL_ERR_MPI;
	for (int i = 0; i < blocks->num && status == UTIL_OK; i++) {
		part.rank = i;
		if (i != except)
			status = add_block(group, blocks, i, (void *)buffer, part);
	}
	return status;
}

enum { NOBODY = -1 };

static const struct core_message_part sent = {.sends = true}, received;

static struct core_message_part sent_to(const struct core_call *call, int rank)
{
	return (struct core_message_part){.rank = rank,
					  .sends = true,
					  .buffer = (void *)call->sendbuf,
					  .count = call->sendcount,
					  .type = call->sendtype};
}

static enum util_status gather(struct core_group *group, const struct core_call *call, int rank,
			       int size)
{
	bool in_place = rank == call->root && core_mpi_is_in_place(call->sendbuf);
	struct core_mpi_blocks all = core_mpi_received_blocks(call, size);
	struct core_message_part part = sent_to(call, call->root);
	enum util_status status = UTIL_OK;

	if (rank == call->root)
		status = add_blocks(group, &all, call->recvbuf, in_place ? rank : NOBODY, received);
	return status == UTIL_OK && !in_place ? add_part(group, &part) : status;
}

static enum util_status scatter(struct core_group *group, const struct core_call *call, int rank,
				int size)
{
	bool in_place = rank == call->root && core_mpi_is_in_place(call->recvbuf);
	struct core_mpi_blocks all = core_mpi_sent_blocks(call, size);
	struct core_message_part part = {.rank = call->root,
					 .buffer = call->recvbuf,
					 .count = call->recvcount,
					 .type = call->recvtype};
	enum util_status status = UTIL_OK;

	if (rank == call->root)
		status = add_blocks(group, &all, call->sendbuf, in_place ? rank : NOBODY, sent);
	return status == UTIL_OK && !in_place ? add_part(group, &part) : status;
}

static enum util_status allgather(struct core_group *group, const struct core_call *call, int rank,
				  int size)
{
	bool in_place = core_mpi_is_in_place(call->sendbuf);
	struct core_mpi_blocks all = core_mpi_received_blocks(call, size);
	enum util_status status =
		add_blocks(group, &all, call->recvbuf, in_place ? rank : NOBODY, received);

	for (int i = 0; i < size && status == UTIL_OK; i++) {
		struct core_message_part part = sent_to(call, i);

		if (!in_place)
			status = add_part(group, &part);
		else if (i != rank)
			status = add_block(group, &all, rank, call->recvbuf, part);
	}
	return status;
}

static enum util_status alltoall(struct core_group *group, const struct core_call *call, int rank,
				 int size)
{
	bool in_place = core_mpi_is_in_place(call->sendbuf);
	struct core_mpi_blocks from = core_mpi_sent_blocks(call, size);
	struct core_mpi_blocks to = core_mpi_received_blocks(call, size);
	struct core_message_part part = {.sends = true, .aside = in_place};
	int except = in_place ? rank : NOBODY;
	enum util_status status = add_blocks(group, &to, call->recvbuf, except, received);

	if (status != UTIL_OK)
		return status;
	return add_blocks(group, in_place ? &to : &from, in_place ? call->recvbuf : call->sendbuf,
			  except, part);
}

/* In the order of the neighbours, of whom none is there twice (core_graph_list). */
static enum util_status exchange_neighbors(struct core_group *group, const struct core_call *call,
					   const struct core_graph *graph)
{
	struct core_mpi_blocks from = core_mpi_sent_blocks(call, graph->num_out);
	struct core_mpi_blocks to = core_mpi_received_blocks(call, graph->num_in);
	enum util_status status = UTIL_OK;

	if (core_mpi_neighbors_lack_arrays(call->coll, &from, &to) || core_mpi_lacks_types(&from) ||
	    core_mpi_lacks_types(&to))
		return UTIL_ERR_MPI;
	for (int i = 0; i < graph->num_out && status == UTIL_OK; i++) {
		struct core_message_part part = sent_to(call, graph->out[i]);

		if (!core_coll_is_neighbor_gather(call->coll))
			status = add_block(group, &from, i, (void *)call->sendbuf, part);
		else if (part.rank >= 0)
			status = add_part(group, &part);
	}
	for (int i = 0; i < graph->num_in && status == UTIL_OK; i++)
		status = add_block(group, &to, i, call->recvbuf,
				   (struct core_message_part){.rank = graph->in[i]});
	return status;
}

static bool make_room(struct core_group *group, int num)
{
	group->num = 0;
	group->parts = calloc((size_t)num + 1, sizeof(*group->parts));
	return group->parts != NULL;
}

enum util_status core_group_of_call(struct core_group *group, const struct core_call *call,
				    int rank, int size, const struct core_graph *graph)
{
	bool neighbors = core_coll_is_neighbor(call->coll);

	if (!make_room(group, neighbors ? graph->num_in + graph->num_out : 2 * size))
		return UTIL_ERR_NO_MEMORY;
	if (core_coll_is_rooted(call->coll) && (call->root < 0 || call->root >= size))
		return UTIL_ERR_MPI;
	switch (call->coll) {
	case CORE_GATHERV:
		return gather(group, call, rank, size);
	case CORE_SCATTERV:
		return scatter(group, call, rank, size);
	case CORE_ALLGATHERV:
		return allgather(group, call, rank, size);
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		return alltoall(group, call, rank, size);
	default:
		return exchange_neighbors(group, call, graph);
	}
}

void core_group_free(struct core_group *group)
{
	free(group->parts);
	group->parts = NULL;
}

/* ---- on the stream ---- */

/* A group that is being put. */
struct putting {
	struct core_fused *fused;
	const struct core_group *group;
	struct core_standing_message *messages; /* one for each part */
	struct core_mpi_packed *packed;         /* NULL: no part needs it */
	uint64_t aside;                         /* bytes */
};

/* Where it lies as kernels take it. False: it is to be packed. */
static bool lies_well(const struct putting *p, const struct core_message_part *part,
		      struct core_standing_message *message)
{
	const struct gpu_pointer *by = gpu_stream_where(p->fused->on);
	struct core_mpi_solid solid = {.bytes = 1, .follows = true};
	void *at;

	if (part->type && !core_mpi_find_solid(core_mpi_as_type(part->type), &solid))
		return false;
	if (solid.padded != GPU_TYPE_NONE || (part->count > 1 && !solid.follows))
		return false;
	message->bytes = (uint64_t)part->count * solid.bytes;
	at = core_address(part->buffer, solid.lb);
	message->address = (uint64_t)(uintptr_t)at;
	return !message->bytes ||
	       (gpu_pointer_is_reached(at, by) &&
		gpu_pointer_is_reached(core_address(at, (ptrdiff_t)message->bytes - 1), by));
}

static enum util_status have_packed(struct putting *p)
{
	if (p->packed)
		return UTIL_OK;
	p->packed = core_mpi_packed_new_group(p->group->num);
	if (!p->packed)
		return UTIL_ERR_NO_MEMORY;
	core_fused_keep_packed(p->fused, p->packed);
	return UTIL_OK;
}

/* What is sent to one after the other, as in an allgather, is packed once. */
static bool is_same(const struct core_message_part *a, const struct core_message_part *b)
{
	return a->sends && b->sends && !b->aside && a->buffer == b->buffer &&
	       a->count == b->count && a->type == b->type;
}

/* What is sent goes to its stage now. */
static enum util_status pack_part(struct putting *p, int i)
{
	const struct core_message_part *part = &p->group->parts[i];
	core_handle type = part->type ? part->type : (core_handle)MPI_BYTE;
	void *buffer = part->buffer;
	enum util_status status = have_packed(p);

	if (status == UTIL_OK)
		status = core_mpi_packed_open_side(&p->packed->sides[i], &buffer, part->count, type,
						   p->fused->on, &p->messages[i].bytes);
	if (status != UTIL_OK)
		return status;
	p->messages[i].address = (uint64_t)(uintptr_t)buffer;
	if (!part->sends)
		return UTIL_OK;
	return core_mpi_packed_put_side(&p->packed->sides[i], p->fused->on, false);
}

/* Of messages that are put aside each begins like the first, as kernels copy best. */
static uint64_t aside_bytes(const struct core_standing_message *message)
{
	return (message->bytes + GPU_EXCHANGE_UNIT - 1) / GPU_EXCHANGE_UNIT * GPU_EXCHANGE_UNIT;
}

static enum util_status place_parts(struct putting *p)
{
	enum util_status status = UTIL_OK;

	for (int i = 0; i < p->group->num && status == UTIL_OK; i++) {
		const struct core_message_part *part = &p->group->parts[i];
		const struct core_standing_message *last = i ? &p->messages[i - 1] : NULL;

		p->messages[i].rank = part->rank;
		p->messages[i].sends = part->sends;
		if (lies_well(p, part, &p->messages[i]))
			p->aside += part->aside ? aside_bytes(&p->messages[i]) : 0;
		else if (last && is_same(part, part - 1))
			p->messages[i] = (struct core_standing_message){part->rank, true,
									last->address, last->bytes};
		else
			status = pack_part(p, i);
	}
	return status;
}

/* Of each what was not packed, one after the other. */
static enum util_status put_aside(struct putting *p)
{
	enum util_status status;
	char *aside;
	void *memory;

	if (!p->aside)
		return UTIL_OK;
	status = core_standing_aside(p->fused->standing, p->aside, &memory);
	aside = memory;
	for (int i = 0; i < p->group->num && status == UTIL_OK; i++) {
		struct core_standing_message *message = &p->messages[i];

		if (!p->group->parts[i].aside || !message->bytes ||
		    (p->packed && p->packed->sides[i].staged))
			continue;
		status = gpu_stream_copy(p->fused->on, aside, (void *)message->address,
					 message->bytes);
		message->address = (uint64_t)(uintptr_t)aside;
		aside += aside_bytes(message);
	}
	return status;
}

static enum util_status unpack_parts(const struct putting *p, bool captured)
{
	enum util_status status = UTIL_OK;

	if (!p->packed)
		return UTIL_OK;
	for (int i = 0; i < p->group->num && status == UTIL_OK; i++) {
		if (!p->group->parts[i].sends && p->packed->sides[i].staged)
			status = core_mpi_packed_put_side(&p->packed->sides[i], p->fused->on, true);
	}
	return status == UTIL_OK ? core_fused_follow(p->fused, captured, &p->packed->number)
				 : status;
}

static enum util_status put_group(struct putting *p, uint64_t id, bool captured,
				  struct core_standing_call *done)
{
	enum util_status status = place_parts(p);

	if (status == UTIL_OK)
		status = put_aside(p);
	if (status == UTIL_OK)
		status = core_standing_exchange(p->fused->standing, p->messages, p->group->num, id,
						p->fused->on, captured, done);
	return status == UTIL_OK ? unpack_parts(p, captured) : status;
}

enum util_status core_group_put(struct core_fused *fused, const struct core_group *group,
				const char *name, uint64_t id, bool captured,
				struct core_standing_call *done)
{
	struct putting p = {.fused = fused, .group = group};
	enum util_status status = UTIL_ERR_NO_MEMORY;

	p.messages = calloc((size_t)group->num + 1, sizeof(*p.messages));
	if (p.messages)
		status = put_group(&p, id, captured, done);
	free(p.messages);
	if (status == UTIL_OK)
		return UTIL_OK;
	if (status == UTIL_ERR_UNSUPPORTED)
		util_log(
			UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			"%s was given arguments that no kernel takes: GPUCOLL_STREAM_EXEC=staged, on all "
			"ranks, takes any",
			name);
	return status;
}
