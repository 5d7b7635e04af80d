/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The links of a communicator between nodes: memory for what goes out and what comes in, and the
 * messages between them.
 *
 * A process has two arenas for them, laid out like the ones in device memory (gpu_program.h), with
 * its own numbers of links. What kernels leave in the slots of the one is sent to the same slots of
 * the receiver's other. A slot of the first may be used again when its message is out, and of the
 * other when it was read; a message that comes before its slot is free waits where it is.
 *
 * Nobody sends more than there is room for. Where the network's hardware carries messages they are
 * announced, and fetched when their slots are free, but for the first ones, if they are short. By
 * sockets that would take three messages for one, and each takes both hosts; there the receiver
 * says now and then how many it has read (CORE_MAIL_CREDIT), and the sender keeps back those that
 * would come before their slots are free.
 *
 * The arenas are in pinned host memory; where UCX takes device memory there are others there, which
 * calls by GPUDirect use, as all members agree. UCX writes to device memory only what it fetches,
 * so all messages are fetched then.
 * Kernels see what the network has written as they are launched after UCX has told of it, or find a
 * word that is written after that (core_proxy.h).
 *
 * Where UCX takes device memory, messages may also be sent from, and put into, the application's
 * buffers (sched_carry.h). Their slots then are not used, but are as many.
 *
 * Of a communicator there is one call at a time. Messages of others are late ones, of a call that
 * failed, and are dropped.
 */
#ifndef CORE_WIRE_H
#define CORE_WIRE_H

#include "core/comm/core_comm.h"
#include "core/wire/core_wire_memory.h"
#include "gpu/kernels/gpu_program.h"

/* Returns NULL if there is no memory. */
struct core_wire *core_wire_create(void);

/* NULL is allowed. */
void core_wire_free(struct core_wire *wire);

/*
 * Make the memory for the inputs of core_eager.h, and have kernels in the stream's context reach
 * it. Returns UTIL_ERR_UNSUPPORTED, without a warning, if there is no memory.
 */
enum util_status core_wire_open_ahead(struct core_wire *wire, struct gpu_stream *stream);

/*
 * Make that and the arenas, of `bytes` bytes; or larger ones if these are smaller and there is
 * memory. No call may be under way. Returns UTIL_ERR_UNSUPPORTED, without a warning, if there is no
 * memory for any.
 */
enum util_status core_wire_open(struct core_wire *wire, size_t bytes, struct gpu_stream *stream);

/* The bytes of each arena. */
size_t core_wire_bytes(const struct core_wire *wire);

/*
 * Whether there are arenas in device memory. Then UCX can be given other memory of that context,
 * too.
 */
bool core_wire_takes_memory(const struct core_wire *wire);

/* For kernels of the call that is laid out: the arena of what comes in. */
uint64_t core_wire_inbox(const struct core_wire *wire);

/* For kernels of the call that is laid out: the arena of what goes out. */
uint64_t core_wire_outbox(const struct core_wire *wire);

/* For this process: the arena on the host of what comes in. */
void *core_wire_host_inbox(const struct core_wire *wire);

/* For this process: the arena on the host of what goes out. */
void *core_wire_host_outbox(const struct core_wire *wire);

/* Bytes of pinned memory for the inputs of core_eager.h, in either direction. */
enum { CORE_WIRE_AHEAD = 64 << 10 };

/* For this process: the inputs that come in. */
void *core_wire_ahead_in(const struct core_wire *wire);

/* For this process: the input that goes out. */
void *core_wire_ahead_out(const struct core_wire *wire);

/* For kernels: the inputs that come in. */
uint64_t core_wire_ahead_address(const struct core_wire *wire);

/*
 * Begin a call: its messages may come from now on, and wait. Call it before this process announces
 * itself.
 */
void core_wire_begin(struct core_wire *wire, uint64_t call);

/*
 * Messages of the link whose mark (marks[message % per_round]) has a bit of `mask` go straight to
 * the application's buffer, not to a slot. Call before core_wire_lay_out, and only with GPUDirect.
 */
void core_wire_mark(struct core_wire *wire, uint32_t link, const uint8_t *marks, uint32_t per_round,
		    unsigned mask);

/*
 * Say who sends on an incoming link, what number the link has at the sender, and how many messages
 * come in the call. Call before core_wire_lay_out.
 */
void core_wire_expect(struct core_wire *wire, uint32_t link, int rank, uint32_t theirs,
		      uint64_t total);

/*
 * Say where messages go: `num_slots` slots for each link, of `slot_bytes` bytes, begin at `start`
 * in the arenas. `by_gdr`: in device memory, on the members that have arenas there.
 */
void core_wire_lay_out(struct core_wire *wire, uint64_t start, uint64_t slot_bytes,
		       uint32_t num_slots, bool by_gdr);

/*
 * Say where a marked message goes: device memory of this process with room for `room` bytes. Call
 * once for each. Returns false while the message that last used its slot has not been consumed.
 */
bool core_wire_place(struct core_wire *wire, uint32_t link, uint64_t message, uint64_t to,
		     uint64_t room);

/*
 * Whether a message of an incoming link is in its place, and then how many bytes it has; the sender
 * decides that. UTIL_OK, UTIL_IN_PROGRESS, or UTIL_ERR_PEER: it will not come.
 */
enum util_status core_wire_look(struct core_wire *wire, uint32_t link, uint64_t message,
				uint64_t *bytes);

/* The message was read: its slot may be used again. */
void core_wire_consume(const struct core_comm *comm, uint32_t link, uint64_t message);

/*
 * Whether the slot of a message of an outgoing link is free. UTIL_OK, UTIL_IN_PROGRESS, or
 * UTIL_ERR_PEER: the message before it could not be sent.
 */
enum util_status core_wire_has_room(struct core_wire *wire, uint32_t link, uint64_t message);

/*
 * Send a message to the rank, at which the link has the number `theirs`: the bytes at `from`, in
 * device memory, or, if that is 0, those in the message's slot.
 */
void core_wire_send(const struct core_comm *comm, int rank, uint32_t link, uint32_t theirs,
		    uint64_t call, uint64_t message, uint64_t from, uint64_t bytes);

/* Whether all messages are out. UTIL_OK, UTIL_IN_PROGRESS, or UTIL_ERR_PEER. */
enum util_status core_wire_drain(struct core_wire *wire);

/*
 * The call has failed: give up what still comes of it. Returns whether UCX may yet read or write
 * the application's memory.
 */
bool core_wire_has_memory(struct core_wire *wire);

/* Whether UCX is at work on messages that come, and go, by the links of that number. */
void core_wire_look_at(struct core_wire *wire, uint32_t link, bool *coming, bool *going);

/* Have messages for communicators come here. Call before the network is up. */
void core_wire_handle_mail(void);

#endif
