/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts of calls, for the table at MPI_Finalize (GPUCOLL_STATS=1) and gpucoll_count_calls. */
#ifndef CORE_STATS_H
#define CORE_STATS_H

#include "core/core_call.h"

enum core_path { CORE_PATH_PASS, CORE_PATH_STAGE, CORE_PATH_ACCEL, CORE_PATH_NUM };

/* Count one call. Any thread. */
void core_stats_add(enum core_coll coll, enum core_path path, size_t bytes, double seconds);

/* The calls and bytes of a path over all collectives. */
void core_stats_total(enum core_path path, unsigned long long *calls, unsigned long long *bytes);

/* Print this process's table to the log. */
void core_stats_print(void);

#endif
