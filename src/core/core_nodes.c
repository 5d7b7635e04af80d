/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_nodes.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>

enum {
	MAX_ROUNDS = 6,     /* 1 << this is at least CORE_MAX_RANKS nodes */
	ACK_EVERY = 16,     /* messages of a round */
	MOST_UNDERWAY = 64, /* of a round, not acknowledged */
};
/* ns. How long a speaker waits before it asks, if asking was of no use last time, or was. */
static const uint64_t patience = 1000000, little_patience = 50000;

_Static_assert(1 << MAX_ROUNDS >= CORE_MAX_RANKS, "rounds for all nodes");

/* What came for a call and a round before this node was there. */
struct early {
	struct early *next;
	uint64_t call;
	uint32_t round;
	struct core_summary summary;
};

struct core_nodes {
	int rounds;
	/* The call that is being agreed on, + 1; 0: none. */
	uint64_t call;
	int round;
	bool sent, asked;
	uint64_t since; /* ns: this node got ready */
	struct core_summary common;
	/* Under the main port's lock. */
	struct early *early;
	uint64_t staged; /* the last call, + 1, that somebody stages */
	uint32_t underway[MAX_ROUNDS], number[MAX_ROUNDS];
	bool stages; /* last time, somebody did */
	/* Messages that others need, which have not left. */
	_Atomic int leaving;
};

struct core_nodes *core_nodes_create(const struct core_comm *comm)
{
	struct core_nodes *nodes = calloc(1, sizeof(*nodes));

	while (nodes && 1 << nodes->rounds < comm->num_nodes)
		nodes->rounds++;
	return nodes;
}

static void drop_until(struct core_nodes *nodes, uint64_t call)
{
	struct early **link = &nodes->early, *entry;

	while ((entry = *link)) {
		if (entry->call >= call) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		free(entry);
	}
}

void core_nodes_free(struct core_nodes *nodes)
{
	if (!nodes)
		return;
	drop_until(nodes, UINT64_MAX);
	/* After a failure, UCX may still count here. */
	if (!nodes->leaving)
		free(nodes);
}

/* The speaker of the node so many further on. */
static int speaker_at(const struct core_comm *comm, int distance)
{
	int node = (comm->node + distance) % comm->num_nodes;

	return comm->speakers[node < 0 ? node + comm->num_nodes : node];
}

/* ---- messages that come ---- */

static void acknowledge(const struct core_comm *comm, const struct net_header *header)
{
	struct net_header ack = *header;

	ack.kind = CORE_NET_ACK;
	core_net_tell(comm, speaker_at(comm, -(1 << header->link)), &ack, NULL, 0, NULL);
}

static void on_ready(struct core_comm *comm, const struct net_header *header,
		     struct net_payload *payload)
{
	struct core_nodes *nodes = comm->agreement;
	struct core_summary summary;
	struct early *entry;

	if (header->link >= (uint32_t)nodes->rounds ||
	    !net_payload_copy(payload, &summary, sizeof(summary)))
		return;
	if (header->message % ACK_EVERY == 0)
		acknowledge(comm, header);
	/* Here the call may have gone to the real MPI long ago. */
	if (core_agree_is_past(comm, comm->rank, header->call))
		return;
	entry = malloc(sizeof(*entry));
	if (!entry) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET, "no memory for a message of a node");
		return;
	}
	*entry = (struct early){nodes->early, header->call, header->link, summary};
	nodes->early = entry;
}

static void on_ack(struct core_nodes *nodes, const struct net_header *header)
{
	if (header->link < (uint32_t)nodes->rounds)
		nodes->underway[header->link] = nodes->number[header->link] - header->message;
}

void core_nodes_receive(struct core_comm *comm, const struct net_header *header,
			struct net_payload *payload)
{
	struct core_nodes *nodes = comm->agreement;

	if (header->kind == CORE_NET_READY)
		on_ready(comm, header, payload);
	else if (header->kind == CORE_NET_ACK)
		on_ack(nodes, header);
	else if (header->kind == CORE_NET_STAGED && header->call + 1 > nodes->staged)
		nodes->staged = header->call + 1;
}

/* Take what came for the round. False: nothing yet. */
static bool take_early(struct core_nodes *nodes, uint64_t call)
{
	struct early **link = &nodes->early, *entry;

	while ((entry = *link) && (entry->call != call || entry->round != (uint32_t)nodes->round))
		link = &entry->next;
	if (!entry)
		return false;
	*link = entry->next;
	core_summary_add(&nodes->common, &entry->summary);
	free(entry);
	return true;
}

