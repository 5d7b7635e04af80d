/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_accel.h"
#include "core/core_mpi.h"
#include "util/util_log.h"

#include <stdio.h>
#include <string.h>

static enum util_status stage_since(struct core_accel *accel, const char *reason)
{
	accel->reason = reason;
	return UTIL_ERR_UNSUPPORTED;
}

/* ---- this rank's buffers ---- */

static bool is_empty(const struct core_buffer *buffer)
{
	return buffer->lo == buffer->hi;
}

/* What the others touch of this rank's buffers. */
static bool others_read(const struct core_shape *shape, bool root)
{
	switch (shape->coll) {
	case CORE_BCAST:
	case CORE_SCATTER:
	case CORE_SCATTERV:
		return root;
	case CORE_GATHER:
	case CORE_GATHERV:
		return false;
	default:
		return true;
	}
}

static bool others_write(const struct core_shape *shape, bool root)
{
	switch (shape->coll) {
	case CORE_REDUCE:
	case CORE_GATHER:
	case CORE_GATHERV:
		return root;
	case CORE_ALLREDUCE:
		return true;
	case CORE_ALLTOALL:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		return shape->in_place;
	default:
		return false;
	}
}

/* Look at a buffer: device memory in one piece, which kernels in one context reach. */
static enum util_status classify(struct core_accel *accel, const struct core_buffer *buffer,
				 struct gpu_pointer *where)
{
	void *first = core_address((void *)buffer->address, buffer->lo);

	gpu_pointer_classify(first, where);
	if (where->memory == GPU_MEMORY_HOST)
		return stage_since(accel, "host buffer");
	if (where->memory == GPU_MEMORY_MANAGED)
		return stage_since(accel, "managed memory");
	if (!gpu_pointer_covers(where, first, (size_t)(buffer->hi - buffer->lo)))
		return stage_since(accel, "buffer in several allocations");
	gpu_pointer_make_synchronous(first, where);
	return UTIL_OK;
}

static enum util_status offer_region(struct core_accel *accel, const struct core_buffer *buffer,
				     const struct gpu_pointer *where, bool exported,
				     struct core_region *region)
{
	region->address = buffer->address;
	region->bytes = buffer->num_blocks == 1 ? buffer->blocks[0].bytes : 0;
	region->memory.buffer_id = 0;
	if (!exported || is_empty(buffer))
		return UTIL_OK;
	if (gpu_ipc_export(buffer->address + (uint64_t)buffer->lo, where, &region->memory) !=
	    UTIL_OK)
		return stage_since(accel, "memory that can't be exported");
	return UTIL_OK;
}

static bool in_one_context(const struct gpu_pointer *a, const struct gpu_pointer *b)
{
	return a->device == b->device && (!a->context || !b->context || a->context == b->context);
}

/* Take a stream, and all else that must not fail later, in the context of the buffers. */
static enum util_status take_resources(struct core_accel *accel, const struct gpu_pointer *where)
{
	const struct core_shape *shape = &accel->shape;

	if (gpu_stream_get(where, &accel->stream) != UTIL_OK)
		return stage_since(accel, "no stream");
	if (gpu_launch_open(&accel->launch, accel->stream) != UTIL_OK)
		return stage_since(accel, "no kernels");
	accel->launches = true;
	accel->offer.device = gpu_device_identity(where->device);
	if (!shape->own.bytes || !shape->in_place)
		return UTIL_OK;
	if (gpu_scratch_get(shape->own.bytes, accel->stream, &accel->scratch) != UTIL_OK)
		return stage_since(accel, "no device memory for scratch");
	return UTIL_OK;
}

static enum util_status offer_buffers(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	bool root = shape->root == accel->comm->rank;
	struct gpu_pointer in = {0}, out = {0};
	bool has_in = !is_empty(&shape->in), has_out = !is_empty(&shape->out);
	enum util_status status = UTIL_OK;

	if (has_in)
		status = classify(accel, &shape->in, &in);
	if (status == UTIL_OK && has_out)
		status = classify(accel, &shape->out, &out);
	if (status == UTIL_OK)
		status = offer_region(accel, &shape->in, &in, others_read(shape, root),
				      &accel->offer.in);
	if (status == UTIL_OK)
		status = offer_region(accel, &shape->out, &out, others_write(shape, root),
				      &accel->offer.out);
	if (status != UTIL_OK || (!has_in && !has_out))
		return status;
	if (has_in && has_out && !in_one_context(&in, &out))
		return stage_since(accel, "buffers in two contexts");
	return take_resources(accel, has_out && (out.context || !has_in) ? &out : &in);
}

