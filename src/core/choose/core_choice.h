/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a communicator's calls choose among: the fabric of its ranks, in the picture of the job, and
 * tables of times for each kind of call (algo_choose.h). All follows from what all ranks know
 * alike.
 */
#ifndef CORE_CHOICE_H
#define CORE_CHOICE_H

#include "algos/algo_choose.h"
#include "core/choose/core_choices.h"

/*
 * The ways to do the call that the wish grants, the fastest first, into `choices`, CORE_CHOICE_MOST
 * at most. Sets the request's rings, nodes and GPUs, which then live as long as the communicator;
 * `*gdr`: messages between nodes are to go by GPUDirect. The communicator is that of the facts, and
 * keeps its tables. Returns their number; -1: no memory.
 */
int core_choice_make(struct core_comm *comm, const struct core_facts *facts,
		     struct sched_request *request, bool mapped, const struct algo_wish *wish,
		     struct algo_choice *choices, bool *gdr);

/*
 * Whether lines of LL128 arrive whole on all of the schedule's connections in this call (see
 * sched_time.h), by what was looked at for choices; false where its ranks use other GPUs now.
 */
bool core_choice_keeps_lines(const struct core_facts *facts, const struct sched *sched);

/* Note how this thread's last call was done, of blocks of so many bytes; or that it had no choice.
 */
void core_choice_note(const struct core_comm *comm, enum sched_coll coll, uint64_t bytes,
		      const struct algo_choice *way);
void core_choice_forget(void);

/* What was noted, as core_tuning.h has it, into `text`. Returns false if there was no choice. */
bool core_choice_last(char *text, size_t bytes);

#endif
