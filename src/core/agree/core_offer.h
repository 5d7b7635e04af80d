/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process says of its call to the other members. */
#ifndef CORE_OFFER_H
#define CORE_OFFER_H

#include "algos/algo_wish.h"
#include "gpu/gpu_ipc.h"
#include "gpu/kernels/gpu_program.h"

/* Raised when what an offer means has changed and its size has not: see hash_structures. */
enum { CORE_OFFER_MEANINGS = 6 };

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

/* What an offer names of its process's memory: buffers of the call, and its arenas and cards. */
enum core_region_number {
	CORE_REGION_IN,
	CORE_REGION_OUT,
	CORE_REGION_ARENAS, /* by transport */
	CORE_REGION_CARDS = CORE_REGION_ARENAS + GPU_NUM_SHARED,
	CORE_NUM_REGIONS
};

struct core_region {
	uint64_t address;
	uint64_t bytes;     /* where it is one block */
	uint64_t buffer_id; /* the allocation's; 0: there is none, or nobody else touches it */
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
	/*
	 * In a warm call others read no further than this: each line of the cache that they fetch
	 * from each other is a part of its time.
	 */
	struct core_region regions[CORE_NUM_REGIONS];
	/* The regions' allocations, for those who have not mapped them. */
	struct gpu_export exports[CORE_NUM_REGIONS];
	/* With CORE_OFFER_ASKS_VOTE: allocations that it offered before and has freed. */
	uint64_t freed[CORE_OFFER_MOST_FREED];
	int32_t num_freed;
};

/* Bytes of its arena; 0: there is none. */
static inline uint64_t core_offer_arena(const struct core_offer *offer)
{
	return offer->regions[CORE_REGION_ARENAS + GPU_TRANSPORT_P2P].bytes;
}

/*
 * Name the allocation at the address, which the region is in, as gpu_ipc_export does. False: it
 * can't be exported, or not without a descriptor, where `passes` says that these do not get to all;
 * the region then has its id all the same, by which others find out.
 */
static inline bool core_offer_export(struct core_offer *offer, enum core_region_number number,
				     uint64_t address, const struct gpu_pointer *where, bool passes)
{
	struct gpu_export *export = &offer->exports[number];
	enum util_status status;

	export->buffer_id = 0;
	status = gpu_ipc_export(address, where, export);
	offer->regions[number].buffer_id = export->buffer_id;
	if (!passes && gpu_export_has_fd(export))
		export->kind = GPU_EXPORT_NONE;
	return status == UTIL_OK && export->kind != GPU_EXPORT_NONE;
}

#endif
