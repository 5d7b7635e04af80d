/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions that the real MPI moves and this process adds up, one after the other in the order of
 * ranks (GPUCOLL_REPRODUCIBLE): what MPI itself does has an order of its own choice. They take the
 * place of the real MPI's function in a call, whatever its buffers are, as other ranks may have
 * staged it: all of them must come to the same calls.
 */
#ifndef CORE_MPI_ORDERED_H
#define CORE_MPI_ORDERED_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "util/util_status.h"

/*
 * Have the call's sums made here, if the order counts and the real MPI would not refuse it anyway.
 * All ranks come to the same answer. `comm`: the state of its communicator; NULL: it has none. For
 * a blocking call this is all that is to be done; `real` of a persistent one stays what it is.
 */
void core_ordered_take(struct core_call *call, const struct core_comm *comm);

/* Leave it to the real MPI after all, and say why: what ends the sentence "MPI_X ...". */
void core_ordered_give_up(struct core_call *call, const char *why);

/*
 * Of a call with a request, when its buffers are those that the real MPI is to have: prepare for
 * its `real`, which begins one exchange of all contributions. UTIL_ERR_NO_MEMORY, or
 * UTIL_ERR_UNSUPPORTED for more elements than an int counts. Does nothing where they are not made
 * here.
 */
enum util_status core_ordered_open(struct core_call *call);

/* The memory that it has taken for that. */
size_t core_ordered_bytes(const struct core_call *call);

/*
 * The request is complete: add up into the receive buffer. Returns MPI's error code. Does nothing
 * where they are not made here.
 */
int core_ordered_end(struct core_call *call);

/* Give back what core_ordered_open made; also where it did not. */
void core_ordered_close(struct core_call *call);

#endif
