/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process offers for an accelerated call: where its buffers are, and how others reach them.
 */
#include "core/accel/core_prepare.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_proof.h"
#include "core/accel/core_together.h"
#include "core/agree/core_nodes.h"
#include "core/call/core_coll.h"
#include "core/call/core_layout.h"
#include "core/choose/core_wish.h"
#include "core/comm/core_board.h"
#include "core/comm/core_graph.h"
#include "core/job/core_mpi_job.h"
#include "core/wire/core_arena.h"
#include "core/wire/core_arena_layout.h"
#include "core/wire/core_leaving.h"
#include "core/wire/core_wire.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_synchronous.h"
#include "util/util_config.h"

#include <string.h>

enum { LEAST_WINDOW = 64 << 10 };

/* So many LL messages, and all flags are cleared before they are used again. */
#define LL_FLAGS (UINT32_C(1) << 31)

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

/* A buffer on its way to an offer. */
struct candidate {
	const struct core_buffer *buffer;
	bool touched;  /* by others */
	bool exported; /* so that they can */
	bool missing;  /* they can't, though they would */
	bool windowed; /* kernels use a window in its stead */
	struct gpu_pointer where;
	struct core_region *region;
};

/* What memory it is, and whether kernels can have it as it is. */
static enum util_status classify(struct core_accel *accel, struct candidate *c)
{
	void *first = core_address((void *)c->buffer->address, c->buffer->lo);
	size_t bytes = (size_t)(c->buffer->hi - c->buffer->lo);
	bool covered;

	if (is_empty(c->buffer))
		return UTIL_OK;
	gpu_pointer_classify(first, &c->where);
	if (c->where.memory == GPU_MEMORY_HOST)
		return core_accel_stage(accel, "host buffer");
	gpu_synchronous_make(first, &c->where);
	covered = gpu_pointer_covers(&c->where, first, bytes);
	accel->scattered |= !covered;
	/* Memory of pools, and of the virtual memory API, has no context. */
	accel->plain &= covered && c->where.memory == GPU_MEMORY_DEVICE && c->where.context;
	c->windowed = c->where.memory != GPU_MEMORY_DEVICE || !covered;
	if (c->exported && !c->windowed)
		c->windowed = gpu_ipc_export(c->buffer->address + (uint64_t)c->buffer->lo,
					     &c->where, &c->region->memory) != UTIL_OK;
	if (accel->comm->spans && c->where.memory == GPU_MEMORY_HOST_VMM)
		return core_accel_stage(accel, "memory on the host's side");
	/* Over several nodes there are no windows: what others can't have they get in messages. */
	if (accel->comm->spans && c->windowed) {
		c->exported = c->windowed = false;
		c->region->memory.buffer_id = 0;
	}
	c->missing = c->touched && !c->exported;
	return UTIL_OK;
}

static bool in_one_context(const struct gpu_pointer *a, const struct gpu_pointer *b)
{
	return a->device == b->device && (!a->context || !b->context || a->context == b->context);
}

static uint64_t longest_block(const struct core_buffer *buffer)
{
	uint64_t longest = 0;

	for (int i = 0; i < buffer->num_blocks; i++) {
		if (buffer->blocks[i].bytes > longest)
			longest = buffer->blocks[i].bytes;
	}
	return longest;
}

static void describe_region(const struct candidate *c)
{
	c->region->address = c->buffer->address;
	c->region->bytes = c->buffer->num_blocks == 1 ? c->buffer->blocks[0].bytes : 0;
	c->region->memory.buffer_id = 0;
}

/*
 * Each round costs a launch and two waits for all ranks, so a window is large; but few calls are,
 * and it stays this process's: of ranks that share a GPU each has a part.
 */
static uint64_t window_bytes(const struct core_accel *accel)
{
	enum { USUAL = 4 << 20 };
	uint64_t most = util_config.window, all;

	if (accel->sharers > 1)
		most /= (uint64_t)accel->sharers;
	all = accel->offer.longest * (uint64_t)accel->comm->size;
	if (most < USUAL || all <= USUAL)
		most = util_config.window < USUAL ? util_config.window : USUAL;
	return most > LEAST_WINDOW ? most : LEAST_WINDOW;
}

