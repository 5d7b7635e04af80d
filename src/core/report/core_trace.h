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
 * Times are of the job's first process's clock, from its start on. Calls that overlap are on
 * different lanes. Hook points are those of the journal (core_journal.h).
 */
#ifndef CORE_TRACE_H
#define CORE_TRACE_H

#include "core/comm/core_note.h"

#include <stdbool.h>

/* Whether anybody wants events. Set by start. */
extern bool core_trace_on;

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

#endif
