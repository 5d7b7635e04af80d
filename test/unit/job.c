/* SPDX-License-Identifier: BSD-3-Clause */
/* A job without an MPI, for what asks it who there is: each node is a machine. Tests set its size.
 */
#include "core/job/core_mpi_job.h"

struct core_mpi_job core_mpi_job = {.size = 1, .local_size = 1};

bool core_mpi_node_may_use(int node)
{
	return node == 0;
}

uint64_t core_mpi_node_machine(int node)
{
	return (uint64_t)node + 1;
}

int core_mpi_node_leader(int node)
{
	return node;
}
