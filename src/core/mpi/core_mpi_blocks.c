/* SPDX-License-Identifier: BSD-3-Clause */
/* The blocks of a buffer, as the arguments of a call tell them. */
#include "core/mpi/core_mpi_blocks.h"
#include "core/call/core_mpi_handle.h"

static bool has_each_type(const struct core_call *call)
{
	return call->coll == CORE_ALLTOALLW || call->coll == CORE_NEIGHBOR_ALLTOALLW;
}

struct core_mpi_blocks core_mpi_sent_blocks(const struct core_call *call, int num)
{
	return (struct core_mpi_blocks){.num = num,
					.counts = call->sendcounts,
					.displs = call->sdispls,
					.wide_counts = call->wide_counts,
					.wide_displs = call->wide_displs,
					.count = call->sendcount,
					.type = call->sendtype,
					.types = call->sendtypes,
					.each_type = has_each_type(call)};
}

struct core_mpi_blocks core_mpi_received_blocks(const struct core_call *call, int num)
{
	return (struct core_mpi_blocks){.num = num,
					.counts = call->recvcounts,
					.displs = call->rdispls,
					.wide_counts = call->wide_counts,
					.wide_displs = call->wide_displs,
					.count = call->recvcount,
					.type = call->recvtype,
					.types = call->recvtypes,
					.each_type = has_each_type(call)};
}

int64_t core_mpi_block_count(const struct core_mpi_blocks *blocks, int i)
{
	if (!blocks->counts)
		return blocks->count;
	return blocks->wide_counts ? ((const MPI_Count *)blocks->counts)[i]
				   : ((const int *)blocks->counts)[i];
}

int64_t core_mpi_received_count(const struct core_call *call, int i)
{
	struct core_mpi_blocks blocks = core_mpi_received_blocks(call, i + 1);

	return core_mpi_block_count(&blocks, i);
}

core_handle core_mpi_block_type(const struct core_mpi_blocks *blocks, int i)
{
	return blocks->each_type ? (core_handle)((const MPI_Datatype *)blocks->types)[i]
				 : blocks->type;
}

int64_t core_mpi_block_offset(const struct core_mpi_blocks *blocks, int i, int64_t extent)
{
	int64_t displ;

	if (!blocks->displs)
		return i * blocks->count * extent;
	displ = blocks->wide_displs ? ((const MPI_Aint *)blocks->displs)[i]
				    : ((const int *)blocks->displs)[i];
	/* Displacements are in bytes only where each block has its type. */
	return blocks->each_type ? displ : displ * extent;
}

bool core_mpi_lacks_arrays(const struct core_mpi_blocks *blocks)
{
	return !blocks->counts || !blocks->displs;
}

bool core_mpi_lacks_types(const struct core_mpi_blocks *blocks)
{
	return blocks->each_type && blocks->num && !blocks->types;
}

bool core_mpi_neighbors_lack_arrays(enum core_coll coll, const struct core_mpi_blocks *from,
				    const struct core_mpi_blocks *to)
{
	if (coll == CORE_NEIGHBOR_ALLGATHER || coll == CORE_NEIGHBOR_ALLTOALL)
		return false;
	return (to->num && core_mpi_lacks_arrays(to)) ||
	       (!core_coll_is_neighbor_gather(coll) && from->num && core_mpi_lacks_arrays(from));
}
