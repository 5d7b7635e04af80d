/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's part of a schedule as the executor reads it: its program, which lies in device memory
 * and serves all calls and sizes, and the arguments of a launch, which carry a call's buffers and
 * sizes. Shared by the host and the kernels.
 *
 * A program is three arrays: lanes, their steps, and the steps' operands. Places (blocks of
 * buffers) stand in it as numbers, and a launch says where they are; of many, which its arguments
 * have no room for, a table behind the program does. A short program is in the arguments itself:
 * each load from memory before the first byte of data costs a kernel some 0.6 us.
 *
 * A link is a connection as one of its two ranks sees it, numbered among those that come in or that
 * go out. Its message k, counted from 0 in each call, goes through slot k % slots. A launch has
 * `parts` blocks for each lane; the p-th moves the p-th part of every piece, and meets only the
 * p-th block at the other end, so blocks never wait for others of their own grid.
 *
 * Each rank has an arena, which it shares with the others (core_arena.h):
 *
 *     tails   a word for each incoming link and part: messages that the sender has written
 *     heads   a word for each outgoing link and part: messages that the receiver has read
 *     seen    a word for each rank and block, for the probe
 *     ended   of enqueued calls: a word for each rank, how many it has ended
 *     own     of enqueued calls: this rank's count of them, and of blocks
 *     slots   of incoming links: LL packets in one region, lines of LL128 in another, bytes of
 *             Simple in a third
 *     scratch
 *
 * so that every word lies where it is waited for. All words carry the call's number in their upper
 * bits (`epoch`): they only grow, and nothing is cleared between calls.
 *
 * Enqueued calls (docs/decisions/0027) have no host that would know when the others are past the
 * last one. Their arenas have two halves, each with words, slots and scratch of its own, which odd
 * and even calls use; only `ended` and `own` stand in the first one for both. The call's number is
 * in `own`, where kernels count it, so that a launch can be repeated as it is.
 */
#ifndef GPU_PROGRAM_H
#define GPU_PROGRAM_H

#include "gpu/kernels/gpu_types.h"

#include <stdint.h>

enum gpu_protocol { GPU_PROTOCOL_SIMPLE, GPU_PROTOCOL_LL, GPU_PROTOCOL_LL128, GPU_PROTOCOL_NUM };

/*
 * How a link's memory is reached: that of the receiver's device; pinned memory of the host, which
 * ranks of a node share; or, between nodes, memory of each end's own, of the host or the device,
 * between which the hosts pass messages on. There a rank has an arena for what comes in and one for
 * what goes out, and numbers slots and words in both as its own links: a kernel waits for words of
 * the first, which its host writes in the place of the other end, and writes words of the second,
 * for which its host looks (core_proxy.h).
 */
enum gpu_transport {
	GPU_TRANSPORT_P2P,
	GPU_TRANSPORT_SHM,
	GPU_NUM_SHARED, /* transports whose arenas others map */
	GPU_TRANSPORT_NET = GPU_NUM_SHARED,
	GPU_TRANSPORT_NUM
};

enum {
	GPU_MAX_PEERS = 64,           /* processes of a node in one accelerated call */
	GPU_PEER_FAR = GPU_MAX_PEERS, /* instead of a peer's number on the node: on another */
	GPU_MAX_PLACES = 4096,        /* of a program */
	GPU_FEW_PLACES = 128,         /* of these, in the launch's arguments */
	GPU_FEW_LANES = 8,            /* the same; of several kernels' worth of work, too */
	GPU_FEW_STEPS = 16,           /* of a program that goes with the arguments altogether */
	GPU_FEW_OPERANDS = 48,
	GPU_MAX_LINKS = 128, /* of a program, in each direction */
	GPU_MAX_PARTS = 32,  /* of a chunk */
	GPU_MAX_LANES = 64,  /* of a rank at a time */
	/* Of a step: all of a node's buffers on both sides, and a few links. */
	GPU_MAX_OPERANDS = 2 * GPU_MAX_PEERS + 4,
	GPU_EPOCH_SHIFT = 24, /* messages of a link in a call: fewer than 1 << this */
	GPU_PART_UNIT = 128,  /* bytes: parts begin at multiples of it */
	GPU_LL_DATA = 4,      /* bytes of data in a packet of 8 */
	GPU_MAX_RINGS = 64,   /* of a launch, and of a ring's times (struct gpu_times) */
	GPU_MAX_TIMES = 63,

	GPU_ARENA_TAILS = 0,
	GPU_ARENA_HEADS = GPU_ARENA_TAILS + 8 * GPU_MAX_LINKS * GPU_MAX_PARTS,
	GPU_ARENA_SEEN = GPU_ARENA_HEADS + 8 * GPU_MAX_LINKS * GPU_MAX_PARTS,
	GPU_MAX_PROBED = 256, /* ranks times blocks */
	GPU_ARENA_ENDED = GPU_ARENA_SEEN + 8 * GPU_MAX_PROBED,
	GPU_ARENA_OWN = GPU_ARENA_ENDED + 8 * GPU_MAX_PEERS,
	GPU_ARENA_SLOTS = 72 << 10,
};

/* Of enqueued calls, in the first half of a rank's own arena. */
struct gpu_own {
	uint64_t number; /* of the next call, or of the one that runs */
	uint64_t blocks; /* of that one, that have ended */
};

