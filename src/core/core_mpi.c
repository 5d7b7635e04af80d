/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one file of src/core that knows MPI: handles, roles of buffers in each collective, datatypes
 * as bytes, the private communicator. Every MPI call here is PMPI and made under the door's guard
 * (pmpi_call.c), so it reaches the real MPI even where the library wraps it.
 */
#include "core/core_mpi.h"
#include "core/core_comm.h"
#include "core/core_graph.h"
#include "core/core_run.h"
#include "gpu/gpu_launch.h"
#include "gpu/kernels/gpu_half.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* Whether all out-neighbours are sent the same. */
static bool is_neighbor_gather(enum core_coll coll)
{
	return coll == CORE_NEIGHBOR_ALLGATHER || coll == CORE_NEIGHBOR_ALLGATHERV;
}

static bool neighbor_lacks_arrays(enum core_coll coll, const struct blocks *from,
				  const struct blocks *to)
{
	if (coll == CORE_NEIGHBOR_ALLGATHER || coll == CORE_NEIGHBOR_ALLTOALL)
		return false;
	return (to->num && lacks_arrays(to)) ||
	       (!is_neighbor_gather(coll) && from->num && lacks_arrays(from));
}

static void build_neighbor(struct builder *b)
{
	enum core_coll coll = b->call->coll;
	unsigned char *absent;
	struct blocks from, to;
	int in, out;

	count_neighbours(b, &in, &out, &absent);
	from = send_blocks(b->call, out);
	to = recv_blocks(b->call, in);
	from.absent = to.absent = absent;
	b->refuse |= neighbor_lacks_arrays(coll, &from, &to);
	if (is_neighbor_gather(coll))
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

/* ---- 16-bit floating point ---- */

enum { HALF_SUM, HALF_PROD, HALF_MAX, HALF_MIN, NUM_HALF_OPS };

static pthread_mutex_t halves_lock = PTHREAD_MUTEX_INITIALIZER; /* for writing */
static struct {
	_Atomic core_handle type; /* 0: not made. Release when all is there */
	MPI_Op ops[NUM_HALF_OPS];
} halves[CORE_NUM_HALVES];

static float apply_half(int op, float a, float b)
{
	switch (op) {
	case HALF_SUM:
		return a + b;
	case HALF_PROD:
		return a * b;
	case HALF_MAX:
		return a > b ? a : b;
	default:
		return a < b ? a : b;
	}
}

static void apply_halves(enum core_half half, int op, const uint16_t *in, uint16_t *inout,
			 int length)
{
	for (int i = 0; i < length; i++) {
		if (half == CORE_FLOAT16)
			inout[i] = gpu_float16_from_float(apply_half(
				op, gpu_float16_to_float(in[i]), gpu_float16_to_float(inout[i])));
		else
			inout[i] = gpu_bfloat16_from_float(apply_half(
				op, gpu_bfloat16_to_float(in[i]), gpu_bfloat16_to_float(inout[i])));
	}
}

/* MPI calls an operation with nothing that says which it is. */
#define DEFINE_HALF_OP(name, half, op)                                                             \
	static void name(void *in, void *inout, int *length, MPI_Datatype *type)                   \
	{                                                                                          \
		(void)type;                                                                        \
		apply_halves(half, op, in, inout, *length);                                        \
	}
DEFINE_HALF_OP(float16_sum, CORE_FLOAT16, HALF_SUM)
DEFINE_HALF_OP(float16_prod, CORE_FLOAT16, HALF_PROD)
DEFINE_HALF_OP(float16_max, CORE_FLOAT16, HALF_MAX)
DEFINE_HALF_OP(float16_min, CORE_FLOAT16, HALF_MIN)
DEFINE_HALF_OP(bfloat16_sum, CORE_BFLOAT16, HALF_SUM)
DEFINE_HALF_OP(bfloat16_prod, CORE_BFLOAT16, HALF_PROD)
DEFINE_HALF_OP(bfloat16_max, CORE_BFLOAT16, HALF_MAX)
DEFINE_HALF_OP(bfloat16_min, CORE_BFLOAT16, HALF_MIN)

/* Under the lock. */
static int make_half(enum core_half half)
{
	static MPI_User_function *const functions[CORE_NUM_HALVES][NUM_HALF_OPS] = {
		[CORE_FLOAT16] = {float16_sum, float16_prod, float16_max, float16_min},
		[CORE_BFLOAT16] = {bfloat16_sum, bfloat16_prod, bfloat16_max, bfloat16_min}};
	MPI_Datatype type = MPI_DATATYPE_NULL;
	int result = PMPI_Type_contiguous(2, MPI_BYTE, &type);

	if (result == MPI_SUCCESS)
		result = PMPI_Type_commit(&type);
	for (int i = 0; i < NUM_HALF_OPS && result == MPI_SUCCESS; i++)
		result = PMPI_Op_create(functions[half][i], 1, &halves[half].ops[i]);
	if (result == MPI_SUCCESS)
		atomic_store_explicit(&halves[half].type, (core_handle)type, memory_order_release);
	return result;
}

int core_mpi_half_type(enum core_half half, core_handle *type)
{
	int result = MPI_SUCCESS;

	pthread_mutex_lock(&halves_lock);
	if (!halves[half].type)
		result = make_half(half);
	if (result == MPI_SUCCESS)
		core_attentive = true;
	*type = halves[half].type;
	pthread_mutex_unlock(&halves_lock);
	return result;
}

/* Which of ours the type is; CORE_NUM_HALVES: none. Acquire, the pair of make_half's release. */
static enum core_half half_of(core_handle type)
{
	int half = 0;

	while (half < CORE_NUM_HALVES &&
	       (!type || atomic_load_explicit(&halves[half].type, memory_order_acquire) != type))
		half++;
	return (enum core_half)half;
}

core_handle core_mpi_real_op(const struct core_call *call)
{
	const MPI_Op ops[NUM_HALF_OPS] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
	enum core_half half = half_of(call->recvtype);

	for (int i = 0; call->op && half < CORE_NUM_HALVES && i < NUM_HALF_OPS; i++) {
		if ((MPI_Op)call->op == ops[i])
			return (core_handle)halves[half].ops[i];
	}
	return call->op;
}

void core_mpi_free_halves(void)
{
	for (int half = 0; half < CORE_NUM_HALVES; half++) {
		MPI_Datatype type = as_type(halves[half].type);

		if (!halves[half].type)
			continue;
		halves[half].type = 0;
		PMPI_Type_free(&type);
		for (int i = 0; i < NUM_HALF_OPS; i++)
			PMPI_Op_free(&halves[half].ops[i]);
	}
}

/* ---- the call as the accelerated path takes it ---- */

/* The types that kernels compute with. Where an MPI lacks one, its handle is MPI_DATATYPE_NULL. */
static enum gpu_type integer_type(size_t bytes, bool is_signed)
{
	switch (bytes) {
	case 1:
		return is_signed ? GPU_TYPE_INT8 : GPU_TYPE_UINT8;
	case 2:
		return is_signed ? GPU_TYPE_INT16 : GPU_TYPE_UINT16;
	case 4:
		return is_signed ? GPU_TYPE_INT32 : GPU_TYPE_UINT32;
	case 8:
		return is_signed ? GPU_TYPE_INT64 : GPU_TYPE_UINT64;
	default:
		return GPU_TYPE_NONE;
	}
}

static enum gpu_type float_type(size_t bytes)
{
	return bytes == 4 ? GPU_TYPE_FLOAT : bytes == 8 ? GPU_TYPE_DOUBLE : GPU_TYPE_NONE;
}

static enum gpu_type complex_type(size_t bytes)
{
	return bytes == 8    ? GPU_TYPE_COMPLEX_FLOAT
	       : bytes == 16 ? GPU_TYPE_COMPLEX_DOUBLE
			     : GPU_TYPE_NONE;
}

enum class_of_type {
	CLASS_SIGNED,
	CLASS_UNSIGNED,
	CLASS_FLOAT,
	CLASS_COMPLEX,
	CLASS_LOGICAL, /* integers that only logical operations take */
	CLASS_BYTE,    /* only bitwise operations */
	CLASS_PAIR,
	CLASS_NONE
};

struct type_row {
	MPI_Datatype type;
	enum class_of_type class;
	enum gpu_type pair; /* of CLASS_PAIR; the size tells the others */
};

static struct type_row type_rows(size_t index)
{
	static const struct type_row rows[] = {
		{MPI_DOUBLE, CLASS_FLOAT, 0},
		{MPI_FLOAT, CLASS_FLOAT, 0},
		{MPI_INT, CLASS_SIGNED, 0},
		{MPI_LONG, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_LONG, CLASS_UNSIGNED, 0},
		{MPI_DOUBLE_PRECISION, CLASS_FLOAT, 0},
		{MPI_REAL, CLASS_FLOAT, 0},
		{MPI_INTEGER, CLASS_SIGNED, 0},
		{MPI_C_DOUBLE_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_C_FLOAT_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_C_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_SIGNED_CHAR, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_CHAR, CLASS_UNSIGNED, 0},
		{MPI_SHORT, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_SHORT, CLASS_UNSIGNED, 0},
		{MPI_UNSIGNED, CLASS_UNSIGNED, 0},
		{MPI_LONG_LONG, CLASS_SIGNED, 0},
		{MPI_UNSIGNED_LONG_LONG, CLASS_UNSIGNED, 0},
		{MPI_INT8_T, CLASS_SIGNED, 0},
		{MPI_INT16_T, CLASS_SIGNED, 0},
		{MPI_INT32_T, CLASS_SIGNED, 0},
		{MPI_INT64_T, CLASS_SIGNED, 0},
		{MPI_UINT8_T, CLASS_UNSIGNED, 0},
		{MPI_UINT16_T, CLASS_UNSIGNED, 0},
		{MPI_UINT32_T, CLASS_UNSIGNED, 0},
		{MPI_UINT64_T, CLASS_UNSIGNED, 0},
		{MPI_AINT, CLASS_SIGNED, 0},
		{MPI_OFFSET, CLASS_SIGNED, 0},
		{MPI_COUNT, CLASS_SIGNED, 0},
		{MPI_INTEGER1, CLASS_SIGNED, 0},
		{MPI_INTEGER2, CLASS_SIGNED, 0},
		{MPI_INTEGER4, CLASS_SIGNED, 0},
		{MPI_INTEGER8, CLASS_SIGNED, 0},
		{MPI_REAL4, CLASS_FLOAT, 0},
		{MPI_REAL8, CLASS_FLOAT, 0},
		{MPI_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_DOUBLE_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_COMPLEX8, CLASS_COMPLEX, 0},
		{MPI_COMPLEX16, CLASS_COMPLEX, 0},
		{MPI_CXX_FLOAT_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_CXX_DOUBLE_COMPLEX, CLASS_COMPLEX, 0},
		{MPI_C_BOOL, CLASS_LOGICAL, 0},
		{MPI_CXX_BOOL, CLASS_LOGICAL, 0},
		{MPI_LOGICAL, CLASS_LOGICAL, 0},
		{MPI_BYTE, CLASS_BYTE, 0},
		{MPI_FLOAT_INT, CLASS_PAIR, GPU_TYPE_FLOAT_INT},
		{MPI_DOUBLE_INT, CLASS_PAIR, GPU_TYPE_DOUBLE_INT},
		{MPI_LONG_INT, CLASS_PAIR, GPU_TYPE_LONG_INT},
		{MPI_SHORT_INT, CLASS_PAIR, GPU_TYPE_SHORT_INT},
		{MPI_2INT, CLASS_PAIR, GPU_TYPE_INT_INT},
		{MPI_2INTEGER, CLASS_PAIR, GPU_TYPE_INT_INT},
		{MPI_2REAL, CLASS_PAIR, GPU_TYPE_FLOAT_FLOAT},
		{MPI_2DOUBLE_PRECISION, CLASS_PAIR, GPU_TYPE_DOUBLE_DOUBLE},
	};

	return index < sizeof(rows) / sizeof(rows[0])
		       ? rows[index]
		       : (struct type_row){MPI_DATATYPE_NULL, CLASS_NONE, 0};
}

static enum gpu_type gpu_type_of(const struct type_row *row, size_t bytes)
{
	switch (row->class) {
	case CLASS_SIGNED:
		return integer_type(bytes, true);
	case CLASS_UNSIGNED:
	case CLASS_LOGICAL:
	case CLASS_BYTE:
		return integer_type(bytes, false);
	case CLASS_FLOAT:
		return float_type(bytes);
	case CLASS_COMPLEX:
		return complex_type(bytes);
	case CLASS_PAIR: /* of Fortran's types, whose size is the MPI's choice */
		return gpu_type_bytes(row->pair) == bytes ? row->pair : GPU_TYPE_NONE;
	default:
		return GPU_TYPE_NONE;
	}
}

static enum gpu_op gpu_op_of(MPI_Op op)
{
	const struct {
		MPI_Op op;
		enum gpu_op ours;
	} rows[] = {
		{MPI_SUM, GPU_OP_SUM},   {MPI_MAX, GPU_OP_MAX},       {MPI_MIN, GPU_OP_MIN},
		{MPI_PROD, GPU_OP_PROD}, {MPI_LAND, GPU_OP_LAND},     {MPI_LOR, GPU_OP_LOR},
		{MPI_LXOR, GPU_OP_LXOR}, {MPI_BAND, GPU_OP_BAND},     {MPI_BOR, GPU_OP_BOR},
		{MPI_BXOR, GPU_OP_BXOR}, {MPI_MAXLOC, GPU_OP_MAXLOC}, {MPI_MINLOC, GPU_OP_MINLOC}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].op == op)
			return rows[i].ours;
	}
	return GPU_OP_NONE;
}

