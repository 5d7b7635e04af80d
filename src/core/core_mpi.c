/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one file of src/core that knows MPI: handles, roles of buffers in each collective, datatypes
 * as bytes, the private communicator. Every MPI call here is PMPI and made under the door's guard
 * (pmpi_call.c), so it reaches the real MPI even where the library wraps it.
 */
#include "core/core_mpi.h"
#include "core/core_comm.h"
#include "util/util_log.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static MPI_Comm as_comm(core_handle handle)
{
	return (MPI_Comm)handle;
}

static MPI_Datatype as_type(core_handle handle)
{
	return (MPI_Datatype)handle;
}

static MPI_Comm private_comm = MPI_COMM_NULL; /* of the whole library; returns errors */

/* ---- datatypes as runs of bytes ---- */

static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;
static int type_keyval =
	MPI_KEYVAL_INVALID; /* under the lock; on derived types: a struct core_runs */

static int delete_runs(MPI_Datatype type, int keyval, void *value, void *extra)
{
	(void)type;
	(void)keyval;
	(void)extra;
	core_runs_put(value);
	return MPI_SUCCESS;
}

static int get_type_keyval(void)
{
	pthread_mutex_lock(&keyval_lock);
	if (type_keyval == MPI_KEYVAL_INVALID)
		PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_runs, &type_keyval, NULL);
	int keyval = type_keyval;
	pthread_mutex_unlock(&keyval_lock);
	return keyval;
}

/* Scan the parts of a sparse memory file that were written: a type under MPI_BOTTOM may span
 * terabytes. */
static enum util_status scan_sparse(int fd, const unsigned char *mask, size_t bytes, ptrdiff_t base,
				    struct core_run_list *list)
{
	enum util_status status = UTIL_OK;
	off_t from = 0, to;

	while (status == UTIL_OK && from < (off_t)bytes) {
		from = lseek(fd, from, SEEK_DATA);
		if (from < 0)
			return errno == ENXIO ? UTIL_OK : UTIL_ERR_SYSTEM;
		to = lseek(fd, from, SEEK_HOLE);
		if (to < 0 || to > (off_t)bytes)
			to = (off_t)bytes;
		status = core_run_list_scan(list, mask + from, (size_t)(to - from), base + from);
		from = to;
	}
	return status;
}

/* Unpack `size` bytes of ones as one element: what turns to ones is what the type touches. */
static enum util_status fill_mask(MPI_Datatype type, size_t size, void *origin)
{
	MPI_Comm comm = private_comm == MPI_COMM_NULL ? MPI_COMM_SELF : private_comm;
	int position = 0, packed = 0;
	enum util_status status = UTIL_ERR_MPI;
	char *ones;

	if (size > INT_MAX || PMPI_Pack_size(1, type, comm, &packed) != MPI_SUCCESS)
		return UTIL_ERR_UNSUPPORTED;
	packed = packed > (int)size ? packed : (int)size;
	ones = malloc((size_t)packed);
	if (!ones)
		return UTIL_ERR_NO_MEMORY;
	memset(ones, 0xff, (size_t)packed);
	if (PMPI_Unpack(ones, packed, &position, origin, 1, type, comm) == MPI_SUCCESS)
		status = UTIL_OK;
	free(ones);
	return status;
}

/*
 * The runs of a derived type with gaps. MPI has no call for them, and taking the type apart by its
 * constructors is long; unpacking into a mask lets the real MPI tell, for every kind of type that
 * it has.
 */
static enum util_status find_runs(MPI_Datatype type, const struct core_typemap *map,
				  struct core_run_list *list)
{
	size_t bytes = (size_t)(map->hi - map->lo);
	enum util_status status = UTIL_ERR_SYSTEM;
	int fd = memfd_create("gpucoll-mask", MFD_CLOEXEC);
	unsigned char *mask = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		mask = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (mask != MAP_FAILED) {
		status = fill_mask(type, map->size, core_address(mask, -map->lo));
		if (status == UTIL_OK)
			status = scan_sparse(fd, mask, bytes, map->lo, list);
		munmap(mask, bytes);
	}
	if (fd >= 0)
		close(fd);
	return status;
}

/*
 * The type's own runs, if it has them, with a reference for the caller. The callers look twice,
 * since two threads may have asked for the same type at once; whoever comes second throws its own
 * away. The lock is not taken by delete_runs, which MPI calls under locks of its own.
 */
