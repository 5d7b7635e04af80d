/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an accelerated call with messages needs, as core_protocol.c has decided: slots in the
 * arenas, blocks of the kernel, what the wire expects.
 */
#include "core/accel/core_links.h"
#include "algos/sched_carry.h"
#include "core/accel/core_protocol.h"
#include "core/accel/core_say.h"
#include "core/agree/core_terms.h"
#include "core/wire/core_arena.h"
#include "core/wire/core_arena_layout.h"
#include "core/wire/core_mail.h"
#include "core/wire/core_wire.h"
#include "net/net_port.h"
#include "util/util_config.h"

#include <stdio.h>

/* ---- slots ---- */

/* Kernels know nothing of schedules, and have the same in words of their own. */
_Static_assert((int)SCHED_SIMPLE == GPU_PROTOCOL_SIMPLE && (int)SCHED_LL == GPU_PROTOCOL_LL &&
		       (int)SCHED_LL128 == GPU_PROTOCOL_LL128 &&
		       (int)SCHED_NUM_PROTOS == GPU_PROTOCOL_NUM,
	       "protocols have the same numbers");

static void lay_out(struct core_accel *accel, enum sched_proto proto, const struct core_fit *fit)
{
	uint64_t arena = accel->facts.common.arena;
	struct gpu_execute_args *args = &accel->steps.args;

	args->num_slots = fit->slots.num;
	args->slot_bytes = fit->slots.bytes;
	args->piece_bytes = fit->slots.bytes / (uint64_t)accel->sched->most_span;
	args->width = fit->slots.width;
	args->protocol = proto;
	for (int i = 0; i < SCHED_NUM_PROTOS; i++)
		args->slots[i] = core_arena_layout_start(arena, (enum sched_proto)i);
	accel->links.scratch_start = arena - (uint64_t)accel->sched->scratch_blocks * args->width;
	accel->steps.rounds = (uint32_t)fit->rounds;
	accel->links.messages = fit->messages;
}

/* "ll,ll128" */
static void list_protos(uint32_t protos, char *text, size_t bytes)
{
	size_t used = 0;

	for (int i = 0; i < SCHED_NUM_PROTOS && used < bytes; i++) {
		if (protos >> i & 1)
			used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "",
						 sched_proto_name((enum sched_proto)i));
	}
}

static void choose_protocol(struct core_accel *accel, bool fused)
{
	struct core_protocol chosen = core_protocol_choose(&accel->facts, accel->schedule,
							   accel->gdr, accel->links.proto, fused);
	char text[32];

	if (chosen.why) {
		list_protos(accel->facts.common.wish.protos, text, sizeof(text));
		core_say_complaint(accel, CORE_COMPLAINT_PROTO, "GPUCOLL_PROTO", text, chosen.why);
	}
	lay_out(accel, chosen.proto, &chosen.fit);
	if (chosen.proto == SCHED_LL) {
		accel->steps.args.flag = accel->comm->links.ll_flag;
		accel->comm->links.ll_flag += (uint32_t)accel->links.messages;
	}
}

static void choose_blocks(struct core_accel *accel, bool fused)
{
	struct gpu_execute_args *args = &accel->steps.args;
	uint64_t longest = accel->facts.common.longest;
	uint64_t piece =
		sched_longest_chunk(accel->sched, longest < args->width ? longest : args->width);
	uint32_t lanes = accel->schedule->program->most_lanes;
	/* Fused, all ranks have the same: a part's place in a slot follows from their number. */
	uint32_t most = fused || !accel->launches ? accel->facts.common.blocks
						  : gpu_launch_most(&accel->launch);

	/* Where nobody has a neighbour there are no lanes. */
	most = gpu_launch_blocks(piece, lanes && most > lanes ? most / lanes : 1);
	/* A power of two, which divides a slot. */
	args->parts = GPU_MAX_PARTS;
	while (args->parts > most)
		args->parts /= 2;
	args->spread = 0;
	accel->steps.bytes = piece / args->parts;
}

/*
 * At which level of sched_carry.h the network does steps alone: by GPUDirect UCX is given the
 * application's memory, too, if that is of the kind that it knows best.
 */
static void choose_carried(struct core_accel *accel)
{
	const struct core_buffer *in = &accel->shape.in, *out = &accel->shape.out;
	bool apart = !accel->shape.in_place &&
		     ((int64_t)in->address + in->hi <= (int64_t)out->address + out->lo ||
		      (int64_t)out->address + out->hi <= (int64_t)in->address + in->lo);

	accel->steps.carry = accel->steps.early = 0;
	if (!accel->gdr || !accel->plain || !core_wire_takes_memory(accel->comm->wire) ||
	    accel->shape.padded != GPU_TYPE_NONE)
		return;
	accel->steps.carry = apart ? SCHED_CARRY_APART : SCHED_CARRY_ALWAYS;
	accel->steps.early = apart ? SCHED_CARRY_EARLY_APART : SCHED_CARRY_EARLY_ALWAYS;
	accel->steps.carry &= accel->schedule->program->can_carry;
}

