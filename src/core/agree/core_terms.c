/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_terms.h"
#include "core/wire/core_arena_layout.h"
#include "core/wire/core_mail.h"

/* Of members on this node: whether each reaches what the other has, by what both say. */
static bool both_reach(const struct core_comm *comm, int a, int b, uint64_t of_a, uint64_t of_b)
{
	return of_a >> core_comm_number(comm, b) & 1 && of_b >> core_comm_number(comm, a) & 1;
}

bool core_terms_reaches(const struct core_comm *comm, int a, int b, int kind)
{
	return both_reach(comm, a, b, comm->voted.reach[kind][core_comm_number(comm, a)],
			  comm->voted.reach[kind][core_comm_number(comm, b)]);
}

enum gpu_transport core_terms_transport(const struct core_comm *comm, int rank)
{
	if (!core_comm_is_near(comm, rank))
		return GPU_TRANSPORT_NET;
	return core_terms_reaches(comm, comm->rank, rank, GPU_TRANSPORT_P2P) ? GPU_TRANSPORT_P2P
									     : GPU_TRANSPORT_SHM;
}

/* Of a rank on this node. */
static const struct core_offer *offer_of(const struct core_agree *agree, int rank)
{
	return core_agree_offer(agree, rank);
}

static bool has_arena(const struct core_agree *agree, int rank, enum gpu_transport transport)
{
	return offer_of(agree, rank)->regions[CORE_REGION_ARENAS + transport].buffer_id != 0;
}

/* What the last vote said, and what this call's says, which may not be over yet for all nodes. */
static bool have_reached(const struct core_agree *agree, int a, int b, int kind)
{
	if (!core_terms_reaches(agree->comm, a, b, kind))
		return false;
	return !agree->vote || both_reach(agree->comm, a, b, core_agree_reach(agree, a)[kind],
					  core_agree_reach(agree, b)[kind]);
}

static bool can_link(const struct core_agree *agree, int a, int b)
{
	if (have_reached(agree, a, b, GPU_TRANSPORT_P2P))
		return true;
	return has_arena(agree, a, GPU_TRANSPORT_SHM) && has_arena(agree, b, GPU_TRANSPORT_SHM) &&
	       have_reached(agree, a, b, GPU_TRANSPORT_SHM);
}

/* Whether it holds for any two ranks of this node. */
static bool holds_for_all(const struct core_agree *agree,
			  bool (*holds)(const struct core_agree *agree, int a, int b))
{
	const struct core_comm *comm = agree->comm;

	for (int i = 0; i < comm->num_near; i++) {
		for (int j = 0; j < i; j++) {
			if (!holds(agree, comm->near[i], comm->near[j]))
				return false;
		}
	}
	return true;
}

bool core_terms_are_whole(const struct core_agree *agree)
{
	return holds_for_all(agree, can_link);
}

static bool are_mapped(const struct core_agree *agree, int a, int b)
{
	return have_reached(agree, a, b, CORE_REACH_BUFFERS);
}

bool core_terms_are_mapped(const struct core_agree *agree)
{
	return holds_for_all(agree, are_mapped);
}

enum core_reason core_terms_refuse(const struct core_facts *facts)
{
	if (facts->common.any_without_data)
		return CORE_REASON_RANK_WITHOUT_DATA;
	if (facts->common.any & (CORE_OFFER_WINDOW_IN | CORE_OFFER_WINDOW_OUT))
		return CORE_REASON_NOT_EXPORTED;
	if (!facts->common.arena)
		return CORE_REASON_RANK_WITHOUT_ARENA;
	if (facts->common.any & CORE_OFFER_LINKS_FAILED && facts->comm->spans)
		return CORE_REASON_LINKS_FAILED;
	return core_terms_are_whole(facts->agree) ? CORE_REASON_NONE : CORE_REASON_NOT_MAPPED;
}

struct sched_room core_terms_room(const struct core_comm *comm, size_t arena, bool gdr)
{
	return core_arena_layout_for(arena, comm->spans && core_mail_is_by_sockets(), gdr);
}

bool core_terms_share_gpu(const struct core_agree *agree, int a, int b)
{
	return offer_of(agree, a)->device == offer_of(agree, b)->device;
}

bool core_terms_all_reach(const struct core_comm *comm, int kind)
{
	uint64_t all = comm->num_near < 64 ? (UINT64_C(1) << comm->num_near) - 1 : UINT64_MAX;

	for (int i = 0; i < comm->num_near; i++) {
		if ((comm->voted.reach[kind][i] & all) != all)
			return false;
	}
	return true;
}

/*
 * What one communicator has found out spares the next one the probe, if it was bad news: good news
 * is of its members only. Ranks that share a GPU but do not reach each other's memory on it (its
 * instances, containers) can't be tried.
 */
bool core_terms_is_any_apart(const struct core_facts *facts)
{
	const struct core_comm *comm = facts->comm;
	bool found = comm->links.together >= CORE_TOGETHER_NO, shared = false;

	found |= (facts->common.any & CORE_OFFER_APART) != 0;
	/* The usual case, without a look at all pairs. */
	if (!found && core_terms_all_reach(comm, GPU_TRANSPORT_P2P))
		return false;
	for (int i = 0; i < comm->num_near; i++) {
		for (int j = 0; j < i; j++) {
			if (!core_terms_share_gpu(facts->agree, comm->near[i], comm->near[j]))
				continue;
			shared = true;
			found |= !core_terms_reaches(comm, comm->near[i], comm->near[j],
						     GPU_TRANSPORT_P2P);
		}
	}
	return found && shared;
}

/* What all ranks know; NULL: nothing is against it. */
const char *core_terms_why_never_fused(const struct core_facts *facts, bool gdr)
{
	if (gdr)
		return "messages between nodes arrive in device memory";
	if (facts->common.any & CORE_OFFER_LINKS_FAILED)
		return core_reason_text(CORE_REASON_LINKS_FAILED);
	if (facts->common.arena && !(facts->common.all & CORE_OFFER_CAN_FUSE))
		return "a rank's GPU has no room for a kernel that waits, or GPUCOLL_EXEC=stepped "
		       "there";
	if (facts->comm->spans && facts->common.any & CORE_OFFER_APART)
		return "on some node the kernels of ranks that share a GPU do not run at the same "
		       "time";
	return NULL;
}

/*
 * What a probe of this call's ranks has shown is known on their node only; all nodes know of it
 * from the next offer on.
 */
bool core_terms_may_fuse(const struct core_facts *facts, bool gdr)
{
	return !core_terms_why_never_fused(facts, gdr) &&
	       (facts->comm->spans || !core_terms_is_any_apart(facts));
}

static bool have_own_gpus(const struct core_agree *agree, int a, int b)
{
	return !core_terms_share_gpu(agree, a, b);
}

bool core_terms_have_own_gpus(const struct core_agree *agree)
{
	return holds_for_all(agree, have_own_gpus);
}
