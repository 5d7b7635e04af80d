/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group of messages as one kernel (docs/decisions/0030): see gpu_exchange.cu. Shared by the host
 * and the kernel.
 *
 * Behind the two halves of an arena (gpu_program.h), at the same place in each rank's:
 *
 *     own     struct gpu_exchange_own
 *     tails   of what others send here: bytes that the sender has put into the FIFO since ever
 *     heads   of what is sent from here: the same that the receiver has taken out of it
 *     sent    this rank's own count of the first
 *     taken   and of the second
 *     FIFOs   of what others send here
 *
 * each with a word, or a FIFO, for each other rank, in their order, and lane. `own`, `sent` and
 * `taken` are in the device's arena only; the others in that of the pair's transport.
 */
#ifndef GPU_EXCHANGE_H
#define GPU_EXCHANGE_H

#include "gpu/kernels/gpu_program.h"

enum {
	GPU_EXCHANGE_UNIT = 16,           /* bytes: of what is in a FIFO, and of a header */
	GPU_EXCHANGE_LEAST = 32 << 10,    /* of a part, but for a message's last one */
	GPU_EXCHANGE_MOST_BLOCKS = 32,    /* bits of `used` */
	GPU_EXCHANGE_MOST_LANES = 32,     /* of a pair of ranks; blocks at most */
	GPU_EXCHANGE_MOST_FIFO = 1 << 20, /* bytes */
	GPU_EXCHANGE_MOST_ROUTES = 2 * GPU_MAX_PEERS, /* and so of a block's ends */
	GPU_EXCHANGE_FEW_ROUTES = 96,                 /* in the launch's arguments */
	GPU_EXCHANGE_FEW_BUFFERS = 96,
	GPU_EXCHANGE_WORDS = 128, /* where the tails begin */
};

enum gpu_exchange_kind { GPU_EXCHANGE_SEND, GPU_EXCHANGE_RECEIVE, GPU_EXCHANGE_COPY };

/* A message, at one of its ends; of a copy, the source, and behind it the target. */
struct gpu_exchange_buffer {
	uint64_t address, bytes;
};

/*
 * A pair of ranks in one direction, with its messages in order: an end for each of the lanes that
 * its longest message needs, in the blocks from `block` on, round all of them.
 */
struct gpu_exchange_route {
	uint16_t kind, peer, lanes, block;
	uint32_t first, num; /* buffers */
};

struct gpu_exchange_own {
	uint64_t number;     /* of the exchange that runs, or of the next */
	uint64_t dead;       /* not 0: one was given up, and what is in the FIFOs has no meaning */
	uint64_t blocks;     /* of the one that runs, that have ended */
	uint64_t mismatches; /* that were found */
};

struct gpu_exchange_args {
	/* Where kernels find them; 0: they are `few_routes` and `few_buffers`. */
	uint64_t routes, buffers;
	uint64_t enqueued; /* a struct gpu_enqueued */
	uint64_t shm;      /* as in struct gpu_execute_args */
	uint64_t mine[GPU_NUM_SHARED];
	uint64_t words;      /* where in an arena all this begins */
	uint64_t fifo_bytes; /* a power of two */
	uint64_t ticket;     /* as in struct gpu_execute_args */
	uint64_t id;         /* of the call, as its other ends have it */
	/* blocks: among which lanes are dealt out, as all ranks know; used: those that have ends */
	uint32_t ranks, rank, lanes, num_routes, blocks, used;
	struct gpu_exchange_route few_routes[GPU_EXCHANGE_FEW_ROUTES];
	struct gpu_exchange_buffer few_buffers[GPU_EXCHANGE_FEW_BUFFERS];
	uint64_t theirs[GPU_MAX_PEERS]; /* of this one, nothing */
};

/* Where the FIFOs begin, behind the words of so many lanes of all other ranks. */
GPU_COMMON uint64_t gpu_exchange_words(uint64_t lanes)
{
	uint64_t words = 4 * 8 * lanes;

	return GPU_EXCHANGE_WORDS + (words + GPU_PART_UNIT - 1) / GPU_PART_UNIT * GPU_PART_UNIT;
}

/*
 * Both ranks of a pair have a lane, in both directions, in the same of their blocks. So, where they
 * group their messages alike, a kernel comes to its end of whose blocks only the first one finds a
 * place on the device: all first blocks do, and then the second one has a place.
 *
 * A pair has a turn in which each of its ranks meets nobody else, as in a tournament by the circle
 * method; the last one of an even number meets who would meet himself. The turns begin all around
 * the blocks, and the pair's lanes have the blocks from there on. With no more lanes than blocks a
 * block has one lane of a pair at most.
 */
GPU_COMMON uint32_t gpu_exchange_block(uint32_t ranks, uint32_t one, uint32_t other,
				       uint32_t blocks)
{
	uint32_t turns = ranks % 2 ? ranks : ranks - 1;

	if (one == turns)
		one = other;
	if (other == turns)
		other = one;
	return (one + other) % turns * blocks / turns;
}

/* A lane's part of a message. */
struct gpu_exchange_part {
	uint64_t first, bytes;
};

GPU_COMMON uint64_t gpu_exchange_share(uint64_t bytes, uint32_t lanes)
{
	uint64_t share = GPU_EXCHANGE_LEAST;

	if (bytes > share * lanes)
		share = ((bytes + lanes - 1) / lanes + GPU_PART_UNIT - 1) / GPU_PART_UNIT *
			GPU_PART_UNIT;
	return share;
}

GPU_COMMON struct gpu_exchange_part gpu_exchange_part(uint64_t bytes, uint32_t lanes, uint32_t lane)
{
	uint64_t share = gpu_exchange_share(bytes, lanes), first = share * lane, left;
	struct gpu_exchange_part part = {first, 0};

	left = bytes > first ? bytes - first : 0;
	part.bytes = left < share ? left : share;
	return part;
}

#endif
