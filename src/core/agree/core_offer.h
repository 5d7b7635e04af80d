/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process says of its call to the other members. */
#ifndef CORE_OFFER_H
#define CORE_OFFER_H

#include "algos/algo_wish.h"
#include "gpu/gpu_ipc.h"
#include "gpu/kernels/gpu_program.h"

/* Raised when what an offer means has changed and its size has not: see hash_structures. */
enum { CORE_OFFER_MEANINGS = 4 };

enum { CORE_OFFER_MOST_FREED = 16 };

enum core_offer_flags {
	/* The others may lack a mapping of this process's memory. */
	CORE_OFFER_ASKS_VOTE = 1 << 0,
	/* This process may lack mappings of any memory: ask for all. */
	CORE_OFFER_FORGET = 1 << 1,
	CORE_OFFER_IN_PLACE = 1 << 2,
	/* The region is a window, which the input, or the output, goes through in slices. */
	CORE_OFFER_WINDOW_IN = 1 << 3,
	CORE_OFFER_WINDOW_OUT = 1 << 4,
	/* Its GPU has room for a kernel that waits. */
	CORE_OFFER_CAN_FUSE = 1 << 5,
	/* No flags of older messages are left in its arenas. */
	CORE_OFFER_FLAGS_CLEAR = 1 << 6,
	/* Kernels on its GPU were seen not to run together. */
	CORE_OFFER_APART = 1 << 7,
	/* A call with messages failed: it may have missed decisions. */
	CORE_OFFER_LINKS_FAILED = 1 << 8,
	/* Other nodes have calls to see before they hear of more. */
	CORE_OFFER_BEHIND = 1 << 9,
	/* There is a record of its input (core_record.h). */
	CORE_OFFER_EAGER = 1 << 10,
	/* Of a node: there can be links between its members. */
	CORE_OFFER_WHOLE = 1 << 11,
	/* UCX moves its device memory to other nodes; and is to, whatever that takes. */
	CORE_OFFER_DEVICE_WIRE = 1 << 12,
	CORE_OFFER_WANTS_GDR = 1 << 13,
	/* The regions name what others of its node may touch. */
	CORE_OFFER_EXPORTED = 1 << 14,
	/* Of a node: its members have mapped what was offered. */
	CORE_OFFER_MAPPED = 1 << 15,
	/* It shows its cards, in `cards`, if it could have any (core_proof.h). */
	CORE_OFFER_SHOWS_CARDS = 1 << 16,
	/* Its elements have padding, which only what moves elements leaves alone. */
	CORE_OFFER_PADDED = 1 << 17,
};

/* A buffer of the call: where it is in its process, and the allocation, for those who map it. */
struct core_region {
	uint64_t address;
	uint64_t bytes;           /* where it is one block */
	struct gpu_export memory; /* nothing where nobody else touches it */
};

/* What a process announces of its call. */
struct core_offer {
	uint32_t flags;
	uint16_t coll, type, op; /* enum core_coll, gpu_type, gpu_op */
	uint16_t p2p_reach;      /* see core_machines_reach */
	int32_t root;
	uint64_t bytes, counts; /* as in struct core_shape: what all must give alike */
	uint64_t device;        /* which GPU it would use, 0: none */
	uint64_t longest;       /* bytes of the longest of its blocks */
	uint64_t window;        /* bytes of its windows; UINT64_MAX: it has none */
	/* GPUCOLL_ALGO and so on, which count if it is the communicator's first. */
	struct algo_wish wish;
	uint32_t blocks; /* of a kernel that waits, at most */
	struct core_region in, out;
	struct core_region arenas[GPU_NUM_SHARED]; /* without memory: there is none */
	struct core_region cards;                  /* the same */
	/* With CORE_OFFER_ASKS_VOTE: allocations that it offered before and has freed. */
	uint64_t freed[CORE_OFFER_MOST_FREED];
	int32_t num_freed;
};

#endif
