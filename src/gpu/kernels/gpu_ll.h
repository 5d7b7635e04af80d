/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LL protocols (low latency): messages whose data bring their own flags, so that they need no
 * fence and no counter: who finds the flag has the data. A flag is the number of the message, which
 * nothing older in the slot has.
 *
 * LL: packets of 8 bytes, half data and half flag, which are stored and loaded whole. When: small
 * messages; it halves the bandwidth, and saves a round trip to memory in each hop. A thread has 16
 * bytes of data, so four packets, which it moves as two pairs; where a warp's are all there, all
 * first pairs lie next to each other, and then all second ones, so that its accesses fill whole
 * sectors.
 *
 * LL128: lines of 128 bytes, of which 8 are the flag, which arrive whole where the hardware does
 * so (docs/memory-model.md). When: messages that LL's flags would make
 * long, and that are over before Simple's pipeline is full. Lines go in pairs, since of the last
 * thread's shares of two lines what the flags leave is 16 bytes: so all data, 240 bytes in 256, go
 * as words of 16 bytes, which are aligned as they are in the buffers.
 *
 * test/model/ll.pml is the model of both. The idea is NCCL's.
 */
#ifndef GPU_LL_H
#define GPU_LL_H

#include "gpu/kernels/gpu_combine.h"
#include "gpu/kernels/gpu_program.h"

enum {
	GPU_LL_PACKETS = GPU_VEC / GPU_LL_DATA,            /* for 16 bytes of data */
	GPU_LL_GROUP = 32 * GPU_VEC,                       /* data of a warp's threads */
	GPU_LINES_DATA = 2 * GPU_LINE - 2 * 8,             /* of a pair */
	GPU_LINES_SECOND = (GPU_LINE_SHARES - 1) * GPU_VEC /* where the data of the second begin */
};

/* A chunk some of whose operands are messages. */
struct gpu_ll {
	const uint64_t *source_flags, *target_flags; /* of each operand; 0: it has none */
	uint64_t abort;
	bool lines; /* LL128 */
};

/* What a thread moves at a time: 16 bytes, or its shares of a pair of lines. */
struct gpu_ll_turn {
	uint64_t wire;  /* where in a message; of packets, the first pair */
	uint64_t apart; /* of packets: from there to the second pair */
	uint64_t at[2]; /* where in the chunk */
	uint32_t num;
	uint32_t share; /* of the lines */
};

/* ---- packets ---- */

/* Both ends know the chunk's size, and so whether the group is a whole one. */
GPU_DEVICE struct gpu_ll_turn gpu_ll_packets(uint64_t at, uint64_t bytes)
{
	uint64_t group = at / GPU_LL_GROUP * GPU_LL_GROUP;

	if (group + GPU_LL_GROUP > bytes)
		return {2 * at, GPU_VEC, {at, 0}, 1, 0};
	return {2 * group + (at - group), GPU_LL_GROUP, {at, 0}, 1, 0};
}

/*
 * Writer: the peer's gpu_ll_send, for this packet; reader: this thread, which alone uses the data
 * it gets here. False: given up.
 */
GPU_DEVICE bool gpu_ll_receive(uint64_t address, uint64_t apart, uint32_t flag, uint64_t abort,
			       struct gpu_vec *data)
{
	uint32_t words[GPU_LL_PACKETS], tries = 0;
	bool all;

	do {
		all = true;
		GPU_UNROLL
		for (int i = 0; i < 2; i++) {
			struct gpu_vec pair = gpu_load_pair(address + apart * i);

			for (int j = 0; j < 2; j++) {
				words[2 * i + j] = (uint32_t)pair.w[j];
				all &= (uint32_t)(pair.w[j] >> 32) == flag;
			}
		}
		if (!all && gpu_give_up(abort, &tries))
			return false;
	} while (!all);
	memcpy(data, words, GPU_VEC);
	return true;
}

GPU_DEVICE void gpu_ll_send(uint64_t address, uint64_t apart, uint32_t flag, struct gpu_vec data)
{
	uint32_t words[GPU_LL_PACKETS];

	memcpy(words, &data, GPU_VEC);
	GPU_UNROLL
	for (int i = 0; i < 2; i++)
		gpu_store_pair(address + apart * i, {{(uint64_t)flag << 32 | words[2 * i],
						      (uint64_t)flag << 32 | words[2 * i + 1]}});
}

/* ---- lines ---- */

GPU_DEVICE bool gpu_ll_is_last(const struct gpu_ll_turn *turn)
{
	return turn->share == GPU_LINE_SHARES - 1;
}

GPU_DEVICE struct gpu_ll_turn gpu_ll_lines(uint64_t pair, uint32_t share)
{
	uint64_t wire = 2 * GPU_LINE * pair, first = GPU_LINES_DATA * pair + GPU_VEC * share;

	if (share == GPU_LINE_SHARES - 1)
		return {wire, 0, {first + GPU_LINES_SECOND, 0}, 1, share};
	return {wire, 0, {first, first + GPU_LINES_SECOND}, 2, share};
}

