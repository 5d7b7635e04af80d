/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The accelerated path: one call carried out by kernels over mapped memory of all members.
 *
 *     READY    earlier work on the buffers (late memset and such) finishes
 *     AGREE    the offer is announced; the members' offers are looked at; their memory is mapped
 *     FILL     windows only: the first round's slice of the input is copied into the window
 *     MUSTER   windows only: until all members are ready for the round
 *     TRY      before a fused call, once: do the kernels of ranks that share a GPU run together?
 *     RUN      this rank's kernel; with windows, those of all rounds in turn
 *     MEET     until all are past the call, where ranks reach into others' memory
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
 * core_offer.c makes the offer, core_plan.c chooses and fills in the program, core_links.c has what
 * messages need, core_accel.c goes through the states.
 */
#ifndef CORE_ACCEL_H
#define CORE_ACCEL_H

#include "core/core_agree.h"
#include "core/core_proof.h"
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
	CORE_ACCEL_TRY,
	CORE_ACCEL_RUN,
	CORE_ACCEL_MEET,
	CORE_ACCEL_LAST,
	CORE_ACCEL_DONE
};

/* A buffer of a member on this node as this process reaches it. */
struct core_reach {
	uint64_t address;
	struct gpu_mapping *mapping; /* NULL: this process's own, or not reached */
	bool took;                   /* the descriptor that came for it, in a vote */
};