static bool is_known(const struct core_comm *comm, uint64_t buffer_id)
{
	for (int i = 0; i < CORE_COMM_KNOWN_EXPORTS; i++) {
		if (comm->known_exports[i] == buffer_id)
			return true;
	}
	return buffer_id == 0;
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
		accel->stream ? gpu_stream_context_id(accel->stream) : comm->context_id;

	offer->flags = accel->shape.in_place ? CORE_OFFER_IN_PLACE : 0;
	if (!is_known(comm, offer->in.memory.buffer_id) ||
	    !is_known(comm, offer->out.memory.buffer_id))
		offer->flags |= CORE_OFFER_ASKS_VOTE;
	if (context_id != comm->context_id || accel->dropped != comm->dropped)
		offer->flags |= CORE_OFFER_ASKS_VOTE | CORE_OFFER_FORGET;
}

static enum util_status make_offer(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct core_offer *offer = &accel->offer;
	enum util_status status;

	offer->coll = (uint16_t)shape->coll;
	offer->type = (uint16_t)shape->type;
	offer->op = (uint16_t)shape->op;
	offer->root = shape->root;
	offer->bytes = shape->bytes;
	offer->counts = shape->counts;
	offer->oneshot_max = util_config.oneshot_max;
	offer->device = 0;
	status = offer_buffers(accel);
	if (status == UTIL_OK)
		set_flags(accel);
	return status;
}

enum util_status core_accel_start(struct core_accel *accel, const struct core_call *call,
				  struct core_comm *comm, uint64_t number)
{
	struct core_shape *shape = &accel->shape;
	const char *reason;

	accel->state = CORE_ACCEL_READY;
	accel->comm = comm;
	accel->number = number;
	accel->inside = accel->launches = false;
	accel->stream = NULL;
	accel->scratch = NULL;
	accel->reason = NULL;
	accel->result = UTIL_OK;
	memset(accel->in, 0, sizeof(accel->in));
	memset(accel->out, 0, sizeof(accel->out));
	if (!util_config.accel)
		return stage_since(accel, "GPUCOLL_ACCEL=0");
	if (call->coll == CORE_REDUCE_LOCAL)
		return stage_since(accel, "no accelerated form");
	if (!comm)
		return stage_since(accel, "communicator without identity");
	if (!comm->area)
		return stage_since(accel, comm->no_area);
	reason = core_mpi_shape(call, comm, shape);
	if (reason)
		return stage_since(accel, reason);
	/* A rank with no data goes with those that have some, where they may be on devices. */
	if (is_empty(&shape->in) && is_empty(&shape->out) && !gpu_context_is_current() &&
	    !comm->accelerated)
		return stage_since(accel, "no data");
	gpu_ipc_enter();
	accel->inside = true;
	accel->dropped = gpu_ipc_dropped();
	return make_offer(accel);
}

void core_accel_finish(struct core_accel *accel)
{
	for (int i = 0; i < ALGO_MAX_RANKS; i++) {
		if (accel->in[i].mapping)
			gpu_mapping_put(accel->in[i].mapping);
		if (accel->out[i].mapping)
			gpu_mapping_put(accel->out[i].mapping);
	}
	if (accel->inside)
		gpu_ipc_leave();
	if (accel->launches)
		gpu_launch_close(&accel->launch);
	if (accel->scratch)
		gpu_scratch_put(accel->scratch);
	if (accel->stream)
		gpu_stream_put(accel->stream);
}

uint64_t core_accel_bytes(const struct core_accel *accel)
{
	const struct core_buffer *in = &accel->shape.in, *out = &accel->shape.out;
	uint64_t bytes = 0;

	for (int i = 0; i < in->num_blocks; i++)
		bytes += in->blocks[i].bytes;
	for (int i = 0; i < out->num_blocks; i++)
		bytes += out->blocks[i].bytes;
	return bytes;
}

/* ---- agreement ---- */

/* Who has a block for each rank tells the others where they are. */
static const struct algo_block *table_of(const struct core_shape *shape)
{
	if (shape->in.num_blocks > 1)
		return shape->in.blocks;
	switch (shape->coll) {
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		return NULL; /* its output's blocks are this rank's business */
	default:
		return shape->out.num_blocks > 1 ? shape->out.blocks : NULL;
	}
}