/* Which operations MPI has on a type; the others are left to the real MPI, which refuses them. */
static bool op_is_valid(enum class_of_type class, enum gpu_op op)
{
	bool logical = op == GPU_OP_LAND || op == GPU_OP_LOR || op == GPU_OP_LXOR;
	bool bitwise = op == GPU_OP_BAND || op == GPU_OP_BOR || op == GPU_OP_BXOR;
	bool pairwise = op == GPU_OP_MAXLOC || op == GPU_OP_MINLOC;
	bool arithmetic = !logical && !bitwise && !pairwise;

	switch (class) {
	case CLASS_SIGNED:
	case CLASS_UNSIGNED:
		return !pairwise;
	case CLASS_FLOAT:
		return arithmetic;
	case CLASS_COMPLEX:
		return op == GPU_OP_SUM || op == GPU_OP_PROD;
	case CLASS_LOGICAL:
		return logical;
	case CLASS_BYTE:
		return bitwise;
	case CLASS_PAIR:
		return pairwise;
	default:
		return false;
	}
}

/*
 * A type whose elements are solid bytes, in the order in which MPI sends them: equal size and
 * extent don't tell that, since a type may list its parts in any order.
 */
struct solid {
	uint64_t bytes;
	int64_t lb, extent;
	bool follows; /* elements follow on each other without a gap */
};

