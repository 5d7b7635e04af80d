/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process offers for an accelerated call: where its buffers are, and how others reach them.
 */
#include "core/accel/core_prepare.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_proof.h"
#include "core/accel/core_reserve.h"
#include "core/agree/core_nodes.h"
#include "core/call/core_coll.h"
#include "core/call/core_layout.h"
#include "core/choose/core_choices.h"
#include "core/choose/core_wish.h"
#include "core/comm/core_graph.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_synchronous.h"
#include "net/net_port.h"
#include "util/util_config.h"

#include <string.h>

static bool is_empty(const struct core_buffer *buffer)
{
	return buffer->lo == buffer->hi;
}

/*
 * Whether a call over several nodes may have ranks touch the buffers of others of their node: by
 * rail-*, if the configuration does not wish for others.
 */
static bool has_rails(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;
	struct sched_request request = {.coll = core_coll_sched(accel->shape.coll),
					.ranks = comm->size,
					.ordered = core_shape_is_ordered(&accel->shape),
					.pairs = core_graph_pairs(comm, accel->shape.coll),
					.num_nodes = comm->num_nodes,
					.nodes = comm->nodes};
	bool differ = core_coll_sizes_differ(accel->shape.coll);

	/* Where there is a root, who is in place is not the matter of all. */
	request.in_place = request.coll == SCHED_ALLTOALL && accel->shape.in_place;
	if (!comm->spans)
		return false;
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		if (algo->needs & ALGO_NEEDS_NODES_MAPPED &&
		    algo_wish_grants(&accel->offer.wish, algo) &&
		    !algo_refuses(algo, &request, differ))
			return true;
	}
	return false;
}

/* What the others touch of this rank's buffers. */
static bool others_read(const struct core_accel *accel, bool root)
{
	switch (accel->shape.coll) {
	case CORE_BCAST:
	case CORE_SCATTER:
	case CORE_SCATTERV:
		return root;
	case CORE_GATHER:
	case CORE_GATHERV:
		return false;
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		return !accel->comm->spans;
	default:
		return true;
	}
}

static bool others_write(const struct core_accel *accel, bool root)
{
	switch (accel->shape.coll) {
	case CORE_BCAST:
		return accel->comm->spans && !root;
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
	case CORE_SCAN:
	case CORE_EXSCAN:
		return accel->comm->spans;
	case CORE_REDUCE:
	case CORE_GATHER:
	case CORE_GATHERV:
		return root;
	case CORE_ALLREDUCE:
		return true;
	case CORE_ALLTOALL:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		return accel->shape.in_place && !accel->comm->spans;
	default:
		return false;
	}
}

/* What memory it is, and whether kernels can have it as it is. */
static enum util_status classify(struct core_accel *accel, struct core_candidate *c)
{
	void *first = core_address((void *)c->buffer->address, c->buffer->lo);
	size_t bytes = (size_t)(c->buffer->hi - c->buffer->lo);
	bool covered;

	if (is_empty(c->buffer))
		return UTIL_OK;
	gpu_pointer_classify(first, &c->where);
	if (c->where.memory == GPU_MEMORY_HOST)
		return core_accel_stage(accel, CORE_REASON_HOST_BUFFER);
	if (c->where.memory == GPU_MEMORY_LOST)
		return core_failure_lose_device(accel);
	gpu_synchronous_make(first, &c->where);
	covered = gpu_pointer_covers(&c->where, first, bytes);
	if (!covered && accel->shape.padded != GPU_TYPE_NONE)
		return core_accel_stage(accel, CORE_REASON_PADDED_PARTS);
	accel->scattered |= !covered;
	/* Memory of pools, and of the virtual memory API, has no context. */
	accel->plain &= covered && c->where.memory == GPU_MEMORY_DEVICE && c->where.context;
	c->windowed = c->where.memory != GPU_MEMORY_DEVICE || !covered;
	if (c->exported && !c->windowed)
		c->windowed = !core_offer_export(&accel->offer, c->number, (uint64_t)first,
						 &c->where, accel->passes_descriptors);
	if (accel->comm->spans && c->where.memory == GPU_MEMORY_HOST_VMM)
		return core_accel_stage(accel, CORE_REASON_HOST_SIDE);
	/* Over several nodes there are no windows: what others can't have they get in messages. */
	if (accel->comm->spans && c->windowed) {
		c->exported = c->windowed = false;
		accel->offer.regions[c->number].buffer_id = 0;
	}
	if (c->shared && !c->windowed) {
		c->exported = core_offer_export(&accel->offer, c->number, (uint64_t)first,
						&c->where, accel->passes_descriptors);
		if (!c->exported)
			accel->offer.regions[c->number].buffer_id = 0;
	}
	c->missing = (c->touched || (c->shared && !c->windowed)) && !c->exported;
	return UTIL_OK;
}

static void describe_region(struct core_offer *offer, const struct core_candidate *c)
{
	offer->regions[c->number] = (struct core_region){
		.address = c->buffer->address,
		.bytes = c->buffer->num_blocks == 1 ? c->buffer->blocks[0].bytes : 0};
}

/*
 * Where another of this rank's GPU can do all of its work: the output's blocks are where all know,
 * and what comes for them fits.
 */
static bool is_regular(const struct core_shape *shape)
{
	const struct core_buffer *out = &shape->out;

	switch (shape->coll) {
	case CORE_ALLGATHER:
	case CORE_ALLTOALL:
		break;
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
	case CORE_ALLGATHERV:
		return false;
	default:
		return !core_coll_is_neighbor(shape->coll);
	}
	for (int i = 0; i < out->num_blocks; i++) {
		if (out->blocks[i].bytes != shape->bytes ||
		    out->blocks[i].offset != (int64_t)shape->bytes * i)
			return false;
	}
	for (int i = 0; i < shape->in.num_blocks; i++) {
		if (shape->in.blocks[i].bytes != shape->bytes)
			return false;
	}
	return true;
}