static enum util_status announce(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	if (accel->stream)
		status = gpu_stream_poll_legacy(accel->stream);
	if (status == UTIL_IN_PROGRESS)
		return status;
	if (status != UTIL_OK)
		return stage_since(accel, "earlier work failed");
	if (!core_agree_begin(&accel->agree, accel->comm, accel->number, &accel->offer,
			      table_of(&accel->shape)))
		return stage_since(accel, "ranks too far apart");
	return UTIL_OK;
}

/* Whether the offers are of one and the same call. All members come to the same answer. */
static bool offers_fit(const struct core_accel *accel)
{
	const struct core_offer *first = core_agree_offer(&accel->agree, 0);

	for (int i = 1; i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(&accel->agree, i);

		if (offer->coll != first->coll || offer->type != first->type ||
		    offer->op != first->op || offer->root != first->root ||
		    offer->bytes != first->bytes || offer->counts != first->counts)
			return false;
		/* One buffer for both is the root's own matter where there is a root. */
		if ((offer->flags ^ first->flags) & CORE_OFFER_IN_PLACE &&
		    (first->coll == CORE_ALLTOALL || first->coll == CORE_ALLTOALLV ||
		     first->coll == CORE_ALLTOALLW))
			return false;
	}
	return true;
}

static bool reach_region(struct core_accel *accel, int rank, const struct core_region *region,
			 struct core_reach *reach)
{
	if (rank == accel->comm->rank) {
		reach->address = region->address;
		return true;
	}
	if (!region->memory.buffer_id || reach->mapping)
		return true;
	if (gpu_ipc_map(accel->comm->local_ranks[rank], &region->memory, accel->stream,
			&reach->mapping) != UTIL_OK)
		return false;
	reach->address = gpu_mapping_address(reach->mapping, region->address);
	return true;
}

static bool reach_all(struct core_accel *accel)
{
	for (int i = 0; accel->stream && i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(&accel->agree, i);

		if (!reach_region(accel, i, &offer->in, &accel->in[i]) ||
		    !reach_region(accel, i, &offer->out, &accel->out[i]))
			return false;
	}
	return true;
}

/* After a vote that was won: all have mapped all that was offered, and nothing else is sure where
 * somebody forgot. */
static void learn(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	uint64_t ids[] = {accel->offer.in.memory.buffer_id, accel->offer.out.memory.buffer_id};

	if (accel->agree.forget)
		memset(comm->known_exports, 0, sizeof(comm->known_exports));
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		if (!is_known(comm, ids[i]))
			comm->known_exports[comm->next_known++ % CORE_COMM_KNOWN_EXPORTS] = ids[i];
	}
	comm->dropped = accel->dropped;
	/* Without data it has mapped nothing, and must ask for all when it has some. */
	comm->context_id = accel->stream ? gpu_stream_context_id(accel->stream) : 0;
}

/* Without a vote all answer alike, and what can't be mapped after all is this rank's failure. */
static void answer(struct core_accel *accel)
{
	bool fit = offers_fit(accel), reached = fit && reach_all(accel);

	if (!fit)
		accel->reason = "arguments that differ between ranks";
	else if (!reached)
		accel->reason = "memory that can't be mapped";
	core_agree_answer(&accel->agree, fit && (reached || !accel->agree.vote));
}

static enum util_status agree(struct core_accel *accel)
{
	enum core_agree_state state = core_agree_poll(&accel->agree);

	if (state == CORE_AGREE_ANNOUNCED) {
		answer(accel);
		state = core_agree_poll(&accel->agree);
	}
	if (state == CORE_AGREE_STAGE)
		return stage_since(accel, accel->reason ? accel->reason : "another rank's choice");
	if (state != CORE_AGREE_ACCEL)
		return UTIL_IN_PROGRESS;
	accel->comm->accelerated = true;
	if (accel->agree.vote)
		learn(accel);
	return UTIL_OK;
}

/* ---- the plan ---- */

static void plan_pull(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct algo_block theirs[ALGO_MAX_RANKS] = {0}, mine[ALGO_MAX_RANKS] = {0};
	int me = accel->comm->rank, root = shape->root;

	for (int i = 0; i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(&accel->agree, i);

		switch (shape->coll) {
		case CORE_BCAST:
			if (i == root && me != root)
				theirs[i].bytes = mine[i].bytes = shape->bytes;
			break;
		case CORE_SCATTER:
		case CORE_SCATTERV:
			if (i != root)
				break;
			theirs[i] = core_agree_table(&accel->agree, i)[me];
			mine[i] = shape->out.blocks[0];
			break;
		case CORE_ALLGATHER:
		case CORE_ALLGATHERV:
			theirs[i].bytes = offer->in.bytes;
			mine[i] = shape->out.blocks[i];
			break;
		default:
			theirs[i] = core_agree_table(&accel->agree, i)[me];
			mine[i] = shape->out.blocks[i];
			break;
		}
	}
	algo_pull(&accel->plan, me, accel->comm->size, theirs, mine);
}