/* ---- going on ---- */

bool core_nodes_has_begun(const struct core_agree *agree)
{
	return agree->comm->agreement->call == agree->call + 1;
}

void core_nodes_begin(const struct core_agree *agree, bool able)
{
	struct core_nodes *nodes = agree->comm->agreement;

	net_lock(NET_MAIN);
	nodes->call = agree->call + 1;
	nodes->round = 0;
	nodes->sent = nodes->asked = false;
	nodes->since = util_now();
	core_agree_summarize(agree, &nodes->common);
	nodes->common.fits &= able;
	drop_until(nodes, agree->call);
	net_unlock(NET_MAIN);
}

bool core_nodes_has_too_many(const struct core_comm *comm)
{
	const struct core_nodes *nodes = comm->agreement;
	bool found = false;

	net_lock(NET_MAIN);
	for (int i = 0; i < nodes->rounds; i++)
		found |= nodes->underway[i] >= MOST_UNDERWAY;
	net_unlock(NET_MAIN);
	return found;
}

static void send(struct core_comm *comm, uint64_t call)
{
	struct core_nodes *nodes = comm->agreement;
	struct net_header header = {.kind = CORE_NET_READY,
				    .comm = comm->id,
				    .call = call,
				    .link = (uint32_t)nodes->round,
				    .message = ++nodes->number[nodes->round]};

	nodes->sent = true;
	nodes->underway[nodes->round]++;
	core_net_tell(comm, speaker_at(comm, 1 << nodes->round), &header, &nodes->common,
		      sizeof(nodes->common), &nodes->leaving);
}

static void ask(const struct core_comm *comm, uint64_t call)
{
	struct core_nodes *nodes = comm->agreement;
	uint64_t limit = nodes->stages ? little_patience : patience;

	if (nodes->asked || util_now() - nodes->since < limit)
		return;
	nodes->asked = true;
	core_net_tell_nodes(comm, CORE_NET_ASK, call, NULL);
}

/* UTIL_ERR_UNSUPPORTED: somebody stages it. */
static enum util_status go_on(struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;

	for (; nodes->round < nodes->rounds; nodes->round++, nodes->sent = false) {
		if (!nodes->sent)
			send(comm, agree->call);
		if (nodes->staged == agree->call + 1)
			return UTIL_ERR_UNSUPPORTED;
		if (!take_early(nodes, agree->call)) {
			ask(comm, agree->call);
			return UTIL_IN_PROGRESS;
		}
	}
	return nodes->common.fits ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

enum util_status core_nodes_progress(struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	enum util_status status;

	net_lock(NET_MAIN);
	status = go_on(agree);
	net_unlock(NET_MAIN);
	/*
	 * Who has heard of all may be gone at once, and what it has told must have left: those that
	 * it is for stay until they have it. Where somebody stages the call nobody waits for it,
	 * and it may not leave for long, if it is the first message to a process that is in the
	 * real MPI.
	 */
	if (status != UTIL_IN_PROGRESS && nodes->round == nodes->rounds && nodes->leaving)
		status = UTIL_IN_PROGRESS;
	if (status == UTIL_IN_PROGRESS && core_agree_failed(comm, agree->call))
		status = UTIL_ERR_PEER;
	if (status == UTIL_IN_PROGRESS)
		return status;
	nodes->stages = status == UTIL_ERR_UNSUPPORTED;
	/* Who is accelerated without having heard of all finds that it has failed. */
	if (status == UTIL_ERR_PEER)
		core_agree_fail(comm, agree->call);
	core_agree_settle(agree, status != UTIL_ERR_UNSUPPORTED, &nodes->common);
	return status == UTIL_ERR_PEER ? status : UTIL_OK;
}

void core_nodes_tell_failure(const struct core_comm *comm, uint64_t call)
{
	core_net_tell_nodes(comm, CORE_NET_FAILED, call, &comm->agreement->leaving);
}

bool core_nodes_has_told(const struct core_comm *comm)
{
	return !comm->agreement->leaving;
}

int core_nodes_missing(const struct core_comm *comm)
{
	const struct core_nodes *nodes = comm->agreement;

	return nodes->round < nodes->rounds ? speaker_at(comm, -(1 << nodes->round)) : -1;
}
