/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules for people: as text, as a graph for Graphviz, as a picture. */
#ifndef INFO_SCHEDULE_H
#define INFO_SCHEDULE_H

#include "algos/sched_slots.h"

#include <stdio.h>

enum info_form { INFO_TEXT, INFO_DOT, INFO_SVG };

/* Who waits for messages: kernels; hosts; hosts, and the network reaches device memory. */
enum info_exec { INFO_FUSED, INFO_STEPPED, INFO_GDR, INFO_NUM_EXECS };

/* A call to look at: blocks of `bytes` bytes. */
struct info_call {
	struct sched_request request;
	uint64_t bytes;
	enum sched_proto proto;
	enum info_exec exec;
	bool sockets; /* between nodes, see core_model_make */
};

/* The algorithms that can do the call, and what each costs. Returns an exit status. */
int info_print_algorithms(FILE *out, const struct info_call *call);

/* The schedule of the algorithm named, proved before. Returns an exit status. */
int info_print_schedule(FILE *out, const struct info_call *call, const char *name,
			enum info_form form);

#endif