static bool look_up_solid(MPI_Datatype type, struct solid *solid);

static bool look_up_named(MPI_Datatype type, struct solid *solid)
{
	MPI_Aint lb, extent;
	MPI_Count size;

	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS)
		return false;
	/* A pair type is a C struct, whose padding belongs to the element. */
	*solid = (struct solid){size ? (uint64_t)extent : 0, lb, extent, true};
	return true;
}

/* What a constructor of one part makes of it, its integer and address arguments being these. */
static bool rebuild(int combiner, const int *integers, const MPI_Aint *addresses,
		    struct solid *solid)
{
	switch (combiner) {
	case MPI_COMBINER_DUP:
		return true;
	case MPI_COMBINER_CONTIGUOUS:
		if (integers[0] > 1 && !solid->follows)
			return false;
		solid->bytes *= (uint64_t)integers[0];
		solid->extent *= integers[0];
		return true;
	case MPI_COMBINER_RESIZED:
		solid->extent = addresses[1];
		solid->follows = solid->extent == (int64_t)solid->bytes;
		return true;
	default:
		return false;
	}
}

static bool look_up_derived(MPI_Datatype type, int combiner, struct solid *solid)
{
	int integers[1], num_integers, num_addresses, num_types, inner_combiner;
	MPI_Datatype inner;
	MPI_Aint addresses[2];
	bool found;

	if (combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS &&
	    combiner != MPI_COMBINER_RESIZED)
		return false;
	if (PMPI_Type_get_contents(type, 1, 2, 1, integers, addresses, &inner) != MPI_SUCCESS)
		return false;
	found = look_up_solid(inner, solid) && rebuild(combiner, integers, addresses, solid);
	if (PMPI_Type_get_envelope(inner, &num_integers, &num_addresses, &num_types,
				   &inner_combiner) == MPI_SUCCESS &&
	    inner_combiner != MPI_COMBINER_NAMED)
		PMPI_Type_free(&inner);
	return found;
}

