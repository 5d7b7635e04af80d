/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a schedule takes on a machine, without running it: its steps as events, whose bytes take
 * their turns on what they go over. So contention, pipelines, and slots that are full cost what
 * they cost, and no algorithm needs a formula of its own.
 *
 * The machine, as a schedule sees it, is its fabric: sites, each the memory and the kernels of one
 * GPU, on which one or more ranks are; and ways, which have a rate, between those of a node, and to
 * and from the network. Bytes that want a way which is taken wait for their turn, in the order in
 * which their steps can begin.
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
	double latency;   /* us */
	double read_more; /* of the bytes, that they cost when loaded rather than stored */
	enum sched_lines lines;
	int num;
	struct sched_leg *legs;
};

/*
 * Where a site is. Messages to other nodes are taken through its host's memory, unless the network
 * reaches its own, and sent by the host.
 */
struct sched_home {
	int node, number; /* among the node's sites */
	int out, in;      /* ways: those of the NIC that it uses */
	struct sched_route to_host, from_host;
};

/* What things cost that do not depend on bytes, us, and what a kernel's blocks can move. */
struct sched_costs {
	double call;   /* the agreement on a call */
	double launch; /* a kernel, until its host knows that it is done */
	double meet;   /* all hosts wait for all */
	double tell;   /* a host tells another on its node that a message is there */
	double post;   /* a host sends a message to another node, whatever its length */
	double take;   /* the same of one that comes from there; 0: hardware does */
	double carry;  /* us/byte, in either case */
	double step;   /* a step in a kernel */
	double fence;  /* the counter of a message of the Simple protocol */
	double line;   /* the threads of an LL128 line meet */
	/*
	 * Bytes from which on a message to another node is announced, and fetched by its receiver;
	 * 0: none is.
	 */
	double fetched;
	double block_rate; /* bytes/us that one block moves */
	int blocks;        /* of a rank, at a time */
};

/* The sites of a node. */
struct sched_fleet {
	int num;
	size_t first; /* route */
};

struct sched_fabric {
	int ranks, num_sites, num_nodes, num_ways;
	int *sites;               /* of each rank */
	struct sched_home *homes; /* of each site */
	double *rates; /* of each way, bytes/us; way i < num_sites is the memory of site i */
	/*
	 * The ways between the memories of a node's sites: from its i-th to its j-th of n at i * n
	 * + j behind the node's first. None from a site to itself.
	 */
	size_t num_routes;
	struct sched_route *routes;
	struct sched_fleet *nodes;
	double net_latency; /* us, of a message from node to node */
	struct sched_costs costs;
};

/* The number of the route between two sites of a node. */
size_t sched_fabric_route(const struct sched_fabric *fabric, int from, int to);

/*
 * A network that is simulated elsewhere, instead of the ways of NICs. Times are in us, and only
 * grow. `send`: a message leaves one site for another at a time, which is now. `wait`: let time
 * pass up to `until`, or to the next message that has come, which is returned, with when it has;
 * SCHED_NO_MESSAGE: none has.
 */
enum { SCHED_NO_MESSAGE = -1 };
struct sched_net {
	void *state;
	void (*send)(void *state, double at, int from, int to, double bytes, int message);
	int (*wait)(void *state, double until, double *at);
};

/* How a schedule with messages is carried out; without any, only `bytes` matters. */
struct sched_terms {
	bool fused; /* kernels wait for messages; else hosts do */
	bool gdr;   /* the network reaches device memory, and does steps alone (sched_carry.h) */
	enum sched_proto proto;
	int blocks; /* of a rank that may wait, in all lanes */
	struct sched_slots slots;
	uint64_t bytes;              /* of each block */
	double most;                 /* us: what takes longer need not be known better than that */
	bool whole;                  /* look at all rounds, however many they are */
	const struct sched_net *net; /* NULL: the network is the NICs' ways */
};

/*
 * The time in us, or, of more than the terms' most, something between that and the time. Negative:
 * no memory. The schedule must be proved, and of as many ranks as the fabric.
 */
double sched_time(const struct sched *sched, const struct sched_fabric *fabric,
		  const struct sched_terms *terms);

/* Of that of the schedule's connections which is least sure. */
enum sched_lines sched_fabric_lines(const struct sched_fabric *fabric, const struct sched *sched);

/* How many ranks are on the site that has most. */
int sched_fabric_fullest(const struct sched_fabric *fabric);

/* Free what the fabric's pointers point to. */
void sched_fabric_free(struct sched_fabric *fabric);

#endif
