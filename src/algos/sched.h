/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A schedule: what every rank does in a collective, as data that can be proved, drawn, timed and
 * carried out.
 *
 * Chunks, not bytes. A collective has blocks, as MPI has them (one that all share in an allreduce,
 * one for each rank in an allgather); the schedule cuts each block into `pieces`. A chunk is a
 * piece of a block, or some that follow on each other, of any size, 0 too. A call larger than the
 * executor's slots goes through the schedule several times, in rounds, with a slice of each block
 * at a time.
 *
 * A lane is a list of steps that one rank carries out in order; what several lanes of a rank do is
 * not ordered, except through what they wait for, and all of them can run at a time, also those of
 * one channel. A step reads all its sources, combines them in their order with the collective's
 * operation if there are several, and writes the result to all its targets: to all places before
 * anybody can see any of its messages. Sources and targets are
 *
 * - places: a block of a buffer of this rank, or of another's, which is mapped then
 * - FIFOs: connections from one lane of one rank to one lane of another, with a few slots each; a
 *   step waits for a message in each of its sources and for room in each of its targets
 *
 * so the primitives that the literature names (send, recvReduceSend, readReduce, writeMany, see
 * sched_step_name) are all one kind of step. The other kind swaps two places.
 *
 * Phases: all ranks are done with a phase, in all rounds, before any begins the next one.
 *
 * Buffers: IN is only read; OUT may be the same memory where the call is in place; SCRATCH holds
 * `scratch_blocks` blocks for a round; HOLD has room for a block of the collective for the whole
 * call. Where a rank has only one of the communicator's blocks, that has the rank's number.
 */
#ifndef SCHED_H
#define SCHED_H

#include "algos/sched_pairs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sched_coll {
	SCHED_ALLREDUCE,
	SCHED_REDUCE,
	SCHED_REDUCE_SCATTER,
	SCHED_SCAN,
	SCHED_EXSCAN,
	SCHED_BCAST,
	SCHED_ALLGATHER,
	SCHED_GATHER,
	SCHED_SCATTER,
	SCHED_ALLTOALL,
	SCHED_NUM_COLLS
};

enum sched_buffer { SCHED_IN, SCHED_OUT, SCHED_SCRATCH, SCHED_HOLD, SCHED_NUM_BUFFERS };

/* What a schedule is made for. */
struct sched_request {
	enum sched_coll coll;
	int ranks;
	int root; /* 0 where there is none */
	bool in_place;
	/*
	 * Of one that reduces: contributions are combined one after the other in the order of
	 * ranks, ((0 + 1) + 2) + 3, so that results of floating point are the same whatever else
	 * the request says.
	 */
	bool ordered;
	int channels;     /* how many times the links are to be used side by side, from 1 on */
	int num_nodes;    /* 0: it is all the same */
	const int *nodes; /* then, of each rank: its node, all of which have some; lives as long */
	/*
	 * Of an alltoall, of two buffers, in which ranks have blocks only for some others; NULL:
	 * for all. Lives as long.
	 */
	const struct sched_pairs *pairs;
	/*
	 * Orders of all ranks, one after the other, in which each is near to the next; channels
	 * take them in turn. They live as long. 0: any order is as good as another.
	 */
	int num_rings;
	const int *rings;
	/*
	 * Of each rank the number of its GPU; lives as long. One of those that share a GPU then
	 * does the work of all, where that only touches buffers: of several kernels there each
	 * costs a launch, and, where they take turns, a change of contexts. NULL: each has its own.
	 */
	const int *gpus;
	/* Ranks also reach those buffers that only their own rank need touch (see algo.h). */
	bool all_mapped;
};

struct sched_operand {
	bool fifo;
	uint8_t buffer; /* enum sched_buffer, of a place */
	int32_t at;     /* the rank whose buffer it is, or the connection's number */
	int32_t block;  /* of a place */
};

struct sched_step {
	bool swap;           /* of the two sources; there are no targets then */
	int32_t piece, span; /* of all operands' blocks: the first piece, and how many there are */
	int32_t num_sources, num_targets;
	uint32_t first; /* operand: sources, then targets */
};

struct sched_lane {
	int32_t rank, phase, channel;
	uint32_t first, num; /* steps */
};

struct sched_connection {
	int32_t from, to;
};

struct sched {
	struct sched_request request;
	const char *name; /* of the algorithm */
	int pieces;
	int most_span; /* of a step */
	int scratch_blocks;
	bool holds;   /* HOLD is used */
	bool uniform; /* right only where all blocks have the same size */
	int phases;
	bool failed; /* there was no memory for it */
	uint32_t num_lanes, num_steps, num_operands, num_connections;
	uint32_t most_lanes, most_steps, most_operands, most_connections;
	struct sched_lane *lanes; /* by phase */
	struct sched_step *steps;
	struct sched_operand *operands;
	struct sched_connection *connections;
};

