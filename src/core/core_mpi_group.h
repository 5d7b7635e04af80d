/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group of messages on a communicator that is for a stream, done at once and by one kernel
 * (docs/decisions/0030): NCCL's, or those that a collective is of which each rank knows its own
 * sizes only.
 */
#ifndef CORE_MPI_GROUP_H
#define CORE_MPI_GROUP_H

#include "core/call/core_call.h"
#include "core/call/core_message_part.h"
#include "core/comm/core_graph.h"
#include "core/core_mpi_fused.h"

struct core_group {
	struct core_message_part *parts; /* owned */
	int num;
};

/* Whether a collective is such a group. */
bool core_group_has_form_of(enum core_coll coll);

/*
 * Make the group of a collective; `graph`: of the communicator, for neighbours. To be freed also
 * after an error: UTIL_ERR_MPI where the arguments are wrong, UTIL_ERR_NO_MEMORY.
 */
enum util_status core_group_of_call(struct core_group *group, const struct core_call *call,
				    int rank, int size, const struct core_graph *graph);
void core_group_free(struct core_group *group);

/*
 * Put it on the stream: `name` is the call's, `id` a number that all ends of its messages have, and
 * no other group whose messages might be taken for its own. An error is this rank's, and the others
 * are told. `captured`, `done`: as core_fused_put.
 */
enum util_status core_group_put(struct core_fused *fused, const struct core_group *group,
				const char *name, uint64_t id, bool captured,
				struct core_standing_call *done);

#endif
