/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's life in the library: start at MPI_Init, each collective, stop at MPI_Finalize. */
#ifndef CORE_RUN_H
#define CORE_RUN_H

#include "core/call/core_call.h"
#include "core/call/core_flags.h"

/*
 * Read the configuration, agree on the job, put up the board. `stop` is called by MPI_Finalize
 * while MPI still works; it is to call core_stop. Collective over MPI_COMM_WORLD.
 */
void core_start(void (*stop)(void));

/*
 * Print the statistics if wanted and give everything back. `goes_on`: but what calls that are under
 * way need, since the program has sessions whose communicators outlive MPI_COMM_WORLD; new ones are
 * staged. Collective over MPI_COMM_WORLD.
 */
void core_stop(bool goes_on);

/* In a forked child: it is none of the job's processes. */
void core_forget(void);

/*
 * Carry out a call that may be on device buffers, in a process with a driver. Returns MPI's error
 * code.
 */
int core_run(const struct core_call *call);

/* Carry out a call whose buffers are known to be host memory: count, publish, hand on. */
int core_run_host(const struct core_call *call);

#endif