/* ---- making one ---- */

/* An empty schedule, of one piece and one phase; NULL: no memory. */
struct sched *sched_new(const struct sched_request *request);

/* Free it. NULL is allowed. */
void sched_free(struct sched *sched);

/*
 * Free all that is said of ranks' steps; what is left is what all of them have in common, and the
 * connections.
 */
void sched_forget_steps(struct sched *sched);

/* Add a connection. Returns its number; they are numbered from 0 on. */
int sched_connect(struct sched *sched, int from, int to);

/* What follows is in the next phase. */
void sched_next_phase(struct sched *sched);

/* What follows is a new lane of the rank. One without steps vanishes. */
void sched_lane(struct sched *sched, int rank, int channel);

/* Add a step to the lane; then come its sources, then its targets. */
void sched_step(struct sched *sched, int piece);

/* Add a source to the last step. */
void sched_from(struct sched *sched, struct sched_operand source);

/* Add a target to it. */
void sched_to(struct sched *sched, struct sched_operand target);

/* Add a step of one source and one target; more targets may follow. */
void sched_copy(struct sched *sched, int piece, struct sched_operand source,
		struct sched_operand target);

/* The same of two sources. */
void sched_reduce(struct sched *sched, int piece, struct sched_operand first,
		  struct sched_operand second, struct sched_operand target);

/* Add a step that exchanges two operands. */
void sched_swap(struct sched *sched, int piece, struct sched_operand a, struct sched_operand b);

/* Have the last step be about so many pieces, from its own on. */
void sched_widen(struct sched *sched, int span);

/* An operand: a block of a rank's buffer. */
struct sched_operand sched_place(enum sched_buffer buffer, int rank, int block);

/* An operand: the messages of a connection. */
struct sched_operand sched_fifo(int connection);

/* ---- looking at one ---- */

/* "allreduce". */
const char *sched_coll_name(enum sched_coll coll);
/* The collective of the name; -1: there is none. */
int sched_coll_of(const char *name);

/* Whether it combines data. */
bool sched_coll_reduces(enum sched_coll coll);

/* Whether it has a root. */
bool sched_coll_has_root(enum sched_coll coll);

/* Blocks that the collective is about: 1, or one for each rank. */
int sched_num_blocks(const struct sched_request *request);
/* The rank's own block, or the one that all share. */
int sched_own_block(const struct sched_request *request, int rank);
/* Who does the rank's work in memory: the first of those that share its GPU. */
int sched_worker(const struct sched_request *request, int rank);
/* Whether the rank's buffer, IN or OUT, has the block. */
bool sched_has_block(const struct sched_request *request, int rank, enum sched_buffer buffer,
		     int block);
/* Whether the call is in place for the rank: where there is a root, it is the root's matter. */
bool sched_is_in_place(const struct sched_request *request, int rank);

static inline const struct sched_operand *sched_sources(const struct sched *sched,
							const struct sched_step *step)
{
	return &sched->operands[step->first];
}

static inline const struct sched_operand *sched_targets(const struct sched *sched,
							const struct sched_step *step)
{
	return &sched->operands[step->first + (uint32_t)step->num_sources];
}

/* The lanes' numbers, by rank. NULL: no memory. The caller frees it. */
uint32_t *sched_sort_lanes(const struct sched *sched);

/* Whether the lane's steps touch other ranks' buffers. */
bool sched_is_remote(const struct sched *sched, const struct sched_lane *lane);

/* Whether some message stays within a node. */
bool sched_has_near_messages(const struct sched *sched);

/* Whether the connection leads to another node. */
bool sched_is_far(const struct sched *sched, const struct sched_connection *connection);

/* "IN" and so on. */
const char *sched_buffer_name(enum sched_buffer buffer);

/* What the literature calls the step of the lane's rank. */
const char *sched_step_name(const struct sched *sched, int rank, const struct sched_step *step);

/* A part of a block. */
struct sched_span {
	uint64_t offset, bytes;
};

/*
 * Of a block of `bytes` bytes cut into pieces that begin at multiples of `unit` and are nearly
 * alike.
 */
struct sched_span sched_span(uint64_t bytes, uint64_t unit, int pieces, int piece);

/* The same for `span` pieces that follow on each other. */
struct sched_span sched_range(uint64_t bytes, uint64_t unit, int pieces, int first, int span);

/*
 * Of what the pieces of a block are multiples, bytes. A reduction is worth a kernel from 8 KiB on,
 * so that with few bytes some ranks have nothing to do; other collectives only keep to 16-byte
 * accesses.
 */
uint64_t sched_unit(const struct sched *sched);

/* What a step is about, of a block of as many bytes. */
struct sched_span sched_chunk(const struct sched *sched, uint64_t bytes,
			      const struct sched_step *step);

#endif
