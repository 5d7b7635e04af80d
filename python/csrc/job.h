/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI in this process: its start and end, and communicators of torch's ranks. */
#ifndef GPUCOLL_TORCH_JOB_H
#define GPUCOLL_TORCH_JOB_H

#include <mpi.h>
#include <gpucoll/gpucoll.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace gpucoll
{

/* Throws for what MPI returned but MPI_SUCCESS; `call`: the function. */
void job_check(int error, const char *call);

/*
 * Starts MPI with MPI_THREAD_MULTIPLE where the program did not, which waits for all processes of
 * the job, and has it ended when the process ends without an error. Throws where MPI has ended, or
 * has less than that level.
 */
void job_start();

/*
 * A communicator of `size` processes, this one as `rank`; they find each other through the store.
 * Collective among them. It is the caller's, and its errors return.
 */
MPI_Comm job_make_comm(c10d::Store &store, int rank, int size);

/* Whether this is a fork of the process that has MPI. */
bool job_is_fork();

/* This process's rank in the job, and their number; MPI has started. */
int job_rank();
int job_size();

/* What process 0 says, to all of the job; and whether all of them are on one node. Collective in
 * the job. */
std::string job_share(std::string text);
bool job_is_on_one_node();

} // namespace gpucoll

#endif
