/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator's links between nodes, for the files that make them up. See core_wire.h. */
#ifndef CORE_WIRE_PARTS_H
#define CORE_WIRE_PARTS_H

#include "core/comm/core_comm.h"
#include "core/wire/core_wire_memory.h"
#include "net/net_port.h"

#include <stdatomic.h>

/* A message that waits for its slot to be free. */
struct core_wire_held {
	struct core_wire_held *next;
	uint32_t link, message;
	struct net_payload *payload;
};

struct core_wire_incoming {
	uint64_t read; /* messages, in order */
	struct {
		uint64_t message; /* + 1: the one that is in it, or on its way */
		uint64_t bytes;
		_Atomic int status;
		uint64_t placed; /* + 1: the one that is to go to `to` instead */
		uint64_t to, room;
	} slots[CORE_WIRE_MAX_SLOTS];
	/* See core_wire_mark; NULL: all have slots. */
	const uint8_t *marks;
	uint32_t per_round;
	unsigned mask;
	/* See core_wire_expect. */
	int rank;
	uint32_t theirs;
	uint64_t total;
};

/* A message that its receiver has not said yet that it has room for. */
struct core_wire_put_off {
	bool waits;
	int rank;
	struct net_header header;
	struct net_data data;
};

struct core_wire_outgoing {
	_Atomic int status[CORE_WIRE_MAX_SLOTS]; /* of the last message from the slot */
	uint64_t read;                           /* messages, by credit, as the receiver has said */
	struct core_wire_put_off put_off[CORE_WIRE_MAX_SLOTS];
};

/* All is guarded by the main port's lock, but for statuses, which the port sets. */
struct core_wire {
	struct gpu_shm *ahead;  /* what comes in, then what goes out */
	uint64_t ahead_address; /* for kernels */
	struct core_wire_arena in[CORE_WIRE_NUM_PLACES], out[CORE_WIRE_NUM_PLACES];
	enum core_wire_place place; /* the call's */
	bool has_device; /* there are those on the device, for the last stream asked for */
	size_t bytes;    /* of each */
	size_t refused;  /* that could not be had, or are there */
	uint64_t call;   /* + 1 */
	bool laid_out;
	bool by_credit; /* messages go when the receiver has said that there is room */
	int num_put_off;
	bool all_fetched;
	uint64_t start, slot_bytes;
	uint32_t num_slots;
	bool failed; /* a message can't be had */
	bool lends;  /* messages of the call go from or to the application's memory */
	bool used;   /* `incoming` has been, by the call or one before it */
	struct core_wire_held *held;
	struct core_wire_incoming incoming[GPU_MAX_LINKS];
	struct core_wire_outgoing outgoing[GPU_MAX_LINKS];
};

static inline int core_wire_status_at(const _Atomic int *status)
{
	return atomic_load_explicit(status, memory_order_acquire);
}

/* `arenas`: those for what comes in, or for what goes out. */
static inline char *core_wire_slot_at(const struct core_wire *wire,
				      const struct core_wire_arena *arenas, uint32_t link,
				      uint64_t message)
{
	uint64_t slot = (uint64_t)link * wire->num_slots + message % wire->num_slots;

	return arenas[wire->place].base + wire->start + slot * wire->slot_bytes;
}

/*
 * Of messages that wait for their slots, take those whose slots are free by now. With the main
 * port's lock held.
 */
void core_wire_in_take_held(struct core_wire *wire);

/* Drop all messages that wait for their slots. With the main port's lock held. */
void core_wire_in_drop_held(struct core_wire *wire);

/* A message has come; in the port's handler. */
void core_wire_in_receive(struct core_comm *comm, const struct net_header *header,
			  struct net_payload *payload);

#endif
