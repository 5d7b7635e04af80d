/* SPDX-License-Identifier: BSD-3-Clause */
/* The call as the accelerated path takes it. */
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_graph.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_arithmetic.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_type.h"
#include "gpu/gpu_launch.h"
#include "util/util_hash.h"

#include <string.h>

struct shaper {
	const struct core_call *call;
	const struct core_comm *comm;
	struct core_shape *shape;
	enum core_reason refusal;
};

static void refuse_shape(struct shaper *s, enum core_reason reason)
{
	if (!s->refusal)
		s->refusal = reason;
}

/* The application's buffer may end where the last pair's padding begins. */
static void add_bytes(const struct shaper *s, struct core_buffer *buffer, int64_t offset,
		      uint64_t bytes)
{
	int64_t end = offset + (int64_t)bytes - (int64_t)gpu_type_tail(s->shape->padded);

	buffer->blocks[buffer->num_blocks++] = (struct core_block){offset, bytes};
	if (!bytes)
		return;
	if (buffer->lo == buffer->hi) {
		buffer->lo = offset;
		buffer->hi = end;
	}
	buffer->lo = offset < buffer->lo ? offset : buffer->lo;
	buffer->hi = end > buffer->hi ? end : buffer->hi;
}

/*
 * What moves between some ranks only may pass others that know nothing of its padding, or of
 * another's.
 */
static bool is_of_some(enum core_coll coll)
{
	return core_coll_sizes_differ(coll) && core_coll_sched(coll) == SCHED_ALLTOALL;
}

/* Swaps are of bytes. */
static bool is_swapped(const struct core_shape *shape)
{
	return shape->coll == CORE_ALLTOALL && shape->in_place;
}

/* Of elements that are there. */
static void note_padding(struct shaper *s, const struct core_mpi_solid *solid)
{
	struct core_shape *shape = s->shape;

	if (solid->padded == GPU_TYPE_NONE)
		return;
	if (is_of_some(shape->coll) || is_swapped(shape))
		refuse_shape(s, CORE_REASON_SEVERAL_PARTS);
	shape->padded = solid->padded;
}

/* Append `count` elements that begin at `offset`. */
static void add_solid(struct shaper *s, struct core_buffer *buffer, int64_t offset, int64_t count,
		      core_handle type)
{
	struct core_mpi_solid solid = {0};

	if (count < 0 || (count && !core_mpi_find_solid(core_mpi_as_type(type), &solid)))
		refuse_shape(s, count < 0 ? CORE_REASON_REFUSED : CORE_REASON_SEVERAL_PARTS);
	else if (count > 1 && !solid.follows)
		refuse_shape(s, CORE_REASON_SEVERAL_PARTS);
	if (count > 0)
		note_padding(s, &solid);
	if (!s->refusal)
		add_bytes(s, buffer, offset + solid.lb, (uint64_t)count * solid.bytes);
}

/* A buffer of one block begins at the block. */
static void set_single(const struct shaper *s, struct core_buffer *buffer, uintptr_t address,
		       struct core_block block)
{
	buffer->address = address + (uintptr_t)block.offset;
	buffer->num_blocks = 0;
	buffer->lo = buffer->hi = 0;
	add_bytes(s, buffer, 0, block.bytes);
}

static void shape_single(struct shaper *s, struct core_buffer *buffer, const void *address,
			 int64_t count, core_handle type)
{
	add_solid(s, buffer, 0, count, type);
	if (!s->refusal)
		set_single(s, buffer, (uintptr_t)address, buffer->blocks[0]);
}

static void shape_blocks(struct shaper *s, struct core_buffer *buffer, const void *address,
			 const struct core_mpi_blocks *blocks)
{
	struct core_mpi_solid solid = {0};

	buffer->address = (uintptr_t)address;
	if (blocks->each_type && !blocks->types)
		refuse_shape(s, CORE_REASON_REFUSED);
	for (int i = 0; i < blocks->num && !s->refusal; i++) {
		int64_t count = core_mpi_block_count(blocks, i);

		if (count <= 0) {
			if (count < 0)
				refuse_shape(s, CORE_REASON_REFUSED);
			add_bytes(s, buffer, 0, 0);
			continue;
		}
		if ((blocks->each_type || !solid.bytes) &&
		    !core_mpi_find_solid(core_mpi_as_type(core_mpi_block_type(blocks, i)),
					 &solid)) {
			refuse_shape(s, CORE_REASON_SEVERAL_PARTS);
			break;
		}
		if (count > 1 && !solid.follows)
			refuse_shape(s, CORE_REASON_SEVERAL_PARTS);
		note_padding(s, &solid);
		add_bytes(s, buffer, core_mpi_block_offset(blocks, i, solid.extent) + solid.lb,
			  (uint64_t)count * solid.bytes);
	}
}

