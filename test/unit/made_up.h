/* SPDX-License-Identifier: BSD-3-Clause */
/* A call of four ranks without a job: their offers, made up, and what follows from them. */
#ifndef MADE_UP_H
#define MADE_UP_H

#include "core/agree/core_terms.h"

enum { MADE_UP_RANKS = 4 };

/* Of a call of four ranks, of which rank 0 is this one. */
struct made_up {
	const char *what;
	const char *nodes;   /* of each rank: the digit of its node */
	const char *devices; /* ... of the GPU of its offer */
	uint32_t any, all;   /* flags of the offers */
	enum core_together together;
	const char *cut;   /* two digits: ranks that do not reach each other's device memory */
	bool shm;          /* all have arenas in host memory, which all reach */
	bool without_data; /* some rank is */
	bool no_arena;     /* some rank has none */
};

struct made_up_call {
	struct core_comm *comm;
	struct core_agree agree;
};

/* Ends the test where there is no memory. */
struct made_up_call made_up_make(const struct made_up *m);
void made_up_free(struct made_up_call *call);

/* They point into the call. Of an allreduce. */
struct core_facts made_up_facts(const struct made_up_call *call, const struct made_up *m);

/* The same text, or NULL in both; the same reason. Else the test ends, and says of `what`. */
void must_say(const char *what, const char *said, const char *wanted);
void must_be(const char *what, enum core_reason said, enum core_reason wanted);

#endif
