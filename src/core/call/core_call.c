/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/call/core_call.h"

const char *core_coll_name(enum core_coll coll)
{
	static const char *const names[CORE_COLL_NUM] = {
		[CORE_BCAST] = "MPI_Bcast",
		[CORE_REDUCE] = "MPI_Reduce",
		[CORE_ALLREDUCE] = "MPI_Allreduce",
		[CORE_REDUCE_SCATTER] = "MPI_Reduce_scatter",
		[CORE_REDUCE_SCATTER_BLOCK] = "MPI_Reduce_scatter_block",
		[CORE_SCAN] = "MPI_Scan",
		[CORE_EXSCAN] = "MPI_Exscan",
		[CORE_GATHER] = "MPI_Gather",
		[CORE_GATHERV] = "MPI_Gatherv",
		[CORE_SCATTER] = "MPI_Scatter",
		[CORE_SCATTERV] = "MPI_Scatterv",
		[CORE_ALLGATHER] = "MPI_Allgather",
		[CORE_ALLGATHERV] = "MPI_Allgatherv",
		[CORE_ALLTOALL] = "MPI_Alltoall",
		[CORE_ALLTOALLV] = "MPI_Alltoallv",
		[CORE_ALLTOALLW] = "MPI_Alltoallw",
		[CORE_NEIGHBOR_ALLGATHER] = "MPI_Neighbor_allgather",
		[CORE_NEIGHBOR_ALLGATHERV] = "MPI_Neighbor_allgatherv",
		[CORE_NEIGHBOR_ALLTOALL] = "MPI_Neighbor_alltoall",
		[CORE_NEIGHBOR_ALLTOALLV] = "MPI_Neighbor_alltoallv",
		[CORE_NEIGHBOR_ALLTOALLW] = "MPI_Neighbor_alltoallw",
		[CORE_REDUCE_LOCAL] = "MPI_Reduce_local",
	};

	return names[coll];
}

bool core_coll_is_rooted(enum core_coll coll)
{
	return coll == CORE_BCAST || coll == CORE_REDUCE || coll == CORE_GATHER ||
	       coll == CORE_GATHERV || coll == CORE_SCATTER || coll == CORE_SCATTERV;
}

bool core_coll_is_neighbor(enum core_coll coll)
{
	return coll >= CORE_NEIGHBOR_ALLGATHER && coll <= CORE_NEIGHBOR_ALLTOALLW;
}

bool core_coll_is_neighbor_gather(enum core_coll coll)
{
	return coll == CORE_NEIGHBOR_ALLGATHER || coll == CORE_NEIGHBOR_ALLGATHERV;
}
