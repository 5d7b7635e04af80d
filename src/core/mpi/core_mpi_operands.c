/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of a call as operands: which bytes it reads and writes on this rank. */
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_type.h"

#include <stdlib.h>
#include <string.h>

enum role { ROLE_ROOT, ROLE_LEAF, ROLE_NONE };

struct builder {
	const struct core_call *call;
	struct core_operand *operands;
	size_t num_operands;
	MPI_Comm comm; /* MPI_COMM_NULL in Reduce_local */
	bool inter;
	int rank, local_size;
	int peers; /* processes that this one exchanges with: the group's, or the remote group's */
	enum role role;
	enum util_status status;
	bool refuse; /* the arguments are wrong: leave them to the real MPI */
};

bool core_mpi_is_in_place(const void *buffer)
{
	return buffer == MPI_IN_PLACE;
}

/*
 * Begin the next operand, with room for the maps of `num_types` types. NULL when that is not to be.
 */
static struct core_operand *begin_operand(struct builder *b, const void *address, bool is_send,
					  int num_types)
{
	struct core_operand *operand = &b->operands[b->num_operands];

	if (b->refuse || b->status != UTIL_OK)
		return NULL;
	operand->maps = calloc((size_t)num_types, sizeof(*operand->maps));
	if (!operand->maps) {
		b->status = UTIL_ERR_NO_MEMORY;
		return NULL;
	}
	b->num_operands++;
	operand->address = (void *)address;
	operand->is_send = is_send;
	operand->in = is_send;
	operand->out = !is_send;
	return operand;
}

/* NULL: the call is to be refused by the real MPI, which knows the right error. */
static const struct core_typemap *map_of(struct builder *b, struct core_operand *operand,
					 MPI_Datatype type)
{
	struct core_typemap *map = &operand->maps[operand->num_maps];

	if (type == MPI_DATATYPE_NULL || !core_mpi_type_map(type, map)) {
		b->refuse = true;
		return NULL;
	}
	operand->num_maps++;
	return map;
}

/*
 * An operand of `count` elements that begin at element `first`. The type of no elements may be
 * anything.
 */
static struct core_operand *add_elements(struct builder *b, const void *address, bool is_send,
					 int64_t first, int64_t count, core_handle type)
{
	struct core_operand *operand;
	const struct core_typemap *map;

	b->refuse |= count < 0;
	operand = begin_operand(b, address, is_send, 1);
	map = operand && count ? map_of(b, operand, core_mpi_as_type(type)) : NULL;
	if (map)
		b->status = core_operand_add(operand, first * map->extent, (size_t)count, map);
	return operand;
}

static void add_block(struct builder *b, struct core_operand *operand,
		      const struct core_mpi_blocks *blocks, int i, const struct core_typemap *map)
{
	if (blocks->absent && blocks->absent[i])
		return;
	b->status = core_operand_add(operand, core_mpi_block_offset(blocks, i, map->extent),
				     (size_t)core_mpi_block_count(blocks, i), map);
}

/* The type of an empty block may be anything, and programs leave it null. */
static struct core_operand *add_blocks(struct builder *b, const void *address, bool is_send,
				       const struct core_mpi_blocks *blocks)
{
	struct core_operand *operand =
		begin_operand(b, address, is_send, blocks->each_type ? blocks->num + 1 : 1);
	const struct core_typemap *map = NULL;

	for (int i = 0; operand && i < blocks->num && b->status == UTIL_OK && !b->refuse; i++) {
		int64_t count = core_mpi_block_count(blocks, i);

		b->refuse |= count < 0;
		if (count <= 0)
			continue;
		if (blocks->each_type || !map)
			map = map_of(b, operand, core_mpi_as_type(core_mpi_block_type(blocks, i)));
		if (map)
			add_block(b, operand, blocks, i, map);
	}
	return operand;
}

static void add_send(struct builder *b)
{
	add_elements(b, b->call->sendbuf, true, 0, b->call->sendcount, b->call->sendtype);
}

static void add_recv(struct builder *b)
{
	add_elements(b, b->call->recvbuf, false, 0, b->call->recvcount, b->call->recvtype);
}

