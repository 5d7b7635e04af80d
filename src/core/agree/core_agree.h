/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement of a communicator's processes on the path of each collective call.
 *
 * A call on host buffers and a staged call are the same call of the real MPI, so a process may
 * choose either alone. The accelerated path needs every process. Each process counts its calls on
 * the communicator. A call that goes to the real MPI only publishes "past s" on the board. A call
 * that could be accelerated announces an offer in the slot s % CORE_AGREE_SLOTS, and then waits for
 * the slot's word: the first to see that somebody is past s without an offer sets STAGE in it; when
 * all have made offers that fit together, and have mapped what the offers name where that was not
 * known, it is set to ACCEL. Everybody obeys the word. A slot is used again when all are past its
 * call; who finds it still in use waits, or stages that call alone.
 *
 * test/model/agreement.pml is the model of this, with the same names, and is checked exhaustively:
 * nobody accelerates a call that another stages, no slot is used early, and nobody waits for a
 * process that went to the real MPI. Who waits here drives the real MPI, so that a process that is
 * in it gets out.
 */
#ifndef CORE_AGREE_H
#define CORE_AGREE_H

#include "core/agree/core_area.h"
#include "core/call/core_shape.h"
#include "core/comm/core_board.h"
#include "core/comm/core_comm.h"

enum core_agree_state {
	CORE_AGREE_WAITING,
	CORE_AGREE_ANNOUNCED, /* all have: look at the offers, then core_agree_answer */
	CORE_AGREE_STAGE,
	CORE_AGREE_ACCEL,
	CORE_AGREE_READY, /* the node's members are of one mind: it is up to the other nodes now */
	CORE_AGREE_LOST,  /* only of core_agree_where: the communicator has lost a member */
};

/* One call's agreement, of one process. */
struct core_agree {
	struct core_comm *comm;
	uint64_t call; /* its number on the communicator, from 0 */
	int seen;      /* members here, by their numbers, whose offers or votes were seen */
	bool nonblocking;
	bool vote;   /* somebody asked for one */
	bool forget; /* somebody may lack mappings */
	bool answered;
};

/* Whether nobody uses the call's slot any more, and so for good. */
bool core_agree_has_slot(struct core_comm *comm, uint64_t call);

/* Begin a call, which has a slot. */
void core_agree_open(struct core_agree *agree, struct core_comm *comm, uint64_t call,
		     bool nonblocking);

/* Announce the offer. `table` has a block for each member, or is NULL. */
void core_agree_announce(const struct core_agree *agree, const struct core_offer *offer,
			 const struct core_block *table);

/*
 * The place of the record of a member's input, on any node, of core_area_record_bytes at most. The
 * member writes it before it announces itself; that of a member on another node is written by this
 * node's speaker before it settles the call. Only for communicators of several nodes.
 */
void *core_agree_record(const struct core_agree *agree, int rank);

/* Look again how far the call is. Never waits. */
enum core_agree_state core_agree_poll(struct core_agree *agree);

/* After CORE_AGREE_ANNOUNCED: what the offers of this node's members come to. */
void core_agree_summarize(const struct core_agree *agree, struct core_summary *summary);

/*
 * After CORE_AGREE_ANNOUNCED: say whether the call can be accelerated with these offers. All
 * members must come to the same answer. In a vote also say whose memory of each kind this process
 * reaches, a bit for each member's number on this node.
 */
void core_agree_answer(struct core_agree *agree, bool yes, const uint64_t reach[CORE_NUM_REACHES]);

/* After CORE_AGREE_ACCEL: what the member, which is on this node, said that it reaches. */
const uint64_t *core_agree_reach(const struct core_agree *agree, int rank);

/*
 * After CORE_AGREE_READY, by the member that speaks for the node: say what the nodes have come to,
 * and what all their offers come to.
 */
void core_agree_settle(struct core_agree *agree, bool accel, const struct core_summary *common);

/* After CORE_AGREE_ACCEL, on communicators of several nodes: what all offers come to. */
const struct core_summary *core_agree_common(const struct core_agree *agree);

/*
 * Have the call staged, by all, if nothing is decided on this node. Returns whether that was so. If
 * it is CORE_AGREE_READY then, see core_nodes_take_back.
 */
bool core_agree_withdraw(const struct core_agree *agree);

/* The offer of a member on this node. Valid from CORE_AGREE_ANNOUNCED to core_meet_pass. */
const struct core_offer *core_agree_offer(const struct core_agree *agree, int rank);

/* Its table of blocks, if it announced one; valid as long. */
const struct core_block *core_agree_table(const struct core_agree *agree, int rank);

/*
 * By the node's service, which serves communicators that it is no member of; `slot` and `area` are
 * one's on the board. What this node's members have come to in a call for which members on other
 * nodes wait: CORE_AGREE_STAGE; CORE_AGREE_READY, also if they were and the others know;
 * CORE_AGREE_LOST; or CORE_AGREE_WAITING, also if they are ready for a nonblocking call.
 * core_agree_take_back, on the communicator's first node, for a member elsewhere that takes back
 * that its node is ready for a nonblocking call: CORE_AGREE_STAGE, CORE_AGREE_READY: it comes too
 * late, or as above.
 */
enum core_agree_state core_agree_where(const struct core_board_slot *slot, const void *area,
				       uint64_t call, bool nonblocking);
enum core_agree_state core_agree_take_back(void *area, uint64_t call);

/*
 * A member's process has ended: decide what is not decided, so that all who can be told fail in the
 * call, and do not wait for it in the real MPI.
 */
void core_agree_give_up(struct core_agree *agree);

/* Whether the member, which is on this node, has announced itself in the call. */
bool core_agree_has_come(const struct core_agree *agree, int rank);

/* For reports of long waits: returns a member that is not where the call needs it, or -1. */
int core_agree_missing(const struct core_agree *agree);

#endif