struct core_accel {
	enum core_accel_state state;
	struct core_comm *comm;
	uint64_t number; /* of the call on the communicator */
	struct core_shape shape;
	struct core_offer offer;
	struct core_agree agree;
	struct core_summary common; /* of all members' offers, once all have announced them */
	bool inside;                /* the brackets of gpu_ipc */
	bool launches;              /* `launch` is open */
	bool running;               /* `steps` was begun, and is not known to have ended */
	bool copying;               /* the same of copies beside it */
	uint64_t dropped;
	struct gpu_stream *stream; /* NULL: this rank has no data */
	struct gpu_launch launch;
	struct gpu_stream *copies;   /* for those beside a kernel; NULL: no windows */
	struct gpu_scratch *scratch; /* for results that are moved last */
	struct gpu_scratch *window_in, *window_out; /* NULL: none; may be one and the same */
	/*
	 * Rounds over slices of `width` bytes of each block; 0: there is one, over everything. Odd
	 * rounds are `half` bytes further on in the windows.
	 */
	uint64_t width, half, round, rounds;
	/*
	 * By the members' numbers on this node; and whose memory of a kind was mapped, a bit for
	 * each.
	 */
	struct core_reach in[CORE_MAX_NEAR], out[CORE_MAX_NEAR];
	struct core_reach arenas[GPU_NUM_SHARED][CORE_MAX_NEAR], cards[CORE_MAX_NEAR];
	uint64_t reach[CORE_NUM_REACHES];
	struct core_proof proof;
	bool clearing; /* this rank's arena; before the offer */
	int sharers;   /* of the GPU; 0: no kernel of this process's may wait there */
	bool reserved; /* the GPU's room for a kernel that waits */
	bool tries;    /* whether kernels run together is to be tried */
	bool waits;    /* as it was last left: for something that is to come */
	unsigned polls;
	uint64_t moves;                 /* changes of state */
	uint64_t failed_at;             /* ns, when other nodes began to be told; 0: not yet */
	bool broken_off;                /* connections, as UCX would not let go of buffers */
	uint64_t messages;              /* of a link, fewer than so many */
	uint64_t scratch_start;         /* in the arena, of the schedule's scratch blocks */
	bool linked;                    /* the schedule has links */
	bool touches;                   /* ranks reach into others' buffers */
	enum sched_proto proto;         /* by which they are to go */
	bool fetching;                  /* the copy of core_eager.h has begun */
	bool eager;                     /* inputs come from there */
	bool scattered;                 /* a buffer is not in one allocation */
	bool plain;                     /* buffers are in what cuMemAlloc gives */
	bool gdr;                       /* UCX moves device memory, of who has it do so */
	size_t eager_used;              /* of the room for them */
	struct core_schedule *schedule; /* NULL: none was taken */
	const struct sched *sched;      /* of it */
	struct core_steps steps;        /* of the phase that is running, or was */
	uint64_t missed_at;             /* ns, when a descriptor was first missed; 0: not yet */
	int passed_to;  /* members, once for each region, that were passed its descriptor */
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

/*
 * Do what can be done now. UTIL_OK: done, and this process is past the call. UTIL_ERR_UNSUPPORTED:
 * to be staged, which all members do. Other errors: this process is past the call, which has
 * failed.
 */
enum util_status core_accel_progress(struct core_accel *accel);

void core_accel_finish(struct core_accel *accel);

/* Grows as the call goes on; not while it only waits. */
uint64_t core_accel_moves(const struct core_accel *accel);

/* The bytes of this rank's buffers, for statistics. */
uint64_t core_accel_bytes(const struct core_accel *accel);

/* What it waits for, in words, into `text`. */
void core_accel_describe(const struct core_accel *accel, char *text, size_t bytes);

/* ---- between the four files ---- */

/* Note why the call is to be staged. Returns UTIL_ERR_UNSUPPORTED. */
enum util_status core_accel_stage(struct core_accel *accel, const char *reason);

/* Look at the buffers of the shape, take what the call needs, and make the offer. */
enum util_status core_offer_make(struct core_accel *accel);

/* The collective as schedules know it. */
enum sched_coll core_plan_coll(enum core_coll coll);

/*
 * Who has something for whom in such a call of the communicator, where that is not all. NULL: all
 * for all, or as the collective says.
 */
const struct sched_pairs *core_plan_pairs(const struct core_comm *comm, enum core_coll coll);

/*
 * Whether the configuration wishes for an algorithm that takes links; and whether the collective's
 * blocks may differ in size.
 */
bool core_plan_wants_links(enum core_coll coll);
bool core_plan_sizes_differ(enum core_coll coll);

/*
 * Choose the algorithm, take its schedule, and decide on the rounds, from all members' offers.
 * UTIL_ERR_UNSUPPORTED: it can't be done, which all find alike, and is to be staged.
 */
enum util_status core_plan_make(struct core_accel *accel);

/*
 * Begin this rank's steps: those of the round in the first phase; those of the second phase, for
 * all rounds, which concern its own memory. Sets `running` where there is something to do.
 */
enum util_status core_plan_begin(struct core_accel *accel);
enum util_status core_plan_begin_last(struct core_accel *accel);

/*
 * Put on the stream of copies those of a round's slice between this rank's buffers and its windows.
 */
enum util_status core_plan_fill(struct core_accel *accel, uint64_t round);
enum util_status core_plan_drain(struct core_accel *accel, uint64_t round);

/* How the links between this rank and another go. */
enum gpu_transport core_links_transport(const struct core_comm *comm, int rank);

/* Whether all ranks, which are on this node, reach each other's memory of the kind. */
bool core_links_all_reach(const struct core_comm *comm, int kind);

/*
 * What an arena of so many bytes has for messages of the communicator's calls, by GPUDirect or not.
 */
struct sched_room core_links_room(const struct core_comm *comm, size_t arena, bool gdr);

/* Why there can be none in this call; NULL: there can. All come to the same answer. */
const char *core_links_refuse(const struct core_accel *accel);

/*
 * Whether there can be links between all ranks of this node, and whether they reach each other's
 * buffers, after a vote or without one.
 */
bool core_links_are_whole(const struct core_accel *accel);
bool core_links_are_mapped(const struct core_accel *accel);

/*
 * After a schedule with links was taken: what must be tried first, whether there is room for its
 * messages. Returns a reason, or NULL, as above.
 */
const char *core_links_make(struct core_accel *accel);

/*
 * Whether kernels may wait, as far as that is known without a schedule; and whether both ends of a
 * message know its size. All come to the same answers.
 */
bool core_links_may_fuse(const struct core_accel *accel);
bool core_links_know_sizes(const struct core_accel *accel);

/*
 * Start the probe; and, once that is over, decide whether kernels or hosts wait for messages, and
 * by which protocol they go.
 */
enum util_status core_links_try(struct core_accel *accel);
void core_links_decide(struct core_accel *accel);

/*
 * What the probe has shown: where some were late a later call tries again, a few times; and whether
 * one has shown that kernels of ranks that share a GPU do not run together.
 */
void core_links_set_together(struct core_comm *comm, enum core_together together);
bool core_links_are_apart(void);

/* Add what a launch with links needs to its arguments. */
void core_links_set_args(struct core_accel *accel);

/*
 * What is to come from other nodes has not come for a while: have it found out if who sends it is
 * lost.
 */
void core_links_miss(const struct core_accel *accel);

/* A schedule with links, and how it is carried out, in words that live as long as the program. */
const char *core_plan_linked_name(const struct core_accel *accel);

/* Warn, once for a communicator and kind, about something that was asked for and can't be. */
enum core_complaint { CORE_COMPLAINT_ALGO, CORE_COMPLAINT_EXEC, CORE_COMPLAINT_PROTO };
void core_plan_complain(const struct core_accel *accel, enum core_complaint kind,
			const char *option, const char *value, const char *why);

#endif