static struct core_runs *get_runs(MPI_Datatype type)
{
	struct core_runs *runs = NULL;
	int found = 0;

	PMPI_Type_get_attr(type, get_type_keyval(), &runs, &found);
	if (!found)
		return NULL;
	atomic_fetch_add_explicit(&runs->refs, 1, memory_order_relaxed);
	return runs;
}

static struct core_runs *keep_runs(MPI_Datatype type, struct core_run_list *list)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct core_runs *runs, *mine = calloc(1, sizeof(*mine));

	if (!mine) {
		free(list->runs);
		return NULL;
	}
	*mine = (struct core_runs){.refs = 2, .num_runs = list->num_runs, .runs = list->runs};
	pthread_mutex_lock(&lock);
	runs = get_runs(type);
	if (!runs && PMPI_Type_set_attr(type, get_type_keyval(), mine) == MPI_SUCCESS)
		runs = mine;
	pthread_mutex_unlock(&lock);
	if (runs != mine) {
		core_runs_put(mine);
		core_runs_put(mine);
	}
	return runs;
}

static enum util_status map_runs(struct core_typemap *map)
{
	struct core_run_list list = {0};
	MPI_Datatype type = as_type(map->type);
	enum util_status status;

	map->shared = get_runs(type);
	if (!map->shared) {
		status = find_runs(type, map, &list);
		if (status != UTIL_OK) {
			free(list.runs);
			return status;
		}
		map->shared = keep_runs(type, &list);
	}
	if (!map->shared)
		return UTIL_ERR_NO_MEMORY;
	map->runs = map->shared->runs;
	map->num_runs = map->shared->num_runs;
	return UTIL_OK;
}

enum util_status core_mpi_find_runs(struct core_operand *operand)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < operand->num_maps && status == UTIL_OK; i++) {
		if (operand->maps[i].size && !operand->maps[i].runs)
			status = map_runs(&operand->maps[i]);
	}
	return status;
}

/* All but the runs of a type with gaps. False: the MPI does not know the type. */
static bool type_map(MPI_Datatype type, struct core_typemap *map)
{
	MPI_Aint lb, extent, true_lb, true_extent;
	int integers, addresses, types, combiner;
	MPI_Count size;

	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
	    PMPI_Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS ||
	    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return false;
	map->type = (uintptr_t)type;
	map->extent = extent;
	map->lo = true_lb;
	map->hi = true_lb + true_extent;
	map->size = (size_t)size;
	/* A predefined pair type has padding inside its C struct, which belongs to the element. */
	map->only_run = (struct core_run){true_lb, (size_t)true_extent};
	map->num_runs = size > 0;
	if (size == true_extent || combiner == MPI_COMBINER_NAMED)
		map->runs = &map->only_run;
	return true;
}

bool core_mpi_type_is_plain(core_handle handle)
{
	static const MPI_Datatype plain[] = {MPI_DOUBLE,
					     MPI_FLOAT,
					     MPI_INT,
					     MPI_BYTE,
					     MPI_CHAR,
					     MPI_LONG,
					     MPI_UNSIGNED,
					     MPI_SHORT,
					     MPI_INT8_T,
					     MPI_LONG_LONG,
					     MPI_UNSIGNED_LONG,
					     MPI_INT32_T,
					     MPI_INT64_T,
					     MPI_UINT64_T,
					     MPI_UINT32_T,
					     MPI_UINT8_T,
					     MPI_C_DOUBLE_COMPLEX,
					     MPI_C_FLOAT_COMPLEX,
					     MPI_DOUBLE_PRECISION,
					     MPI_REAL,
					     MPI_INTEGER};

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (as_type(handle) == plain[i])
			return true;
	}
	return false;
}

/* ---- the operands of a call ---- */

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

static int64_t count_at(const void *counts, bool wide, size_t index)
{
	return wide ? ((const MPI_Count *)counts)[index] : ((const int *)counts)[index];
}

static int64_t displ_at(const void *displs, bool wide, size_t index)
{
	return wide ? ((const MPI_Aint *)displs)[index] : ((const int *)displs)[index];
}

static int64_t sum_counts(struct builder *b, int num)
{
	int64_t sum = 0;

	if (!b->call->recvcounts) {
		b->refuse = true;
		return 0;
	}
	for (int i = 0; i < num; i++) {
		int64_t count = count_at(b->call->recvcounts, b->call->wide_counts, (size_t)i);

		b->refuse |= count < 0;
		sum += count;
	}
	return sum;
}