void core_links_decide(struct core_accel *accel)
{
	const struct core_facts *facts = &accel->facts;
	const char *why = core_protocol_why_stepped(facts, accel->schedule, accel->gdr);
	const char *far = facts->comm->spans ? core_protocol_why_never_fused(facts, accel->schedule,
									     accel->gdr)
					     : why;

	if (why && util_config.exec == UTIL_EXEC_FUSED)
		core_say_complaint(accel, CORE_COMPLAINT_EXEC, "GPUCOLL_EXEC", "fused", why);
	accel->steps.args.waits = !why;
	choose_protocol(accel, !far);
	/*
	 * On this node hosts wait, and on others perhaps kernels, of messages of the same lengths.
	 */
	if (why)
		accel->steps.args.protocol = GPU_PROTOCOL_SIMPLE;
	choose_blocks(accel, !why);
	choose_carried(accel);
	accel->reason = core_say_linked_name(accel);
}

/*
 * Where flags are follows from the arenas' common size. When that has changed, which all see alike,
 * old data may stand in their places, until all have cleared them. Packets that were cleared by all
 * begin anew.
 */
static void note_room(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	comm->links.flags_moved |=
		comm->links.room && comm->links.room != accel->facts.common.arena;
	comm->links.room = accel->facts.common.arena;
	if (accel->facts.common.all & CORE_OFFER_FLAGS_CLEAR) {
		comm->links.flags_moved = false;
		comm->links.ll_flag = 0;
	}
}

enum core_reason core_links_make(struct core_accel *accel)
{
	const struct core_facts *facts = &accel->facts;
	struct core_fit fit;

	note_room(accel);
	if (!core_protocol_fit(facts, accel->schedule, accel->gdr, SCHED_SIMPLE, &fit))
		return CORE_REASON_NO_ROOM;
	lay_out(accel, SCHED_SIMPLE, &fit);
	accel->links.tries = accel->comm->links.together == CORE_TOGETHER_UNKNOWN &&
			     !core_protocol_why_stepped(facts, accel->schedule, accel->gdr) &&
			     !core_terms_have_own_gpus(&accel->agree);
	if (!accel->links.tries)
		core_links_decide(accel);
	return CORE_REASON_NONE;
}

/* ---- launches ---- */

/* Tell the wire which messages come, and which of them do not go to slots, before any does. */
static void expect_messages(struct core_accel *accel)
{
	const struct core_program *program = accel->schedule->program;
	struct core_wire *wire = accel->comm->wire;

	for (uint32_t i = 0; i < GPU_MAX_LINKS; i++) {
		const struct core_link *link = &program->incoming[i];

		if (!link->per_round)
			continue;
		core_wire_expect(wire, i, link->peer, link->theirs,
				 (uint64_t)link->per_round * accel->steps.rounds);
		if (accel->steps.carry)
			core_wire_mark(wire, i, &program->carried[link->first], link->per_round,
				       accel->steps.carry);
	}
}

void core_links_miss(const struct core_accel *accel)
{
	const struct core_program *program = accel->comm->spans ? accel->schedule->program : NULL;

	for (uint32_t i = 0; program && i < GPU_MAX_LINKS; i++) {
		if (program->incoming[i].per_round)
			core_mail_expect(accel->comm, program->incoming[i].peer);
	}
}

void core_links_break_off(const struct core_accel *accel)
{
	const struct core_program *program = accel->schedule ? accel->schedule->program : NULL;
	const struct core_comm *comm = accel->comm;

	for (uint32_t i = 0; program && i < GPU_MAX_LINKS; i++) {
		const struct core_link *in = &program->incoming[i], *out = &program->outgoing[i];
		bool coming, going;

		core_wire_look_at(comm->wire, i, &coming, &going);
		if (in->per_round && coming)
			net_break_off(comm->members[in->peer].process);
		if (out->per_round && going)
			net_break_off(comm->members[out->peer].process);
	}
}

void core_links_set_arenas(const struct core_comm *comm,
			   const struct core_reach (*arenas)[CORE_MAX_NEAR],
			   const struct gpu_stream *stream, uint64_t *shm, uint64_t *mine,
			   uint64_t *theirs)
{
	*shm = 0;
	mine[GPU_TRANSPORT_P2P] = comm->arena->device->address;
	mine[GPU_TRANSPORT_SHM] = comm->arena->shm ? gpu_shm_address(comm->arena->shm, stream) : 0;
	for (int i = 0; i < comm->num_near; i++) {
		enum gpu_transport transport = core_terms_transport(comm, comm->near[i]);

		*shm |= (uint64_t)(transport == GPU_TRANSPORT_SHM) << i;
		theirs[i] = arenas[transport][i].address;
	}
}

void core_links_set_args(struct core_accel *accel)
{
	struct gpu_execute_args *args = &accel->steps.args;
	struct core_comm *comm = accel->comm;

	args->epoch = core_accel_epoch(accel);
	core_links_set_arenas(comm, accel->reached.arenas, accel->stream, &args->shm, args->mine,
			      args->theirs);
	if (!comm->spans)
		return;
	expect_messages(accel);
	core_wire_lay_out(comm->wire, args->slots[GPU_PROTOCOL_SIMPLE], args->slot_bytes,
			  args->num_slots, accel->gdr);
	args->theirs[GPU_PEER_FAR] = core_wire_outbox(comm->wire);
	args->mine[GPU_TRANSPORT_NET] = core_wire_inbox(comm->wire);
}