/* In the stream's context: as many as there are pointers to. */
static bool take_windows(struct core_accel *accel, uint64_t bytes, struct gpu_scratch **windows[],
			 int num)
{
	for (int i = 0; i < num; i++) {
		if (gpu_scratch_get(bytes, accel->stream, windows[i]) == UTIL_OK)
			continue;
		while (i-- > 0) {
			gpu_scratch_put(*windows[i]);
			*windows[i] = NULL;
		}
		return false;
	}
	return true;
}

/* The others' kernels use a window in the buffer's stead. */
static bool offer_window(struct candidate *c, const struct gpu_scratch *window)
{
	struct gpu_pointer where;

	gpu_pointer_classify((void *)window->address, &where);
	c->region->address = window->address;
	return gpu_ipc_export(window->address, &where, &c->region->memory) == UTIL_OK;
}

/*
 * Windows for the input and the output, smaller ones where there is no memory. A reduction in place
 * is one in its window, too.
 */
static enum util_status open_windows(struct core_accel *accel, struct candidate *in,
				     struct candidate *out)
{
	const struct core_shape *shape = &accel->shape;
	bool is_one = in->windowed && shape->op != GPU_OP_NONE && shape->in_place;
	struct gpu_scratch **windows[2];
	uint64_t bytes = window_bytes(accel);
	int num = 0;

	if (in->windowed)
		windows[num++] = &accel->window_in;
	if (out->windowed && !is_one)
		windows[num++] = &accel->window_out;
	if (!num)
		return UTIL_OK;
	if (gpu_stream_get(gpu_stream_where(accel->stream), &accel->copies) != UTIL_OK)
		return core_accel_stage(accel, "no stream");
	while (bytes >= LEAST_WINDOW && !take_windows(accel, bytes, windows, num))
		bytes /= 2;
	if (bytes < LEAST_WINDOW)
		return core_accel_stage(accel, "no device memory for a window");
	if (is_one)
		accel->window_out = accel->window_in;
	if ((in->windowed && !offer_window(in, accel->window_in)) ||
	    (out->windowed && !offer_window(out, accel->window_out)))
		return core_accel_stage(accel, "memory that can't be exported");
	accel->offer.window = bytes;
	accel->offer.flags |= in->windowed ? CORE_OFFER_WINDOW_IN : 0;
	accel->offer.flags |= out->windowed ? CORE_OFFER_WINDOW_OUT : 0;
	return UTIL_OK;
}

/* Take a stream, and all else that must not fail later, in the context of the buffers. */
static enum util_status take_resources(struct core_accel *accel, const struct gpu_pointer *where)
{
	const struct core_shape *shape = &accel->shape;

	if (gpu_stream_get(where, &accel->stream) != UTIL_OK)
		return core_accel_stage(accel, "no stream");
	if (gpu_launch_open(&accel->launch, accel->stream) != UTIL_OK)
		return core_accel_stage(accel, "no kernels, or no pinned memory");
	accel->launches = true;
	accel->offer.device = gpu_device_identity(where->device);
	accel->sharers = core_board_share_gpu(accel->offer.device, core_shape_has_data(shape));
	if (!shape->own.bytes || !shape->in_place)
		return UTIL_OK;
	if (gpu_scratch_get(shape->own.bytes, accel->stream, &accel->scratch) != UTIL_OK)
		return core_accel_stage(accel, "no device memory for scratch");
	return UTIL_OK;
}

static bool may_need_links(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	return comm->wants_links || comm->spans ||
	       core_wish_wants_links(core_coll_sched(accel->shape.coll));
}

/*
 * Without one the call may still be done in another way, but not over several nodes. What is in
 * pinned memory takes the place of all GPUs' together, so it is less than a GPU's.
 */
enum { HOST_FACTOR = 2 };

static enum util_status open_arenas(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	int processes = core_mpi_job.local_size, sharers = accel->sharers;
	size_t bytes = core_arena_layout_bytes(util_config.scratch, sharers ? sharers : processes);
	size_t most = core_arena_layout_bytes(HOST_FACTOR * util_config.scratch, processes);
	enum util_status status;

	if ((comm->spans || comm->wants_shm) && bytes > most)
		bytes = most;
	if (core_arena_would_grow(comm->arena, bytes, accel->stream))
		core_leaving_look();
	status = core_arena_open(comm->arena, bytes, comm->wants_shm, accel->stream,
				 &accel->clearing);

	if (status == UTIL_OK && comm->spans)
		status = core_wire_open(comm->wire, comm->arena->bytes, accel->stream);
	return status;
}