static bool look_up_solid(MPI_Datatype type, struct solid *solid)
{
	int integers, addresses, types, combiner;

	if (type == MPI_DATATYPE_NULL)
		return false;
	if (core_mpi_type_is_plain((core_handle)type))
		return look_up_named(type, solid);
	if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return false;
	return combiner == MPI_COMBINER_NAMED ? look_up_named(type, solid)
					      : look_up_derived(type, combiner, solid);
}

static const char *const gaps = "datatype of several parts", *const bad = "arguments to be refused";

struct shaper {
	const struct core_call *call;
	const struct core_comm *comm;
	struct core_shape *shape;
	const char *refusal;
};

static void refuse(struct shaper *s, const char *reason)
{
	if (!s->refusal)
		s->refusal = reason;
}

static void add_bytes(struct core_buffer *buffer, int64_t offset, uint64_t bytes)
{
	int64_t end = offset + (int64_t)bytes;

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

/* Append `count` elements that begin at `offset`. */
static void add_solid(struct shaper *s, struct core_buffer *buffer, int64_t offset, int64_t count,
		      core_handle type)
{
	struct solid solid = {0};

	if (count < 0 || (count && !look_up_solid(as_type(type), &solid)))
		refuse(s, count < 0 ? bad : gaps);
	else if (count > 1 && !solid.follows)
		refuse(s, gaps);
	else
		add_bytes(buffer, offset + solid.lb, (uint64_t)count * solid.bytes);
}

/* A buffer of one block begins at the block. */
static void set_single(struct core_buffer *buffer, uintptr_t address, struct core_block block)
{
	buffer->address = address + (uintptr_t)block.offset;
	buffer->num_blocks = 0;
	buffer->lo = buffer->hi = 0;
	add_bytes(buffer, 0, block.bytes);
}

static void shape_single(struct shaper *s, struct core_buffer *buffer, const void *address,
			 int64_t count, core_handle type)
{
	add_solid(s, buffer, 0, count, type);
	if (!s->refusal)
		set_single(buffer, (uintptr_t)address, buffer->blocks[0]);
}

static void shape_blocks(struct shaper *s, struct core_buffer *buffer, const void *address,
			 const struct blocks *blocks)
{
	const struct builder b = {.call = s->call};
	bool each = blocks->each_type;
	struct solid solid = {0};

	buffer->address = (uintptr_t)address;
	if (each ? !blocks->types : false) {
		refuse(s, bad);
		return;
	}
	for (int i = 0; i < blocks->num && !s->refusal; i++) {
		int64_t count = block_count(&b, blocks, i), offset;
		MPI_Datatype type = as_type(blocks->type);

		if (count <= 0) {
			if (count < 0)
				refuse(s, bad);
			add_bytes(buffer, 0, 0);
			continue;
		}
		if (each)
			type = ((const MPI_Datatype *)blocks->types)[i];
		if ((each || !solid.bytes) && !look_up_solid(type, &solid)) {
			refuse(s, gaps);
			break;
		}
		offset = (int64_t)i * blocks->count * solid.extent;
		if (blocks->displs)
			offset = displ_at(blocks->displs, s->call->wide_displs, (size_t)i) *
				 (each ? 1 : solid.extent);
		if (count > 1 && !solid.follows)
			refuse(s, gaps);
		add_bytes(buffer, offset + solid.lb, (uint64_t)count * solid.bytes);
	}
}

static void shape_type_and_op(struct shaper *s, MPI_Datatype type, MPI_Op op)
{
	enum core_half half = half_of((core_handle)type);
	struct solid solid = {0};
	struct type_row row;
	size_t i = 0;

	do {
		row = type_rows(i++);
	} while (row.class != CLASS_NONE && row.type != type);
	s->shape->op = gpu_op_of(op);
	if (s->shape->op == GPU_OP_NONE) {
		refuse(s, "user-defined operation");
		return;
	}
	if (row.class != CLASS_NONE && type != MPI_DATATYPE_NULL)
		look_up_named(type, &solid);
	s->shape->type = gpu_type_of(&row, solid.bytes);
	if (half < CORE_NUM_HALVES) {
		row.class = CLASS_FLOAT;
		s->shape->type = half == CORE_FLOAT16 ? GPU_TYPE_FLOAT16 : GPU_TYPE_BFLOAT16;
	}
	if (s->shape->type == GPU_TYPE_NONE)
		refuse(s, "type that no kernel computes with");
	else if (!op_is_valid(row.class, s->shape->op))
		refuse(s, bad);
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

	shape_type_and_op(s, as_type(call->recvtype), (MPI_Op)call->op);
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
	struct blocks all = {.num = s->comm->size,
			     .counts = call->recvcounts,
			     .count = call->recvcount,
			     .type = call->recvtype};
	const struct builder b = {.call = call};
	uint64_t hash = UTIL_HASH_START;
	struct solid solid = {0};
	int64_t at = 0;

	shape_type_and_op(s, as_type(call->recvtype), (MPI_Op)call->op);
	if (!equal && !call->recvcounts)
		refuse(s, bad);
	if (!s->refusal && !look_up_solid(as_type(call->recvtype), &solid))
		refuse(s, gaps);
	for (int i = 0; i < all.num && !s->refusal; i++) {
		int64_t count = block_count(&b, &all, i);

		if (count < 0) {
			refuse(s, bad);
			return;
		}
		add_bytes(&shape->in, at, (uint64_t)count * solid.bytes);
		at += count * (int64_t)solid.bytes;
		hash = util_hash(hash, &count, sizeof(count));
	}
	if (s->refusal)
		return;
	shape->in.address = reduce_input(s);
	shape->counts = hash;
	shape->bytes = (uint64_t)at;
	shape->own = shape->in.blocks[s->comm->rank];
	set_single(&shape->out, (uintptr_t)call->recvbuf, (struct core_block){0, shape->own.bytes});
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
		set_single(&shape->in, shape->out.address, shape->out.blocks[s->comm->rank]);
	else
		shape_single(s, &shape->in, call->sendbuf, call->sendcount, call->sendtype);
}

static void shape_gather(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	struct blocks all = recv_blocks(call, s->comm->size);

	if (shape->root == s->comm->rank) {
		if (call->coll == CORE_GATHERV && (!all.counts || !all.displs))
			refuse(s, bad);
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
	struct blocks all = send_blocks(call, s->comm->size);

	if (shape->root == s->comm->rank) {
		if (call->coll == CORE_SCATTERV && (!all.counts || !all.displs))
			refuse(s, bad);
		else
			shape_blocks(s, &shape->in, call->sendbuf, &all);
	}
	if (s->refusal)
		return;
	if (shape->in_place)
		set_single(&shape->out, shape->in.address, shape->in.blocks[s->comm->rank]);
	else
		shape_single(s, &shape->out, call->recvbuf, call->recvcount, call->recvtype);
	if (!s->refusal && call->coll == CORE_SCATTER)
		shape->bytes = shape->out.blocks[0].bytes;
}

static void shape_allgather(struct shaper *s)
{
	const struct core_call *call = s->call;
	struct core_shape *shape = s->shape;
	struct blocks all = recv_blocks(call, s->comm->size);

	if (call->coll == CORE_ALLGATHERV && (!all.counts || !all.displs)) {
		refuse(s, bad);
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
	struct blocks from = send_blocks(call, s->comm->size);
	struct blocks to = recv_blocks(call, s->comm->size);

	if (call->coll != CORE_ALLTOALL &&
	    (lacks_arrays(&to) || (!shape->in_place && lacks_arrays(&from)))) {
		refuse(s, bad);
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
		refuse(s, bad);
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
		add_bytes(buffer, blocks[i].offset, blocks[i].bytes);
}

/* The same block for all. */
static void shape_neighbor_input(struct shaper *s)
{
	struct core_buffer *in = &s->shape->in;

	shape_single(s, in, s->call->sendbuf, s->call->sendcount, s->call->sendtype);
	for (int i = 1; i < s->comm->graph->num_out && !s->refusal; i++)
		in->blocks[i] = in->blocks[0];
}

static const char *why_no_neighbors(const struct core_graph *graph)
{
	return graph ? graph->why : bad;
}

/* An exchange of those who are neighbours. */
static void shape_neighbor(struct shaper *s)
{
	const struct core_graph *graph = s->comm->graph;
	const struct core_call *call = s->call;
	struct blocks from, to;

	s->refusal = s->shape->in_place ? bad : why_no_neighbors(graph);
	if (s->refusal)
		return;
	from = send_blocks(call, graph->num_out);
	to = recv_blocks(call, graph->num_in);
	if (neighbor_lacks_arrays(call->coll, &from, &to)) {
		refuse(s, bad);
		return;
	}
	if (is_neighbor_gather(call->coll))
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
		refuse(s, "no accelerated form");
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

/* MPI forbids it, and real MPIs say so, or give what their algorithms give. What is sent may lie
 * between what is received (the faces of a grid and its margins). */
static bool overlap(const struct core_buffer *a, const struct core_buffer *b)
{
	return bytes_overlap(a->address + (uintptr_t)a->lo, (uint64_t)(a->hi - a->lo),
			     b->address + (uintptr_t)b->lo, (uint64_t)(b->hi - b->lo)) &&
	       blocks_overlap(a, b);
}

const char *core_mpi_shape(const struct core_call *call, const struct core_comm *comm,
			   struct core_shape *shape)
{
	struct shaper s = {.call = call, .comm = comm, .shape = shape};

	shape->coll = call->coll;
	shape->root = is_rooted(call->coll) ? call->root : 0;
	if (shape->root < 0 || shape->root >= comm->size)
		return bad;
	shape->in_place = is_in_place(call, shape->root == comm->rank);
	shape_any(&s);
	if (!s.refusal && !shape->in_place && overlap(&shape->in, &shape->out))
		return bad;
	return s.refusal;
}

/* ---- the job ---- */

struct core_mpi_job core_mpi_job;

static MPI_Comm node_comm = MPI_COMM_NULL;
static struct core_member *processes; /* of the job, by rank in MPI_COMM_WORLD */
struct node {
	int leader;
	bool has_driver;
	uint64_t machine;
};
static struct node *nodes; /* of the job */
static int *watched;       /* descriptors of this node's processes, by local rank; -1: none */
static int comm_keyval = MPI_KEYVAL_INVALID;
static uint64_t
	id_base; /* random, so that ids drawn by processes of different jobs (spawn) differ */

struct introduction {
	uint64_t host;
	uint64_t machine;
	uint64_t driver;
};

/* Of the kernel that runs. */
static uint64_t machine_identity(void)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	uint64_t hash = UTIL_HASH_START;
	char text[256];

	if (!file)
		return hash;
	if (fgets(text, sizeof(text), file))
		hash = util_hash_text(hash, text);
	fclose(file);
	return hash;
}

/* Processes are on one node when they share the kernel, the IPC namespace and the file system of
 * /dev/shm. */
static uint64_t host_identity(const char *hostid, uint64_t machine)
{
	char text[256] = "", shm[64];
	uint64_t hash = machine;
	struct stat status = {0};

	if (hostid)
		return util_hash_text(UTIL_HASH_START, hostid);
	ssize_t length = readlink("/proc/self/ns/ipc", text, sizeof(text) - 1);
	if (length > 0) {
		text[length] = 0;
		hash = util_hash_text(hash, text);
	}
	stat("/dev/shm", &status);
	snprintf(shm, sizeof(shm), "%llu", (unsigned long long)status.st_dev);
	return util_hash_text(hash, shm);
}

/* Number the nodes in the order of their lowest ranks. */
static void number_nodes(const struct introduction *all)
{
	struct core_mpi_job *job = &core_mpi_job;

	for (int i = 0; i < job->size; i++) {
		int first = 0;

		while (all[first].host != all[i].host)
			first++;
		if (first == i)
			nodes[job->num_nodes++] = (struct node){i, false, all[i].machine};
		processes[i].process = i;
		processes[i].node = first == i ? job->num_nodes - 1 : processes[first].node;
		nodes[processes[i].node].has_driver |= all[i].driver != 0;
		job->any_driver |= all[i].driver != 0;
	}
	job->node = processes[job->rank].node;
	job->local_size = 0;
	for (int i = 0; i < job->size; i++)
		processes[i].local_rank = processes[i].node == job->node ? job->local_size++ : -1;
	job->local_rank = processes[job->rank].local_rank;
}

bool core_mpi_node_has_driver(int node)
{
	return nodes[node].has_driver;
}

uint64_t core_mpi_node_machine(int node)
{
	return nodes[node].machine;
}

int core_mpi_node_leader(int node)
{
	return nodes[node].leader;
}

/* Changes whenever a communicator gets or loses its state; see core_mpi_comm_find. */
static _Atomic uint64_t comm_generation = 1;

static void bump_generation(void)
{
	atomic_fetch_add_explicit(&comm_generation, 1, memory_order_release);
}

static int delete_comm(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm;
	(void)keyval;
	(void)extra;
	bump_generation();
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

/* Processes in another PID namespace, where numbers are others', are not watched. */
static void watch_processes(void)
{
	struct {
		uint64_t space, pid;
	} mine = {0, (uint64_t)getpid()}, *all;
	int num = core_mpi_job.local_size;
	struct stat status = {0};

	stat("/proc/self/ns/pid", &status);
	mine.space = status.st_ino;
	all = calloc((size_t)num, sizeof(*all));

	watched = calloc((size_t)num, sizeof(*watched));
	if (!all || !watched)
		PMPI_Abort(MPI_COMM_WORLD, 1); /* the others are waiting in the exchange */
	PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, node_comm);
	for (int i = 0; i < num; i++)
		watched[i] = i == core_mpi_job.local_rank || all[i].space != mine.space
				     ? -1
				     : (int)syscall(SYS_pidfd_open, (pid_t)all[i].pid, 0);
	free(all);
}

bool core_mpi_has_ended(int local_rank)
{
	struct pollfd fd = {.fd = watched[local_rank], .events = POLLIN};

	return fd.fd >= 0 && poll(&fd, 1, 0) > 0;
}

static void stop_watching(void)
{
	for (int i = 0; watched && i < core_mpi_job.local_size; i++) {
		if (watched[i] >= 0)
			close(watched[i]);
	}
	free(watched);
	watched = NULL;
}

enum util_status core_mpi_start(const char *hostid, bool have_driver)
{
	struct core_mpi_job *job = &core_mpi_job;
	uint64_t machine = machine_identity();
	struct introduction mine = {host_identity(hostid, machine), machine, have_driver}, *all;

	if (PMPI_Comm_dup(MPI_COMM_WORLD, &private_comm) != MPI_SUCCESS)
		return UTIL_ERR_MPI;
	PMPI_Comm_set_errhandler(private_comm, MPI_ERRORS_RETURN);
	PMPI_Comm_rank(private_comm, &job->rank);
	PMPI_Comm_size(private_comm, &job->size);
	all = calloc((size_t)job->size, sizeof(*all));
	processes = calloc((size_t)job->size, sizeof(*processes));
	nodes = calloc((size_t)job->size, sizeof(*nodes));
	if (!all || !processes || !nodes) {
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
	job->id = id_base;
	PMPI_Bcast(&job->id, sizeof(job->id), MPI_BYTE, 0, private_comm);
	PMPI_Comm_split(private_comm, job->node, job->rank, &node_comm);
	watch_processes();
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

bool core_mpi_job_all(bool yes)
{
	int mine = yes, all = 0;

	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, private_comm) == MPI_SUCCESS && all;
}

bool core_mpi_job_same(uint64_t number)
{
	uint64_t mine[] = {number, ~number}, least[2]; /* the least complement is the largest's */

	return PMPI_Allreduce(mine, least, 2, MPI_UINT64_T, MPI_MIN, private_comm) == MPI_SUCCESS &&
	       least[0] == ~least[1];
}

void core_mpi_job_barrier(void (*meanwhile)(void))
{
	MPI_Request request;
	int done = 0;

	if (!meanwhile || PMPI_Ibarrier(private_comm, &request) != MPI_SUCCESS) {
		PMPI_Barrier(private_comm);
		return;
	}
	while (!done && PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS)
		meanwhile();
}

enum util_status core_mpi_job_gather(const void *mine, int bytes, void **all, int **sizes)
{
	size_t num = (size_t)core_mpi_job.size, total = 0;
	int *counts = malloc(2 * num * sizeof(int)), *displs = counts + num;

	/* Who has no memory here does not come to the exchange, in which the others are. */
	if (!counts)
		PMPI_Abort(MPI_COMM_WORLD, 1);
	PMPI_Allgather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, private_comm);
	for (size_t i = 0; i < num; i++) {
		displs[i] = (int)total;
		total += (size_t)counts[i];
	}
	*all = malloc(total + 1);
	if (!*all || total > INT_MAX)
		PMPI_Abort(MPI_COMM_WORLD, 1);
	*sizes = counts;
	return PMPI_Allgatherv(mine, bytes, MPI_BYTE, *all, counts, displs, MPI_BYTE,
			       private_comm) == MPI_SUCCESS
		       ? UTIL_OK
		       : UTIL_ERR_MPI;
}

void core_mpi_stop(void)
{
	stop_watching();
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
	free(processes);
	free(nodes);
	processes = NULL;
	nodes = NULL;
	bump_generation();
}

/* Where processes outnumber cores, who waits long takes the core from who works, even by yielding.
 */
static uint64_t patience(void)
{
	static const uint64_t ample = 5000000, crowded = 500000; /* ns */
	static _Atomic int is_crowded = -1; /* every thread would write the same */
	int known = atomic_load_explicit(&is_crowded, memory_order_relaxed);

	if (known < 0) {
		known = core_mpi_job.local_size > sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&is_crowded, known, memory_order_relaxed);
	}
	return known ? crowded : ample;
}

/*
 * Waiting must not stop the application's own pending communication, which only this MPI can move;
 * a probe for a message that no one sends is the portable way to make it progress. What is waited
 * for mostly comes within a microsecond or two, so first this returns at once; then it gives up the
 * core each time, since the process that is to do it may have none; in the end it sleeps, for as
 * short as the kernel allows.
 */
void core_mpi_drive(struct core_wait *wait)
{
	static const uint64_t interval = 10000, spin = 2000; /* ns */
	static const struct timespec nap = {0, 1000};
	uint64_t now = util_now();
	int flag;

	if (!wait->start)
		wait->start = now;
	if (!wait->last_probe)
		wait->last_probe = now;
	if (now - wait->last_probe >= interval) {
		wait->last_probe = now;
		if (private_comm != MPI_COMM_NULL)
			PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, private_comm, &flag,
				    MPI_STATUS_IGNORE);
	}
	if (now - wait->start > patience())
		nanosleep(&nap, NULL);
	else if (now - wait->start > spin)
		sched_yield();
}

/* ---- identities of communicators ---- */

/* Who the members are. False: some are of another job (spawn), which has other boards. */
static bool find_members(MPI_Comm comm, int size, struct core_member *members)
{
	MPI_Group group, world;
	bool all = true;

	PMPI_Comm_group(comm, &group);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	for (int i = 0; i < size && all; i++) {
		int rank = MPI_UNDEFINED;

		PMPI_Group_translate_ranks(group, 1, &i, world, &rank);
		all = rank != MPI_UNDEFINED;
		if (all)
			members[i] = processes[rank];
	}
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
	return all;
}

uint64_t core_mpi_draw_id(void)
{
	static _Atomic uint64_t drawn;
	uint64_t id = id_base + atomic_fetch_add_explicit(&drawn, 1, memory_order_relaxed);

	return id ? id : core_mpi_draw_id();
}

/* A job in which one member has the communicator's state and another not would wait for ever. */
static void no_memory(MPI_Comm comm, int size)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "no memory for a communicator of %d ranks", size);
	PMPI_Abort(comm, 1);
}

