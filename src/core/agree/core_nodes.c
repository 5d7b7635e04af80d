/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_nodes.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes_parts.h"
#include "core/agree/core_promise.h"
#include "core/agree/core_record.h"
#include "core/wire/core_mail.h"
#include "net/net_port.h"
#include "util/util_time.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_UNDERWAY = 64 }; /* of a round, not acknowledged */

/*
 * ns. Wait before asking the other nodes: long if nobody staged last time, short if somebody did.
 * Wait longest before asking again: a service that had no memory for the question has lost it.
 */
static const uint64_t patience = 1000000, little_patience = 50000, much_patience = UTIL_SECONDS(2);

struct core_nodes *core_nodes_create(const struct core_comm *comm)
{
	struct core_nodes *nodes = calloc(1, sizeof(*nodes));

	if (!nodes)
		return NULL;
	while (1 << nodes->rounds < comm->num_nodes)
		nodes->rounds++;
	nodes->message = calloc(1, core_nodes_most_bytes(comm));
	if (nodes->message)
		return nodes;
	free(nodes);
	return NULL;
}

void core_nodes_free(struct core_nodes *nodes)
{
	if (!nodes)
		return;
	core_nodes_drop_until(nodes, UINT64_MAX);
	/* After a failure, UCX may still count here. */
	if (nodes->leaving)
		return;
	free(nodes->message);
	free(nodes);
}

/* ---- going on ---- */

bool core_nodes_has_begun(const struct core_agree *agree)
{
	return agree->comm->agreement->call == agree->call + 1;
}

