/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all members know alike of a call once it is agreed on. Filled once, by core_vote.c. What is
 * decided from these facts alone is decided alike by all; what may differ among ranks (a rank's
 * buffers, its stream, what it maps) is not here.
 */
#ifndef CORE_FACTS_H
#define CORE_FACTS_H

#include "core/agree/core_agree.h"

struct core_facts {
	const struct core_comm *comm;   /* its numbers, and what votes have said */
	const struct core_agree *agree; /* the offers of the members on this node */
	struct core_summary common;     /* of all members' offers */
	enum core_coll coll;
	/* Both ends of each message know its size. */
	bool knows_sizes;
	bool enqueued; /* nobody tells others anything of it: see core_standing.h */
};

#endif
