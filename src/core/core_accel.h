/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The accelerated path: one call carried out by kernels over mapped memory of all members.
 *
 *     READY    earlier work on the buffers (late memset and such) finishes
 *     AGREE    the offer is announced; the members' offers are looked at; their memory is mapped
 *     FILL     windows only: the first round's slice of the input is copied into the window
 *     MUSTER   windows only: until all members are ready for the round
 *     RUN      this rank's kernel; with windows, those of all rounds in turn
 *     MEET     until all are past the call
 *     LAST     copies in this rank's own memory
 *     DONE
 *
 * Up to AGREE the call can still be staged: UTIL_ERR_UNSUPPORTED says that it must be, and `reason`
 * why.
 *
 * Memory that can't be exported (of pools, of the virtual memory API, managed) is offered as a
 * window: memory of our own, through which the call goes slice by slice, in rounds. If one member
 * has a window all go in rounds; who has none moves nothing twice. Rounds use the two halves of the
 * windows in turn: while the kernels of one round work in one half, the result of the last round is
 * copied out of the other, and then the input of the next into it. So a member is ready for a round
 * when its kernel of the round before and its copies beside that are done.
 *
 * core_offer.c makes the offer, core_plan.c the plans and kernels, core_accel.c goes through the
 * states.
 */
#ifndef CORE_ACCEL_H
#define CORE_ACCEL_H

#include "core/core_agree.h"
#include "core/core_schedule.h"
#include "core/core_shape.h"
#include "core/core_stats.h"
#include "core/core_steps.h"
#include "gpu/gpu_scratch.h"

enum core_accel_state {
	CORE_ACCEL_READY,
	CORE_ACCEL_AGREE,
	CORE_ACCEL_FILL,
	CORE_ACCEL_MUSTER,
	CORE_ACCEL_RUN,
	CORE_ACCEL_MEET,
	CORE_ACCEL_LAST,
	CORE_ACCEL_DONE
};

/* A member's buffer as this process reaches it. */
struct core_reach {
	uint64_t address;
	struct gpu_mapping *mapping; /* NULL: this process's own, or not reached */
};

struct core_accel {
	enum core_accel_state state;
	struct core_comm *comm;
	uint64_t number; /* of the call on the communicator */
	struct core_shape shape;
	struct core_offer offer;
	struct core_agree agree;
	bool inside;   /* the brackets of gpu_ipc */
	bool launches; /* `launch` is open */
	bool running;  /* `steps` was begun, and is not known to have ended */
	bool copying;  /* the same of copies beside it */
	uint64_t dropped;
	struct gpu_stream *stream; /* NULL: this rank has no data */
	struct gpu_launch launch;
	struct gpu_stream *copies;   /* for those beside a kernel; NULL: no windows */
	struct gpu_scratch *scratch; /* for results that are moved last */
	struct gpu_scratch *window_in, *window_out; /* NULL: none; may be one and the same */
	/* Rounds over slices of `width` bytes of each block; 0: there is one, over everything. Odd
	 * rounds are `half` bytes further on in the windows. */
	uint64_t width, half, round, rounds;
	struct core_reach in[CORE_MAX_RANKS], out[CORE_MAX_RANKS];
	struct core_schedule *schedule; /* NULL: none was taken */
	const struct sched *sched;      /* of it */
	struct core_steps steps;        /* of the phase that is running, or was */
	int passed_to;  /* members, twice, that have been passed this rank's descriptors */
	bool truncates; /* some round's did */
	uint64_t spent[CORE_STATS_NUM_STAGES], since; /* ns, where statistics are wanted */
	enum util_status result;
	const char *reason; /* for staging; then the algorithm */
};

/*
 * Begin call `number` on `comm`, which may be NULL. UTIL_ERR_UNSUPPORTED: to be staged. Must be
 * finished in any case.
 */
enum util_status core_accel_start(struct core_accel *accel, const struct core_call *call,
				  struct core_comm *comm, uint64_t number);

/* Do what can be done now. UTIL_OK: done, and this process is past the call. UTIL_ERR_UNSUPPORTED:
 * to be staged, which all members do. Other errors: this process is past the call, which has
 * failed. */
enum util_status core_accel_progress(struct core_accel *accel);

void core_accel_finish(struct core_accel *accel);

/* The bytes of this rank's buffers, for statistics. */
uint64_t core_accel_bytes(const struct core_accel *accel);

/* What it waits for, in words, into `text`. */
void core_accel_describe(const struct core_accel *accel, char *text, size_t bytes);

/* ---- between the three files ---- */

/* Note why the call is to be staged. Returns UTIL_ERR_UNSUPPORTED. */
enum util_status core_accel_stage(struct core_accel *accel, const char *reason);

/* Look at the buffers of the shape, take what the call needs, and make the offer. */
enum util_status core_offer_make(struct core_accel *accel);

/* Choose the algorithm, take its schedule, and decide on the rounds, from all members' offers. */
enum util_status core_plan_make(struct core_accel *accel);

/* Begin this rank's steps: those of the round in the first phase; those of the second phase, for
 * all rounds, which concern its own memory. Sets `running` where there is something to do. */
enum util_status core_plan_begin(struct core_accel *accel);
enum util_status core_plan_begin_last(struct core_accel *accel);

/* Put on the stream of copies those of a round's slice between this rank's buffers and its windows.
 */
enum util_status core_plan_fill(struct core_accel *accel, uint64_t round);
enum util_status core_plan_drain(struct core_accel *accel, uint64_t round);

#endif