static enum util_status offer_buffers(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	bool root = shape->root == accel->comm->rank;
	bool rails = has_rails(accel), shares = core_choices_most_sharers(accel->comm) > 1;
	bool together = !accel->comm->spans || (rails && accel->comm->num_near > 1);
	/*
	 * What goes with the agreement nobody touches; an output shows that an input elsewhere is
	 * long.
	 */
	bool short_one = core_eager_fits(accel, &shape->in) && core_eager_fits(accel, &shape->out);
	struct core_candidate in = {.buffer = &shape->in,
				    .touched = together && others_read(accel, root),
				    .number = CORE_REGION_IN};
	struct core_candidate out = {.buffer = &shape->out,
				     .touched = together && others_write(accel, root),
				     .number = CORE_REGION_OUT};
	bool has_in = !is_empty(&shape->in), has_out = !is_empty(&shape->out);
	enum util_status status;

	in.exported = in.touched && !short_one;
	out.exported = out.touched && !short_one;
	in.shared = shares && !in.touched;
	out.shared = shares && !out.touched;
	describe_region(&accel->offer, &in);
	describe_region(&accel->offer, &out);
	status = classify(accel, &in);
	if (status == UTIL_OK)
		status = classify(accel, &out);
	if (status != UTIL_OK)
		return status;
	if ((rails || (shares && is_regular(shape))) && !in.missing && !out.missing)
		accel->offer.flags |= CORE_OFFER_EXPORTED;
	if (!has_in && !has_out)
		return core_reserve_without_data(accel);
	if (has_in && has_out && !gpu_pointer_in_one_context(&in.where, &out.where))
		return core_accel_stage(accel, CORE_REASON_TWO_CONTEXTS);
	status = core_reserve_resources(
		accel, has_out && (out.where.context || !has_in) ? &out.where : &in.where);
	return status == UTIL_OK ? core_reserve_windows(accel, &in, &out) : status;
}

static bool is_known(const struct core_comm *comm, uint64_t buffer_id)
{
	return buffer_id == 0 || core_known_has(&comm->voted.known, buffer_id);
}

/*
 * Ask for a vote when the others have not all mapped what is offered, or when this process may lack
 * what it once mapped. Otherwise each knows that all have everything.
 */
static void set_flags(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;
	struct core_offer *offer = &accel->offer;
	unsigned long long context_id =
		accel->stream ? gpu_stream_context_id(accel->stream) : comm->voted.context_id;

	if (accel->shape.in_place)
		offer->flags |= CORE_OFFER_IN_PLACE;
	for (int i = 0; i < CORE_REGION_CARDS; i++) {
		if (!is_known(comm, offer->regions[i].buffer_id))
			offer->flags |= CORE_OFFER_ASKS_VOTE;
	}
	if (context_id != comm->voted.context_id || accel->reached.dropped != comm->voted.dropped)
		offer->flags |= CORE_OFFER_ASKS_VOTE | CORE_OFFER_FORGET;
}

/*
 * Who is alone on its node and stages call after call waits for nothing here, and so is not told
 * that others have come up but by looking.
 */
static bool is_far_ahead(const struct core_comm *comm)
{
	if (!core_nodes_has_too_many(comm))
		return false;
	net_progress(NET_MAIN);
	return core_nodes_has_too_many(comm);
}

/* The trial of what enqueued calls need is a call with messages, whatever the configuration. */
static struct algo_wish wish_of(const struct core_accel *accel)
{
	enum sched_coll coll = core_coll_sched(accel->shape.coll);
	bool ordered = core_shape_is_ordered(&accel->shape);
	const struct algo *algo = algo_find(ordered ? "chain" : "ring", coll);

	if (!accel->comm->standing)
		return *core_wish_of(coll);
	return (struct algo_wish){.algos = UINT64_C(1) << (algo - algo_catalogue)};
}

enum util_status core_prepare_offer(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct core_offer *offer = &accel->offer;
	uint64_t in = core_buffer_longest(&shape->in), out = core_buffer_longest(&shape->out);
	enum util_status status;

	offer->flags = shape->padded != GPU_TYPE_NONE ? CORE_OFFER_PADDED : 0;
	offer->coll = (uint16_t)shape->coll;
	offer->type = (uint16_t)shape->type;
	offer->op = (uint16_t)shape->op;
	offer->root = shape->root;
	offer->bytes = shape->bytes;
	offer->counts = shape->counts;
	offer->longest = in > out ? in : out;
	offer->window = UINT64_MAX;
	offer->device = 0;
	offer->wish = wish_of(accel);
	offer->blocks = 0;
	memset(offer->regions, 0, sizeof(offer->regions));
	status = offer_buffers(accel);
	if (status != UTIL_OK)
		return status;
	status = core_reserve_arenas(accel);
	if (status != UTIL_OK)
		return status;
	status = core_proof_offer(accel);
	if (status != UTIL_OK && status != UTIL_STAGE)
		return core_failure_stage(accel, CORE_REASON_EARLIER_WORK);
	if (status != UTIL_OK)
		return status;
	set_flags(accel);
	core_eager_offer(accel);
	if (accel->comm->spans && core_comm_speaks(accel->comm) && is_far_ahead(accel->comm))
		offer->flags |= CORE_OFFER_BEHIND;
	offer->num_freed = 0;
	if (offer->flags & CORE_OFFER_ASKS_VOTE)
		offer->num_freed = gpu_ipc_find_freed(offer->freed, CORE_OFFER_MOST_FREED);
	return UTIL_OK;
}
