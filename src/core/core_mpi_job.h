/* SPDX-License-Identifier: BSD-3-Clause */
/* Who the processes of the job are. */
#ifndef CORE_MPI_JOB_H
#define CORE_MPI_JOB_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What the identity of this process is in the job. Valid between core_mpi_start and core_mpi_stop.
 */
struct core_mpi_job {
	uint64_t id; /* random, the same in all processes */
	int rank, size;
	int num_nodes;
	int node;       /* index of this process's node, in order of their lowest ranks */
	int local_rank; /* among the processes of the node, in order of rank */
	int local_size;
	/* Some, or all, processes of the job have a CUDA driver, and the library switched on. */
	bool any_driver, all_drivers;
};
extern struct core_mpi_job core_mpi_job;

/* A process as a member of a communicator. */
struct core_member {
	int process;    /* its rank in MPI_COMM_WORLD */
	int node;       /* of the job's */
	int local_rank; /* among this node's processes; -1: it is on another node */
};

/*
 * Of a node of the job: whether a process there has a CUDA driver; which machine it is on, of which
 * containers may be several nodes; and the process with local rank 0.
 */
bool core_mpi_node_has_driver(int node);
uint64_t core_mpi_node_machine(int node);
int core_mpi_node_leader(int node);

/* A process of the job as a member of a communicator. */
struct core_member core_mpi_member(int process);

#endif
