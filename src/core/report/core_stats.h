/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts of calls: totals for gpucoll_count_calls, and with GPUCOLL_STATS=1 or GPUCOLL_DEBUG=info a
 * row for each (name of a communicator, collective, size class, path, why), for the table at
 * MPI_Finalize.
 */
#ifndef CORE_STATS_H
#define CORE_STATS_H

#include "core/call/core_call.h"
#include "core/call/core_flags.h"
#include "core/report/core_spent.h"

struct core_stats_call {
	enum core_coll coll; /* CORE_COLL_NUM: it is none */
	const char *name;    /* of a call that is no blocking collective; else NULL */
	enum core_path path;
	/* The algorithm of an accelerated call, or the reason of a staged one; static. */
	const char *why;
	core_handle comm; /* for its name; or, where it may be none any more: */
	const char *comm_name;
	uint64_t bytes;
	double seconds;
};

/* Count one call. Any thread. */
void core_stats_add(const struct core_stats_call *call);

/* The same, and trace it. */
void core_stats_add_traced(const struct core_stats_call *call);

/* The same of one that began then (util_now). */
void core_stats_add_since(struct core_stats_call *call, uint64_t since);

/* Count what one call spent, ns by stage. Any thread. */
void core_stats_add_stages(const uint64_t spent[CORE_STATS_NUM_STAGES]);

/* The calls and bytes of a path over all collectives. */
void core_stats_total(enum core_path path, unsigned long long *calls, unsigned long long *bytes);

/* Print this process's table to the log. */
void core_stats_print(void);

#endif
