/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a user wishes: lists of algorithms, protocols and numbers of channels, for all collectives
 * or for some, in NCCL's syntax:
 *
 *     ring,tree                       one of these, wherever there is one of the name
 *     ^ring                           all but this
 *     tree;bcast:ring;alltoall:^bruck the first for all, then others for some
 */
#ifndef ALGO_WISH_H
#define ALGO_WISH_H

#include "algos/algo.h"
#include "algos/sched_slots.h"

/* For one collective. Whatever is 0 is not wished for: all are alike. */
struct algo_wish {
	uint64_t algos;    /* a bit for each of the catalogue */
	uint16_t protos;   /* a bit for each enum sched_proto */
	uint16_t channels; /* a number, ALGO_MOST_CHANNELS at most */
};

/*
 * Read a list of algorithms; NULL and "" wish for nothing. They are added to the wishes for all
 * collectives, an array of SCHED_NUM_COLLS. False: the text is none, `error` says why in a few
 * words, and nothing has been added.
 */
bool algo_wish_algos(const char *text, struct algo_wish *wishes, char *error, size_t bytes);

/* The same of a list of protocols. */
bool algo_wish_protos(const char *text, struct algo_wish *wishes, char *error, size_t bytes);

/* The same of numbers of channels. */
bool algo_wish_channels(const char *text, struct algo_wish *wishes, char *error, size_t bytes);

/* Whether it grants the algorithm. */
bool algo_wish_grants(const struct algo_wish *wish, const struct algo *algo);

/* Whether it grants the algorithm by the protocol, which matters where there are messages. */
bool algo_wish_grants_way(const struct algo_wish *wish, const struct algo *algo,
			  enum sched_proto proto);

#endif
