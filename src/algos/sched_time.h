/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a schedule takes on a machine, without running it: its steps as events, whose bytes take
 * their turns on what they go over. So contention, pipelines, and slots that are full cost what
 * they cost, and no algorithm needs a formula of its own.
 *
 * The machine, as a schedule sees it, is its fabric: sites, each the memory and the kernels of one
 * GPU, on which one or more ranks are; and ways, which have a rate, between them. Bytes that want a
 * way which is taken wait for their turn, in the order in which their steps can begin.
 *
 * What is left out: how many bytes a cache holds, steps that are slowed down rather than queued,
 * ranks that come late.
 */
#ifndef SCHED_TIME_H
#define SCHED_TIME_H

#include "algos/sched_slots.h"

struct sched_leg {
	int way;
	double share; /* of the bytes */
};

/* Whether lines of LL128 arrive whole: they may be cut; nobody has said; by all that is known. */
enum sched_lines { SCHED_LINES_CUT, SCHED_LINES_UNSURE, SCHED_LINES_WHOLE };

struct sched_route {
	double latency; /* us */
	bool net;       /* messages are taken through host memory, and sent by the hosts */
	enum sched_lines lines;
	int num;
	struct sched_leg *legs;
};

/* What things cost that do not depend on bytes, us, and what a kernel's blocks can move. */
struct sched_costs {
	double call;       /* the agreement on a call */
	double launch;     /* a kernel, until its host knows that it is done */
	double meet;       /* all hosts wait for all */
	double tell;       /* a host tells another that a message is there */
	double step;       /* a step in a kernel */
	double fence;      /* the counter of a message of the Simple protocol */
	double line;       /* the threads of an LL128 line meet */
	double block_rate; /* bytes/us that one block moves */
	int blocks;        /* of a rank, at a time */
};

struct sched_fabric {
	int ranks, num_sites, num_ways;
	int *sites;    /* of each rank */
	double *rates; /* of each way, bytes/us; way i < num_sites is the memory of site i */
	/* From site i to site j, i * num_sites + j: the ways between their memories, or, for `net`,
	 * those of the wire. None from a site to itself. */
	struct sched_route *routes;
	/* From site i to its host's memory, and, at num_sites + i, from there. */
	struct sched_route *hosts;
	struct sched_costs costs;
};

/* How a schedule with messages is carried out; without any, only `bytes` matters. */
struct sched_terms {
	bool fused; /* kernels wait for messages; else hosts do */
	enum sched_proto proto;
	int blocks; /* of a rank that may wait, in all lanes */
	struct sched_slots slots;
	uint64_t bytes; /* of each block */
	double most;    /* us: what takes longer need not be known better than that */
};

/* The time in us, or, of more than the terms' most, something between that and the time. Negative:
 * no memory. The schedule must be proved, and of as many ranks as the fabric. */
double sched_time(const struct sched *sched, const struct sched_fabric *fabric,
		  const struct sched_terms *terms);

/* Of that of the schedule's connections which is least sure. */
enum sched_lines sched_fabric_lines(const struct sched_fabric *fabric, const struct sched *sched);

/* How many ranks are on the site that has most. */
int sched_fabric_fullest(const struct sched_fabric *fabric);

/* Free what the fabric's pointers point to. */
void sched_fabric_free(struct sched_fabric *fabric);

#endif
