/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library knows of a communicator that has an identity: one whose constructor was a
 * wrapped, collective call. Hangs on the communicator as an attribute, so it ends when MPI frees
 * the communicator.
 *
 * MPI has the collective calls of a communicator made one at a time, so the fields need no lock: a
 * thread that comes after another has been told so by the program.
 */
#ifndef CORE_COMM_H
#define CORE_COMM_H

#include "core/core_arena.h"
#include "core/core_board.h"

enum { CORE_COMM_KNOWN_EXPORTS = 16 };

struct core_schedule;

enum core_together { CORE_TOGETHER_UNKNOWN, CORE_TOGETHER_YES, CORE_TOGETHER_NO };

struct core_comm {
	uint64_t id;                  /* unique in the job */
	struct core_board_slot *slot; /* NULL: nobody counts */
	void *area;                   /* for the agreement; NULL: every call is staged */
	const char *no_area;          /* then why */
	uint64_t calls;               /* collective calls of this process that have begun */
	uint64_t all_passed;          /* all members are past the calls below this number */
	int rank, size;
	bool accelerated; /* a call has been */
	bool retired;     /* its calls are not counted any more */
	bool in_real;     /* a call of the real MPI has begun and has not come back well */
	/* What the last votes made sure of: the allocations of this process that the others have
	 * mapped (core_comm_knows), and the context in which, and the moment (gpu_ipc_dropped) at
	 * which, it mapped theirs.
	 */
	uint64_t known_exports[CORE_COMM_KNOWN_EXPORTS];
	unsigned next_known;
	unsigned long long context_id;
	uint64_t dropped;
	struct core_schedule *schedules; /* see core_schedule.h */
	struct core_arena arena;
	bool wants_links; /* ranks don't reach each other's memory: next time with arenas */
	/* What the last vote said: whose memory of each kind a rank reaches, a bit for each. */
	uint64_t reach[GPU_TRANSPORT_NUM][GPU_MAX_PEERS];
	uint32_t ll_flag;            /* the last one used; all members have the same */
	enum core_together together; /* whether kernels of ranks that share a GPU run so */
	bool links_failed;           /* a call with messages did, here */
	unsigned complained;         /* a bit for each kind of complaint */
	int local_ranks[]; /* of each member, among the node's processes, where all are on the node
			    */
};

/*
 * Whether the communicator of `size` processes, of which `local_members` are on this node, is to
 * have a slot on the board. One process takes it, by core_comm_take_slot, before it tells the
 * others the id; what it returns they are told too, so that all are of one mind.
 */
bool core_comm_wants_slot(int size, uint32_t local_members);
bool core_comm_take_slot(uint64_t id, uint32_t members);

/*
 * Make the state of the communicator. `has_slot`: a slot was taken for it. `local_ranks`: of the
 * members. NULL: out of memory.
 */
struct core_comm *core_comm_create(uint64_t id, int rank, int size, uint32_t local_members,
				   const int *local_ranks, bool has_slot);
void core_comm_destroy(struct core_comm *comm);

/* The allocations of this process that all other members have mapped, by buffer id. Learning 0 does
 * nothing; of more than are kept the oldest are forgotten. */
bool core_comm_knows(const struct core_comm *comm, uint64_t buffer_id);
void core_comm_learn(struct core_comm *comm, uint64_t buffer_id);
void core_comm_forget(struct core_comm *comm);

#endif
