/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LL protocol (low latency): a message is packets of 8 bytes, half data and half flag, which
 * are stored and loaded whole, so that the data need no fence and no counter: who finds the flag
 * has the data. The flag is the number of the message, which no older packet in the slot has.
 *
 * When: small messages; it halves the bandwidth, and saves a round trip to memory in each hop.
 * test/model/ll.pml is the model of it. The idea is NCCL's.
 */
#ifndef GPU_LL_H
#define GPU_LL_H

#include "gpu/kernels/gpu_combine.h"
#include "gpu/kernels/gpu_program.h"

enum { GPU_LL_PACKETS = GPU_VEC / GPU_LL_DATA }; /* for 16 bytes of data */

/* A chunk some of whose operands are messages. */
struct gpu_ll {
	const uint32_t *source_flags, *target_flags; /* of each operand; 0: it is a place */
	uint64_t abort;
};

/* Writer: the peer's gpu_ll_send, for this packet; reader: this thread, which alone uses the data
 * it gets here. False: given up. */
GPU_DEVICE bool gpu_ll_receive(uint64_t address, uint32_t flag, uint64_t abort,
			       struct gpu_vec *data)
{
	uint32_t words[GPU_LL_PACKETS], tries = 0;
	bool all;

	do {
		all = true;
		GPU_UNROLL
		for (int i = 0; i < GPU_LL_PACKETS; i++) {
			uint64_t packet = gpu_load_relaxed(address + 8 * i);

			words[i] = (uint32_t)packet;
			all &= (uint32_t)(packet >> 32) == flag;
		}
		if (!all && gpu_give_up(abort, &tries))
			return false;
	} while (!all);
	memcpy(data, words, GPU_VEC);
	return true;
}

GPU_DEVICE void gpu_ll_send(uint64_t address, uint32_t flag, struct gpu_vec data)
{
	uint32_t words[GPU_LL_PACKETS];

	memcpy(words, &data, GPU_VEC);
	GPU_UNROLL
	for (int i = 0; i < GPU_LL_PACKETS; i++)
		gpu_store_relaxed(address + 8 * i, (uint64_t)flag << 32 | words[i]);
}

/* 16 bytes of a place, or the fewer that are left. */
GPU_DEVICE struct gpu_vec gpu_ll_load(uint64_t address, uint64_t bytes)
{
	unsigned char data[GPU_VEC] = {};
	struct gpu_vec vec;

	if (bytes >= GPU_VEC && !(address & (GPU_VEC - 1)))
		return gpu_load_vec(address);
	for (unsigned i = 0; i < GPU_VEC && i < bytes; i++)
		data[i] = gpu_load8(address + i);
	memcpy(&vec, data, GPU_VEC);
	return vec;
}

GPU_DEVICE void gpu_ll_store(uint64_t address, uint64_t bytes, struct gpu_vec vec)
{
	unsigned char data[GPU_VEC];

	if (bytes >= GPU_VEC && !(address & (GPU_VEC - 1))) {
		gpu_store_vec(address, vec);
		return;
	}
	memcpy(data, &vec, GPU_VEC);
	for (unsigned i = 0; i < GPU_VEC && i < bytes; i++)
		gpu_store8(address + i, data[i]);
}

/* 16 bytes of a source, at `at` in the chunk. */
GPU_DEVICE bool gpu_ll_take(const struct gpu_ll *ll, const struct gpu_chunk *c, uint32_t source,
			    uint64_t at, struct gpu_vec *data)
{
	uint32_t flag = ll->source_flags[source];

	if (flag)
		return gpu_ll_receive(c->sources[source] + 2 * at, flag, ll->abort, data);
	*data = gpu_ll_load(c->sources[source] + at, c->bytes - at);
	return true;
}

/* False: given up. */
template <typename T, typename F, bool HOT>
GPU_CALLED bool gpu_ll_combine(const struct gpu_ll *ll, const struct gpu_chunk *c)
{
	for (uint64_t at = gpu_thread() * GPU_VEC; at < c->bytes; at += gpu_threads() * GPU_VEC) {
		struct gpu_vec sum, vec;

		if (!gpu_ll_take(ll, c, 0, at, &sum))
			return false;
		for (uint32_t s = 1; s < c->num_sources; s++) {
			if (!gpu_ll_take(ll, c, s, at, &vec))
				return false;
			gpu_fold_in<T, F, HOT>(c->op, &sum, vec);
		}
		for (uint32_t t = 0; t < c->num_targets; t++) {
			if (ll->target_flags[t])
				gpu_ll_send(c->targets[t] + 2 * at, ll->target_flags[t], sum);
			else
				gpu_ll_store(c->targets[t] + at, c->bytes - at, sum);
		}
	}
	return true;
}

GPU_DEVICE bool gpu_ll_copy(const struct gpu_ll *ll, const struct gpu_chunk *c)
{
	return gpu_ll_combine<uint8_t, gpu_no_op<uint8_t>, false>(ll, c);
}

#endif