/*
 * Whether this process's kernels may wait for others', of how many blocks. Not where others may use
 * the GPU that can't be counted, unless the user says so; nor where a launch does not come back
 * before its kernel has ended, and that waits for messages that this process is to carry.
 */
static bool may_wait(const struct core_accel *accel, uint32_t *blocks)
{
	int most = (int)gpu_launch_most(&accel->launch);
	int share = accel->sharers ? core_arena_layout_resident(most, accel->sharers) : 0;

	*blocks = share ? (uint32_t)share : 1;
	if (!share || util_config.exec == UTIL_EXEC_STEPPED)
		return false;
	if (accel->comm->neighbors && util_config.exec != UTIL_EXEC_FUSED)
		return false;
	return !accel->comm->spans || !gpu_launch_is_blocking();
}

/*
 * Kernels that are to wait for messages, and a network that writes to device memory, are two wishes
 * that don't go together.
 */
static uint32_t offer_gdr(const struct core_comm *comm)
{
	if (!comm->spans || !core_wire_takes_memory(comm->wire))
		return 0;
	if (util_config.net_gdr == UTIL_GDR_ON)
		return CORE_OFFER_DEVICE_WIRE | CORE_OFFER_WANTS_GDR;
	return util_config.exec == UTIL_EXEC_FUSED ? 0 : CORE_OFFER_DEVICE_WIRE;
}

/*
 * Many communicators see nothing but short calls, and arenas are large, and slow to make. If it
 * turns out that the call needs them it is staged, and the next one has them.
 */
static bool may_do_without_arenas(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	return !comm->wants_links && !comm->arena->bytes && core_eager_is_certain(accel);
}

static enum util_status offer_arenas(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	struct core_offer *offer = &accel->offer;
	struct gpu_pointer where;

	if (!accel->stream || !may_need_links(accel))
		return UTIL_OK;
	if (may_do_without_arenas(accel))
		return core_wire_open_ahead(comm->wire, accel->stream) == UTIL_OK
			       ? UTIL_OK
			       : core_accel_stage(accel, "no memory for messages");
	if (open_arenas(accel) != UTIL_OK)
		return comm->spans ? core_accel_stage(accel, "no memory for messages") : UTIL_OK;
	if ((comm->ll_flag >= LL_FLAGS || comm->flags_moved) &&
	    core_arena_clear_flags(comm->arena, accel->stream) == UTIL_OK) {
		accel->clearing = true;
		offer->flags |= CORE_OFFER_FLAGS_CLEAR;
	}
	gpu_pointer_classify((void *)comm->arena->device->address, &where);
	offer->arenas[GPU_TRANSPORT_P2P].address = comm->arena->device->address;
	offer->arenas[GPU_TRANSPORT_P2P].bytes = comm->arena->bytes;
	if (comm->spans && core_wire_bytes(comm->wire) < comm->arena->bytes)
		offer->arenas[GPU_TRANSPORT_P2P].bytes = core_wire_bytes(comm->wire);
	gpu_ipc_export(comm->arena->device->address, &where,
		       &offer->arenas[GPU_TRANSPORT_P2P].memory);
	if (comm->arena->shm) {
		offer->arenas[GPU_TRANSPORT_SHM].address =
			gpu_shm_address(comm->arena->shm, accel->stream);
		gpu_shm_export(comm->arena->shm, &offer->arenas[GPU_TRANSPORT_SHM].memory);
	}
	accel->reserved = may_wait(accel, &offer->blocks) &&
			  gpu_launch_reserve(gpu_stream_where(accel->stream)->device);
	offer->flags |= accel->reserved ? CORE_OFFER_CAN_FUSE : 0;
	offer->flags |= core_together_are_apart() ? CORE_OFFER_APART : 0;
	offer->flags |= comm->links_failed ? CORE_OFFER_LINKS_FAILED : 0;
	offer->flags |= offer_gdr(comm);
	return UTIL_OK;
}

/*
 * Who has no data may have messages to pass on, or to send without bytes, by kernels in the
 * thread's context; unless the communicator is at work in another one, which its arena would have
 * to leave.
 */
static enum util_status go_without_data(struct core_accel *accel)
{
	const struct gpu_scratch *arena = accel->comm->arena->device;
	struct gpu_pointer where;
	unsigned long long id;