/* Begin the next operand, with room for the maps of `num_types` types. NULL when that is not to be.
 */
static struct core_operand *begin(struct builder *b, const void *address, bool is_send,
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

	if (type == MPI_DATATYPE_NULL || !type_map(type, map)) {
		b->refuse = true;
		return NULL;
	}
	operand->num_maps++;
	return map;
}

/* An operand of `count` elements that begin at element `first`. The type of no elements may be
 * anything. */
static struct core_operand *add_elements(struct builder *b, const void *address, bool is_send,
					 int64_t first, int64_t count, core_handle type)
{
	struct core_operand *operand;
	const struct core_typemap *map;

	b->refuse |= count < 0;
	operand = begin(b, address, is_send, 1);
	map = operand && count ? map_of(b, operand, as_type(type)) : NULL;
	if (map)
		b->status = core_operand_add(operand, first * map->extent, (size_t)count, map);
	return operand;
}

struct blocks {
	int num;
	const void *counts,
		*displs; /* NULL counts: `count` each; NULL displs: one after the other */
	int64_t count;
	core_handle type;
	const void *types;           /* where each block has its type, else NULL */
	bool each_type;              /* it has; `types` may be NULL where there are no blocks */
	const unsigned char *absent; /* NULL, or not 0 where the block is not communicated */
};

static int64_t block_count(const struct builder *b, const struct blocks *blocks, int i)
{
	return blocks->counts ? count_at(blocks->counts, b->call->wide_counts, (size_t)i)
			      : blocks->count;
}

static void add_block(struct builder *b, struct core_operand *operand, const struct blocks *blocks,
		      int i, const struct core_typemap *map)
{
	int64_t offset = (int64_t)i * blocks->count * map->extent;

	if (blocks->displs) {
		offset = displ_at(blocks->displs, b->call->wide_displs, (size_t)i);
		/* Displacements are in bytes only where each block has its type. */
		if (!blocks->each_type)
			offset *= map->extent;
	}
	if (!(blocks->absent && blocks->absent[i]))
		b->status =
			core_operand_add(operand, offset, (size_t)block_count(b, blocks, i), map);
}

/* The type of an empty block may be anything, and programs leave it null. */
static struct core_operand *add_blocks(struct builder *b, const void *address, bool is_send,
				       const struct blocks *blocks)
{
	struct core_operand *operand =
		begin(b, address, is_send, blocks->each_type ? blocks->num + 1 : 1);
	const struct core_typemap *map = NULL;

	for (int i = 0; operand && i < blocks->num && b->status == UTIL_OK && !b->refuse; i++) {
		int64_t count = block_count(b, blocks, i);

		b->refuse |= count < 0;
		if (count <= 0)
			continue;
		if (blocks->each_type)
			map = map_of(b, operand, ((const MPI_Datatype *)blocks->types)[i]);
		else if (!map)
			map = map_of(b, operand, as_type(blocks->type));
		if (map)
			add_block(b, operand, blocks, i, map);
	}
	return operand;
}

static bool has_each_type(const struct core_call *call)
{
	return call->coll == CORE_ALLTOALLW || call->coll == CORE_NEIGHBOR_ALLTOALLW;
}

static struct blocks send_blocks(const struct core_call *call, int num)
{
	return (struct blocks){.num = num,
			       .counts = call->sendcounts,
			       .displs = call->sdispls,
			       .count = call->sendcount,
			       .type = call->sendtype,
			       .types = call->sendtypes,
			       .each_type = has_each_type(call)};
}

static struct blocks recv_blocks(const struct core_call *call, int num)
{
	return (struct blocks){.num = num,
			       .counts = call->recvcounts,
			       .displs = call->rdispls,
			       .count = call->recvcount,
			       .type = call->recvtype,
			       .types = call->recvtypes,
			       .each_type = has_each_type(call)};
}

static void add_send(struct builder *b)
{
	add_elements(b, b->call->sendbuf, true, 0, b->call->sendcount, b->call->sendtype);
}

static void add_recv(struct builder *b)
{
	add_elements(b, b->call->recvbuf, false, 0, b->call->recvcount, b->call->recvtype);
}

