/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library knows of a communicator that has an identity: one whose constructor was a
 * wrapped, collective call. Hangs on the communicator as an attribute, so it ends when MPI frees
 * the communicator.
 *
 * MPI has the collective calls of a communicator made one at a time, so the fields need no lock: a
 * thread that comes after another has been told so by the program. While nonblocking calls are in
 * its queue the fields are those of who drives it, but `calls`, which is the caller's.
 */
#ifndef CORE_COMM_H
#define CORE_COMM_H

#include "core/call/core_call.h"
#include "core/call/core_reason.h"
#include "core/comm/core_known.h"
#include "core/comm/core_note.h"
#include "core/job/core_mpi_job.h"
#include "gpu/kernels/gpu_program.h"

struct core_arena;
struct core_checks;
struct core_choices;
struct core_graph;
struct core_journal_comm;
struct core_queued;
struct core_schedule;
struct core_nodes;
struct core_wire;

/*
 * What of another's memory a rank reaches: its arenas, of each enum gpu_transport, and its buffers;
 * whether what it reaches of another device works, and whether it was not seen to lose bytes, which
 * what can't be mapped was not either (core_proof.h).
 */
enum {
	CORE_REACH_BUFFERS = GPU_NUM_SHARED,
	CORE_REACH_PROVEN,
	CORE_REACH_HONEST,
	CORE_NUM_REACHES
};

/* Members of a communicator, at most: all of them, and those on one node. */
enum { CORE_MAX_RANKS = 1024, CORE_MAX_NEAR = GPU_MAX_PEERS };

/* Instead of the number of a member on this node: it is on another. */
enum { CORE_FAR = GPU_PEER_FAR };

/*
 * What a probe has shown. LATE, in the call of the probe only: some had not begun when others gave
 * up. Of several answers the highest counts.
 */
enum core_together {
	CORE_TOGETHER_UNKNOWN,
	CORE_TOGETHER_YES,
	CORE_TOGETHER_NO,
	CORE_TOGETHER_LATE
};

/* Nonblocking calls that wait for the path, oldest first; see core_queue.h. */
struct core_comm_queue {
	struct core_queued *head, *tail;
	struct core_comm *next; /* of those with something in it */
	bool closed;            /* nonblocking calls are made at once; all members have the same */
	/* MPI has no such communicator any more: no call is to be made on it. What ends it; or
	 * NULL. */
	void (*end)(struct core_comm *comm);
};

/* What the last votes made sure of; see core_reach.h and core_proof.h. Members here are numbered.
 */
struct core_comm_voted {
	struct core_known known; /* allocations of this process that the others have mapped */
	/* The context in which, and the moment (gpu_ipc_dropped) at which, it mapped theirs. */
	unsigned long long context_id;
	uint64_t dropped;
	/* Of each member, by its number: whose memory of each kind it reaches, a bit for each. */
	uint64_t reach[CORE_NUM_REACHES][CORE_MAX_NEAR];
	int failed;       /* in a row, in which this process could not map something for now */
	bool proven;      /* who of the members' devices can be believed is known */
	bool shows_cards; /* the next call is to try it in any case */
};

/* For calls with messages; see core_links.h and core_together.h. */
struct core_comm_links {
	bool wanted;                 /* next time with arenas */
	bool shm_wanted;             /* also in host memory: ranks don't reach each other's */
	bool failed;                 /* a call with messages did, here */
	bool flags_moved;            /* their places have other data in them, on some rank */
	uint32_t ll_flag;            /* the last one used in LL; all members have the same */
	size_t most_arena;           /* bytes that will do for an arena; 0: nobody knows */
	uint64_t room;               /* bytes of arenas that the last call with messages used */
	enum core_together together; /* whether kernels of ranks that share a GPU run so */
	int late_probes; /* in which some were late; all members on the node have the same */
};

/* See core_mixed.h. */
struct core_comm_mixed {
	uint8_t gave_way[CORE_COLL_NUM]; /* of each collective, how many calls in a row */
};

