/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm, with which protocol and how many channels: the one that takes the least time, as
 * sched_time.h says or as it was measured. There is no other rule, and no size at which one begins;
 * but of ways whose modelled times are alike, one that takes less memory.
 *
 * Where times were measured only those count, and what was not measured is no candidate; but for
 * calls much larger than all that was, and where nothing else is wished for.
 *
 * A job that is too large to be looked at is looked at in samples, each of which is like it but has
 * twice the ranks of the one before: what a time grows by from one to the next, and how that
 * growth itself grows, is taken to go on as it does, so that what is constant, logarithmic or
 * linear in the number of nodes is found to be so.
 *
 * A table has the times of all candidates for one kind of call at some sizes, four from one power
 * of two to the next or, for many ranks, one, each made when it is first asked for; between two of
 * them times lie on a line, which is broken where a call needs a round more, if it has few.
 */
#ifndef ALGO_CHOOSE_H
#define ALGO_CHOOSE_H

#include "algos/algo_wish.h"
#include "algos/sched_time.h"

enum { ALGO_NUM_SAMPLES = 3 };

/* Ranks, as in a request, on a fabric. */
struct algo_sample {
	int ranks, num_nodes, num_rings;
	const int *nodes, *rings;
	const struct sched_fabric *fabric;
};

/*
 * From a figure of samples, each of twice the ranks of the one before, to that of so many doublings
 * of the last: growth goes on as from one to the next, and evenly between two doublings.
 */
double algo_go_on(const double samples[ALGO_NUM_SAMPLES], double doublings);

/* What there is to carry calls out with. All processes that are to choose alike have the same. */
struct algo_setting {
	const struct sched_fabric *fabric;
	const struct algo_sample *samples; /* ALGO_NUM_SAMPLES; NULL: the fabric is looked at */
	double doublings;       /* of the ranks of the largest, to as many as there are */
	struct sched_room room; /* of each rank, for messages */
	uint32_t most_links;    /* FIFOs of a rank, in each direction */
	uint32_t most_lanes;    /* of a rank at a time */
	uint32_t most_places;   /* that a rank's steps touch */
	uint32_t most_operands; /* of a step */
	bool mapped;            /* ranks reach each other's buffers (see the request for which) */
	bool nodes_mapped;      /* those of each of several nodes do, all */
	bool gdr;               /* the network reaches device memory */
	bool fused;             /* kernels can wait for messages; then: */
	uint32_t protos; /* of messages, a bit for each enum sched_proto; stepped: SCHED_SIMPLE */
	int resident;    /* so many blocks of a rank */
	enum sched_lines lines; /* what LL128 needs */
	bool sizes_differ;      /* of blocks */
	int channels;           /* wished for; 0: any */
};

struct algo_choice {
	const struct algo *algo;
	int channels;
	enum sched_proto proto;
	double time; /* us, of which only the best few are good to more than a factor */
};

struct algo_table;

/*
 * For calls like the request, whose root and channels don't matter, in a setting; both are copied,
 * but for what they point to, which must live as long. NULL: no memory.
 */
struct algo_table *algo_table_new(const struct sched_request *request,
				  const struct algo_setting *setting);
void algo_table_free(struct algo_table *table); /* NULL is allowed */

/*
 * A time that was measured, of a way with so many bytes of each block. False: no memory. To be told
 * before the table is asked.
 */
bool algo_table_measure(struct algo_table *table, uint64_t bytes, const struct algo_choice *way);

/*
 * The candidates that the wish grants for blocks of `bytes` bytes, the fastest first, but for one
 * that is as good as that to the model and takes less: no messages, messages without scratch, or
 * fewer channels.
 * Returns their number in `choices`, `most` at most; -1: no memory. Not thread-safe.
 */
int algo_table_rank(struct algo_table *table, uint64_t bytes, const struct algo_wish *wish,
		    struct algo_choice *choices, int most);

/*
 * What the first of them takes to the model, whatever was measured; INFINITY: there is none;
 * negative: no memory. Not thread-safe.
 */
double algo_table_expect(struct algo_table *table, uint64_t bytes, const struct algo_wish *wish);

#endif
