/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_kept.h"
#include "core/comm/core_graph.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_type.h"

#include <stdlib.h>
#include <string.h>

/* An array that is missing, or has no elements, stays what it is. */
static enum util_status keep_array(struct core_mpi_kept *kept, const void **array, int num,
				   size_t element)
{
	size_t bytes = (size_t)num * element;
	void *copy;

	if (!*array || num <= 0)
		return UTIL_OK;
	copy = malloc(bytes);
	if (!copy)
		return UTIL_ERR_NO_MEMORY;
	memcpy(copy, *array, bytes);
	kept->arrays[kept->num_arrays++] = copy;
	*array = copy;
	return UTIL_OK;
}

static enum util_status keep_arrays(struct core_mpi_kept *kept, const struct core_call *call,
				    const void **counts, const void **displs, const void **types,
				    int num)
{
	size_t count = call->wide_counts ? sizeof(MPI_Count) : sizeof(int);
	size_t displ = call->wide_displs ? sizeof(MPI_Aint) : sizeof(int);
	enum util_status status = keep_array(kept, counts, num, count);

	if (status == UTIL_OK)
		status = keep_array(kept, displs, num, displ);
	if (status == UTIL_OK)
		status = keep_array(kept, types, num, sizeof(MPI_Datatype));
	return status;
}

/* Predefined, or the library's own: those that nobody frees. */
static bool lasts(MPI_Datatype type)
{
	struct core_mpi_envelope envelope;

	if (type == MPI_DATATYPE_NULL || core_mpi_half_of((core_handle)type) != CORE_NUM_HALVES)
		return true;
	return !core_mpi_type_envelope(type, &envelope) || envelope.combiner == MPI_COMBINER_NAMED;
}

/* One element of it is a type of the same data. MPI_Type_dup would call back the application. */
static enum util_status keep_type(struct core_mpi_kept *kept, MPI_Datatype *type)
{
	MPI_Datatype *own = &kept->types[kept->num_types];

	if (lasts(*type))
		return UTIL_OK;
	if (PMPI_Type_contiguous(1, *type, own) != MPI_SUCCESS)
		return UTIL_ERR_MPI;
	kept->num_types++;
	if (PMPI_Type_commit(own) != MPI_SUCCESS)
		return UTIL_ERR_MPI;
	*type = *own;
	return UTIL_OK;
}

static enum util_status keep_handle(struct core_mpi_kept *kept, core_handle *handle)
{
	MPI_Datatype type = core_mpi_as_type(*handle);
	enum util_status status = keep_type(kept, &type);

	*handle = (core_handle)type;
	return status;
}

/*
 * The array is a copy already. The type of an empty block may be anything, and be freed before the
 * call is the real MPI's.
 */
static enum util_status keep_types(struct core_mpi_kept *kept, const struct core_mpi_blocks *blocks,
				   core_handle *type)
{
	MPI_Datatype *types = (MPI_Datatype *)blocks->types;
	enum util_status status = UTIL_OK;
	bool empty = blocks->counts || blocks->count <= 0;

	for (int i = 0; blocks->counts && i < blocks->num && status == UTIL_OK; i++) {
		bool none = core_mpi_block_count(blocks, i) <= 0;

		empty &= none;
		if (types && none)
			types[i] = MPI_BYTE;
		else if (types)
			status = keep_type(kept, &types[i]);
	}
	if (types || blocks->num < 0)
		return status;
	if (!empty)
		return keep_handle(kept, type);
	if (*type)
		*type = (core_handle)MPI_BYTE;
	return UTIL_OK;
}

/* How many blocks of a side there are; -1: it is not significant here, and may be anything. */
static int count_sent(const struct core_call *call, const struct core_comm *comm)
{
	bool scatters = call->coll == CORE_SCATTER || call->coll == CORE_SCATTERV;

	if (core_mpi_is_in_place(call->sendbuf) || (scatters && call->root != comm->rank))
		return -1;
	return core_coll_is_neighbor(call->coll) ? comm->graph->num_out : comm->size;
}

static int count_received(const struct core_call *call, const struct core_comm *comm)
{
	bool gathers = call->coll == CORE_GATHER || call->coll == CORE_GATHERV;

	if (core_mpi_is_in_place(call->recvbuf) || (gathers && call->root != comm->rank))
		return -1;
	return core_coll_is_neighbor(call->coll) ? comm->graph->num_in : comm->size;
}

enum util_status core_mpi_keep(struct core_mpi_kept *kept, struct core_call *call,
			       const struct core_comm *comm)
{
	int num_sent = count_sent(call, comm), num_received = count_received(call, comm);
	struct core_mpi_blocks sent, received;
	enum util_status status = keep_arrays(kept, call, &call->sendcounts, &call->sdispls,
					      &call->sendtypes, num_sent);

	if (status == UTIL_OK)
		status = keep_arrays(kept, call, &call->recvcounts, &call->rdispls,
				     &call->recvtypes, num_received);
	/* Of a reduction, whose types last, a copy would be none for the operation. */
	if (status != UTIL_OK || call->op)
		return status;
	kept->types = malloc((size_t)(num_sent + num_received + 4) * sizeof(*kept->types));
	if (!kept->types)
		return UTIL_ERR_NO_MEMORY;
	sent = core_mpi_sent_blocks(call, num_sent);
	received = core_mpi_received_blocks(call, num_received);
	status = keep_types(kept, &sent, &call->sendtype);
	return status == UTIL_OK ? keep_types(kept, &received, &call->recvtype) : status;
}

void core_mpi_kept_release(struct core_mpi_kept *kept)
{
	for (int i = 0; i < kept->num_arrays; i++)
		free(kept->arrays[i]);
	for (int i = 0; i < kept->num_types; i++)
		PMPI_Type_free(&kept->types[i]);
	free(kept->types);
}