static uintptr_t reduce_input(const struct shaper *s)
{
	return (uintptr_t)(s->shape->in_place ? s->call->recvbuf : s->call->sendbuf);
}

static void shape_reduction(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	bool prefix = call->coll == CORE_SCAN || call->coll == CORE_EXSCAN;
	bool has_output = true;

	if (call->coll == CORE_REDUCE)
		has_output = shape->root == s->comm->rank;
	else if (call->coll == CORE_EXSCAN)
		has_output = s->comm->rank != 0;

	s->refusal = core_mpi_find_arithmetic(call, shape);
	if (s->refusal)
		return;
	shape_single(s, &shape->in, (void *)reduce_input(s), call->recvcount, call->recvtype);
	if (s->refusal)
		return;
	shape->bytes = shape->in.blocks[0].bytes;
	if (prefix && has_output)
		shape->own = shape->in.blocks[0];
	if (has_output)
		shape_single(s, &shape->out, call->recvbuf, call->recvcount, call->recvtype);
}

static void shape_reduce_scatter(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	bool equal = call->coll == CORE_REDUCE_SCATTER_BLOCK;
	struct core_mpi_blocks all = core_mpi_received_blocks(call, s->comm->size);
	uint64_t hash = UTIL_HASH_START;
	struct core_mpi_solid solid = {0};
	int64_t at = 0;

	s->refusal = core_mpi_find_arithmetic(call, shape);
	if (!equal && !call->recvcounts)
		refuse_shape(s, CORE_REASON_REFUSED);
	if (!s->refusal && !core_mpi_find_solid(core_mpi_as_type(call->recvtype), &solid))
		refuse_shape(s, CORE_REASON_SEVERAL_PARTS);
	for (int i = 0; i < all.num && !s->refusal; i++) {
		int64_t count = core_mpi_block_count(&all, i);

		if (count < 0) {
			refuse_shape(s, CORE_REASON_REFUSED);
			return;
		}
		if (count)
			note_padding(s, &solid);
		add_bytes(s, &shape->in, at, (uint64_t)count * solid.bytes);
		at += count * (int64_t)solid.bytes;
		hash = util_hash(hash, &count, sizeof(count));
	}
	if (s->refusal)
		return;
	shape->in.address = reduce_input(s);
	shape->counts = hash;
	shape->bytes = (uint64_t)at;
	shape->own = shape->in.blocks[s->comm->rank];
	set_single(s, &shape->out, (uintptr_t)call->recvbuf,
		   (struct core_block){0, shape->own.bytes});
}

static void shape_bcast(struct shaper *s)
{
	struct core_shape *shape = s->shape;
	bool root = shape->root == s->comm->rank;
	struct core_buffer *buffer = root ? &shape->in : &shape->out;

	shape_single(s, buffer, s->call->recvbuf, s->call->recvcount, s->call->recvtype);
	if (!s->refusal)
		shape->bytes = buffer->blocks[0].bytes;
}

/* What this rank gives to a gather: in place, its block of the output. */
static void shape_gathered(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;

	if (shape->in_place)
		set_single(s, &shape->in, shape->out.address, shape->out.blocks[s->comm->rank]);
	else
		shape_single(s, &shape->in, call->sendbuf, call->sendcount, call->sendtype);
}

static void shape_gather(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	struct core_mpi_blocks all = core_mpi_received_blocks(call, s->comm->size);

	if (shape->root == s->comm->rank) {
		if (call->coll == CORE_GATHERV && core_mpi_lacks_arrays(&all))
			refuse_shape(s, CORE_REASON_REFUSED);
		else
			shape_blocks(s, &shape->out, call->recvbuf, &all);
	}
	if (s->refusal)
		return;
	shape_gathered(s);
	if (!s->refusal && call->coll == CORE_GATHER)
		shape->bytes = shape->in.blocks[0].bytes;
}

