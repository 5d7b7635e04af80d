/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dense stage: the data of a message's elements in pinned host memory, one after the other as MPI
 * sends them, whatever gaps they have where they lie. It holds no stream between copies, as many
 * receives may be pending.
 */
#ifndef CORE_DENSE_H
#define CORE_DENSE_H

#include "core/call/core_layout.h"
#include "gpu/gpu_staging.h"
#include "gpu/gpu_stream.h"

enum core_dense_state {
	CORE_DENSE_IDLE,
	CORE_DENSE_READY, /* waits for earlier work on the legacy streams */
	CORE_DENSE_COPY,  /* copies are on the stream */
};

struct core_dense {
	void *address;                  /* the first element's origin */
	const struct core_typemap *map; /* whose runs are in the order of the data */
	size_t count;                   /* elements */
	size_t size;                    /* bytes of an element's data */
	struct gpu_pointer where;
	bool pinned; /* what it takes is, whatever that costs */
	bool host;   /* it is the host's, which copies it */
	bool ready;  /* what is on default streams is not waited for */
	bool single; /* all is in one allocation, which kernels and wide copies need */
	struct gpu_staging_block *block, *table;
	/* While something is copied: */
	enum core_dense_state state;
	bool unpacks;
	size_t bytes; /* that are to be copied, the first ones */
	struct gpu_stream *stream;
};

/*
 * Take room for the data of an operand of one piece, whose runs are known, in order, and stay; some
 * of the operand is device or managed memory as `where` says. `pinned`: nothing else will do. On an
 * error the stage holds nothing.
 */
enum util_status core_dense_open(struct core_dense *dense, const struct core_operand *operand,
				 const struct gpu_pointer *where, bool pinned);

/* How many bytes its data are. */
size_t core_dense_bytes(const struct core_dense *dense);

/* Where its data are, one after the other. */
void *core_dense_data(const struct core_dense *dense);

/* Begin to copy the first `bytes` bytes of the data from where they lie into the stage. */
void core_dense_pack(struct core_dense *dense, size_t bytes);

/* Begin to copy the first `bytes` bytes of the stage to where the data lie. */
void core_dense_unpack(struct core_dense *dense, size_t bytes);

/*
 * Go on with that. UTIL_IN_PROGRESS: call again. It waits neither for earlier work nor for copies.
 */
enum util_status core_dense_progress(struct core_dense *dense);

/* Go on to the end, letting the real MPI make progress meanwhile. */
enum util_status core_dense_wait(struct core_dense *dense);

/*
 * Put the copies of all data, to the stage or from it, on a stream, in whose order they are done;
 * the stage is to stay until then.
 */
enum util_status core_dense_put(struct core_dense *dense, struct gpu_stream *on, bool unpacks);

/* Waits for copies that are under way after an error. */
void core_dense_close(struct core_dense *dense);

#endif
