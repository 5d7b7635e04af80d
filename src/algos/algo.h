/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The catalogue of algorithms: which there are, for which collectives, under which restrictions, as
 * data. Each algorithm is a generator of schedules in a file of its own, whose head says when to
 * use it and what it costs.
 *
 * In the costs, n is the number of ranks, S the bytes of a rank's buffer (of one block where there
 * is one for each rank: B), and a message is one hop from rank to rank.
 */
#ifndef ALGO_H
#define ALGO_H

#include "algos/sched.h"

enum { ALGO_MOST_CHANNELS = 16, ALGO_FEW_RANKS = 256 };

/* Restrictions. */
enum algo_needs {
	/* Ranks reach each other's buffers. */
	ALGO_NEEDS_MAPPED = 1 << 0,
	/* Also buffers that only their own rank need touch: those that receive a bcast, or send in
	   a gather. */
	ALGO_NEEDS_ALL_MAPPED = 1 << 1,
	/* Not in place. */
	ALGO_NEEDS_TWO_BUFFERS = 1 << 2,
	/* An even number of ranks; a power of two. */
	ALGO_NEEDS_EVEN = 1 << 3,
	ALGO_NEEDS_POWER_OF_TWO = 1 << 4,
	/* Blocks of one size. */
	ALGO_NEEDS_UNIFORM = 1 << 5,
	/* Contributions are combined in another order than the ranks'. */
	ALGO_NEEDS_COMMUTATIVE = 1 << 6,
	/* Several nodes. */
	ALGO_NEEDS_NODES = 1 << 7,
	/* Ranks of a node reach each other's buffers; on some node there are several. */
	ALGO_NEEDS_NODES_MAPPED = 1 << 8,
	/* Ranks of a node follow each other. */
	ALGO_NEEDS_NODES_IN_ORDER = 1 << 9,
	/* ALGO_FEW_RANKS, or pairs of as many: there are steps for each pair. */
	ALGO_NEEDS_FEW_RANKS = 1 << 10,
	/* An exchange of all with all. */
	ALGO_NEEDS_ALL_PAIRS = 1 << 11,
	/* A number of ranks, or, with several nodes, of nodes, that is a product. */
	ALGO_NEEDS_GRID = 1 << 12,
	/* Contributions are combined in other groups than one after the other. */
	ALGO_NEEDS_ASSOCIATIVE = 1 << 13,
	/* A request for sums in order: others do better where the order does not count. */
	ALGO_NEEDS_ORDERED = 1 << 14,
};

struct algo {
	const char *name;
	unsigned colls; /* a bit for each enum sched_coll */
	unsigned needs; /* enum algo_needs */
	int slots;      /* of a FIFO, at least */
	void (*make)(struct sched *sched);
};

/* All there are; ended by one without a name. */
extern const struct algo algo_catalogue[];

/* Of the name for the collective; NULL: there is none. */
const struct algo *algo_find(const char *name, enum sched_coll coll);

/*
 * Why the algorithm can't do it, in words; NULL: it can. Blocks may differ in size: `sizes_differ`.
 * Operations other than commutative ones never get here.
 */
const char *algo_refuses(const struct algo *algo, const struct sched_request *request,
			 bool sizes_differ);

/*
 * The schedule for a request that the algorithm does not refuse. NULL: no memory. The caller frees
 * it.
 */
struct sched *algo_make(const struct algo *algo, const struct sched_request *request);

/* ---- for generators ---- */

/*
 * The order of the ring of a channel: the rank at a position, from 0 on, and the position of a
 * rank. Where the request has no rings, odd channels go round the other way, so that links are used
 * in both directions.
 */
int algo_ring_rank(const struct sched *sched, int channel, int position);
int algo_ring_position(const struct sched *sched, int channel, int rank);

/* The number modulo `modulus`, never negative. */
int algo_wrap(int number, int modulus);

/* A phase in which each rank moves its result from HOLD to OUT. */
void algo_move_results(struct sched *sched);

/* ---- the generators ---- */

void algo_bruck(struct sched *sched);
void algo_chain(struct sched *sched);
void algo_direct(struct sched *sched);
void algo_doubling(struct sched *sched);
void algo_exchange(struct sched *sched);
void algo_halving(struct sched *sched);
void algo_hier_halving(struct sched *sched);
void algo_hier_ring(struct sched *sched);
void algo_hier_torus(struct sched *sched);
void algo_hier_tree(struct sched *sched);
void algo_linear(struct sched *sched);
void algo_neighbor_exchange(struct sched *sched);
void algo_node_aware(struct sched *sched);
void algo_oneshot(struct sched *sched);
void algo_pairwise(struct sched *sched);
void algo_rail_chain(struct sched *sched);
void algo_rail_doubling(struct sched *sched);
void algo_rail_fold(struct sched *sched);
void algo_rail_halving(struct sched *sched);
void algo_rail_linear(struct sched *sched);
void algo_rail_pairwise(struct sched *sched);
void algo_rail_ring(struct sched *sched);
void algo_rail_torus(struct sched *sched);
void algo_rail_tree(struct sched *sched);
void algo_ring(struct sched *sched);
void algo_scan_chain(struct sched *sched);
void algo_scan_doubling(struct sched *sched);
void algo_scatter_allgather(struct sched *sched);
void algo_torus(struct sched *sched);
void algo_tree(struct sched *sched);
void algo_twoshot(struct sched *sched);

#endif
