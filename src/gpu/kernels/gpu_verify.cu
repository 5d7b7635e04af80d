/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_verify: whether what kernels store in another device's memory gets there, and what they load
 * is what is there.
 *
 * When: in the first vote of two processes on different devices (core_proof.c). Where PCI Express
 * ACS and a translating IOMMU stand between two devices, mapping the other's memory succeeds,
 * stores to it vanish and loads return anything.
 *
 * One thread does all, once: what it costs is a few round trips. It uses the accesses that
 * collectives use: plain ones of 16 bytes, and words by release and acquire at system scope. A
 * card: writer, a kernel or copy of the rank whose it is; reader, a kernel that was launched when
 * the writer's host had said on the board that it is done.
 */
#include "gpu/kernels/gpu_kernel.h"
#include "gpu/kernels/gpu_verify.h"

GPU_DEVICE struct gpu_vec card_of(uint64_t seed, uint32_t rank)
{
	struct gpu_vec vec;

	vec.w[0] = gpu_card_value(seed, rank, 0);
	vec.w[1] = gpu_card_value(seed, rank, 1);
	return vec;
}

GPU_DEVICE void leave_card(uint64_t address, struct gpu_vec card)
{
	gpu_store_vec(address, card);
	gpu_store_release(address + GPU_CARD_WORD, card.w[0]);
}

GPU_DEVICE bool is_card(uint64_t address, struct gpu_vec card)
{
	uint64_t word = gpu_load_acquire(address + GPU_CARD_WORD);
	struct gpu_vec vec = gpu_load_vec(address);

	return word == card.w[0] && vec.w[0] == card.w[0] && vec.w[1] == card.w[1];
}

GPU_DEVICE uint64_t visit(const struct gpu_verify_args &args)
{
	struct gpu_vec mine = card_of(args.seed, args.rank);
	uint64_t wrong = 0;

	GPU_ROLLED
	for (uint32_t i = 0; i < GPU_MAX_PEERS; i++) {
		if (!(args.with >> i & 1))
			continue;
		leave_card(args.theirs[i] + gpu_card_place(GPU_CARD_WRITTEN, args.rank), mine);
		if (!is_card(args.theirs[i], card_of(args.seed, i)))
			wrong |= (uint64_t)1 << i;
	}
	return wrong;
}

GPU_DEVICE uint64_t look(const struct gpu_verify_args &args, enum gpu_card_kind kind)
{
	uint64_t wrong = 0;

	GPU_ROLLED
	for (uint32_t i = 0; i < GPU_MAX_PEERS; i++) {
		if (args.with >> i & 1 &&
		    !is_card(args.mine + gpu_card_place(kind, i), card_of(args.seed, i)))
			wrong |= (uint64_t)1 << i;
	}
	return wrong;
}

GPU_KERNEL(gpu_verify, struct gpu_verify_args)
{
	if (gpu_thread() == 0 && !args.looks)
		gpu_store64(args.found + 8 * GPU_VERIFY_READ, visit(args));
	if (gpu_thread() == 0 && args.looks) {
		for (int kind = 0; kind < GPU_CARD_KINDS; kind++)
			gpu_store64(args.found + 8 * kind, look(args, (enum gpu_card_kind)kind));
	}
	gpu_block_done(args.done, GPU_END_DONE);
}