/* The lowest rank of its node among the members. */
static bool is_first_of_node(int rank, const struct core_member *members)
{
	for (int i = 0; i < rank; i++) {
		if (members[i].node == members[rank].node)
			return false;
	}
	return true;
}

/* On one node, who draws the id also takes the slot, so that one broadcast is enough. */
static const char *take_slots(MPI_Comm comm, uint64_t *id, int rank, int size,
			      const struct core_member *members)
{
	const char *why = core_comm_why_no_slot(size, members);
	bool first = is_first_of_node(rank, members);
	int mine = 1, all = 1;
	uint64_t identity[2] = {0, 1}; /* the id, and whether there is a slot */

	if (rank == 0)
		identity[0] = core_mpi_draw_id();
	if (rank == 0 && !why)
		identity[1] = core_comm_take_slot(identity[0], size, members);
	if (PMPI_Bcast(identity, sizeof(identity), MPI_BYTE, 0, comm) != MPI_SUCCESS)
		identity[0] = 0;
	*id = identity[0];
	all = identity[1] != 0;
	if (*id && !why && all && core_comm_spans(size, members)) {
		if (first && rank)
			mine = core_comm_take_slot(*id, size, members);
		PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
		if (!all && first && mine)
			core_board_cancel(*id);
	}
	return why ? why : all ? NULL : "no room on a node's board";
}