/*
 * Writer: the peer's gpu_ll_send_lines, for these lines; readers: the threads of the lines, each of
 * which alone uses the data it gets here. They give up together, as those that are left would wait
 * for the others' vote. False: given up.
 */
GPU_DEVICE bool gpu_ll_receive_lines(uint64_t address, uint64_t flag, uint64_t abort,
				     const struct gpu_ll_turn *turn, struct gpu_vec *data)
{
	uint32_t tries = 0;

	while (!gpu_load_lines(address, turn->share, flag, data)) {
		if (gpu_line_any(gpu_give_up(abort, &tries)))
			return false;
	}
	if (gpu_ll_is_last(turn))
		data[0].w[1] = data[1].w[0];
	return true;
}

GPU_DEVICE void gpu_ll_send_lines(uint64_t address, uint64_t flag, const struct gpu_ll_turn *turn,
				  const struct gpu_vec *data)
{
	struct gpu_vec vecs[2] = {data[0], data[1]};

	if (gpu_ll_is_last(turn)) {
		vecs[1] = {data[0].w[1], flag};
		vecs[0].w[1] = flag;
	}
	gpu_store_lines(address, turn->share, vecs);
}

/* ---- places ---- */

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

/* ---- chunks ---- */

/* A source's data of this turn. False: given up. */
GPU_DEVICE bool gpu_ll_take(const struct gpu_ll *ll, const struct gpu_chunk *c, uint32_t source,
			    const struct gpu_ll_turn *turn, struct gpu_vec *data)
{
	uint64_t flag = ll->source_flags[source], address = c->sources[source];

	if (flag && ll->lines)
		return gpu_ll_receive_lines(address + turn->wire, flag, ll->abort, turn, data);
	if (flag)
		return gpu_ll_receive(address + turn->wire, turn->apart, (uint32_t)flag, ll->abort,
				      data);
	GPU_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		if (i < turn->num && turn->at[i] < c->bytes)
			data[i] = gpu_ll_load(address + turn->at[i], c->bytes - turn->at[i]);
	}
	return true;
}

GPU_DEVICE void gpu_ll_put(const struct gpu_ll *ll, const struct gpu_chunk *c, uint32_t target,
			   const struct gpu_ll_turn *turn, const struct gpu_vec *data)
{
	uint64_t flag = ll->target_flags[target], address = c->targets[target];

	if (flag && ll->lines) {
		gpu_ll_send_lines(address + turn->wire, flag, turn, data);
		return;
	}
	if (flag) {
		gpu_ll_send(address + turn->wire, turn->apart, (uint32_t)flag, data[0]);
		return;
	}
	GPU_UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		if (i < turn->num && turn->at[i] < c->bytes)
			gpu_ll_store(address + turn->at[i], c->bytes - turn->at[i], data[i]);
	}
}

/* False: given up. */
template <typename T, typename F, bool HOT>
GPU_DEVICE bool gpu_ll_run_turn(const struct gpu_ll *ll, const struct gpu_chunk *c,
				const struct gpu_ll_turn *turn)
{
	struct gpu_vec sum[2] = {}, vecs[2] = {};

	if (!gpu_ll_take(ll, c, 0, turn, sum))
		return false;
	GPU_ROLLED
	for (uint32_t s = 1; s < c->num_sources; s++) {
		if (!gpu_ll_take(ll, c, s, turn, vecs))
			return false;
		gpu_fold_in<T, F, HOT>(c->op, &sum[0], vecs[0]);
		if (turn->num > 1)
			gpu_fold_in<T, F, HOT>(c->op, &sum[1], vecs[1]);
	}
	GPU_ROLLED
	for (uint32_t t = 0; t < c->num_targets; t++)
		gpu_ll_put(ll, c, t, turn, sum);
	return true;
}

/* False: given up. */
template <typename T, typename F, bool HOT>
GPU_CALLED bool gpu_ll_combine(struct gpu_ll flags, struct gpu_chunk chunk)
{
	const struct gpu_ll *ll = &flags;
	const struct gpu_chunk *c = &chunk;
	uint64_t pairs = (c->bytes + GPU_LINES_DATA - 1) / GPU_LINES_DATA;
	uint64_t turns = ll->lines ? pairs * GPU_LINE_SHARES : (c->bytes + GPU_VEC - 1) / GPU_VEC;
	uint32_t mine = ll->lines ? GPU_LINE_SHARES / GPU_LINE_THREADS : 1;

	for (uint64_t first = gpu_thread() * mine; first < turns; first += gpu_threads() * mine) {
		for (uint64_t i = first; i < first + mine; i++) {
			struct gpu_ll_turn turn =
				ll->lines ? gpu_ll_lines(i / GPU_LINE_SHARES, i % GPU_LINE_SHARES)
					  : gpu_ll_packets(i * GPU_VEC, c->bytes);

			if (!gpu_ll_run_turn<T, F, HOT>(ll, c, &turn))
				return false;
		}
	}
	return true;
}

GPU_DEVICE bool gpu_ll_copy(const struct gpu_ll *ll, const struct gpu_chunk *c)
{
	return gpu_ll_combine<uint8_t, gpu_no_op<uint8_t>, false>(*ll, *c);
}

#endif