void core_nodes_begin(const struct core_agree *agree, uint32_t flags)
{
	struct core_nodes *nodes = agree->comm->agreement;

	if (!agree->nonblocking)
		core_promise_make(agree->comm->area, agree->call);
	net_lock(NET_MAIN);
	nodes->call = agree->call + 1;
	nodes->round = 0;
	nodes->sent = nodes->asked = nodes->awaits_promise = nodes->passed_on = false;
	nodes->since = util_now();
	core_agree_summarize(agree, &nodes->common);
	nodes->common.any |= flags;
	nodes->common.all |= flags;
	core_nodes_drop_until(nodes, agree->call);
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

/* Returns the bytes of the message. */
static size_t write_message(const struct core_agree *agree)
{
	const struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	unsigned char *to = nodes->message->records;

	nodes->message->summary = nodes->common;
	if (!(nodes->common.all & CORE_OFFER_EAGER))
		return sizeof(struct core_nodes_ready);
	for (int i = 0; i < comm->size; i++) {
		const struct core_record *record = core_agree_record(agree, i);
		struct core_nodes_label label = {(uint32_t)i, record->bytes};

		if (!core_nodes_is_sent(comm, comm->node, nodes->round, i))
			continue;
		memcpy(to, &label, sizeof(label));
		memcpy(to + sizeof(label), record, record->bytes);
		to += sizeof(label) + core_nodes_padded(record->bytes);
	}
	return (size_t)(to - (unsigned char *)nodes->message);
}

static void send_ready(const struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	struct net_header header = {.kind = CORE_MAIL_READY,
				    .comm = comm->id,
				    .call = agree->call,
				    .link = (uint32_t)nodes->round,
				    .message = ++nodes->number[nodes->round]};

	nodes->sent = true;
	nodes->underway[nodes->round]++;
	core_mail_tell(comm, core_nodes_speaker_at(comm, 1 << nodes->round), &header,
		       nodes->message, write_message(agree), &nodes->leaving);
}

static void ask(const struct core_agree *agree)
{
	const struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	struct net_header header = {.kind = CORE_MAIL_ASK,
				    .comm = comm->id,
				    .call = agree->call,
				    .link = agree->nonblocking};
	uint64_t limit = nodes->asked ? much_patience : nodes->stages ? little_patience : patience;
	uint64_t now = util_now();

	if (now - nodes->since < limit)
		return;
	nodes->asked = true;
	nodes->since = now;
	core_mail_tell_nodes(comm, &header, NULL);
}

/* ---- promises of nonblocking calls ---- */

static bool is_on_first(const struct core_comm *comm)
{
	return comm->node == 0;
}

/* The service there may lack the memory to think about it: so say it again. */
static void take_back(const struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	struct net_header header = {
		.kind = CORE_MAIL_TAKE_BACK, .comm = comm->id, .call = agree->call};
	uint64_t now = util_now();

	if (is_on_first(comm)) {
		core_promise_prevent(comm->area, agree->call);
		return;
	}
	if (nodes->taken_back == agree->call + 1 && now - nodes->told_back < much_patience)
		return;
	nodes->taken_back = agree->call + 1;
	nodes->told_back = now;
	core_mail_tell_node(comm, 0, &header, NULL);
}

static bool is_taken_back(const struct core_agree *agree)
{
	const struct core_comm *comm = agree->comm;

	return is_on_first(comm) ? core_promise_is_prevented(comm->area, agree->call)
				 : comm->agreement->prevented == agree->call + 1;
}

void core_nodes_take_back(struct core_agree *agree)
{
	bool taken_back;

	net_lock(NET_MAIN);
	take_back(agree);
	taken_back = is_taken_back(agree);
	net_unlock(NET_MAIN);
	if (taken_back)
		core_agree_settle(agree, false, NULL);
}

/* From the first node on, in the order of a binomial tree. */
static void pass_on_promise(const struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	struct net_header header = {
		.kind = CORE_MAIL_COMMITTED, .comm = comm->id, .call = agree->call};

	nodes->passed_on = true;
	for (int i = 0; i < nodes->rounds; i++) {
		if (1 << i > comm->node && comm->node + (1 << i) < comm->num_nodes)
			core_mail_tell(comm, core_nodes_speaker_at(comm, 1 << i), &header, NULL, 0,
				       &nodes->leaving);
	}
}

/*
 * Whether somebody stages it. What others say of a nonblocking call they may have said after it was
 * accelerated; the first node knows.
 */
static bool is_staged(const struct core_agree *agree)
{
	bool told = agree->comm->agreement->staged == agree->call + 1;

	if (!agree->nonblocking)
		return told;
	if (told)
		take_back(agree);
	return is_taken_back(agree);
}

/* All are ready. UTIL_OK: it is promised. UTIL_STAGE: somebody has taken that back. */
static enum util_status commit(const struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;

	if (is_on_first(comm) && !nodes->passed_on && core_promise_commit(comm->area, agree->call))
		nodes->committed = agree->call + 1;
	nodes->awaits_promise = nodes->committed != agree->call + 1;
	if (!nodes->awaits_promise) {
		if (!nodes->passed_on)
			pass_on_promise(agree);
		return UTIL_OK;
	}
	if (is_staged(agree))
		return UTIL_STAGE;
	ask(agree);
	return UTIL_IN_PROGRESS;
}

/* UTIL_STAGE: somebody stages it. UTIL_ERR_PEER: what came is damaged. */
static enum util_status go_on_rounds(struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	enum util_status status;
	bool able;

	for (; nodes->round < nodes->rounds; nodes->round++, nodes->sent = false) {
		if (!nodes->sent)
			send_ready(agree);
		if (is_staged(agree))
			return UTIL_STAGE;

		status = core_nodes_take_early(agree);
		if (status == UTIL_IN_PROGRESS)
			ask(agree);
		if (status != UTIL_OK)
			return status;
	}
	/* Members that have no data can't have links, and may not need any. */
	able = nodes->common.all & (CORE_OFFER_EAGER | CORE_OFFER_WHOLE);
	if (!nodes->common.fits || !able)
		return UTIL_STAGE;
	return agree->nonblocking ? commit(agree) : UTIL_OK;
}

/*
 * Who has heard of all may be gone at once, and what it has told must have left: those that it is
 * for stay until they have it. Where somebody stages the call nobody waits for it, and it may not
 * leave for long, if it is the first message to a process that is in the real MPI. Who waits for it
 * in a nonblocking call that is staged can take that back.
 */
static bool must_leave(const struct core_agree *agree, enum util_status status)
{
	const struct core_nodes *nodes = agree->comm->agreement;

	if (status == UTIL_IN_PROGRESS || nodes->round < nodes->rounds)
		return false;
	return status == UTIL_OK || !agree->nonblocking;
}

enum util_status core_nodes_progress(struct core_agree *agree)
{
	struct core_comm *comm = agree->comm;
	struct core_nodes *nodes = comm->agreement;
	enum util_status status;

	net_lock(NET_MAIN);
	status = go_on_rounds(agree);
	net_unlock(NET_MAIN);
	if (must_leave(agree, status) && nodes->leaving)
		status = UTIL_IN_PROGRESS;
	if (status == UTIL_IN_PROGRESS &&
	    (core_meet_failed(comm, agree->call) || core_meet_is_lost(comm)))
		status = UTIL_ERR_PEER;
	if (status == UTIL_IN_PROGRESS)
		return status;
	nodes->stages = status == UTIL_STAGE;
	/* Who is accelerated without having heard of all finds that it has failed. */
	if (status == UTIL_ERR_PEER)
		core_meet_fail(comm, agree->call);
	core_agree_settle(agree, status != UTIL_STAGE, &nodes->common);
	return status == UTIL_ERR_PEER ? status : UTIL_OK;
}

void core_nodes_tell_failure(struct core_comm *comm, uint64_t call)
{
	bool lost = comm->lost || core_meet_is_lost(comm);
	struct net_header header = {.kind = lost ? CORE_MAIL_LOST : CORE_MAIL_FAILED,
				    .comm = comm->id,
				    .call = call,
				    .link = lost && core_meet_is_revoked(comm)};

	core_mail_tell_nodes(comm, &header, &comm->agreement->leaving);
	comm->told_loss |= lost;
}

void core_nodes_tell_revoked(struct core_comm *comm, uint64_t id)
{
	struct net_header header = {.kind = CORE_MAIL_LOST, .comm = id, .link = true};

	core_mail_tell_nodes(comm, &header, &comm->agreement->leaving);
}

bool core_nodes_has_told(const struct core_comm *comm)
{
	return !comm->agreement->leaving;
}

int core_nodes_missing(const struct core_comm *comm)
{
	const struct core_nodes *nodes = comm->agreement;

	if (nodes->round < nodes->rounds)
		return core_nodes_speaker_at(comm, -(1 << nodes->round));
	return nodes->awaits_promise ? comm->speakers[0] : -1;
}