static void shape_scatter(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	struct core_mpi_blocks all = core_mpi_sent_blocks(call, s->comm->size);

	if (shape->root == s->comm->rank) {
		if (call->coll == CORE_SCATTERV && core_mpi_lacks_arrays(&all))
			refuse_shape(s, CORE_REASON_REFUSED);
		else
			shape_blocks(s, &shape->in, call->sendbuf, &all);
	}
	if (s->refusal)
		return;
	if (shape->in_place)
		set_single(s, &shape->out, shape->in.address, shape->in.blocks[s->comm->rank]);
	else
		shape_single(s, &shape->out, call->recvbuf, call->recvcount, call->recvtype);
	if (!s->refusal && call->coll == CORE_SCATTER)
		shape->bytes = shape->out.blocks[0].bytes;
}

static void shape_allgather(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	struct core_mpi_blocks all = core_mpi_received_blocks(call, s->comm->size);

	if (call->coll == CORE_ALLGATHERV && core_mpi_lacks_arrays(&all)) {
		refuse_shape(s, CORE_REASON_REFUSED);
		return;
	}
	shape_blocks(s, &shape->out, call->recvbuf, &all);
	if (s->refusal)
		return;
	shape_gathered(s);
	if (s->refusal || call->coll != CORE_ALLGATHER)
		return;
	shape->bytes = shape->in.blocks[0].bytes;
	shape->counts = shape->out.blocks[0].bytes;
}

static void shape_alltoall(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	struct core_mpi_blocks from = core_mpi_sent_blocks(call, s->comm->size);
	struct core_mpi_blocks to = core_mpi_received_blocks(call, s->comm->size);

	if (call->coll != CORE_ALLTOALL &&
	    (core_mpi_lacks_arrays(&to) || (!shape->in_place && core_mpi_lacks_arrays(&from)))) {
		refuse_shape(s, CORE_REASON_REFUSED);
		return;
	}
	if (!shape->in_place)
		shape_blocks(s, &shape->in, call->sendbuf, &from);
	shape_blocks(s, &shape->out, call->recvbuf, &to);
	if (s->refusal || call->coll != CORE_ALLTOALL)
		return;
	shape->bytes = shape->out.blocks[0].bytes;
	/* All sizes are one, as who waits for flags relies on. */
	if (!shape->in_place && shape->in.blocks[0].bytes != shape->bytes)
		refuse_shape(s, CORE_REASON_REFUSED);
}

/* From a block for each neighbour to one for each rank. */
static void order_by_rank(const struct shaper *s, struct core_buffer *buffer, const int *ranks,
			  int num)
{
	struct core_block blocks[CORE_MAX_RANKS];

	memset(blocks, 0, (size_t)s->comm->size * sizeof(*blocks));
	for (int i = 0; i < num; i++) {
		if (ranks[i] >= 0)
			blocks[ranks[i]] = buffer->blocks[i];
	}
	buffer->num_blocks = 0;
	buffer->lo = buffer->hi = 0;
	for (int i = 0; i < s->comm->size; i++)
		add_bytes(s, buffer, blocks[i].offset, blocks[i].bytes);
}

/* The same block for all. */
static void shape_neighbor_input(struct shaper *s)
{
	struct core_buffer *in = &s->shape->in;

	shape_single(s, in, s->call->sendbuf, s->call->sendcount, s->call->sendtype);
	for (int i = 1; i < s->comm->graph->num_out && !s->refusal; i++)
		in->blocks[i] = in->blocks[0];
}

static enum core_reason why_no_neighbors(const struct core_graph *graph)
{
	return graph ? graph->why : CORE_REASON_REFUSED;
}

