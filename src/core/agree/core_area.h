/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is where in a communicator's area on the board (core_board.h), for the files that agree and
 * meet there: core_agree.c and core_meet.c say who writes, who reads, and what the pairs order.
 */
#ifndef CORE_AREA_H
#define CORE_AREA_H

#include "core/agree/core_summary.h"
#include "core/call/core_shape.h"
#include "core/comm/core_board.h"
#include "core/comm/core_comm.h"
#include "core/job/core_mpi_job.h"
#include "util/util_cache.h"

#include <stdatomic.h>

enum { CORE_AGREE_SLOTS = 4 };

/* Words by which hosts order the steps of an accelerated call, see core_meet_tell. */
enum core_meet_words { CORE_MEET_TAILS, CORE_MEET_HEADS, CORE_MEET_NUM_WORDS };

/* Of one member; it alone writes here. */
struct core_area_desk {
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t announced; /* the call, + 1 */
	_Atomic uint64_t voted;                               /* the call, + 1: yes */
	uint64_t reach[CORE_NUM_REACHES];                     /* with that */
	struct core_offer offer;
};

/*
 * The call, + 1, in the upper bits and the decision in the lower ones: one word, so that a decision
 * can't be taken for that of another call.
 */
struct core_area_slot {
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t word;
	/* Of all nodes; writer: who settles it, before; readers: who sees CORE_AGREE_ACCEL. */
	struct core_summary common;
};

/* First in the area, for communicators of several nodes. */
struct core_area_far {
	/* See core_promise.h: the last calls, + 1, that were promised, the latest one first. */
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t ready[CORE_BOARD_REMEMBERED];
	_Atomic uint64_t decided; /* there, too: the last nonblocking call */
	/* Of the calls of each slot: the last one, + 1, in which a member elsewhere failed. */
	_Atomic uint64_t failed[CORE_AGREE_SLOTS];
	/*
	 * A member was lost. Writers: who finds that, or is told of it by another node; set once.
	 * Readers: all that wait.
	 */
	_Alignas(UTIL_CACHE_LINE) _Atomic bool lost;
	/* It was revoked. Writers: who sets `lost` for that, before; readers: who has seen `lost`.
	 */
	_Atomic bool revoked;
};

/* Then, of each member; it alone writes here. */
struct core_area_progress {
	/*
	 * Of the calls of each slot: the last one, + 1, in which it failed. So a failure in the
	 * next call is none in this one, of which a member may still ask.
	 */
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t failed[CORE_AGREE_SLOTS];
	/*
	 * The last point at which it arrived, with the call, + 1, in the upper bits: it only grows.
	 */
	_Atomic uint64_t arrived;
	/*
	 * The last call, + 1, in which it tried whether kernels run together, above the answer, of
	 * TRIED_BITS.
	 */
	_Atomic uint64_t tried;
	/* The last call, + 1, in whose vote it left its cards with the others. */
	_Atomic uint64_t shown;
	/* The last call, + 1, in which it cut what came for another. */
	_Atomic uint64_t cut;
};

/* Then, for each member, what CORE_MEET_TAILS and CORE_MEET_HEADS count. Others write here. */
struct core_area_links {
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t words[CORE_MEET_NUM_WORDS][GPU_MAX_LINKS];
};

/*
 * Bytes of a slot's area on the board of a node of `local_size` processes, for a communicator of
 * `size` members, `near` of them there; `records`: with room for those of core_record.h.
 */
size_t core_area_bytes(int local_size, int near, int size, bool records);

/* The table of a member on this node, which has a block for each member. */
struct core_block *core_area_table_of(const struct core_comm *comm, uint64_t call, int rank);

/* The record of any member, of at most core_area_record_bytes, 16-byte aligned. */
void *core_area_record_of(const struct core_comm *comm, uint64_t call, int rank);

/* Room for a record. */
size_t core_area_record_bytes(const struct core_comm *comm);

/* ---- where things are; inline, as every look of the agreement comes here ---- */

/* Bytes of the words of links. */
static inline size_t core_area_links_bytes(int local_size)
{
	return (size_t)local_size * sizeof(struct core_area_links);
}

/* Bytes of what comes before the slots. */
static inline size_t core_area_progress_bytes(int local_size)
{
	return sizeof(struct core_area_far) +
	       (size_t)local_size * sizeof(struct core_area_progress) +
	       core_area_links_bytes(local_size);
}

/* Bytes of a slot's desks. */
static inline size_t core_area_desks_bytes(int local_size)
{
	return (size_t)local_size * sizeof(struct core_area_desk);
}

/* Bytes of a slot. */
static inline size_t core_area_slot_bytes(int local_size)
{
	size_t bytes = sizeof(struct core_area_slot) + core_area_desks_bytes(local_size);

	return (bytes + UTIL_CACHE_LINE - 1) / UTIL_CACHE_LINE * UTIL_CACHE_LINE;
}

/* A call's slot, of an area of a board of this node's processes. */
static inline struct core_area_slot *core_area_slot_of(const void *area, uint64_t call)
{
	int local_size = core_mpi_job.local_size;

	return (struct core_area_slot *)((char *)area + core_area_progress_bytes(local_size) +
					 call % CORE_AGREE_SLOTS *
						 core_area_slot_bytes(local_size));
}

/* The desk of a member on this node in the call's slot. */
static inline struct core_area_desk *core_area_desk_of(const struct core_comm *comm, uint64_t call,
						       int rank)
{
	struct core_area_slot *slot = core_area_slot_of(comm->area, call);

	return (struct core_area_desk *)(slot + 1) + core_comm_local_rank(comm, rank);
}

/* What is not of one call, nor of one member. */
static inline struct core_area_far *core_area_far_of(const void *area)
{
	return (struct core_area_far *)area;
}

/* What a member on this node says of its calls. */
static inline struct core_area_progress *core_area_progress_of(const struct core_comm *comm,
							       int rank)
{
	struct core_area_far *far = comm->area;

	return (struct core_area_progress *)(far + 1) + core_comm_local_rank(comm, rank);
}

/* The word of a link of a member on this node. */
static inline _Atomic uint64_t *core_area_link_word(const struct core_comm *comm, int rank,
						    enum core_meet_words words, unsigned link)
{
	struct core_area_progress *progress =
		(struct core_area_progress *)(core_area_far_of(comm->area) + 1);
	struct core_area_links *links =
		(struct core_area_links *)(progress + core_mpi_job.local_size);

	return &links[core_comm_local_rank(comm, rank)].words[words][link];
}

#endif
