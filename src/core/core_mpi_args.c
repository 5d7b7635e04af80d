/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_args.h"
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/comm/core_graph.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_predefined.h"
#include "gpu/gpu_pointer.h"
#include "util/util_readable.h"

#include <stdio.h>
#include <string.h>

static int64_t bytes_of(int64_t count, core_handle handle)
{
	MPI_Datatype type = core_mpi_as_type(handle);
	MPI_Count size;

	if (count == 0) /* whose type may be anything */
		return 0;
	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
		return -1;
	return count * (int64_t)size;
}

static int64_t block_bytes(const struct core_mpi_blocks *blocks, int i)
{
	if (blocks->each_type && !blocks->types) /* the real MPI refuses that */
		return -1;
	return bytes_of(core_mpi_block_count(blocks, i), core_mpi_block_type(blocks, i));
}

static bool is_gather(enum core_coll coll)
{
	return coll == CORE_GATHER || coll == CORE_GATHERV;
}

static bool is_scatter(enum core_coll coll)
{
	return coll == CORE_SCATTER || coll == CORE_SCATTERV;
}

static bool is_allgather(enum core_coll coll)
{
	return coll == CORE_ALLGATHER || coll == CORE_ALLGATHERV;
}

static bool is_alltoall(enum core_coll coll)
{
	return coll == CORE_ALLTOALL || coll == CORE_ALLTOALLV || coll == CORE_ALLTOALLW;
}

/*
 * In an exchange all ranks name one predefined type, if any; but pairs, which are two of another,
 * and packed data. 0: not known.
 */
static uint8_t exchanged_type(const struct core_call *call, int rank)
{
	bool is_root = rank == call->root;
	bool sends = (is_gather(call->coll) && !is_root) || (is_scatter(call->coll) && is_root);
	core_handle type = sends ? call->sendtype : call->recvtype;

	if (core_coll_is_neighbor(call->coll) || !type || core_mpi_is_in_place(call->recvbuf))
		return 0;
	/* Of nothing the type may be anything; and who has how much of what is in arrays. */
	if (sends ? call->sendcounts || !call->sendcount : call->recvcounts || !call->recvcount)
		return 0;
	return core_mpi_is_loose(type) ? 0 : core_mpi_type_number(type);
}

/* Where the data begin at the address: of predefined types, without displacements. */
static bool is_nowhere(const void *buffer, int64_t count, core_handle type, const void *displs)
{
	if (!buffer || count <= 0 || displs || !core_mpi_type_number(type) ||
	    core_mpi_is_in_place(buffer) || (gpu_driver_present() && gpu_pointer_is_device(buffer)))
		return false;
	return !util_may_be_read(buffer);
}

static bool has_any(const int *neighbors, int num)
{
	for (int i = 0; i < num; i++) {
		if (neighbors[i] >= 0)
			return true;
	}
	return false;
}

/* Of a root's alone, and of others', only what they use. */
static uint64_t find_nowhere(const struct core_call *call, const struct core_comm *comm)
{
	const struct core_graph *graph = core_coll_is_neighbor(call->coll) ? comm->graph : NULL;
	int rank = comm->rank;
	bool sends = !is_scatter(call->coll) || rank == call->root;
	bool receives = (!is_gather(call->coll) && call->coll != CORE_REDUCE) || rank == call->root;
	bool reduces = core_coll_reduces(call->coll);

	receives &= call->coll != CORE_EXSCAN || rank > 0;
	sends &= !graph || has_any(graph->out, graph->num_out);
	receives &= !graph || has_any(graph->in, graph->num_in);
	if (sends && call->sendbuf &&
	    is_nowhere(call->sendbuf, reduces ? call->recvcount : call->sendcount,
		       reduces ? call->recvtype : call->sendtype, call->sdispls))
		return (uint64_t)(uintptr_t)call->sendbuf;
	if (receives && is_nowhere(call->recvbuf, call->recvcount, call->recvtype, call->rdispls))
		return (uint64_t)(uintptr_t)call->recvbuf;
	return 0;
}

struct core_mpi_args core_mpi_args_of(const struct core_call *call, const char *name,
				      const struct core_comm *comm)
{
	struct core_mpi_args args;
	size_t length;

	memset(&args, 0, sizeof(args));
	snprintf(args.name, sizeof(args.name), "%s", name);
	length = strlen(args.name);
	if (length > 2 && !strcmp(args.name + length - 2, "_c")) /* which ranks may mix */
		memset(args.name + length - 2, 0, 2);
	args.bytes = args.root = -1;
	if (!call)
		return args;
	args.nowhere = find_nowhere(call, comm);
	if (core_coll_is_rooted(call->coll))
		args.root = call->root;
	if (core_coll_reduces(call->coll) || call->coll == CORE_BCAST) {
		if (core_coll_reduces(call->coll) || !core_mpi_is_loose(call->recvtype))
			args.type = core_mpi_type_number(call->recvtype);
		if (!call->recvcounts)
			args.bytes = bytes_of(call->recvcount, call->recvtype);
	} else {
		args.type = exchanged_type(call, comm->rank);
	}
	args.has_op = core_coll_reduces(call->coll);
	args.op = args.has_op ? core_mpi_op_number(call->op) : 0;
	return args;
}