/* The input of a reduction: the send buffer, or in place the first `count` elements of the receive
 * buffer. */
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
	bool block = call->coll == CORE_REDUCE_SCATTER_BLOCK;
	int64_t total = block ? call->recvcount * b->local_size : sum_counts(b, b->local_size);
	int64_t mine = block ? call->recvcount : 0;

	b->refuse |= total < 0;
	if (!block && !b->refuse)
		mine = count_at(call->recvcounts, call->wide_counts, (size_t)b->rank);
	add_reduce_input(b, total);
	add_elements(b, call->recvbuf, false, 0, mine, call->recvtype);
}

static void build_reduce_local(struct builder *b)
{
	add_elements(b, b->call->sendbuf, true, 0, b->call->recvcount, b->call->recvtype);
	add_recv(b);
	if (b->num_operands == 2)
		b->operands[1].in = true;
}

/* In place, this rank's block of the receive buffer is input, which the real MPI expects to find
 * there. */
static void add_own_block(struct builder *b)
{
	struct blocks own = recv_blocks(b->call, b->peers);
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
	struct blocks all = recv_blocks(b->call, b->peers);

	if (b->call->coll == CORE_GATHERV && b->role == ROLE_ROOT && (!all.counts || !all.displs))
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
	struct blocks all = send_blocks(b->call, b->peers);

	if (b->call->coll == CORE_SCATTERV && b->role == ROLE_ROOT && (!all.counts || !all.displs))
		b->refuse = true;
	if (b->role == ROLE_ROOT)
		add_blocks(b, b->call->sendbuf, true, &all);
	if ((b->inter ? b->role == ROLE_LEAF : b->role != ROLE_NONE) &&
	    b->call->recvbuf != MPI_IN_PLACE)
		add_recv(b);
}

static void build_allgather(struct builder *b)
{
	struct blocks all = recv_blocks(b->call, b->peers);

	if (b->call->coll == CORE_ALLGATHERV && (!all.counts || !all.displs))
		b->refuse = true;
	if (b->call->sendbuf != MPI_IN_PLACE)
		add_send(b);
	else if (!b->refuse)
		add_own_block(b);
	add_blocks(b, b->call->recvbuf, false, &all);
}

static bool lacks_arrays(const struct blocks *blocks)
{
	return !blocks->counts || !blocks->displs;
}

static void build_alltoall(struct builder *b)
{
	struct blocks from = send_blocks(b->call, b->peers), to = recv_blocks(b->call, b->peers);
	bool in_place = b->call->sendbuf == MPI_IN_PLACE;

	if (b->call->coll != CORE_ALLTOALL)
		b->refuse |= lacks_arrays(&to) || (!in_place && lacks_arrays(&from));
	if (!in_place)
		add_blocks(b, b->call->sendbuf, true, &from);
	add_blocks(b, b->call->recvbuf, false, &to);
	if (in_place && b->num_operands)
		b->operands[0].in = true;
}

/* Neighbours in MPI's order: in each dimension the one below and the one above, absent at a border.
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

/* The numbers of neighbours; for a Cartesian topology also which of them are absent (caller frees).
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
	bool gather = coll == CORE_NEIGHBOR_ALLGATHER || coll == CORE_NEIGHBOR_ALLGATHERV;
	unsigned char *absent;
	struct blocks from, to;
	int in, out;

	count_neighbours(b, &in, &out, &absent);
	from = send_blocks(b->call, out);
	to = recv_blocks(b->call, in);
	from.absent = to.absent = absent;
	if (coll != CORE_NEIGHBOR_ALLGATHER && coll != CORE_NEIGHBOR_ALLTOALL)
		b->refuse |= (in && lacks_arrays(&to)) || (!gather && out && lacks_arrays(&from));
	if (gather)
		add_send(b);
	else
		add_blocks(b, b->call->sendbuf, true, &from);
	add_blocks(b, b->call->recvbuf, false, &to);
	free(absent);
}

static bool is_rooted(enum core_coll coll)
{
	return coll == CORE_BCAST || coll == CORE_REDUCE || coll == CORE_GATHER ||
	       coll == CORE_GATHERV || coll == CORE_SCATTER || coll == CORE_SCATTERV;
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
	if (is_rooted(b->call->coll))
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
		b.comm = as_comm(call->comm);
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
		b.comm = as_comm(call->comm);
		inspect_comm(&b);
	}
	if (b.refuse || (is_rooted(call->coll) && b.role == ROLE_NONE))
		return 0;
	recv = counts_by_recv(&b);
	int64_t count = recv ? call->recvcount : call->sendcount;
	MPI_Datatype type = as_type(recv ? call->recvtype : call->sendtype);
	if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
		return 0;
	return (size_t)count * (size_t)size;
}

/* ---- the job ---- */