/* ---- topologies ---- */

static struct core_graph *read_cart(MPI_Comm comm)
{
	struct core_graph *graph;
	int dims;

	PMPI_Cartdim_get(comm, &dims);
	graph = core_graph_new(2 * dims, 2 * dims);
	for (int i = 0; graph && i < dims; i++)
		PMPI_Cart_shift(comm, i, 1, &graph->in[2 * i], &graph->in[2 * i + 1]);
	for (int i = 0; graph && i < 2 * dims; i++) {
		graph->in[i] = graph->in[i] == MPI_PROC_NULL ? -1 : graph->in[i];
		graph->out[i] = graph->in[i];
	}
	return graph;
}

static struct core_graph *read_old_graph(MPI_Comm comm, int rank)
{
	struct core_graph *graph;
	int num;

	PMPI_Graph_neighbors_count(comm, rank, &num);
	graph = core_graph_new(num, num);
	if (graph) {
		PMPI_Graph_neighbors(comm, rank, num, graph->in);
		PMPI_Graph_neighbors(comm, rank, num, graph->out);
	}
	return graph;
}

static struct core_graph *read_dist_graph(MPI_Comm comm)
{
	int num_in, num_out, weighted, *weights;
	struct core_graph *graph;

	PMPI_Dist_graph_neighbors_count(comm, &num_in, &num_out, &weighted);
	graph = core_graph_new(num_in, num_out);
	weights = malloc(((size_t)num_in + (size_t)num_out + 1) * sizeof(int));
	if (graph && weights)
		PMPI_Dist_graph_neighbors(comm, num_in, graph->in, weights, num_out, graph->out,
					  weights + num_in);
	if (!weights) {
		core_graph_free(graph);
		graph = NULL;
	}
	free(weights);
	return graph;
}

