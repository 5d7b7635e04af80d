/* SPDX-License-Identifier: BSD-3-Clause */
/* Who the processes of the job are, and what they tell each other. */
#ifndef CORE_MPI_JOB_H
#define CORE_MPI_JOB_H

#include "util/util_status.h"

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

/* The program has had sessions, so that not all communicators are of MPI_COMM_WORLD's. Atomic. */
extern bool core_mpi_job_has_sessions;

/* A process as a member of a communicator. */
struct core_member {
	int process;    /* its rank in MPI_COMM_WORLD */
	int node;       /* of the job's */
	int local_rank; /* among this node's processes; -1: it is on another node */
};

/* Whether a process on the node of the job has a CUDA driver. */
bool core_mpi_node_has_driver(int node);

/* Whether a program there has to do with GPUs, or may yet (gpu_use.h). */
bool core_mpi_node_may_use(int node);

/* Which machine the node is on, of which containers may be several nodes. */
uint64_t core_mpi_node_machine(int node);

/* The process there with local rank 0. */
int core_mpi_node_leader(int node);

/* A process of the job as a member of a communicator. */
struct core_member core_mpi_member(int process);

/*
 * Have `stop` called at the beginning of MPI_Finalize, after the callbacks of the application that
 * MPI calls there.
 */
void core_mpi_at_finalize(void (*stop)(void));

/*
 * Collective over MPI_COMM_WORLD: make the private communicator and agree on the job. `may_use`:
 * gpu_use_may_come of this process.
 */
enum util_status core_mpi_start(const char *hostid, bool have_driver, bool may_use);

/* A number that no other process of this job, nor of another, is likely to draw; never 0. */
uint64_t core_mpi_draw_id(void);

/*
 * Share `bytes` bytes from the lowest rank of each node with the other processes of it. Collective.
 */
enum util_status core_mpi_node_bcast(void *data, int bytes);

/* The same of the job's first process with all others. Collective over the job. */
enum util_status core_mpi_job_bcast(void *data, int bytes);

/*
 * Whether a process of the node has ended, as far as this one can see; by local rank. Any thread.
 */
bool core_mpi_has_ended(int local_rank);

/* Whether all processes of the node say yes. Collective over the node. */
bool core_mpi_node_all(bool yes);

/* The same of the job. Collective over it. */
bool core_mpi_job_all(bool yes);

/* Whether all processes of the job have the same number. Collective over the job. */
bool core_mpi_job_same(uint64_t number);

/*
 * Wait for all processes of the job, and do something over and over meanwhile, if not NULL.
 * Collective over it.
 */
void core_mpi_job_barrier(void (*meanwhile)(void));

/*
 * Collect some bytes from each process of the job: one after the other in `*all`, with how many
 * they are in `*sizes`, by process; the caller frees both. Collective over the job.
 */
enum util_status core_mpi_job_gather(const void *mine, int bytes, void **all, int **sizes);

/* Free the private communicator and all else that needs MPI. Collective. */
void core_mpi_stop(void);

#endif
