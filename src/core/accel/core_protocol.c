/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_protocol.h"
#include "core/agree/core_terms.h"
#include "core/choose/core_choice.h"
#include "gpu/kernels/gpu_program.h"

/* ---- slots ---- */

bool core_protocol_fit(const struct core_facts *facts, const struct core_schedule *schedule,
		       bool gdr, enum sched_proto proto, struct core_fit *fit)
{
	struct sched_room room = core_terms_room(facts->comm, facts->common.arena, gdr);
	uint64_t longest = facts->common.longest;

	if (!sched_slots_fit(schedule->sched, schedule->program->most_links,
			     (uint32_t)schedule->algo->slots, &room, proto, &fit->slots))
		return false;
	fit->rounds = longest ? (longest + fit->slots.width - 1) / fit->slots.width : 1;
	fit->messages = fit->rounds * (schedule->program->most_messages + 1);
	return fit->messages < UINT64_C(1) << GPU_EPOCH_SHIFT;
}

/* ---- who waits ---- */

/* Between nodes both ways are the same: messages are as long, and cut alike. */
const char *core_protocol_why_never_fused(const struct core_facts *facts,
					  const struct core_schedule *schedule, bool gdr)
{
	if (schedule->program->most_lanes > facts->common.blocks)
		return "the algorithm takes more blocks than can be resident";
	return core_terms_why_never_fused(facts, gdr);
}

const char *core_protocol_why_stepped(const struct core_facts *facts,
				      const struct core_schedule *schedule, bool gdr)
{
	const char *why = core_protocol_why_never_fused(facts, schedule, gdr);

	if (!why && core_terms_is_any_apart(facts))
		return "the kernels of ranks that share a GPU do not run at the same time";
	return why;
}

/* ---- the protocol ---- */

static bool are_flags_left(const struct core_facts *facts, const struct core_fit *fit)
{
	return facts->comm->links.ll_flag + fit->messages < UINT32_MAX;
}

/* Whether lines arrive whole on all links of the schedule. */
static bool keeps_lines(const struct core_facts *facts, const struct sched *sched)
{
	for (uint32_t i = 0; i < sched->num_connections; i++) {
		const struct sched_connection *c = &sched->connections[i];

		if (!core_terms_reaches(facts->comm, c->from, c->to, GPU_TRANSPORT_P2P))
			return false;
	}
	return core_choice_keeps_lines(facts, sched);
}

/* Over several nodes all come to the same answer, as the length of messages depends on it. */
static const char *why_no_flags(const struct core_facts *facts,
				const struct core_schedule *schedule, bool gdr,
				enum sched_proto proto, bool fused, struct core_fit *fit)
{
	const struct sched *sched = schedule->sched;

	if (proto == SCHED_LL128 && facts->comm->spans)
		return "ranks are on several nodes";
	if (!sched_has_near_messages(sched))
		return "no message stays within a node";
	if (facts->common.any & CORE_OFFER_PADDED)
		return "elements have padding";
	if (!fused)
		return "the execution is not fused";
	if (!facts->knows_sizes)
		return "sizes are not known to both ends";
	if (facts->comm->links.flags_moved)
		return "the room for messages has just changed";
	if (proto == SCHED_LL128 && !keeps_lines(facts, sched))
		return "between some ranks lines of 128 bytes may be cut";
	if (!core_protocol_fit(facts, schedule, gdr, proto, fit) ||
	    (proto == SCHED_LL && !are_flags_left(facts, fit)))
		return core_reason_text(CORE_REASON_NO_ROOM);
	return NULL;
}

struct core_protocol core_protocol_choose(const struct core_facts *facts,
					  const struct core_schedule *schedule, bool gdr,
					  enum sched_proto wanted, bool fused)
{
	enum sched_proto other = wanted == SCHED_LL ? SCHED_LL128 : SCHED_LL;
	uint32_t granted = facts->common.wish.protos;
	bool settles = !granted || granted >> SCHED_SIMPLE & 1;
	struct core_protocol chosen = {.proto = wanted};
	const char *why = NULL;

	if (wanted != SCHED_SIMPLE)
		why = why_no_flags(facts, schedule, gdr, wanted, fused, &chosen.fit);
	if (why && !settles && granted >> other & 1 &&
	    !why_no_flags(facts, schedule, gdr, other, fused, &chosen.fit)) {
		chosen.proto = other;
		why = NULL;
	}
	if (!why && chosen.proto != SCHED_SIMPLE)
		return chosen;
	chosen.proto = SCHED_SIMPLE;
	/* Room that has just changed is there again in the next call. */
	chosen.why = settles || facts->comm->links.flags_moved ? NULL : why;
	core_protocol_fit(facts, schedule, gdr, SCHED_SIMPLE, &chosen.fit);
	return chosen;
}
