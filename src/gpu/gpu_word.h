/* SPDX-License-Identifier: BSD-3-Clause */
/* Words of the host's memory by which a stream and the host wait for each other. */
#ifndef GPU_WORD_H
#define GPU_WORD_H

#include "gpu/gpu_stream.h"

#include <stdint.h>

/* Whether streams of its device can write words and wait for them. */
bool gpu_word_is_possible(const struct gpu_stream *stream);

/*
 * In stream order: store a word; wait until a word has at least a value. The word is in memory of
 * the host that kernels in the stream's context know by the address. What was on the stream before
 * comes before the store, what is put on it after the wait comes after that (readers and writers on
 * the host: acquire and release).
 */
enum util_status gpu_word_store(struct gpu_stream *stream, uint64_t address, uint64_t value);
enum util_status gpu_word_await(struct gpu_stream *stream, uint64_t address, uint64_t value);

/*
 * Both by one kernel, which holds a multiprocessor's place while it waits; `awaited`, 0: only the
 * first. UTIL_ERR_UNSUPPORTED, without a warning: the device has not our kernels.
 */
enum util_status gpu_word_pass(struct gpu_stream *stream, uint64_t came, uint64_t awaited,
			       uint64_t value);

#endif