/*
 * The input of a reduction: the send buffer, or in place the first `count` elements of the receive
 * buffer.
 */
static struct core_operand *add_reduce_input(struct builder *b, int64_t count)
{
	const struct core_call *call = b->call;
	bool in_place = call->sendbuf == MPI_IN_PLACE;
	struct core_operand *operand;

	operand = add_elements(b, in_place ? call->recvbuf : call->sendbuf, true, 0, count,
			       call->recvtype);
	if (operand)
		operand->is_send = !in_place;
	return operand;
}

static void build_bcast(struct builder *b)
{
	if (b->role == ROLE_NONE)
		return;
	add_recv(b);
	if (b->role == ROLE_ROOT) {
		b->operands[0].in = true;
		b->operands[0].out = false;
	}
}

/*
 * MPICH 4.0 crashes in MPI_Reduce in place for some roots and sizes, on host buffers too. In place
 * is the root's private matter in this collective, so it is turned into two buffers that are kept
 * apart.
 */
static void build_reduce(struct builder *b)
{
	const struct core_call *call = b->call;
	struct core_operand *operand;

	if (b->role == ROLE_LEAF && call->sendbuf == MPI_IN_PLACE)
		b->refuse = true;
	if (b->inter ? b->role == ROLE_LEAF : b->role != ROLE_NONE) {
		operand = add_reduce_input(b, call->recvcount);
		if (operand)
			operand->is_send = true;
	}
	if (b->role != ROLE_ROOT)
		return;
	operand = add_elements(b, call->recvbuf, false, 0, call->recvcount, call->recvtype);
	if (operand)
		operand->apart = true;
}

static void build_symmetric_reduction(struct builder *b)
{
	add_reduce_input(b, b->call->recvcount);
	/* Exscan leaves the receive buffer of the first rank as it was. */
	if (b->call->coll != CORE_EXSCAN || b->rank > 0)
		add_recv(b);
}

static void build_reduce_scatter(struct builder *b)
{
	const struct core_call *call = b->call;
	struct core_mpi_blocks all = core_mpi_received_blocks(call, b->local_size);
	int64_t total = 0;

	b->refuse |= call->coll == CORE_REDUCE_SCATTER && !all.counts;
	for (int i = 0; i < all.num && !b->refuse; i++) {
		int64_t count = core_mpi_block_count(&all, i);

		b->refuse |= count < 0;
		total += count;
	}
	if (b->refuse)
		return;
	add_reduce_input(b, total);
	add_elements(b, call->recvbuf, false, 0, core_mpi_block_count(&all, b->rank),
		     call->recvtype);
}

static void build_reduce_local(struct builder *b)
{
	add_elements(b, b->call->sendbuf, true, 0, b->call->recvcount, b->call->recvtype);
	add_recv(b);
	if (b->num_operands == 2)
		b->operands[1].in = true;
}

/*
 * In place, this rank's block of the receive buffer is input, which the real MPI expects to find
 * there.
 */
static void add_own_block(struct builder *b)
{
	struct core_mpi_blocks own = core_mpi_received_blocks(b->call, b->peers);
	unsigned char *absent = calloc((size_t)b->peers, 1);
	struct core_operand *operand;

	if (!absent) {
		b->status = UTIL_ERR_NO_MEMORY;
		return;
	}
	memset(absent, 1, (size_t)b->peers);
	absent[b->rank] = 0;
	own.absent = absent;
	operand = add_blocks(b, b->call->recvbuf, false, &own);
	if (operand) {
		operand->in = true;
		operand->out = false;
	}
	free(absent);
}

static void build_gather(struct builder *b)
{
	struct core_mpi_blocks all = core_mpi_received_blocks(b->call, b->peers);

	if (b->call->coll == CORE_GATHERV && b->role == ROLE_ROOT && core_mpi_lacks_arrays(&all))
		b->refuse = true;
	if (b->inter ? b->role == ROLE_LEAF : b->role != ROLE_NONE) {
		if (b->call->sendbuf != MPI_IN_PLACE)
			add_send(b);
		else if (b->role == ROLE_ROOT && !b->refuse)
			add_own_block(b);
	}
	if (b->role == ROLE_ROOT)
		add_blocks(b, b->call->recvbuf, false, &all);
}

