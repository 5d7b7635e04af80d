/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launching the executor, and noticing that it is done.
 *
 * Done is a row of words in pinned memory, one for each block, which costs a load to look at. A
 * kernel that faulted never writes them, so the stream is asked too, at a slow rate.
 */
#ifndef GPU_LAUNCH_H
#define GPU_LAUNCH_H

#include "gpu/gpu_module.h"
#include "gpu/gpu_staging.h"
#include "gpu/kernels/gpu_exchange.h"
#include "gpu/kernels/gpu_verify.h"

/* The size of an element; every one divides 16. */
unsigned gpu_type_bytes(enum gpu_type type);

/* Bytes of an element that hold data, from an offset in it. */
struct gpu_type_part {
	unsigned offset, bytes;
};

enum { GPU_TYPE_MOST_PARTS = 2 };

/* Those of a padded type's element, by offset. Returns how many there are. */
int gpu_type_parts(enum gpu_type type, struct gpu_type_part parts[GPU_TYPE_MOST_PARTS]);

/* The padding behind the last. */
unsigned gpu_type_tail(enum gpu_type type);

struct gpu_launch {
	struct gpu_stream *stream; /* the caller's */
	struct gpu_staging_block *memory;
	struct gpu_launch_memory *host; /* in it */
	uint64_t device;                /* its address for kernels */
	unsigned multiprocessors;
	unsigned blocks, ended, polls;
	bool aborted; /* a block gave up */
	bool late;    /* ... since others had not begun */
};

/*
 * Take what launches on the stream need. UTIL_ERR_UNSUPPORTED, without a warning, where there can
 * be none: no pinned memory, no kernels. UTIL_OK: gpu_launch_close must follow.
 */
enum util_status gpu_launch_open(struct gpu_launch *launch, struct gpu_stream *stream);

/* Give that back. */
void gpu_launch_close(struct gpu_launch *launch);

/* Whether launches wait for their kernels: CUDA_LAUNCH_BLOCKING, which people set for debugging. */
bool gpu_launch_is_blocking(void);

/* How many blocks are worth their start for so many bytes, `most` at most. */
unsigned gpu_launch_blocks(uint64_t bytes, unsigned most);

/* Blocks of a launch, at most. */
unsigned gpu_launch_most(const struct gpu_launch *launch);

/*
 * Start one kernel, not before the last one is done: `args->parts` blocks for each of the `num`
 * lanes of `work`. `bytes`: what the largest part moves to each of its targets. The launch sets
 * `done`, `work`, `only` and `abort`.
 */
enum util_status gpu_launch_execute(struct gpu_launch *launch, struct gpu_execute_args *args,
				    const struct gpu_work *work, unsigned num, uint64_t bytes);

/*
 * Put a kernel on a stream for its own order, and leave it to itself: of a call whose arguments are
 * those of an enqueued one, or else of steps that wait for nothing, with `args->enqueued` 0. `num`
 * lanes, GPU_FEW_LANES at most; none: an enqueued call is counted all the same. `bytes` as above.
 */
enum util_status gpu_launch_leave(struct gpu_stream *stream, struct gpu_execute_args *args,
				  const struct gpu_work *work, unsigned num, uint64_t bytes);

/*
 * The same of a group of messages, of which no part is longer than `bytes`, by so many blocks, as
 * `args->used` has.
 */
enum util_status gpu_launch_exchange(struct gpu_stream *stream, struct gpu_exchange_args *args,
				     unsigned blocks, uint64_t bytes);

/*
 * The first launch of a function may have the driver wait for the device: launch each that the
 * others launch, on the stream, with nothing to do.
 */
enum util_status gpu_launch_all(struct gpu_stream *stream);

/* The same for the probe, of `blocks` blocks. */
enum util_status gpu_launch_probe(struct gpu_launch *launch, struct gpu_probe_args *args,
				  unsigned blocks);

/*
 * Of gpu_verify.h: make the card of a rank, GPU_CARD_BYTES bytes. Copy, in stream order, this
 * rank's own, which is at `mine`, to another's cards, and that one's here.
 */
void gpu_card_make(uint64_t seed, uint32_t rank, void *card);
enum util_status gpu_card_exchange(struct gpu_stream *stream, uint64_t mine, uint32_t rank,
				   uint64_t theirs, uint32_t other);

/* The same for gpu_verify, of which the launch sets `done` and `found`. */
enum util_status gpu_launch_verify(struct gpu_launch *launch, struct gpu_verify_args *args);

/* What that has found, of an enum gpu_card_kind, or GPU_VERIFY_READ, once it is done. */
uint64_t gpu_launch_found(const struct gpu_launch *launch, int what);

/*
 * A kernel that waits for others keeps its place on the device, so a process has one at a time on
 * each, of bounded size: the room for it. False: another has it. Thread-safe.
 */
bool gpu_launch_reserve(int device);

/* Give the room back. Thread-safe. */
void gpu_launch_release(int device);

/*
 * Kernels of enqueued calls wait whenever they like, so they have blocks for themselves, of the
 * `room` that the process's kernels have on the device. Draw a quarter of what is left, `most` at
 * most, while no kernel of another kind waits there (gpu_launch_reserve). 0: there is nothing left.
 * Thread-safe.
 */
unsigned gpu_launch_draw(int device, unsigned room, unsigned most);

/* Give so many of them back. How many are drawn on a device. Thread-safe. */
void gpu_launch_put_back(int device, unsigned blocks);
unsigned gpu_launch_drawn(int device);

/* Have the blocks that wait give up. */
void gpu_launch_abort(struct gpu_launch *launch);

/* As gpu_launch_poll, without ever asking the driver, which may wait for other threads. */
enum util_status gpu_launch_look(struct gpu_launch *launch);

/*
 * UTIL_OK when the kernel is done and all that it wrote can be seen, UTIL_IN_PROGRESS, or its
 * error: UTIL_ERR_PEER where it gave up.
 */
enum util_status gpu_launch_poll(struct gpu_launch *launch);

#endif