/* Senders that send more than the root expects: the root knows, and it is the root's error. */
static bool is_sent_too_much(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;

	for (int i = 0; i < accel->comm->size; i++) {
		if (core_agree_offer(&accel->agree, i)->in.bytes > shape->out.blocks[i].bytes)
			return true;
	}
	return false;
}

static void plan_push(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct algo_block theirs[ALGO_MAX_RANKS] = {0}, mine[ALGO_MAX_RANKS] = {0};
	int me = accel->comm->rank, root = shape->root;

	theirs[root] = core_agree_table(&accel->agree, root)[me];
	mine[root] = shape->in.blocks[0];
	algo_push(&accel->plan, me, accel->comm->size, theirs, mine);
	accel->plan.truncates = me == root && is_sent_too_much(accel);
}

static void plan_swap(struct core_accel *accel)
{
	struct algo_block theirs[ALGO_MAX_RANKS];
	int me = accel->comm->rank;

	for (int i = 0; i < accel->comm->size; i++)
		theirs[i] = core_agree_table(&accel->agree, i)[me];
	algo_swap(&accel->plan, me, accel->comm->size, theirs, accel->shape.out.blocks);
}

/* One-shot repeats the work on every rank, which is free where each has a GPU for itself. */
static bool use_oneshot(const struct core_accel *accel)
{
	const struct core_agree *agreed = &accel->agree;

	if (accel->shape.bytes > core_agree_offer(agreed, 0)->oneshot_max)
		return false;
	for (int i = 0; i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(agreed, i);

		if (offer->flags & CORE_OFFER_IN_PLACE)
			return false;
		for (int j = 0; j < i; j++) {
			if (core_agree_offer(agreed, j)->device == offer->device)
				return false;
		}
	}
	return true;
}

static void plan(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	int me = accel->comm->rank, ranks = accel->comm->size;

	switch (shape->coll) {
	case CORE_ALLREDUCE:
		if (use_oneshot(accel))
			algo_allreduce_oneshot(&accel->plan, me, ranks, shape->bytes);
		else
			algo_allreduce(&accel->plan, me, ranks, shape->bytes);
		break;
	case CORE_REDUCE:
		algo_reduce(&accel->plan, me, ranks, shape->root, shape->bytes);
		break;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		algo_reduce_scatter(&accel->plan, me, ranks, shape->own, shape->in_place);
		break;
	case CORE_GATHER:
	case CORE_GATHERV:
		plan_push(accel);
		break;
	case CORE_ALLTOALL:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		if (shape->in_place)
			plan_swap(accel);
		else
			plan_pull(accel);
		break;
	default:
		plan_pull(accel);
		break;
	}
	accel->reason = accel->plan.name;
}

/* ---- the kernel ---- */

static uint64_t address_of(const struct core_accel *accel, const struct algo_place *place)
{
	uint64_t base = place->buffer == ALGO_IN    ? accel->in[place->rank].address
			: place->buffer == ALGO_OUT ? accel->out[place->rank].address
						    : accel->scratch->address;

	return base + (uint64_t)place->offset;
}

static enum util_status launch_reduce(struct core_accel *accel)
{
	const struct algo_plan *plan = &accel->plan;
	struct gpu_reduce_args args = {.type = accel->shape.type,
				       .op = accel->shape.op,
				       .num_sources = (uint32_t)plan->num_sources,
				       .num_targets = (uint32_t)plan->num_targets};

	for (int i = 0; i < plan->num_sources; i++)
		args.sources[i] = address_of(accel, &plan->sources[i]);
	for (int i = 0; i < plan->num_targets; i++)
		args.targets[i] = address_of(accel, &plan->targets[i]);
	return gpu_launch_reduce(&accel->launch, &args, plan->bytes);
}

static enum util_status launch_copies(struct core_accel *accel)
{
	const struct algo_plan *plan = &accel->plan;
	struct gpu_copies_args args = {.swap = plan->kind == ALGO_SWAP};