bool core_mpi_args_is_exchange(const struct core_call *call)
{
	return is_gather(call->coll) || is_scatter(call->coll) || is_allgather(call->coll) ||
	       is_alltoall(call->coll) || core_coll_is_neighbor(call->coll);
}

/* Who is a rank's neighbour twice has the sum of both. */
static void add_bytes(int64_t *sum, int64_t bytes)
{
	*sum = *sum < 0 || bytes < 0 ? -1 : *sum + bytes;
}

/* False: they are not known, or are the real MPI's to refuse. */
static bool neighbors_blocks(const struct core_call *call, const struct core_graph *graph,
			     int64_t *sends, int64_t *takes)
{
	struct core_mpi_blocks out = core_mpi_sent_blocks(call, graph->num_out),
			       in = core_mpi_received_blocks(call, graph->num_in);
	bool gathers = core_coll_is_neighbor_gather(call->coll);

	if (core_mpi_neighbors_lack_arrays(call->coll, &out, &in))
		return false;
	for (int i = 0; i < graph->num_out; i++) {
		if (graph->out[i] >= 0)
			add_bytes(&sends[graph->out[i]],
				  gathers ? bytes_of(call->sendcount, call->sendtype)
					  : block_bytes(&out, i));
	}
	for (int i = 0; i < graph->num_in; i++) {
		if (graph->in[i] >= 0)
			add_bytes(&takes[graph->in[i]], block_bytes(&in, i));
	}
	return true;
}

static void all_blocks(const struct core_call *call, int rank, int size, int64_t *sends,
		       int64_t *takes)
{
	struct core_mpi_blocks out = core_mpi_sent_blocks(call, size),
			       in = core_mpi_received_blocks(call, size);
	bool in_place = core_mpi_is_in_place(call->sendbuf) || core_mpi_is_in_place(call->recvbuf);
	bool is_root = rank == call->root;
	int64_t mine = -1; /* to each */

	if (is_gather(call->coll) || is_allgather(call->coll))
		mine = in_place ? block_bytes(&in, rank)
				: bytes_of(call->sendcount, call->sendtype);
	for (int i = 0; i < size; i++) {
		if (is_alltoall(call->coll)) {
			takes[i] = block_bytes(&in, i);
			sends[i] = in_place ? takes[i] : block_bytes(&out, i);
		} else if (is_allgather(call->coll)) {
			takes[i] = block_bytes(&in, i);
			sends[i] = mine;
		} else if (is_gather(call->coll)) {
			takes[i] = is_root ? block_bytes(&in, i) : 0;
			sends[i] = i == call->root ? mine : 0;
		} else {
			sends[i] = is_root ? block_bytes(&out, i) : 0;
			if (i == call->root && !in_place)
				takes[i] = bytes_of(call->recvcount, call->recvtype);
		}
	}
	/* In place a root's block to itself is not described. */
	if (is_root && in_place && (is_gather(call->coll) || is_scatter(call->coll)))
		sends[rank] = takes[rank] = -1;
}

void core_mpi_args_blocks(const struct core_call *call, const struct core_comm *comm,
			  int64_t *sends, int64_t *takes)
{
	if (!core_coll_is_neighbor(call->coll)) {
		all_blocks(call, comm->rank, comm->size, sends, takes);
		return;
	}
	if (comm->graph && neighbors_blocks(call, comm->graph, sends, takes))
		return;
	for (int i = 0; i < comm->size; i++)
		sends[i] = takes[i] = -1;
}

void core_mpi_args_describe(const struct core_mpi_args *args, char *text, size_t bytes)
{
	char root[24] = "", data[80] = "";

	if (args->root >= 0)
		snprintf(root, sizeof(root), ", root %d", args->root);
	if (args->bytes < 0 && args->type)
		snprintf(data, sizeof(data), ", %s", core_mpi_type_word(args->type));
	if (args->bytes >= 0)
		snprintf(data, sizeof(data), ", %lld bytes of %s", (long long)args->bytes,
			 core_mpi_type_word(args->type));
	snprintf(text, bytes, "%s%s%s%s%s", args->name, data, args->has_op ? ", " : "",
		 args->has_op ? core_mpi_op_word(args->op) : "", root);
}

int core_mpi_args_compare(const struct core_mpi_args *a, const struct core_mpi_args *b,
			  const char **what)
{
	*what = "the collective";
	if (strcmp(a->name, b->name))
		return MPI_ERR_OTHER;
	*what = "the root";
	if (a->root != b->root)
		return MPI_ERR_ROOT;
	*what = "the operation";
	if (a->has_op != b->has_op || a->op != b->op)
		return MPI_ERR_OP;
	*what = "the number of bytes";
	if (a->bytes != b->bytes)
		return MPI_ERR_COUNT;
	/* One may give a derived type of what the other gives plainly. */
	*what = "the type";
	if (a->type != b->type && a->type && b->type)
		return MPI_ERR_TYPE;
	return MPI_SUCCESS;
}
