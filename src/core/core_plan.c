/* SPDX-License-Identifier: BSD-3-Clause */
/* From the members' offers to this rank's plan, and from the plan to its kernel. */
#include "core/core_accel.h"
#include "core/core_mpi.h"

enum { SLICE_ALIGNMENT = 16 };

static bool has_window(const struct core_accel *accel, int rank, enum algo_buffer buffer)
{
	uint32_t flag = buffer == ALGO_IN ? CORE_OFFER_WINDOW_IN : CORE_OFFER_WINDOW_OUT;

	return core_agree_offer(&accel->agree, rank)->flags & flag;
}

/* Where each rank has one block of its own; otherwise a window holds a slice for every rank. */
static bool has_one_block(enum core_coll coll)
{
	return coll == CORE_BCAST || coll == CORE_REDUCE || coll == CORE_ALLREDUCE;
}

/* As many rounds as the longest block needs with so many bytes for a round's slices. */
static void set_rounds(struct core_accel *accel, uint64_t bytes, uint64_t longest)
{
	uint64_t slices = has_one_block(accel->shape.coll) ? 1 : (uint64_t)accel->comm->size;

	accel->width = bytes / slices / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	accel->rounds = (longest + accel->width - 1) / accel->width;
}

void core_plan_rounds(struct core_accel *accel)
{
	uint64_t longest = 0, window = UINT64_MAX;
	bool windows = false;

	for (int i = 0; i < accel->comm->size; i++) {
		const struct core_offer *offer = core_agree_offer(&accel->agree, i);

		longest = offer->longest > longest ? offer->longest : longest;
		window = offer->window < window ? offer->window : window;
		windows |= offer->flags & (CORE_OFFER_WINDOW_IN | CORE_OFFER_WINDOW_OUT);
	}
	accel->width = accel->half = accel->round = 0;
	accel->rounds = 1;
	if (!windows)
		return;
	set_rounds(accel, window, longest);
	if (accel->rounds == 1)
		return;
	accel->half = window / 2 / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
	set_rounds(accel, accel->half, longest);
}

/* Where the round's slices begin in windows. */
static int64_t window_start(const struct core_accel *accel, uint64_t round)
{
	return round % 2 ? (int64_t)accel->half : 0;
}

/* A round's slice of a block of this rank's or another's buffer; in a window it is the index-th. */
static struct algo_block slice_of(const struct core_accel *accel, uint64_t round,
				  struct algo_block block, bool windowed, int index)
{
	uint64_t start = round * accel->width, rest;

	if (!accel->width)
		return block;
	if (start >= block.bytes)
		return (struct algo_block){0, 0};
	rest = block.bytes - start;
	block.offset = windowed ? window_start(accel, round) + (int64_t)accel->width * index
				: block.offset + (int64_t)start;
	block.bytes = rest < accel->width ? rest : accel->width;
	return block;
}

static struct algo_block slice(const struct core_accel *accel, struct algo_block block,
			       bool windowed, int index)
{
	return slice_of(accel, accel->round, block, windowed, index);
}

static struct algo_block my_slice(const struct core_accel *accel, enum algo_buffer buffer,
				  int index)
{
	const struct core_buffer *mine = buffer == ALGO_IN ? &accel->shape.in : &accel->shape.out;

	return slice(accel, mine->blocks[index], has_window(accel, accel->comm->rank, buffer),
		     index);
}

/* The block of another's buffer that is for this rank. */
static struct algo_block their_slice(const struct core_accel *accel, int rank,
				     enum algo_buffer buffer)
{
	const struct algo_block *table = core_agree_table(&accel->agree, rank);
	int me = accel->comm->rank;

	return slice(accel, table[me], has_window(accel, rank, buffer), me);
}

static struct algo_block whole_slice(const struct core_accel *accel, int rank, uint64_t bytes)
{
	return slice(accel, (struct algo_block){0, bytes}, has_window(accel, rank, ALGO_IN), 0);
}