static void build_scatter(struct builder *b)
{
	struct core_mpi_blocks all = core_mpi_sent_blocks(b->call, b->peers);

	if (b->call->coll == CORE_SCATTERV && b->role == ROLE_ROOT && core_mpi_lacks_arrays(&all))
		b->refuse = true;
	if (b->role == ROLE_ROOT)
		add_blocks(b, b->call->sendbuf, true, &all);
	if ((b->inter ? b->role == ROLE_LEAF : b->role != ROLE_NONE) &&
	    b->call->recvbuf != MPI_IN_PLACE)
		add_recv(b);
}

static void build_allgather(struct builder *b)
{
	struct core_mpi_blocks all = core_mpi_received_blocks(b->call, b->peers);

	if (b->call->coll == CORE_ALLGATHERV && core_mpi_lacks_arrays(&all))
		b->refuse = true;
	if (b->call->sendbuf != MPI_IN_PLACE)
		add_send(b);
	else if (!b->refuse)
		add_own_block(b);
	add_blocks(b, b->call->recvbuf, false, &all);
}

static void build_alltoall(struct builder *b)
{
	struct core_mpi_blocks from = core_mpi_sent_blocks(b->call, b->peers),
			       to = core_mpi_received_blocks(b->call, b->peers);
	bool in_place = b->call->sendbuf == MPI_IN_PLACE;

	if (b->call->coll != CORE_ALLTOALL)
		b->refuse |=
			core_mpi_lacks_arrays(&to) || (!in_place && core_mpi_lacks_arrays(&from));
	if (!in_place)
		add_blocks(b, b->call->sendbuf, true, &from);
	add_blocks(b, b->call->recvbuf, false, &to);
	if (in_place && b->num_operands)
		b->operands[0].in = true;
}

/*
 * Neighbours in MPI's order: in each dimension the one below and the one above, absent at a border.
 */
static void cart_absent(MPI_Comm comm, int dims, unsigned char *absent)
{
	for (int i = 0; i < dims; i++) {
		int below = MPI_PROC_NULL, above = MPI_PROC_NULL;

		PMPI_Cart_shift(comm, i, 1, &below, &above);
		absent[2 * i] = below == MPI_PROC_NULL;
		absent[2 * i + 1] = above == MPI_PROC_NULL;
	}
}

/*
 * The numbers of neighbours; for a Cartesian topology also which of them are absent (caller frees).
 */
static void count_neighbours(struct builder *b, int *in, int *out, unsigned char **absent)
{
	int topology = MPI_UNDEFINED, weighted;

	*absent = NULL;
	*in = *out = 0;
	PMPI_Topo_test(b->comm, &topology);
	if (topology == MPI_CART) {
		PMPI_Cartdim_get(b->comm, in);
		*absent = calloc((size_t)*in * 2 + 1, 1);
		if (*absent)
			cart_absent(b->comm, *in, *absent);
		else
			b->status = UTIL_ERR_NO_MEMORY;
		*in = *out = 2 * *in;
	} else if (topology == MPI_GRAPH) {
		PMPI_Graph_neighbors_count(b->comm, b->rank, in);
		*out = *in;
	} else if (topology == MPI_DIST_GRAPH) {
		PMPI_Dist_graph_neighbors_count(b->comm, in, out, &weighted);
	} else {
		b->refuse = true;
	}
}

static void build_neighbor(struct builder *b)
{
	enum core_coll coll = b->call->coll;
	unsigned char *absent;
	struct core_mpi_blocks from, to;
	int in, out;

	count_neighbours(b, &in, &out, &absent);
	from = core_mpi_sent_blocks(b->call, out);
	to = core_mpi_received_blocks(b->call, in);
	from.absent = to.absent = absent;
	b->refuse |= core_mpi_neighbors_lack_arrays(coll, &from, &to);
	if (core_coll_is_neighbor_gather(coll))
		add_send(b);
	else
		add_blocks(b, b->call->sendbuf, true, &from);
	add_blocks(b, b->call->recvbuf, false, &to);
	free(absent);
}