struct core_mpi_job core_mpi_job;

static MPI_Comm node_comm = MPI_COMM_NULL;
static int *node_of; /* by rank in MPI_COMM_WORLD */
static int comm_keyval = MPI_KEYVAL_INVALID;
static uint64_t
	id_base; /* random, so that ids drawn by processes of different jobs (spawn) differ */

struct introduction {
	uint64_t host;
	uint64_t driver;
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull; /* FNV-1a */
	return hash;
}

/* Processes are on one node when they share the kernel, the IPC namespace and the file system of
 * /dev/shm. */
static uint64_t host_identity(const char *hostid)
{
	char text[256] = "", shm[64];
	uint64_t hash = 0xcbf29ce484222325ull;
	struct stat status = {0};
	FILE *file;

	if (hostid)
		return hash_text(hash, hostid);
	file = fopen("/proc/sys/kernel/random/boot_id", "r");
	if (file) {
		if (fgets(text, sizeof(text), file))
			hash = hash_text(hash, text);
		fclose(file);
	}
	ssize_t length = readlink("/proc/self/ns/ipc", text, sizeof(text) - 1);
	if (length > 0) {
		text[length] = 0;
		hash = hash_text(hash, text);
	}
	stat("/dev/shm", &status);
	snprintf(shm, sizeof(shm), "%llu", (unsigned long long)status.st_dev);
	return hash_text(hash, shm);
}

/* Number the nodes in the order of their lowest ranks. */
static void number_nodes(const struct introduction *all)
{
	struct core_mpi_job *job = &core_mpi_job;
	int nodes = 0;

	for (int i = 0; i < job->size; i++) {
		int first = 0;

		while (all[first].host != all[i].host)
			first++;
		node_of[i] = first == i ? nodes++ : node_of[first];
		job->any_driver |= all[i].driver != 0;
	}
	job->node = node_of[job->rank];
	job->local_rank = job->local_size = 0;
	for (int i = 0; i < job->size; i++) {
		if (node_of[i] != job->node)
			continue;
		job->local_rank += i < job->rank;
		job->local_size++;
	}
}

static int delete_comm(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm;
	(void)keyval;
	(void)extra;
	core_comm_destroy(value);
	return MPI_SUCCESS;
}

static int call_stop(MPI_Comm comm, int keyval, void *value, void *extra)
{
	void (*stop)(void);

	(void)comm;
	(void)keyval;
	(void)value;
	*(void **)&stop = extra;
	stop();
	return MPI_SUCCESS;
}

/* MPI deletes the attributes of MPI_COMM_SELF first of all, in the reverse order of their setting.
 */
void core_mpi_at_finalize(void (*stop)(void))
{
	int keyval = MPI_KEYVAL_INVALID;

	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_stop, &keyval, *(void **)&stop);
	PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
	PMPI_Comm_free_keyval(&keyval);
}

enum util_status core_mpi_start(const char *hostid, bool have_driver)
{
	struct core_mpi_job *job = &core_mpi_job;
	struct introduction mine = {host_identity(hostid), have_driver}, *all;

	if (PMPI_Comm_dup(MPI_COMM_WORLD, &private_comm) != MPI_SUCCESS)
		return UTIL_ERR_MPI;
	PMPI_Comm_set_errhandler(private_comm, MPI_ERRORS_RETURN);
	PMPI_Comm_rank(private_comm, &job->rank);
	PMPI_Comm_size(private_comm, &job->size);
	all = calloc((size_t)job->size, sizeof(*all));
	node_of = calloc((size_t)job->size, sizeof(*node_of));
	if (!all || !node_of) {
		/* The others are waiting in the exchange: a job that can't have this memory can't
		 * go on. */
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "no memory for %d ranks at start",
			 job->size);
		PMPI_Abort(MPI_COMM_WORLD, 1);
	}
	PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, private_comm);
	number_nodes(all);
	free(all);
	if (!job->any_driver) {
		core_mpi_stop();
		return UTIL_OK;
	}
	if (getrandom(&id_base, sizeof(id_base), 0) != (ssize_t)sizeof(id_base))
		id_base = ((uint64_t)getpid() << 32) ^ mine.host;
	PMPI_Comm_split(private_comm, job->node, job->rank, &node_comm);
	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_comm, &comm_keyval, NULL);
	return UTIL_OK;
}