/* `counts`: of all ranks; negative: theirs can't be had. NULL: no memory. */
static int *gather_neighbors(MPI_Comm comm, int size, const int *mine, int num, const int *counts)
{
	int *lengths = malloc(2 * (size_t)size * sizeof(int)), *starts, *all, total = 0;

	if (!lengths)
		return NULL;
	starts = lengths + size;
	for (int i = 0; i < size; i++) {
		starts[i] = total;
		lengths[i] = counts[i] > 0 ? counts[i] : 0;
		total += lengths[i];
	}
	all = malloc(((size_t)total + 1) * sizeof(int));
	if (all)
		PMPI_Allgatherv(mine, num > 0 ? num : 0, MPI_INT, all, lengths, starts, MPI_INT,
				comm);
	free(lengths);
	return all;
}

/* Tell all whom this rank has blocks for. False: no memory, where the others wait. */
static bool exchange_neighbors(MPI_Comm comm, int size, struct core_graph *graph)
{
	int *counts = malloc((size_t)size * sizeof(int)), *all = NULL;
	int *mine = malloc(((size_t)graph->num_out + 1) * sizeof(int)), num;
	bool well = counts && mine;

	if (well) {
		num = core_graph_list(graph, size, mine);
		PMPI_Allgather(&num, 1, MPI_INT, counts, 1, MPI_INT, comm);
		all = gather_neighbors(comm, size, mine, num, counts);
		well = all && core_graph_set_pairs(graph, size, counts, all);
	}
	free(counts);
	free(mine);
	free(all);
	return well;
}