/* The same in pinned memory, for the host. Writer: the call's last block; but for `failed`. */
struct gpu_enqueued {
	uint64_t ended;  /* the `ticket` of the last launch that had one */
	uint64_t number; /* calls that have ended, repeated ones too */
	uint64_t begun;  /* the same, that have begun. Writer: each block */
	uint64_t failed; /* not 0: a block gave up, and results are wrong. Writer: that block */
	uint64_t abort;  /* not 0: give up. Writer: the host */
	uint64_t behind; /* what was put behind kernels, and has ended. Writer: the stream */
	int barrier[2];  /* what a barrier reads and writes */
	/* Of groups of messages (gpu_exchange.h): as `number` and `begun`. */
	uint64_t exchanges, exchanges_begun;
	/*
	 * Not 0: one more than who sent a message that had not its receiver's size, or was of
	 * another call, of the same size then. Writer: the receiver's kernel, this word last.
	 */
	uint64_t mismatched, mismatched_sent, mismatched_wanted;
};

enum gpu_operand_kind {
	GPU_OPERAND_PLACE,
	GPU_OPERAND_SCRATCH, /* a place that every round uses from its beginning */
	GPU_OPERAND_RECEIVE,
	GPU_OPERAND_SEND
};

/* 16 bytes, which a thread loads at once; so are the steps and lanes. */
struct gpu_operand {
	uint16_t kind;      /* enum gpu_operand_kind */
	uint16_t index;     /* of the place, or of the link among this rank's of its direction */
	uint16_t peer;      /* of a link: who is at its other end, or GPU_PEER_FAR */
	uint16_t theirs;    /* of a link: its index there */
	uint32_t message;   /* of a link: which of the round's */
	uint32_t per_round; /* messages of the link in a round */
};

struct gpu_step {
	uint32_t first;       /* operand: sources, then targets */
	uint16_t piece, span; /* the first piece, and how many there are */
	uint16_t num_sources, num_targets;
	uint16_t sized; /* the place whose size is the step's */
	uint16_t swap;
};

/* When a step of a round began, had its messages, and was done: ns, on the device's clock. */
struct gpu_time {
	uint32_t first, round; /* the step, by its first operand */
	uint64_t began, ready, ended;
};

/*
 * The last ones of a lane, in a ring, as one of its blocks saw them: for the timeline. LL and LL128
 * wait as they go; their messages are said to be there at once. Writer: the block, at its end,
 * behind what it finds there; reader: the host, when the kernel has ended.
 */
struct gpu_times {
	uint64_t num; /* that there were */
	uint64_t unused[3];
	struct gpu_time last[GPU_MAX_TIMES];
};

/* A lane, or a part of one: what a block goes through. */
struct gpu_work {
	uint32_t first_step, num_steps;
	uint32_t first_round, num_rounds;
};

struct gpu_place {
	uint64_t address, bytes;
};

struct gpu_execute_args {
	/*
	 * A row of words in pinned memory that the host cleared, one for each block. Writer: each
	 * block, at its end, with an enum gpu_end; reader: the host that launched it. 0: none.
	 */
	uint64_t done;
	uint64_t steps, operands; /* in device memory; 0: they are `few_steps`, `few_operands` */
	uint64_t work;            /* a row of struct gpu_work, or 0: it is `few_work` */
	uint64_t abort;           /* a word in pinned memory; not 0: leave. 0: none */
	uint64_t times;           /* GPU_MAX_RINGS of struct gpu_times, in pinned memory; 0: none */
	uint64_t epoch;           /* of the words: the number of the call, above GPU_EPOCH_SHIFT;
				   * enqueued, that of the first one */
	uint64_t width;           /* bytes of each block in a round; 0: all, there is one round */
	uint64_t slot_bytes;      /* of data: room for as many pieces as a step has at most */
	uint64_t piece_bytes;     /* room for one: a multiple of GPU_PART_UNIT times the parts */
	uint64_t table;           /* in device memory, the places; 0: they are `places` */
	uint64_t shm;             /* peers, as bits, whose links use pinned memory of the host */
	uint64_t slots[GPU_PROTOCOL_NUM]; /* where they begin in an arena */
	uint64_t mine[GPU_TRANSPORT_NUM]; /* this rank's arenas */
	/*
	 * Of enqueued calls: a struct gpu_enqueued; 0: this is none, and what follows has no
	 * meaning. The launch's number on the host, 0 where it may be repeated; bytes of an arena's
	 * half; members, and this one's number among them.
	 */
	uint64_t enqueued, ticket, half;
	uint32_t ranks, rank;
	/* enum gpu_type, gpu_op. Without an operation, a type that is padded, or none. */
	uint32_t type, op;
	uint32_t protocol; /* enum gpu_protocol, on the node */
	uint32_t flag;     /* LL: the flag of message 0, less 1 */
	uint32_t num_slots, parts, pieces, unit;
	uint32_t waits;  /* for messages, in the kernel: fused */
	uint32_t spread; /* each step of a lane has blocks of its own */
	struct gpu_work few_work[GPU_FEW_LANES];
	struct gpu_step few_steps[GPU_FEW_STEPS];
	struct gpu_operand few_operands[GPU_FEW_OPERANDS];
	/*
	 * The others' arenas, as this rank's kernels reach them; of GPU_PEER_FAR, its own for what
	 * goes out.
	 */
	uint64_t theirs[GPU_MAX_PEERS + 1];
	struct gpu_place places[GPU_FEW_PLACES];
};

/* How a block ended. LATE: of the probe, when others had not come at all. */
enum gpu_end { GPU_END_DONE = 1, GPU_END_ABORTED = 2, GPU_END_LATE = 3 };

/* gpu_probe: do as many blocks of all ranks run at a time? See gpu_probe.cu. */
struct gpu_probe_args {
	uint64_t done; /* as above: GPU_END_DONE where they do, ABORTED where not, or LATE */
	uint64_t epoch;
	uint64_t patience, round_trip; /* ns: for the others to come; for a round, then */
	uint64_t mine;
	uint32_t rank, ranks;
	uint64_t theirs[GPU_MAX_PEERS];
};

enum { GPU_PROBE_ROUNDS = 16 };

#endif
