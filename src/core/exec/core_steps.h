/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Going through a program: which steps are launched when.
 *
 * Fused, all lanes and rounds are one launch, in which blocks wait for messages themselves; those
 * between nodes this process carries meanwhile (core_proxy.h).
 * Stepped, a launch has from each lane the steps for which all is there, and this file waits for
 * messages and passes them on, with words on the board; kernels then wait for nobody. Steps without
 * messages wait for nothing, so a direct algorithm is one launch either way. Steps that the network
 * can do alone (sched_carry.h) are in no launch.
 */
#ifndef CORE_STEPS_H
#define CORE_STEPS_H

#include "core/exec/core_walk.h"

/* From the beginning of the phase. Nothing may be running. */
void core_steps_begin(struct core_steps *steps);

/*
 * Do what can be done now. UTIL_OK: all is done. UTIL_IN_PROGRESS. An error: no more is launched;
 * what is running must be waited for still, by core_steps_settle.
 */
enum util_status core_steps_progress(struct core_steps *steps);

/* UTIL_OK: nothing is running. UTIL_IN_PROGRESS. */
enum util_status core_steps_settle(struct core_steps *steps);

/*
 * Whether a kernel of these steps is running for which this process carries messages. Who carries
 * them must not meanwhile do what the driver may let wait for kernels: free, map or unmap memory.
 */
bool core_steps_carry(const struct core_steps *steps);

/* The same of any steps of this process. Any thread. */
bool core_steps_any_carry(void);

/* What is waited for, for people. Ranks are the communicator's. */
void core_steps_describe(const struct core_steps *steps, char *text, size_t bytes);

#endif
