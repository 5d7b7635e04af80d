/* SPDX-License-Identifier: BSD-3-Clause */
/* What the configuration wishes for: GPUCOLL_ALGO, GPUCOLL_PROTO, GPUCOLL_CHANNELS. */
#ifndef CORE_WISH_H
#define CORE_WISH_H

#include "algos/algo_wish.h"

/* Read the options; `warns`: say what is wrong with them, which is ignored. Not thread-safe. */
void core_wish_read(bool warns);

/*
 * Wish for this instead, texts as of the options. False: one is none, and nothing has changed. Not
 * while a call is under way.
 */
bool core_wish_set(const char *algos, const char *protos, const char *channels);

/* For the collective. */
const struct algo_wish *core_wish_of(enum sched_coll coll);

/* Whether the configuration wishes for an algorithm that takes links. */
bool core_wish_wants_links(enum sched_coll coll);

#endif
