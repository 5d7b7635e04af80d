/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One accelerated call on its way (core_accel.h), as the files that carry it out see it:
 * core_prepare.c makes the offer, core_plan.c chooses and fills in the program, core_links.c has
 * what messages need, core_accel.c goes through the states.
 */
#ifndef CORE_ACCEL_CALL_H
#define CORE_ACCEL_CALL_H

#include "core/accel/core_rounds.h"
#include "core/agree/core_agree.h"
#include "core/agree/core_facts.h"
#include "core/call/core_reason.h"
#include "core/call/core_shape.h"
#include "core/comm/core_note.h"
#include "core/exec/core_schedule.h"
#include "core/exec/core_walk.h"
#include "core/report/core_spent.h"
#include "gpu/gpu_scratch.h"
#include "gpu/kernels/gpu_verify.h"

enum core_accel_state {
	CORE_ACCEL_OFFER,
	CORE_ACCEL_SLOT,
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

enum core_proof_state {
	CORE_PROOF_NONE,
	CORE_PROOF_VISIT, /* the others' memory is being written and read */
	CORE_PROOF_WAIT,  /* until the others have done so */
	CORE_PROOF_LOOK,  /* at what they have left */
	CORE_PROOF_DONE
};

/* Of a call that may vote. Members are bits, by their numbers on this node. */
struct core_proof {
	enum core_proof_state state;
	bool busy;      /* the stream has work of it */
	uint64_t with;  /* whom it is tried with */
	uint64_t wrong; /* of whom something was not as it should be */
	unsigned char card[GPU_CARD_BYTES];
};

/* A buffer of a member on this node as this process reaches it. */
struct core_reach {
	uint64_t address;
	struct gpu_mapping *mapping; /* NULL: this process's own, or not reached */
	bool took;                   /* the descriptor that came for it, in a vote */
};

/* What this process reaches of the members on this node, by their numbers there; core_reach.h. */
struct core_accel_reached {
	struct core_reach in[CORE_MAX_NEAR], out[CORE_MAX_NEAR];
	struct core_reach arenas[GPU_NUM_SHARED][CORE_MAX_NEAR], cards[CORE_MAX_NEAR];
	uint64_t kinds[CORE_NUM_REACHES]; /* whose memory of a kind was mapped, a bit for each */
	uint64_t dropped;
	uint64_t missed_at; /* ns, when a descriptor was first missed; 0: not yet */
	bool told;          /* that it has not come */
	bool refused;       /* one that was sent did not get to where a member lives */
	int passed_to;      /* members, once for each region, that were passed its descriptor */
};

/* What goes through windows; core_window.h. */
struct core_accel_windows {
	struct gpu_scratch *in, *out; /* NULL: none; may be one and the same */
	struct gpu_stream *copies;    /* for those beside a kernel; NULL: no windows */
	bool copying;                 /* they were begun, and are not known to have ended */
	struct core_rounds rounds;
	uint64_t round; /* which is on its way */
};

/* Inputs that came with the agreement; core_eager.h. */
struct core_accel_eager {
	bool fetching; /* the copy of this rank's has begun */
	bool taken;    /* inputs come from there */
	size_t used;   /* of the room for them */
};

/* Messages of the schedule's links; core_links.h. */
struct core_accel_links {
	enum sched_proto proto; /* by which they are to go */
	bool tries;             /* whether kernels run together is to be tried */
	uint64_t messages;      /* of a link, fewer than so many */
	uint64_t scratch_start; /* in the arena, of the schedule's scratch blocks */
};

struct core_accel {
	enum core_accel_state state;
	struct core_comm *comm;
	uint64_t number;              /* of the call on the communicator */
	const struct core_note *note; /* NULL: it has none */
	struct core_shape shape;
	struct core_offer offer;
	struct core_agree agree;
	struct core_facts facts; /* once it is agreed on */
	bool nonblocking;
	bool withdrawn;            /* this process has no time for it */
	bool ready;                /* earlier work on the buffers is done; until then, perhaps: */
	struct gpu_stream *marks;  /* see core_ready.h */
	bool inside;               /* the brackets of gpu_ipc */
	bool launches;             /* `launch` is open */
	bool running;              /* `steps` was begun, and is not known to have ended */
	struct gpu_stream *stream; /* NULL: this rank has no data */
	struct gpu_launch launch;
	struct gpu_scratch *scratch;     /* for results that are moved last */
	struct gpu_staging_block *times; /* of kernels' steps, see core_times.h; NULL: none */
	struct core_accel_reached reached;
	struct core_accel_windows windows;
	struct core_accel_eager eager;
	struct core_accel_links links;
	struct core_proof proof;
	bool clearing; /* this rank's arena; before the offer */
	int sharers;   /* of the GPU; 0: no kernel of this process's may wait there */
	bool reserved; /* the GPU's room for a kernel that waits */
	bool waits;    /* the last progress ended waiting */
	unsigned polls;
	uint64_t moves;                 /* changes of state */
	uint64_t failed_at;             /* ns, when other nodes began to be told; 0: not yet */
	bool broken_off;                /* connections, as UCX would not let go of buffers */
	bool linked;                    /* the schedule has links */
	bool touches;                   /* ranks reach into others' buffers */
	bool scattered;                 /* a buffer is not in one allocation */
	bool passes_descriptors;        /* they get to all members on this node */
	bool plain;                     /* buffers are in what cuMemAlloc gives */
	bool gdr;                       /* UCX moves device memory, of who has it do so */
	struct core_schedule *schedule; /* NULL: none was taken */
	const struct sched *sched;      /* of it */
	struct core_steps steps;        /* of the phase that is running, or was */
	bool truncates;                 /* some round's did */
	uint64_t spent[CORE_STATS_NUM_STAGES], since; /* ns, where statistics are wanted */
	enum util_status result;
	const char *reason; /* the text of that for staging; then the algorithm */
};

/* Note why the call is to be staged. Returns UTIL_STAGE. */
enum util_status core_accel_stage(struct core_accel *accel, enum core_reason reason);

/* Above all that the words of messages count of earlier calls on the communicator. */
static inline uint64_t core_accel_epoch(const struct core_accel *accel)
{
	return (accel->number + 1) << GPU_EPOCH_SHIFT;
}

/*
 * A rank that has failed goes on through the states without doing anything, for the others' sake.
 */
static inline void core_accel_keep(struct core_accel *accel, enum util_status status)
{
	if (accel->result == UTIL_OK)
		accel->result = status;
}

#endif
