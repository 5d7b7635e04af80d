/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedules that a communicator's calls have used, and this rank's programs for them, kept: a
 * schedule serves all sizes. With GPUCOLL_CHECK each is proved when it is made.
 */
#ifndef CORE_SCHEDULE_H
#define CORE_SCHEDULE_H

#include "core/comm/core_comm.h"
#include "core/exec/core_program.h"

struct core_schedule {
	struct core_schedule *next;
	const struct algo *algo;
	struct sched *sched;
	struct core_program *program;
	enum core_reason why; /* it can't be used; CORE_REASON_NONE: it can */
	int users;
};

/*
 * Take the algorithm's schedule for a request that it does not refuse. UTIL_ERR_NO_MEMORY, or
 * UTIL_ERR_UNSUPPORTED where it was refuted or is too large, which has been logged, for the reason
 * `why`.
 */
enum util_status core_schedule_take(struct core_comm *comm, const struct algo *algo,
				    const struct sched_request *request, struct core_schedule **out,
				    enum core_reason *why);

/* Give a schedule back, which may be dropped then. */
void core_schedule_put(struct core_schedule *schedule);

/* Drop all, of which none is taken. */
void core_schedule_drop(struct core_comm *comm);

#endif
