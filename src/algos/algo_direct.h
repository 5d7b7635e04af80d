/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct algorithms: between arrival and completion each rank makes one pass over its own and the
 * others' buffers, all of which it can reach.
 *
 * When: all ranks are on one node and have mapped what they need of each other. Cost: no byte is
 * read or written twice; a rank waits for the others twice (all have arrived; all are done).
 *
 *     allreduce       two-shot: rank r reduces part r of all inputs and writes it to all
 *                     outputs. In place it needs no scratch: rank r alone touches part r.
 *                     one-shot: each rank reduces everything for itself. Not in place, where
 *                     an input may be overwritten before another rank has read it.
 *
 *     reduce          as two-shot; the root's output is the only one
 *
 *     reduce_scatter  rank r reduces block r of all inputs into its output. In place that is
 *                     another's input, so it goes through scratch and is moved last.
 *
 *     gather          each rank pushes its block to the root
 *
 *     bcast, scatter, allgather, alltoall
 *                     each rank pulls what is for it; an alltoall in place is swaps: the two
 *                     of each pair exchange a half of their blocks each
 *
 * This is arithmetic on ranks, offsets and bytes: a plan says which rank moves which bytes, of
 * buffers that are named by their owner. Offsets are from the address that the owner gave to MPI.
 */
#ifndef ALGO_DIRECT_H
#define ALGO_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

enum { ALGO_MAX_RANKS = 64 };

enum algo_buffer { ALGO_IN, ALGO_OUT, ALGO_SCRATCH };

/* Where something begins. */
struct algo_place {
	int rank;
	enum algo_buffer buffer;
	int64_t offset;
};

/* Some bytes of a buffer. */
struct algo_block {
	int64_t offset;
	uint64_t bytes;
};

struct algo_move {
	struct algo_place to, from;
	uint64_t bytes;
};

enum algo_kind { ALGO_NOTHING, ALGO_REDUCE, ALGO_COPY, ALGO_SWAP };

/* What one rank does. */
struct algo_plan {
	const char *name;
	enum algo_kind kind;
	uint64_t bytes; /* to write: for a reduction to each target */
	/* ALGO_REDUCE: all sources, in the order of the ranks, into all targets. */
	int num_sources, num_targets;
	struct algo_place sources[ALGO_MAX_RANKS], targets[ALGO_MAX_RANKS];
	/* ALGO_COPY and ALGO_SWAP: no two overlap. */
	int num_moves;
	struct algo_move moves[ALGO_MAX_RANKS];
	struct algo_move last; /* in this rank's own memory, when all are done; bytes 0: nothing */
	bool truncates;        /* a sender's block is longer than its receiver's: it was cut */
};

/*
 * Allreduce of `bytes` bytes, two-shot. The size of an element divides 16. Parts are multiples of
 * 16 bytes and of 8 KiB at least, so with few bytes some ranks have nothing to do.
 */
void algo_allreduce(struct algo_plan *plan, int rank, int ranks, uint64_t bytes);
void algo_allreduce_oneshot(struct algo_plan *plan, int rank, int ranks, uint64_t bytes);
void algo_reduce(struct algo_plan *plan, int rank, int ranks, int root, uint64_t bytes);

/* Reduce_scatter: `mine` is the block of the inputs whose result is this rank's. */
void algo_reduce_scatter(struct algo_plan *plan, int rank, int ranks, struct algo_block mine,
			 bool in_place);

/*
 * Copies between the ranks' inputs and outputs. `mine[i]` is the block of this rank's buffer that
 * it exchanges with rank i, and `theirs[i]` that of rank i's buffer; of 0 bytes where there is
 * nothing. pull: from their inputs to this output; push: from this input to their outputs; swap:
 * both outputs, without this rank's own block.
 */
void algo_pull(struct algo_plan *plan, int rank, int ranks, const struct algo_block *theirs,
	       const struct algo_block *mine);
void algo_push(struct algo_plan *plan, int rank, int ranks, const struct algo_block *theirs,
	       const struct algo_block *mine);
void algo_swap(struct algo_plan *plan, int rank, int ranks, const struct algo_block *theirs,
	       const struct algo_block *mine);

#endif