static void find_role(struct builder *b)
{
	int root = b->call->root;

	if (b->inter && (root == MPI_ROOT || root == MPI_PROC_NULL)) {
		b->role = root == MPI_ROOT ? ROLE_ROOT : ROLE_NONE;
		return;
	}
	b->refuse |= root < 0 || root >= b->peers;
	b->role = !b->inter && root == b->rank ? ROLE_ROOT : ROLE_LEAF;
}

static void inspect_comm(struct builder *b)
{
	int inter = 0;

	if (b->comm == MPI_COMM_NULL) {
		b->refuse = true;
		return;
	}
	PMPI_Comm_test_inter(b->comm, &inter);
	PMPI_Comm_rank(b->comm, &b->rank);
	PMPI_Comm_size(b->comm, &b->local_size);
	b->inter = inter;
	b->peers = b->local_size;
	if (inter)
		PMPI_Comm_remote_size(b->comm, &b->peers);
	if (core_coll_is_rooted(b->call->coll))
		find_role(b);
}

static void build(struct builder *b)
{
	switch (b->call->coll) {
	case CORE_BCAST:
		build_bcast(b);
		break;
	case CORE_REDUCE:
		build_reduce(b);
		break;
	case CORE_ALLREDUCE:
	case CORE_SCAN:
	case CORE_EXSCAN:
		build_symmetric_reduction(b);
		break;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		build_reduce_scatter(b);
		break;
	case CORE_GATHER:
	case CORE_GATHERV:
		build_gather(b);
		break;
	case CORE_SCATTER:
	case CORE_SCATTERV:
		build_scatter(b);
		break;
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		build_allgather(b);
		break;
	case CORE_ALLTOALL:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
		build_alltoall(b);
		break;
	case CORE_NEIGHBOR_ALLGATHER:
	case CORE_NEIGHBOR_ALLGATHERV:
	case CORE_NEIGHBOR_ALLTOALL:
	case CORE_NEIGHBOR_ALLTOALLV:
	case CORE_NEIGHBOR_ALLTOALLW:
		build_neighbor(b);
		break;
	case CORE_REDUCE_LOCAL:
		build_reduce_local(b);
		break;
	case CORE_COLL_NUM:
		break;
	}
}

enum util_status core_mpi_operands(const struct core_call *call, struct core_operand *operands,
				   size_t *num_operands)
{
	struct builder b = {.call = call, .operands = operands, .comm = MPI_COMM_NULL};

	if (call->coll != CORE_REDUCE_LOCAL) {
		b.comm = core_mpi_as_comm(call->comm);
		core_mpi_note_comm(call->comm);
		inspect_comm(&b);
	}
	if (!b.refuse)
		build(&b);
	*num_operands = b.refuse ? 0 : b.num_operands;
	return b.refuse ? UTIL_OK : b.status;
}

/* Whether the call's receive side says how much this rank moves; the other may be insignificant. */
static bool counts_by_recv(const struct builder *b)
{
	switch (b->call->coll) {
	case CORE_GATHER:
	case CORE_GATHERV:
		return b->role == ROLE_ROOT;
	case CORE_SCATTER:
	case CORE_SCATTERV:
		return b->role == ROLE_LEAF && b->call->recvbuf != MPI_IN_PLACE;
	default:
		return true;
	}
}

size_t core_mpi_call_bytes(const struct core_call *call)
{
	struct builder b = {.call = call, .comm = MPI_COMM_NULL};
	MPI_Count size = 0;
	bool recv;

	if (call->coll != CORE_REDUCE_LOCAL) {
		b.comm = core_mpi_as_comm(call->comm);
		inspect_comm(&b);
	}
	if (b.refuse || (core_coll_is_rooted(call->coll) && b.role == ROLE_NONE))
		return 0;
	recv = counts_by_recv(&b);
	int64_t count = recv ? call->recvcount : call->sendcount;
	MPI_Datatype type = core_mpi_as_type(recv ? call->recvtype : call->sendtype);
	if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
		return 0;
	return (size_t)count * (size_t)size;
}
