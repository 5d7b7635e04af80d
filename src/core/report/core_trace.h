/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline (GPUCOLL_TRACE): each collective call and its stages as events of a file in the
 * Trace Event Format, which Perfetto and Chrome show, and gpucoll-trace reads; and as ranges of
 * NVTX, where a profiler is there. A line of the file is an event:
 *
 *     {"name": "MPI_Allreduce", "cat": "call", "ph": "X", "ts": us, "dur": us, "pid": RANK, "tid":
 * LANE, "args": {"comm": ID, "number": N, "size": RANKS, "bytes": B, "path": PATH, "why": WHY,
 * ...}}
 *     {"name": "agree", "cat": "stage", ...}
 *
 *     {"name": "wait", "cat": "step", ..., "tid": LANE, "args": {"step": N, "round": R}}
 *     {"name": "recvReduceSend", "cat": "step", ...}
 *
 * Times are of the job's first process's clock, from its start on. Calls that overlap are on
 * different lanes. Hook points are those of the journal (core_journal.h).
 */
#ifndef CORE_TRACE_H
#define CORE_TRACE_H

#include "core/comm/core_note.h"

#include <stdbool.h>

/* Whether anybody wants events; those of kernels' steps, too. Set by start. */
extern bool core_trace_on, core_trace_steps;

/* A step of a kernel. Times as util_now's. */
struct core_trace_step {
	const char *name;
	int lane; /* of the kernel: below 64 */
	uint32_t number, round;
	uint64_t began, ready, ended; /* ready: when it had what it waited for */
};

/*
 * Collective over the job, after core_journal_start and before the first call; and after the last
 * one.
 */
void core_trace_start(void);
void core_trace_stop(void);

/* A call begins; it comes to a place; it has ended, as its entry in the journal says. */
struct core_trace_call *core_trace_begin(const struct core_entry *call);
void core_trace_where(struct core_trace_call *trace, enum core_where where);
void core_trace_end(struct core_trace_call *trace, const struct core_entry *call);

/* What a kernel of the call has done; before its end. */
void core_trace_step(const struct core_trace_call *trace, const struct core_trace_step *step);

#endif
