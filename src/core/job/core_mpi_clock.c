/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clocks of machines are compared by messages there and back (F. Cristian, Probabilistic clock
 * synchronization, 1989): the fastest of some tells best.
 */
#include "core/job/core_mpi_clock.h"
#include "core/call/core_mpi_handle.h"
#include "core/job/core_mpi_job.h"
#include "util/util_time.h"

#include <stdlib.h>

enum { ROUNDS = 32, TAG = 3 };

static void answer(int process)
{
	uint64_t now;

	for (int i = 0; i < ROUNDS; i++) {
		PMPI_Recv(&now, 1, MPI_UINT64_T, process, TAG, core_mpi_private_comm,
			  MPI_STATUS_IGNORE);
		now = util_now();
		PMPI_Send(&now, 1, MPI_UINT64_T, process, TAG, core_mpi_private_comm);
	}
}

static int64_t ask(uint64_t *round_trip)
{
	int64_t offset = 0;
	uint64_t before, after, theirs;

	*round_trip = UINT64_MAX;
	for (int i = 0; i < ROUNDS; i++) {
		before = util_now();
		PMPI_Send(&before, 1, MPI_UINT64_T, 0, TAG, core_mpi_private_comm);
		PMPI_Recv(&theirs, 1, MPI_UINT64_T, 0, TAG, core_mpi_private_comm,
			  MPI_STATUS_IGNORE);
		after = util_now();
		if (after - before >= *round_trip)
			continue;
		*round_trip = after - before;
		offset = (int64_t)(theirs - before - (after - before) / 2);
	}
	return offset;
}

int64_t core_mpi_clock_offset(uint64_t *round_trip)
{
	struct {
		int64_t offset;
		uint64_t round_trip;
	} clock = {0, 0};

	if (core_mpi_job.rank == 0) {
		for (int node = 1; node < core_mpi_job.num_nodes; node++)
			answer(core_mpi_node_leader(node));
	} else if (core_mpi_job.local_rank == 0 && core_mpi_job.node > 0) {
		clock.offset = ask(&clock.round_trip);
	}
	/* Nodes of one machine mostly have one clock. */
	if ((uint64_t)llabs(clock.offset) <= clock.round_trip / 2)
		clock.offset = 0;
	core_mpi_node_bcast(&clock, sizeof(clock));
	*round_trip = clock.round_trip;
	return clock.offset;
}
