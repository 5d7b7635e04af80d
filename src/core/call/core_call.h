/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of a collective as the application made it, free of mpi.h: MPI's handles are integers in
 * one MPI and pointers in another, so here they are words that only src/pmpi and core_mpi_*.c
 * turn back.
 */
#ifndef CORE_CALL_H
#define CORE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum core_coll {
	CORE_BCAST,
	CORE_REDUCE,
	CORE_ALLREDUCE,
	CORE_REDUCE_SCATTER,
	CORE_REDUCE_SCATTER_BLOCK,
	CORE_SCAN,
	CORE_EXSCAN,
	CORE_GATHER,
	CORE_GATHERV,
	CORE_SCATTER,
	CORE_SCATTERV,
	CORE_ALLGATHER,
	CORE_ALLGATHERV,
	CORE_ALLTOALL,
	CORE_ALLTOALLV,
	CORE_ALLTOALLW,
	CORE_NEIGHBOR_ALLGATHER,
	CORE_NEIGHBOR_ALLGATHERV,
	CORE_NEIGHBOR_ALLTOALL,
	CORE_NEIGHBOR_ALLTOALLV,
	CORE_NEIGHBOR_ALLTOALLW,
	CORE_REDUCE_LOCAL,
	CORE_COLL_NUM
};

typedef uintptr_t core_handle; /* an MPI_Comm, MPI_Datatype or MPI_Op */

/*
 * Arguments have one name whatever the collective calls them; those it lacks are zero. Bcast's
 * buffer is recvbuf, and the one (count, datatype) of a reduction is (recvcount, recvtype). The
 * arrays stay the caller's and live as long as the call.
 */
struct core_call {
	enum core_coll coll;
	const void *sendbuf;
	void *recvbuf;
	int64_t sendcount, recvcount;
	core_handle sendtype, recvtype;
	const void *sendcounts, *recvcounts; /* of int, or of MPI_Count when wide_counts */
	const void *sdispls, *rdispls;       /* of int, or of MPI_Aint when wide_displs */
	const void *sendtypes, *recvtypes;   /* of MPI_Datatype */
	bool wide_counts, wide_displs;
	core_handle op;
	int root;
	core_handle comm;
	/* Of a nonblocking or persistent one: its name, as "MPI_Ibcast", and its MPI_Request *. */
	const char *name;
	void *request;
	bool persistent;
	core_handle info;                          /* of a persistent one */
	int (*real)(const struct core_call *call); /* the real MPI's function on these arguments */
	/* Sums are made here, in order, by what `real` is then (core_mpi_ordered.h). */
	bool in_order;
	struct core_ordered *ordered; /* of a nonblocking one, on its way */
};

/* "MPI_Allreduce" and so on. */
const char *core_coll_name(enum core_coll coll);

/* As the program called it. */
static inline const char *core_call_name(const struct core_call *call)
{
	return call->name ? call->name : core_coll_name(call->coll);
}

/* Whether the collective has a root. */
bool core_coll_is_rooted(enum core_coll coll);

/* Whether it is one among neighbours; and sends the same to all of them. */
bool core_coll_is_neighbor(enum core_coll coll);
bool core_coll_is_neighbor_gather(enum core_coll coll);

#endif