	if (!may_need_links(accel) || !gpu_context_current(&where, &id) ||
	    (arena && arena->context_id != id))
		return UTIL_OK;
	return take_resources(accel, &where);
}

static enum util_status offer_buffers(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	bool root = shape->root == accel->comm->rank;
	bool rails = has_rails(accel);
	bool together = !accel->comm->spans || (rails && accel->comm->num_near > 1);
	/*
	 * What goes with the agreement nobody touches; an output shows that an input elsewhere is
	 * long.
	 */
	bool short_one = core_eager_fits(accel, &shape->in) && core_eager_fits(accel, &shape->out);
	struct candidate in = {.buffer = &shape->in,
			       .touched = together && others_read(accel, root),
			       .region = &accel->offer.in};
	struct candidate out = {.buffer = &shape->out,
				.touched = together && others_write(accel, root),
				.region = &accel->offer.out};
	bool has_in = !is_empty(&shape->in), has_out = !is_empty(&shape->out);
	enum util_status status;

	in.exported = in.touched && !short_one;
	out.exported = out.touched && !short_one;
	describe_region(&in);
	describe_region(&out);
	status = classify(accel, &in);
	if (status == UTIL_OK)
		status = classify(accel, &out);
	if (status != UTIL_OK)
		return status;
	if (rails && !in.missing && !out.missing)
		accel->offer.flags |= CORE_OFFER_EXPORTED;
	if (!has_in && !has_out)
		return go_without_data(accel);
	if (has_in && has_out && !in_one_context(&in.where, &out.where))
		return core_accel_stage(accel, "buffers in two contexts");
	status = take_resources(accel,
				has_out && (out.where.context || !has_in) ? &out.where : &in.where);
	return status == UTIL_OK ? open_windows(accel, &in, &out) : status;
}

static bool is_known(const struct core_comm *comm, uint64_t buffer_id)
{
	return buffer_id == 0 || core_known_has(&comm->known, buffer_id);
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

	if (accel->shape.in_place)
		offer->flags |= CORE_OFFER_IN_PLACE;
	if (!is_known(comm, offer->in.memory.buffer_id) ||
	    !is_known(comm, offer->out.memory.buffer_id) ||
	    !is_known(comm, offer->arenas[GPU_TRANSPORT_P2P].memory.buffer_id) ||
	    !is_known(comm, offer->arenas[GPU_TRANSPORT_SHM].memory.buffer_id))
		offer->flags |= CORE_OFFER_ASKS_VOTE;
	if (context_id != comm->context_id || accel->dropped != comm->dropped)
		offer->flags |= CORE_OFFER_ASKS_VOTE | CORE_OFFER_FORGET;
}

enum util_status core_prepare_offer(struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;
	struct core_offer *offer = &accel->offer;
	uint64_t in = longest_block(&shape->in), out = longest_block(&shape->out);
	enum util_status status;

	offer->flags = 0;
	offer->coll = (uint16_t)shape->coll;
	offer->type = (uint16_t)shape->type;
	offer->op = (uint16_t)shape->op;
	offer->root = shape->root;
	offer->bytes = shape->bytes;
	offer->counts = shape->counts;
	offer->longest = in > out ? in : out;
	offer->window = UINT64_MAX;
	offer->device = 0;
	offer->wish = *core_wish_of(core_coll_sched(shape->coll));
	offer->blocks = 0;
	memset(offer->arenas, 0, sizeof(offer->arenas));
	memset(&offer->cards, 0, sizeof(offer->cards));
	status = offer_buffers(accel);
	if (status != UTIL_OK)
		return status;
	status = offer_arenas(accel);
	if (status != UTIL_OK)
		return status;
	status = core_proof_offer(accel);
	if (status != UTIL_OK)
		return status;
	set_flags(accel);
	core_eager_offer(accel);
	if (accel->comm->spans && core_comm_speaks(accel->comm) &&
	    core_nodes_has_too_many(accel->comm))
		offer->flags |= CORE_OFFER_BEHIND;
	offer->num_freed = 0;
	if (offer->flags & CORE_OFFER_ASKS_VOTE)
		offer->num_freed = gpu_ipc_find_freed(offer->freed, CORE_OFFER_MOST_FREED);
	return UTIL_OK;
}