static void plan_pull(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct algo_block theirs[ALGO_MAX_RANKS] = {0}, mine[ALGO_MAX_RANKS] = {0};
	int me = accel->comm->rank, root = shape->root;

	for (int i = 0; i < accel->comm->size; i++) {
		switch (shape->coll) {
		case CORE_BCAST:
			if (i != root || me == root)
				break;
			theirs[i] = whole_slice(accel, i, shape->bytes);
			mine[i] = my_slice(accel, ALGO_OUT, 0);
			break;
		case CORE_SCATTER:
		case CORE_SCATTERV:
			if (i != root)
				break;
			theirs[i] = their_slice(accel, i, ALGO_IN);
			mine[i] = my_slice(accel, ALGO_OUT, 0);
			break;
		case CORE_ALLGATHER:
		case CORE_ALLGATHERV:
			theirs[i] =
				whole_slice(accel, i, core_agree_offer(&accel->agree, i)->in.bytes);
			mine[i] = my_slice(accel, ALGO_OUT, i);
			break;
		default:
			theirs[i] = their_slice(accel, i, ALGO_IN);
			mine[i] = my_slice(accel, ALGO_OUT, i);
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
	struct algo_block theirs[ALGO_MAX_RANKS] = {0}, mine[ALGO_MAX_RANKS] = {0};
	int me = accel->comm->rank, root = accel->shape.root;

	theirs[root] = their_slice(accel, root, ALGO_OUT);
	mine[root] = my_slice(accel, ALGO_IN, 0);
	algo_push(&accel->plan, me, accel->comm->size, theirs, mine);
	accel->plan.truncates = me == root && is_sent_too_much(accel);
}

static void plan_swap(struct core_accel *accel)
{
	struct algo_block theirs[ALGO_MAX_RANKS], mine[ALGO_MAX_RANKS];
	int me = accel->comm->rank;

	for (int i = 0; i < accel->comm->size; i++) {
		theirs[i] = their_slice(accel, i, ALGO_OUT);
		mine[i] = my_slice(accel, ALGO_OUT, i);
	}
	algo_swap(&accel->plan, me, accel->comm->size, theirs, mine);
}

/* One-shot repeats the work on every rank, which is free where each has a GPU for itself. */
static bool use_oneshot(const struct core_accel *accel)
{
	const struct core_agree *agreed = &accel->agree;

	if (accel->width || accel->shape.bytes > core_agree_offer(agreed, 0)->oneshot_max)
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

/* A reduction of the slice was planned as if all buffers and windows began with it. */
static void shift_places(struct core_accel *accel)
{
	struct algo_plan *plan = &accel->plan;
	int64_t start = (int64_t)(accel->round * accel->width);
	int64_t in_window = window_start(accel, accel->round);

	for (int i = 0; i < plan->num_sources; i++)
		plan->sources[i].offset +=
			has_window(accel, plan->sources[i].rank, ALGO_IN) ? in_window : start;
	for (int i = 0; i < plan->num_targets; i++)
		plan->targets[i].offset +=
			has_window(accel, plan->targets[i].rank, ALGO_OUT) ? in_window : start;
}

static void plan_reduction(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct algo_block all = {0, shape->bytes};
	uint64_t bytes = slice(accel, all, false, 0).bytes;
	int me = accel->comm->rank, ranks = accel->comm->size;

	if (shape->coll == CORE_REDUCE)
		algo_reduce(&accel->plan, me, ranks, shape->root, bytes);
	else if (use_oneshot(accel))
		algo_allreduce_oneshot(&accel->plan, me, ranks, bytes);
	else
		algo_allreduce(&accel->plan, me, ranks, bytes);
	shift_places(accel);
}

static void plan_reduce_scatter(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct algo_plan *plan = &accel->plan;
	int64_t in_window = window_start(accel, accel->round);
	int me = accel->comm->rank;

	algo_reduce_scatter(plan, me, accel->comm->size, slice(accel, shape->own, false, 0),
			    shape->in_place);
	for (int i = 0; i < plan->num_sources; i++) {
		if (has_window(accel, i, ALGO_IN))
			plan->sources[i].offset = in_window + (int64_t)accel->width * me;
	}
	plan->targets[0].offset += !shape->in_place && has_window(accel, me, ALGO_OUT)
					   ? in_window
					   : (int64_t)(accel->round * accel->width);
	/* In place, nothing may be moved before the last round has been read. */
	plan->last.bytes = shape->in_place ? shape->own.bytes : 0;
}

static void make_plan(struct core_accel *accel)
{
	switch (accel->shape.coll) {
	case CORE_ALLREDUCE:
	case CORE_REDUCE:
		plan_reduction(accel);
		break;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		plan_reduce_scatter(accel);
		break;
	case CORE_GATHER:
	case CORE_GATHERV:
		plan_push(accel);
		break;
	case CORE_ALLTOALL:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		if (accel->shape.in_place)
			plan_swap(accel);
		else
			plan_pull(accel);
		break;
	default:
		plan_pull(accel);
		break;
	}
	accel->truncates |= accel->plan.truncates;
	accel->reason = accel->width ? "direct through windows" : accel->plan.name;
}

/* ---- kernels ---- */

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

enum util_status core_plan_launch(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	make_plan(accel);
	if (accel->plan.kind == ALGO_REDUCE)
		status = launch_reduce(accel);
	else if (accel->plan.kind != ALGO_NOTHING)
		status = launch_copies(accel);
	/* A kernel that could be loaded can be launched. */
	return status == UTIL_ERR_UNSUPPORTED ? UTIL_ERR_CUDA : status;
}

enum util_status core_plan_launch_last(struct core_accel *accel)
{
	const struct algo_move *last = &accel->plan.last;
	struct gpu_copies_args args = {.num = 1};

	if (!last->bytes)
		return UTIL_OK;
	args.copies[0] =
		(struct gpu_copy){accel->shape.out.address, accel->scratch->address, last->bytes};
	return gpu_launch_copies(&accel->launch, &args, last->bytes);
}

/* ---- windows ---- */

/* Between a buffer's blocks and their slices in its window. */
static enum util_status copy_slices(struct core_accel *accel, uint64_t round,
				    const struct core_buffer *buffer,
				    const struct gpu_scratch *window, bool out)
{
	enum util_status status = UTIL_OK;

	for (int i = 0; i < buffer->num_blocks && status == UTIL_OK; i++) {
		struct algo_block user = slice_of(accel, round, buffer->blocks[i], false, i);
		struct algo_block ours = slice_of(accel, round, buffer->blocks[i], true, i);
		void *at_user = (void *)(buffer->address + (uint64_t)user.offset);
		void *at_window = (void *)(window->address + (uint64_t)ours.offset);

		if (user.bytes)
			status = gpu_stream_copy_pieces(accel->copies, out ? at_user : at_window,
							out ? at_window : at_user, user.bytes);
	}
	return status;
}

enum util_status core_plan_fill(struct core_accel *accel, uint64_t round)
{
	const struct core_shape *shape = &accel->shape;

	if (accel->window_in)
		return copy_slices(accel, round, &shape->in, accel->window_in, false);
	/* Blocks that are swapped in place are input, too. */
	if (accel->window_out && shape->in_place && !shape->in.num_blocks)
		return copy_slices(accel, round, &shape->out, accel->window_out, false);
	return UTIL_OK;
}

enum util_status core_plan_drain(struct core_accel *accel, uint64_t round)
{
	/* The result of a reduce_scatter in place waits in scratch. */
	if (!accel->window_out || accel->scratch)
		return UTIL_OK;
	return copy_slices(accel, round, &accel->shape.out, accel->window_out, true);
}