/* An exchange of those who are neighbours. */
static void shape_neighbor(struct shaper *s)
{
	const struct core_graph *graph = s->comm->graph;
	const struct core_call *call = s->call;
	struct core_mpi_blocks from, to;

	s->refusal = s->shape->in_place ? CORE_REASON_REFUSED : why_no_neighbors(graph);
	if (s->refusal)
		return;
	from = core_mpi_sent_blocks(call, graph->num_out);
	to = core_mpi_received_blocks(call, graph->num_in);
	if (core_mpi_neighbors_lack_arrays(call->coll, &from, &to)) {
		refuse_shape(s, CORE_REASON_REFUSED);
		return;
	}
	if (core_coll_is_neighbor_gather(call->coll))
		shape_neighbor_input(s);
	else
		shape_blocks(s, &s->shape->in, call->sendbuf, &from);
	shape_blocks(s, &s->shape->out, call->recvbuf, &to);
	if (s->refusal)
		return;
	order_by_rank(s, &s->shape->in, graph->out, graph->num_out);
	order_by_rank(s, &s->shape->out, graph->in, graph->num_in);
}

/* Whether the call's form leaves this rank one buffer. */
static bool is_in_place(const struct core_call *call, bool root)
{
	switch (call->coll) {
	case CORE_BCAST:
		return false;
	case CORE_SCATTER:
	case CORE_SCATTERV:
		return root && call->recvbuf == MPI_IN_PLACE;
	case CORE_REDUCE:
	case CORE_GATHER:
	case CORE_GATHERV:
		return root && call->sendbuf == MPI_IN_PLACE;
	default:
		return call->sendbuf == MPI_IN_PLACE;
	}
}

static void shape_any(struct shaper *s)
{
	switch (s->call->coll) {
	case CORE_BCAST:
		shape_bcast(s);
		break;
	case CORE_REDUCE:
	case CORE_ALLREDUCE:
	case CORE_SCAN:
	case CORE_EXSCAN:
		shape_reduction(s);
		break;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		shape_reduce_scatter(s);
		break;
	case CORE_GATHER:
	case CORE_GATHERV:
		shape_gather(s);
		break;
	case CORE_SCATTER:
	case CORE_SCATTERV:
		shape_scatter(s);
		break;
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		shape_allgather(s);
		break;
	case CORE_ALLTOALL:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		shape_alltoall(s);
		break;
	case CORE_NEIGHBOR_ALLGATHER:
	case CORE_NEIGHBOR_ALLGATHERV:
	case CORE_NEIGHBOR_ALLTOALL:
	case CORE_NEIGHBOR_ALLTOALLV:
	case CORE_NEIGHBOR_ALLTOALLW:
		shape_neighbor(s);
		break;
	default:
		refuse_shape(s, CORE_REASON_NO_FORM);
		break;
	}
}

static bool bytes_overlap(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
	return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

static bool blocks_overlap(const struct core_buffer *a, const struct core_buffer *b)
{
	for (int i = 0; i < a->num_blocks; i++) {
		uintptr_t start = a->address + (uintptr_t)a->blocks[i].offset;

		for (int j = 0; j < b->num_blocks; j++) {
			if (bytes_overlap(start, a->blocks[i].bytes,
					  b->address + (uintptr_t)b->blocks[j].offset,
					  b->blocks[j].bytes))
				return true;
		}
	}
	return false;
}

/*
 * MPI forbids it, and real MPIs say so, or give what their algorithms give. What is sent may lie
 * between what is received (the faces of a grid and its margins).
 */
static bool overlap(const struct core_buffer *a, const struct core_buffer *b)
{
	return bytes_overlap(a->address + (uintptr_t)a->lo, (uint64_t)(a->hi - a->lo),
			     b->address + (uintptr_t)b->lo, (uint64_t)(b->hi - b->lo)) &&
	       blocks_overlap(a, b);
}

enum core_reason core_mpi_shape(const struct core_call *call, const struct core_comm *comm,
				struct core_shape *shape)
{
	struct shaper s = {.call = call, .comm = comm, .shape = shape};

	shape->coll = call->coll;
	shape->root = core_coll_is_rooted(call->coll) ? call->root : 0;
	if (shape->root < 0 || shape->root >= comm->size)
		return CORE_REASON_REFUSED;
	shape->in_place = is_in_place(call, shape->root == comm->rank);
	shape_any(&s);
	if (!s.refusal && !shape->in_place && overlap(&shape->in, &shape->out))
		return CORE_REASON_REFUSED;
	return s.refusal;
}
