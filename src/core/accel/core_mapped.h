/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether ranks may work in each other's buffers: what follows from the facts of a call. */
#ifndef CORE_MAPPED_H
#define CORE_MAPPED_H

#include "algos/algo.h"
#include "core/agree/core_facts.h"
#include "core/call/core_reason.h"

/* Whether all ranks reach each other's buffers in such a call. */
bool core_mapped_is_possible(const struct core_facts *facts);

/*
 * Whether ranks may do others' work in all buffers of the call, as algorithms that need
 * ALGO_NEEDS_ALL_MAPPED have them do.
 */
bool core_mapped_is_shared(const struct core_facts *facts);

/*
 * Why an algorithm on mapped memory can't be taken, where that is not in the catalogue;
 * CORE_REASON_NONE: it can. `shared`: buffers are, as above; `windowed`: some go through windows.
 */
enum core_reason core_mapped_refuse(const struct core_facts *facts, const struct algo *algo,
				    bool shared, bool windowed);

/* Whether to be in place is the root's matter, by which nobody else's steps change. */
bool core_mapped_is_roots_matter(enum sched_coll coll);

#endif
