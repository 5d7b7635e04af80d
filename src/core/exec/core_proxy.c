/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/exec/core_proxy.h"
#include "core/wire/core_wire.h"
#include "util/util_time.h"

#include <stdio.h>

static void add_carried(struct core_steps *steps, const struct core_link *link, uint16_t index,
			bool sends)
{
	struct core_proxy *proxy = &steps->proxy;

	if (!link->per_round || core_comm_is_near(steps->comm, link->peer))
		return;
	proxy->links[proxy->num++] =
		(struct core_carried){.link = link,
				      .index = index,
				      .sends = sends,
				      .total = (uint64_t)link->per_round * steps->rounds};
}

void core_proxy_begin(struct core_steps *steps)
{
	steps->proxy.num = 0;
	if (!steps->args.waits || !steps->comm->spans)
		return;
	steps->proxy.moved_at = util_now();
	for (uint16_t i = 0; i < GPU_MAX_LINKS; i++) {
		add_carried(steps, &steps->program->incoming[i], i, false);
		add_carried(steps, &steps->program->outgoing[i], i, true);
	}
}

/* ---- words ---- */

static uint64_t *word_of(void *arena, size_t words, const struct core_carried *l, uint32_t part)
{
	return (uint64_t *)((char *)arena + words) + (size_t)l->index * GPU_MAX_PARTS + part;
}

/*
 * Whether the kernel is done with so many messages, in all parts: has written, or read, them.
 * Acquire, the pair of pass_on in gpu_execute.cu: what the network sends was written before; what
 * it overwrites was read.
 */
static bool has_done(const struct core_steps *steps, struct core_carried *l, uint64_t messages)
{
	void *arena = core_wire_host_outbox(steps->comm->wire);
	size_t words = l->sends ? GPU_ARENA_TAILS : GPU_ARENA_HEADS;

	for (; l->part < steps->args.parts; l->part++) {
		if (__atomic_load_n(word_of(arena, words, l, l->part), __ATOMIC_ACQUIRE) <
		    steps->args.epoch + messages)
			return false;
	}
	l->part = 0;
	return true;
}

/*
 * Tell the kernel that so many messages have come, or have left. Release, the pair of wait_for_link
 * in gpu_execute.cu: what the network has written is there; what it has read may be overwritten.
 */
static void tell_messages(const struct core_steps *steps, const struct core_carried *l,
			  uint64_t messages)
{
	void *arena = core_wire_host_inbox(steps->comm->wire);
	size_t words = l->sends ? GPU_ARENA_HEADS : GPU_ARENA_TAILS;

	for (uint32_t i = 0; i < steps->args.parts; i++)
		__atomic_store_n(word_of(arena, words, l, i), steps->args.epoch + messages,
				 __ATOMIC_RELEASE);
}

/* ---- messages ---- */

/* How long the link's next message is, or is to be. */
static uint64_t bytes_of_next(const struct core_steps *steps, const struct core_carried *l)
{
	const struct core_link *link = l->link;
	uint32_t round = (uint32_t)(l->moved / link->per_round);
	uint32_t step =
		steps->program->messages[link->first + (uint32_t)(l->moved % link->per_round)];

	return core_walk_bytes(steps, &steps->program->steps[step], round);
}

static enum util_status carry_out(struct core_steps *steps, struct core_carried *l)
{
	const struct core_comm *comm = steps->comm;
	enum util_status status;

	while (l->moved < l->total && has_done(steps, l, l->moved + 1)) {
		core_wire_send(comm, l->link->peer, l->index, l->link->theirs, steps->call,
			       l->moved, 0, bytes_of_next(steps, l));
		l->moved++;
	}
	while (l->freed < l->moved) {
		status = core_wire_has_room(comm->wire, l->index, l->freed);
		if (status == UTIL_IN_PROGRESS)
			break;
		if (status != UTIL_OK)
			return status;
		tell_messages(steps, l, ++l->freed);
	}
	/* That the last ones are out is waited for at the end of the call. */
	return l->moved == l->total ? UTIL_OK : UTIL_IN_PROGRESS;
}

static enum util_status carry_in(struct core_steps *steps, struct core_carried *l)
{
	enum util_status status;
	uint64_t bytes;

	while (l->moved < l->total) {
		status = core_wire_look(steps->comm->wire, l->index, l->moved, &bytes);
		if (status == UTIL_IN_PROGRESS)
			break;
		if (status != UTIL_OK)
			return status;
		steps->truncates |= bytes > bytes_of_next(steps, l);
		tell_messages(steps, l, ++l->moved);
	}
	while (l->freed < l->moved && has_done(steps, l, l->freed + 1))
		core_wire_consume(steps->comm, l->index, l->freed++);
	return l->freed == l->total ? UTIL_OK : UTIL_IN_PROGRESS;
}

enum util_status core_proxy_progress(struct core_steps *steps)
{
	enum util_status all = UTIL_OK;

	for (uint32_t i = 0; i < steps->proxy.num; i++) {
		struct core_carried *l = &steps->proxy.links[i];
		uint64_t before = l->moved + l->freed;
		enum util_status status = l->sends ? carry_out(steps, l) : carry_in(steps, l);

		if (l->moved + l->freed != before) {
			steps->proxy.moved_at = util_now();
			steps->moves++;
		}
		if (status != UTIL_OK && status != UTIL_IN_PROGRESS)
			return status;
		all = status == UTIL_OK ? all : status;
	}
	return all;
}

bool core_proxy_is_moving(const struct core_steps *steps)
{
	static const uint64_t patience = UTIL_SECONDS(2); /* ns */

	return steps->proxy.num && util_now() - steps->proxy.moved_at < patience;
}

bool core_proxy_describe(const struct core_steps *steps, char *text, size_t bytes)
{
	for (uint32_t i = 0; i < steps->proxy.num; i++) {
		const struct core_carried *l = &steps->proxy.links[i];

		if (l->sends || l->moved == l->total)
			continue;
		snprintf(text, bytes, "message %llu of rank %d, or its kernel",
			 (unsigned long long)l->moved, l->link->peer);
		return true;
	}
	return false;
}