	for (int i = 0; i < plan->num_moves; i++) {
		struct gpu_copy copy = {address_of(accel, &plan->moves[i].to),
					address_of(accel, &plan->moves[i].from),
					plan->moves[i].bytes};

		/* In place, a block may be where it belongs. */
		if (copy.to != copy.from)
			args.copies[args.num++] = copy;
	}
	return args.num ? gpu_launch_copies(&accel->launch, &args, plan->bytes) : UTIL_OK;
}

static enum util_status launch(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	if (!reach_all(accel)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "memory of another process, which was mapped, can't be mapped again");
		return UTIL_ERR_CUDA;
	}
	plan(accel);
	if (accel->plan.kind == ALGO_REDUCE)
		status = launch_reduce(accel);
	else if (accel->plan.kind != ALGO_NOTHING)
		status = launch_copies(accel);
	/* A kernel that could be loaded can be launched. */
	return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_CUDA : status;
}

/* This rank's part is done or has failed: say so, which the others wait for. */
static void pass(struct core_accel *accel)
{
	if (accel->result != UTIL_OK)
		core_agree_fail(accel->comm, accel->number);
	core_agree_pass(accel->comm, accel->number);
}

static enum util_status start_last(struct core_accel *accel)
{
	const struct algo_move *last = &accel->plan.last;
	struct gpu_copies_args args = {.num = 1};

	if (accel->result == UTIL_OK && core_agree_failed(accel->comm, accel->number))
		accel->result = UTIL_ERR_PEER;
	if (accel->result != UTIL_OK || !last->bytes)
		return UTIL_OK;
	args.copies[0] = (struct gpu_copy){address_of(accel, &last->to),
					   address_of(accel, &last->from), last->bytes};
	return gpu_launch_copies(&accel->launch, &args, last->bytes);
}

static enum util_status poll_launch(struct core_accel *accel)
{
	return accel->launches ? gpu_launch_poll(&accel->launch) : UTIL_OK;
}

/* One step; UTIL_OK: go on to the next state. Errors of this rank's kernels are kept in `result`.
 */
static enum util_status step(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	switch (accel->state) {
	case CORE_ACCEL_READY:
		return announce(accel);
	case CORE_ACCEL_AGREE:
		status = agree(accel);
		if (status == UTIL_OK)
			accel->result = launch(accel);
		return status;
	case CORE_ACCEL_RUN:
		if (accel->result == UTIL_OK)
			status = poll_launch(accel);
		if (status == UTIL_IN_PROGRESS)
			return status;
		accel->result = accel->result == UTIL_OK ? status : accel->result;
		pass(accel);
		return UTIL_OK;
	case CORE_ACCEL_MEET:
		if (!core_agree_all_passed(accel->comm, accel->number))
			return UTIL_IN_PROGRESS;
		status = start_last(accel);
		accel->result = accel->result == UTIL_OK ? status : accel->result;
		return UTIL_OK;
	case CORE_ACCEL_LAST:
		if (accel->result == UTIL_OK)
			status = poll_launch(accel);
		if (status == UTIL_IN_PROGRESS)
			return status;
		accel->result = accel->result == UTIL_OK ? status : accel->result;
		if (accel->result == UTIL_OK && accel->plan.truncates)
			accel->result = UTIL_ERR_TRUNCATE;
		return UTIL_OK;
	case CORE_ACCEL_DONE:
		break;
	}
	return UTIL_OK;
}

enum util_status core_accel_progress(struct core_accel *accel)
{
	while (accel->state != CORE_ACCEL_DONE) {
		enum util_status status = step(accel);

		if (status != UTIL_OK)
			return status;
		accel->state++;
	}
	return accel->result;
}

void core_accel_describe(const struct core_accel *accel, char *text, size_t bytes)
{
	switch (accel->state) {
	case CORE_ACCEL_READY:
		snprintf(text, bytes, "earlier work on the buffers to finish");
		break;
	case CORE_ACCEL_AGREE:
		snprintf(text, bytes, "rank %d of %d to come to call %llu of communicator %#llx",
			 core_agree_missing(&accel->agree), accel->comm->size,
			 (unsigned long long)accel->number, (unsigned long long)accel->comm->id);
		break;
	case CORE_ACCEL_RUN:
	case CORE_ACCEL_LAST:
		snprintf(text, bytes, "its kernel");
		break;
	default:
		snprintf(text, bytes, "the kernel of rank %d of %d",
			 core_agree_behind(accel->comm, accel->number), accel->comm->size);
		break;
	}
}
