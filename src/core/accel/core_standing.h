/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a stream communicator's enqueued calls have in common (docs/decisions/0027): with it each is
 * one kernel on the stream, in which ranks of a node wait for each other, and no host takes part.
 *
 * All its members make it together, and tell each other what came of each step before the next:
 * core_standing_open, core_standing_try, core_standing_settle, and then calls.
 */
#ifndef CORE_STANDING_H
#define CORE_STANDING_H

#include "algos/algo_wish.h"
#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "gpu/gpu_stream.h"

struct core_standing;

/* What members tell each other of a trial. */
struct core_standing_terms {
	unsigned blocks; /* those of a kernel: the fewest count; 0: it is not to be */
	/* What is wished for of each collective: the first member's counts. */
	struct algo_wish wishes[SCHED_NUM_COLLS];
};

/*
 * Take what a trial needs. From then on the communicator is the standing's, but for its end
 * (core_comm_life_end). Local; an error is this rank's, and `*out` is NULL then.
 */
enum util_status core_standing_open(struct core_comm *comm, struct gpu_stream *stream,
				    struct core_standing **out);

/*
 * Once all have it: find out whether kernels can wait for each other, by a call on the
 * communicator. `trial` makes an allreduce of MPI's out of two buffers and a number of floats.
 * UTIL_STAGE: not yet, and `why` says why: for some things there are, like arenas in the host's
 * memory, a call first has to find that they are needed. Other errors: of this rank. The members
 * tell each other before there is another trial.
 */
enum { CORE_STANDING_TRIALS = 4 };
typedef void core_standing_trial(struct core_call *call, const void *in, void *out, int64_t count);
enum util_status core_standing_try(struct core_standing *standing, core_standing_trial *trial,
				   struct core_standing_terms *terms, const char **why);

/* The terms of all are known, with blocks. No call before all are through this. */
enum util_status core_standing_settle(struct core_standing *standing,
				      const struct core_standing_terms *terms);

/* One enqueued call, and what became of it. */
struct core_standing_call {
	const char *reason; /* for the general way; else the algorithm */
	/* In this rank alone, perhaps: its arguments are not as kernels take them, or not where. */
	bool refused, unreached;
	uint64_t bytes; /* of this rank's buffers */
};

/*
 * Put a call on the stream, as one kernel and what goes with it. `captured`: it goes into a graph.
 * UTIL_STAGE: it is to go the general way, as all find alike, but for what `out` says. One thread
 * at a time.
 */
enum util_status core_standing_put(struct core_standing *standing, const struct core_call *call,
				   struct gpu_stream *on, bool captured,
				   struct core_standing_call *out);

/* A message of a group, at this rank's end: for the rank, or from it. */
struct core_standing_message {
	int rank;
	bool sends;
	uint64_t address, bytes; /* that kernels reach; none: there is no message */
};

/*
 * Put a group of messages on the stream, as one kernel; those of a pair of ranks, in one direction,
 * are received in the order in which they are sent, and are equally long at both ends, and of
 * groups with one `id`. The messages stay the caller's. `captured`, `out`, and one thread at a
 * time: as core_standing_put. An error is this rank's.
 */
enum util_status core_standing_exchange(struct core_standing *standing,
					const struct core_standing_message *messages, int num,
					uint64_t id, struct gpu_stream *on, bool captured,
					struct core_standing_call *out);

/*
 * Something was put on the stream behind a kernel, into no graph: have it known when the stream is
 * past it. Returns its number in `*number`, from 1 on. core_standing_has_come: whether it is.
 */
enum util_status core_standing_follow(struct core_standing *standing, struct gpu_stream *on,
				      uint64_t *number);
bool core_standing_has_come(const struct core_standing *standing, uint64_t number);

/*
 * Device memory of the standing's, of so many bytes at least, which the next call on the stream may
 * have as well.
 */
enum util_status core_standing_aside(struct core_standing *standing, size_t bytes, void **out);

/* This rank has not put a call on its stream: tell the others, whose kernels give up. */
void core_standing_give_up(struct core_standing *standing);

/*
 * This rank puts no more calls: its kernels give up, also those that begin later, as a graph's. If
 * one has to, the others are told; else they may still be at what this rank has done. Any thread.
 */
void core_standing_abandon(struct core_standing *standing);

/* Whether kernels are under way, as far as is known. Any thread. */
bool core_standing_is_busy(const struct core_standing *standing);

/* Two numbers that kernels reach, of which nobody needs the values: what a barrier adds up. */
int *core_standing_barrier(const struct core_standing *standing);

/* Whether a call was given up since this was last asked. Any thread. */
bool core_standing_take_failure(struct core_standing *standing);

/*
 * Wait for this rank's kernels, which may have been given up. `name`: of the communicator, for
 * reports. False: the device is lost, and they may not have ended.
 */
bool core_standing_drain(struct core_standing *standing, const char *name);

/* Whether members have been lost, or given up, as far as anybody knows. Any thread. */
bool core_standing_is_lost(const struct core_standing *standing);

/* Find out whether a member is lost, for whom kernels may wait: they give up then. Any thread. */
void core_standing_look(struct core_standing *standing);

/* The same, or whether the device does no more: a call to the driver. Any thread. */
bool core_standing_is_in_vain(const struct core_standing *standing);

/*
 * Give back what it holds, when no member has a kernel that is yet to end; or, where that is not
 * known, but for what kernels may touch.
 */
void core_standing_close(struct core_standing *standing, bool idle);

/* Stop to look for members that are lost. */
void core_standing_stop(void);

#endif
