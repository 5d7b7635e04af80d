/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/call/core_coll.h"

enum sched_coll core_coll_sched(enum core_coll coll)
{
	switch (coll) {
	case CORE_BCAST:
		return SCHED_BCAST;
	case CORE_REDUCE:
		return SCHED_REDUCE;
	case CORE_ALLREDUCE:
		return SCHED_ALLREDUCE;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		return SCHED_REDUCE_SCATTER;
	case CORE_SCAN:
		return SCHED_SCAN;
	case CORE_EXSCAN:
		return SCHED_EXSCAN;
	case CORE_GATHER:
	case CORE_GATHERV:
		return SCHED_GATHER;
	case CORE_SCATTER:
	case CORE_SCATTERV:
		return SCHED_SCATTER;
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		return SCHED_ALLGATHER;
	default:
		return SCHED_ALLTOALL;
	}
}

bool core_coll_sizes_differ(enum core_coll coll)
{
	switch (coll) {
	case CORE_REDUCE_SCATTER:
	case CORE_GATHERV:
	case CORE_SCATTERV:
	case CORE_ALLGATHERV:
	case CORE_ALLTOALLV:
	case CORE_ALLTOALLW:
	case CORE_NEIGHBOR_ALLGATHER:
	case CORE_NEIGHBOR_ALLGATHERV:
	case CORE_NEIGHBOR_ALLTOALL:
	case CORE_NEIGHBOR_ALLTOALLV:
	case CORE_NEIGHBOR_ALLTOALLW:
		return true;
	default:
		return false;
	}
}
