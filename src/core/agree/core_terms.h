/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all members know alike of a call before an algorithm is chosen: who reaches whose memory,
 * whether there can be messages, and whether kernels may wait for them. Everything follows from the
 * offers and from what votes said.
 */
#ifndef CORE_TERMS_H
#define CORE_TERMS_H

#include "algos/sched_slots.h"
#include "core/agree/core_facts.h"
#include "core/call/core_reason.h"

/* Whether each of two ranks of this node reaches the other's memory of the kind. */
bool core_terms_reaches(const struct core_comm *comm, int a, int b, int kind);

/* How the links between this rank and another go. */
enum gpu_transport core_terms_transport(const struct core_comm *comm, int rank);

/* Whether all ranks, which are on this node, reach each other's memory of the kind. */
bool core_terms_all_reach(const struct core_comm *comm, int kind);

/*
 * What an arena of so many bytes has for messages of the communicator's calls, by GPUDirect or not.
 */
struct sched_room core_terms_room(const struct core_comm *comm, size_t arena, bool gdr);

/*
 * Why there can be no messages in this call; CORE_REASON_NONE: there can. All come to the same
 * answer.
 */
enum core_reason core_terms_refuse(const struct core_facts *facts);

/* Whether there can be links between all ranks of this node, after a vote or without one. */
bool core_terms_are_whole(const struct core_agree *agree);

/* Whether all ranks of this node reach each other's buffers, after a vote or without one. */
bool core_terms_are_mapped(const struct core_agree *agree);

/*
 * Whether kernels may wait, as far as that is known without a schedule; `gdr`: messages between
 * nodes go by GPUDirect.
 */
bool core_terms_may_fuse(const struct core_facts *facts, bool gdr);

/*
 * Why kernels can't wait, whatever the algorithm, which all know; NULL: nothing is against it.
 */
const char *core_terms_why_never_fused(const struct core_facts *facts, bool gdr);

/*
 * Whether kernels of some that share a GPU do not run together, which the ranks of a node know.
 */
bool core_terms_is_any_apart(const struct core_facts *facts);

/* Whether the two ranks, on this node, share a GPU. */
bool core_terms_share_gpu(const struct core_agree *agree, int a, int b);

/* Whether no two ranks on this node do. */
bool core_terms_have_own_gpus(const struct core_agree *agree);

#endif
