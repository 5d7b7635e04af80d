/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * By which protocol a call's messages go, how they fit their slots, and whether kernels wait for
 * them. Everything is decided from the facts and from the schedule, so all ranks decide alike.
 */
#ifndef CORE_PROTOCOL_H
#define CORE_PROTOCOL_H

#include "algos/sched_slots.h"
#include "core/agree/core_facts.h"
#include "core/exec/core_schedule.h"

/* How the messages of one protocol lie in arenas, and how many they are. */
struct core_fit {
	struct sched_slots slots;
	uint64_t rounds;   /* over the longest block, slots.width bytes of it each */
	uint64_t messages; /* of a link, fewer than so many */
};

/* False: messages do not fit, or are too many to be counted. */
bool core_protocol_fit(const struct core_facts *facts, const struct core_schedule *schedule,
		       bool gdr, enum sched_proto proto, struct core_fit *fit);

/*
 * Why kernels can't wait, whatever a probe of those that share a GPU would show; NULL: they can.
 * All ranks come to the same answer, of other nodes too. The text is static.
 */
const char *core_protocol_why_never_fused(const struct core_facts *facts,
					  const struct core_schedule *schedule, bool gdr);

/* The same with what a probe has shown, which the ranks of this node know. */
const char *core_protocol_why_stepped(const struct core_facts *facts,
				      const struct core_schedule *schedule, bool gdr);

struct core_protocol {
	enum sched_proto proto;
	struct core_fit fit;
	/* Why messages go by none of those that GPUCOLL_PROTO grants; NULL: they do. Static. */
	const char *why;
};

/*
 * The protocol `wanted`, if that can be; else the other one with flags, where the wish grants that,
 * but not Simple; else Simple. They must fit in that one (core_protocol_fit). `fused`: kernels
 * wait, as far as all ranks know.
 */
struct core_protocol core_protocol_choose(const struct core_facts *facts,
					  const struct core_schedule *schedule, bool gdr,
					  enum sched_proto wanted, bool fused);

#endif
