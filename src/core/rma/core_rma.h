/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided calls whose origin, result or compare buffer is in device memory, through stages in
 * host memory. What was read comes to its place at the first synchronisation that completes the
 * call at its origin, or with its request. The windows themselves are in host memory, or the MPI's
 * own affair.
 */
#ifndef CORE_RMA_H
#define CORE_RMA_H

#include "core/call/core_call.h"

#include <limits.h>

/*
 * One call as the application made it; what it lacks is zero. MPI_Get's buffer is the result.
 */
struct core_rma_call {
	const char *name; /* "MPI_Put" */
	const void *origin, *compare;
	void *result;
	int64_t origin_count, result_count, target_count;
	core_handle origin_type, result_type, target_type;
	bool single; /* all buffers have one element of origin_type */
	int target_rank;
	int64_t target_disp;
	core_handle op, win;
	void *request; /* MPI_Request * */
	int (*real)(const struct core_rma_call *call);
};

/*
 * Carry out the call; returns what MPI returns. Under the door's guard. Thread-safe.
 */
int core_rma_run(const struct core_rma_call *call);

/* Calls that are not known to be complete at their origin. One load, as core_requests_pending. */
extern uint64_t core_rma_pending;

static inline bool core_rma_is_pending(void)
{
	return __atomic_load_n(&core_rma_pending, __ATOMIC_RELAXED) != 0;
}

/* To be asked before a synchronisation, which completes the calls that were made before. */
uint64_t core_rma_mark(void);

enum { CORE_RMA_ALL = INT_MIN }; /* in place of a rank: any; MPI_PROC_NULL is negative, too */

/*
 * The synchronisation has completed, at their origin, this process's calls before the mark to the
 * rank: have what they have read in its place. Returns an MPI error code, which was raised on the
 * window. Thread-safe.
 */
int core_rma_complete(core_handle win, int rank, uint64_t mark);

/* The window is freed: the same of all its calls. It has no error handler any more. */
void core_rma_forget(core_handle win);

#endif