static bool find_graph(MPI_Comm comm, struct core_comm *state)
{
	int topology = MPI_UNDEFINED;

	PMPI_Topo_test(comm, &topology);
	if (topology == MPI_CART)
		state->graph = read_cart(comm);
	else if (topology == MPI_GRAPH)
		state->graph = read_old_graph(comm, state->rank);
	else if (topology == MPI_DIST_GRAPH)
		state->graph = read_dist_graph(comm);
	else
		return true;
	return state->graph && exchange_neighbors(comm, state->size, state->graph);
}

static void identify(MPI_Comm comm, int rank, int size, const struct core_member *members)
{
	struct core_comm *state;
	uint64_t id;
	const char *why = take_slots(comm, &id, rank, size, members);

	if (!id)
		return;
	state = core_comm_create(id, rank, size, members, why);
	if (!state || (!why && !find_graph(comm, state)) ||
	    PMPI_Comm_set_attr(comm, comm_keyval, state) != MPI_SUCCESS)
		no_memory(comm, size);
	bump_generation();
}

void core_mpi_comm_identify(core_handle handle)
{
	MPI_Comm comm = as_comm(handle);
	struct core_member *members;
	int inter = 0, rank, size;

	if (comm == MPI_COMM_NULL || comm_keyval == MPI_KEYVAL_INVALID)
		return;
	PMPI_Comm_test_inter(comm, &inter);
	if (inter)
		return;
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &size);
	members = malloc((size_t)size * sizeof(*members));
	if (!members)
		no_memory(comm, size);
	if (find_members(comm, size, members))
		identify(comm, rank, size, members);
	free(members);
}

core_handle core_mpi_world(void)
{
	return (core_handle)MPI_COMM_WORLD;
}

/*
 * Called for every collective, so each thread remembers its last answer. It holds as long as no
 * communicator has got or lost its state since: a program that frees a communicator and uses
 * another with the same handle has ordered the two itself.
 */
struct core_comm *core_mpi_comm_find(core_handle handle)
{
	static _Thread_local struct {
		uint64_t generation;
		core_handle handle;
		struct core_comm *state;
	} last;
	uint64_t generation = atomic_load_explicit(&comm_generation, memory_order_acquire);
	struct core_comm *state = NULL;
	int found = 0;

	if (last.generation == generation && last.handle == handle)
		return last.state;
	if (comm_keyval == MPI_KEYVAL_INVALID || as_comm(handle) == MPI_COMM_NULL)
		return NULL;
	PMPI_Comm_get_attr(as_comm(handle), comm_keyval, &state, &found);
	last.generation = generation;
	last.handle = handle;
	last.state = found ? state : NULL;
	return last.state;
}

void core_mpi_comm_name(core_handle handle, char *name, size_t bytes)
{
	char full[MPI_MAX_OBJECT_NAME] = "";
	int length = 0;

	if (as_comm(handle) != MPI_COMM_NULL && handle)
		PMPI_Comm_get_name(as_comm(handle), full, &length);
	snprintf(name, bytes, "%.*s", (int)bytes - 1, *full ? full : "unnamed");
}

int core_mpi_raise(const struct core_call *call, enum util_status status)
{
	MPI_Comm comm = call->coll == CORE_REDUCE_LOCAL ? MPI_COMM_WORLD : as_comm(call->comm);
	int error = status == UTIL_ERR_NO_MEMORY  ? MPI_ERR_NO_MEM
		    : status == UTIL_ERR_TRUNCATE ? MPI_ERR_TRUNCATE
						  : MPI_ERR_OTHER;

	PMPI_Comm_call_errhandler(comm, error);
	return error;
}
