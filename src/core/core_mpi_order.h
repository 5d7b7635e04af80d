/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which reductions are added up here (core_mpi_ordered.h), and what their arguments come to. All
 * ranks find the same, so nothing is asked of what may differ among them.
 */
#ifndef CORE_MPI_ORDER_H
#define CORE_MPI_ORDER_H

#include "core/call/core_call.h"
#include "core/call/core_mpi_handle.h"
#include "core/comm/core_comm.h"

/* Bytes of data that are on their way at a time, of a blocking call; elements at most as many. */
enum { CORE_ORDER_SLICE = 4 << 20 };

/*
 * Whether the call is to be added up in order by us: not where that makes no difference, where MPI
 * refuses the call, or, with a warning, where it can't be. `comm`: the state of its communicator;
 * NULL: it has none.
 */
bool core_order_counts(const struct core_call *call, const struct core_comm *comm);

/* Say that it is left to the real MPI, and why, once for each reason: "MPI_X WHY, where ...". */
void core_order_complain(const struct core_call *call, const char *why);

/* Whether it is a reduce_scatter, of either kind. */
bool core_order_scatters(const struct core_call *call);

/* Elements of a rank's contribution. Negative: an argument that MPI refuses. */
int64_t core_order_total(const struct core_call *call);

/* Whether the datatype is MPI's own. */
bool core_order_is_predefined(MPI_Datatype type);

/* Of the call's communicator. */
int core_order_size(const struct core_call *call);
bool core_order_is_inter(const struct core_call *call);

#endif