struct core_comm {
	uint64_t id; /* unique in the job */
	/* See core_comm_draw_for. */
	uint64_t of;
	core_handle real;
	struct core_board_slot *slot; /* NULL: nobody counts */
	void *area;                   /* for the agreement; NULL: every call is staged */
	enum core_reason no_area;     /* then why */
	uint64_t calls;               /* collective calls of this process that have begun */
	/* For core_journal.h: the same, with those that carry no data; and of enqueued ones. */
	uint64_t made, enqueued;
	struct core_journal_comm *shown; /* NULL: it is not in the journal */
	struct core_note blocking;       /* of the last call that waits */
	uint64_t all_passed;             /* all members are past the calls below this number */
	int rank, size;
	bool accelerated; /* a call has been */
	bool lost;        /* a member's process has ended, or can't be reached: known here */
	bool told_loss;   /* ... and told to the other nodes */
	bool warned;      /* ... and the application, of a call that failed for it */
	bool retired;     /* its calls are not counted any more */
	bool in_real;     /* inside a call of the real MPI, or left it by a jump */
	struct core_comm_voted voted;
	struct core_comm_links links;
	struct core_comm_mixed mixed;
	struct core_schedule *schedules; /* see core_schedule.h */
	struct core_choices *choices;    /* see core_choices.h */
	struct core_arena *arena;        /* see core_arena.h; its own */
	bool standing;                   /* enqueued calls': see core_standing.h */
	unsigned complained;             /* a bit for each kind of complaint */
	int num_nodes, node; /* nodes of the members, in order of their lowest ranks; ours */
	int *nodes;          /* of each member: which of them */
	int *speakers;       /* of each node: its lowest rank */
	int num_near;        /* members on this node, who are numbered from 0 on; then: */
	int *near;           /* their ranks, in order */
	int *numbers;        /* of each member: its number, or CORE_FAR */
	bool neighbors;      /* some nodes are on one machine, and may use the same GPU */
	bool spans;          /* calls over several nodes are accelerated; then: */
	struct core_nodes *agreement; /* see core_nodes.h */
	struct core_wire *wire;       /* see core_wire.h */
	struct core_comm *next;       /* see core_mail.h */
	struct core_comm *older;      /* of all that there are */
	struct core_graph *graph;     /* see core_graph.h; NULL: it has none */
	struct core_checks *check;    /* see core_mpi_check.h; NULL: its calls are not checked */
	struct core_comm_queue queue;
	struct core_member members[];
};

/* Whether the members are on several nodes. */
bool core_comm_spans(int size, const struct core_member *members);

/* How many members are on this node. */
uint32_t core_comm_count_near(int size, const struct core_member *members);

/* How many are on the fullest one. */
int core_comm_most_on_a_node(int size, const struct core_member *members);

/* What is known of the communicator of these processes alone. NULL: no memory. */
struct core_comm *core_comm_new(uint64_t id, int rank, int size, const struct core_member *members);
void core_comm_free(struct core_comm *comm);

/*
 * Whether the communicator, which had this id, has not been freed. An error handler of the
 * application may do so in a call of the real MPI that fails. Any thread.
 */
bool core_comm_is_there(const struct core_comm *comm, uint64_t id);

/* Whether the member is on this node. Its number among the members there, then. */
static inline bool core_comm_is_near(const struct core_comm *comm, int rank)
{
	return comm->members[rank].local_rank >= 0;
}
static inline int core_comm_number(const struct core_comm *comm, int rank)
{
	return comm->numbers[rank];
}

/* The number that such a member has among all the node's processes. */
static inline int core_comm_local_rank(const struct core_comm *comm, int rank)
{
	return comm->members[rank].local_rank;
}

/*
 * It was drawn for calls of another, which the MPI has, by that one's id; `real` is the MPI's
 * communicator on which they may be made. 0: there is none. And all that were so for the one with
 * the id, under a lock. Any thread.
 */
void core_comm_draw_for(struct core_comm *comm, uint64_t id, core_handle real);
void core_comm_visit_drawn(uint64_t id, void (*visit)(struct core_comm *comm, void *argument),
			   void *argument);

/* Whether this process is the one that speaks for its node. */
static inline bool core_comm_speaks(const struct core_comm *comm)
{
	return comm->speakers[comm->node] == comm->rank;
}

#endif
