/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the nodes' agreement (core_nodes.h) share. */
#ifndef CORE_NODES_PARTS_H
#define CORE_NODES_PARTS_H

#include "core/agree/core_agree.h"
#include "core/agree/core_summary.h"

#include <stdbool.h>
#include <stdint.h>

enum { CORE_NODES_ROUNDS = 10 }; /* 1 << this is at least CORE_MAX_RANKS nodes */

_Static_assert(1 << CORE_NODES_ROUNDS >= CORE_MAX_RANKS, "rounds for all nodes");

/*
 * A message that says that nodes are ready: what their offers come to, and then, if all made
 * records, those of their members.
 */
struct core_nodes_ready {
	struct core_summary summary;
	unsigned char records[];
};

/* Before each record, which begins at a multiple of this. */
struct core_nodes_label {
	uint32_t rank, bytes; /* of the record */
};

/* What came for a call and a round before this node was there. */
struct core_nodes_early {
	struct core_nodes_early *next;
	uint64_t call;
	uint32_t round;
	size_t bytes;
	struct core_nodes_ready message;
};

struct core_nodes {
	int rounds;
	/* The call that is being agreed on, + 1; 0: none. */
	uint64_t call;
	int round;
	bool sent, asked;
	uint64_t since; /* ns: this node got ready, or last asked */
	struct core_summary common;
	struct core_nodes_ready *message; /* the last one sent, with room for all records */
	bool awaits_promise;              /* all are ready for a nonblocking call */
	bool passed_on;                   /* others were told of the promise */
	uint64_t taken_back;              /* the last call, + 1, that this process took back */
	uint64_t told_back;               /* ns: when it last told the first node so */
	/* Under the main port's lock. */
	struct core_nodes_early *early;
	/* The last calls, + 1, that somebody stages; that are promised, or are not to be. */
	uint64_t staged, committed, prevented;
	uint32_t underway[CORE_NODES_ROUNDS], number[CORE_NODES_ROUNDS];
	bool stages; /* last time, somebody did */
	/* Messages that others need, which have not left. */
	_Atomic int leaving;
};

static inline size_t core_nodes_padded(size_t bytes)
{
	return (bytes + sizeof(struct core_nodes_label) - 1) / sizeof(struct core_nodes_label) *
	       sizeof(struct core_nodes_label);
}

/* Of a message. */
static inline size_t core_nodes_most_bytes(const struct core_comm *comm)
{
	return sizeof(struct core_nodes_ready) +
	       (size_t)comm->size * (sizeof(struct core_nodes_label) +
				     core_nodes_padded(core_area_record_bytes(comm)));
}

/* The node so many further on, and its speaker. */
static inline int core_nodes_at(const struct core_comm *comm, int distance)
{
	int node = (comm->node + distance) % comm->num_nodes;

	return node < 0 ? node + comm->num_nodes : node;
}

static inline int core_nodes_speaker_at(const struct core_comm *comm, int distance)
{
	return comm->speakers[core_nodes_at(comm, distance)];
}

/* Of what came, all that is of calls before this one is dropped. */
void core_nodes_drop_until(struct core_nodes *nodes, uint64_t call);

/*
 * Whether what the node sends in the round is of the member: it knows of its own node and so many
 * before it, and the receiver of those that come after that.
 */
bool core_nodes_is_sent(const struct core_comm *comm, int node, int round, int rank);

/* Take what came for the round. UTIL_IN_PROGRESS: nothing yet. */
enum util_status core_nodes_take_early(const struct core_agree *agree);

#endif
