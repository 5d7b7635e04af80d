/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requests of a call that completes or starts several, where some are ours. Those are taken out
 * of the table (core_mpi_table.h) before the real MPI's call, and put back after it.
 */
#ifndef CORE_MPI_SEVERAL_H
#define CORE_MPI_SEVERAL_H

#include "core/request/core_mpi_pending.h"

enum { CORE_MPI_FEW = 64 }; /* requests for which no memory is taken */

/*
 * Those of ours among the requests of a call, and where they are among them; and room for statuses
 * of all.
 */
struct core_mpi_ours {
	int index;
	struct core_mpi_pending *pending; /* NULL: done with */
	bool settles;
	enum util_status copied;
};

struct core_mpi_several {
	int count, num;
	unsigned taken_over; /* when they were taken */
	struct core_mpi_ours *ours, few[CORE_MPI_FEW];
	MPI_Status *statuses, few_statuses[CORE_MPI_FEW];
};

/*
 * Take those of ours among the requests. `statuses`: the application's, or to be replaced if it
 * wants none. False: no memory.
 */
bool core_mpi_several_take(struct core_mpi_several *all, int count, const MPI_Request requests[],
			   MPI_Status **statuses);

/* Leave out those that a call inside the real MPI's has done with, which are not ours any more. */
void core_mpi_several_look(struct core_mpi_several *all);

/* What is left of them was not completed: put it back, and give back the memory. */
void core_mpi_several_put_back(struct core_mpi_several *all);

/* Give back its own memory only. */
void core_mpi_several_close(struct core_mpi_several *all);

/*
 * The real MPI's call has returned `result` and `num` statuses: what is complete is copied, the
 * rest put back. `status_of`: of each of ours, which of the statuses is its; -1: it was not
 * completed. NULL: that of its index. Returns MPI's result.
 */
int core_mpi_several_complete(struct core_mpi_several *all, MPI_Request requests[],
			      MPI_Status *statuses, int num, const int *status_of, int result);

/* The same of a call that completes the request `index` of them, or MPI_UNDEFINED, none. */
int core_mpi_several_complete_any(struct core_mpi_several *all, MPI_Request requests[], int index,
				  int result, const MPI_Status *status);

/* The same of one that completes some: the n-th status is of request indices[n]. */
int core_mpi_several_complete_some(struct core_mpi_several *all, MPI_Request requests[],
				   int outcount, const int indices[], MPI_Status *statuses,
				   int result);

#endif