enum util_status core_mpi_node_bcast(void *data, int bytes)
{
	return PMPI_Bcast(data, bytes, MPI_BYTE, 0, node_comm) == MPI_SUCCESS ? UTIL_OK
									      : UTIL_ERR_MPI;
}

bool core_mpi_node_all(bool yes)
{
	int mine = yes, all = 0;

	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, node_comm) == MPI_SUCCESS && all;
}

void core_mpi_stop(void)
{
	if (comm_keyval != MPI_KEYVAL_INVALID) {
		if (core_mpi_comm_find((core_handle)MPI_COMM_WORLD))
			PMPI_Comm_delete_attr(MPI_COMM_WORLD, comm_keyval);
		PMPI_Comm_free_keyval(&comm_keyval);
	}
	pthread_mutex_lock(&keyval_lock);
	if (type_keyval != MPI_KEYVAL_INVALID)
		PMPI_Type_free_keyval(&type_keyval);
	pthread_mutex_unlock(&keyval_lock);
	if (node_comm != MPI_COMM_NULL)
		PMPI_Comm_free(&node_comm);
	if (private_comm != MPI_COMM_NULL)
		PMPI_Comm_free(&private_comm);
	free(node_of);
	node_of = NULL;
}

/*
 * Waiting must not stop the application's own pending communication, which only this MPI can move;
 * a probe for a message that no one sends is the portable way to make it progress. Between probes
 * the core is given up: other ranks may need it.
 */
void core_mpi_drive(void)
{
	static _Thread_local long long last;
	static const long long interval = 10000; /* ns */
	struct timespec now;
	int flag;

	clock_gettime(CLOCK_MONOTONIC, &now);
	long long at = now.tv_sec * 1000000000ll + now.tv_nsec;
	if (at - last < interval)
		return;
	last = at;
	if (private_comm != MPI_COMM_NULL)
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, private_comm, &flag, MPI_STATUS_IGNORE);
	sched_yield();
}

/* ---- identities of communicators ---- */

/* How many members are on this node; 0 when some are of another job (spawn), which has other
 * boards. */
static uint32_t local_members(MPI_Comm comm)
{
	MPI_Group group, world;
	uint32_t members = 0;
	int size = 0, rank;

	PMPI_Comm_group(comm, &group);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_size(group, &size);
	for (int i = 0; i < size; i++) {
		PMPI_Group_translate_ranks(group, 1, &i, world, &rank);
		if (rank == MPI_UNDEFINED) {
			members = 0;
			break;
		}
		members += node_of[rank] == core_mpi_job.node;
	}
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
	return members;
}

static uint64_t draw_id(void)
{
	static _Atomic uint64_t drawn;
	uint64_t id = id_base + atomic_fetch_add_explicit(&drawn, 1, memory_order_relaxed);

	return id ? id : draw_id();
}

void core_mpi_comm_identify(core_handle handle)
{
	MPI_Comm comm = as_comm(handle);
	uint32_t members;
	uint64_t id = 0;
	int inter = 0, rank;

	if (comm == MPI_COMM_NULL || comm_keyval == MPI_KEYVAL_INVALID)
		return;
	PMPI_Comm_test_inter(comm, &inter);
	members = inter ? 0 : local_members(comm);
	if (!members)
		return;
	PMPI_Comm_rank(comm, &rank);
	if (rank == 0)
		id = draw_id();
	if (PMPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, comm) != MPI_SUCCESS)
		return;
	struct core_comm *state = core_comm_create(id, members);
	if (state && PMPI_Comm_set_attr(comm, comm_keyval, state) != MPI_SUCCESS)
		core_comm_destroy(state);
}

core_handle core_mpi_world(void)
{
	return (core_handle)MPI_COMM_WORLD;
}

struct core_comm *core_mpi_comm_find(core_handle handle)
{
	struct core_comm *state = NULL;
	int found = 0;

	if (comm_keyval == MPI_KEYVAL_INVALID || as_comm(handle) == MPI_COMM_NULL)
		return NULL;
	PMPI_Comm_get_attr(as_comm(handle), comm_keyval, &state, &found);
	return found ? state : NULL;
}

int core_mpi_raise(const struct core_call *call, enum util_status status)
{
	MPI_Comm comm = call->coll == CORE_REDUCE_LOCAL ? MPI_COMM_WORLD : as_comm(call->comm);
	int error = status == UTIL_ERR_NO_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;

	PMPI_Comm_call_errhandler(comm, error);
	return error;
}
