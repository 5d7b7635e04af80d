/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"
#include "nccl/nccl_number.h"

typedef ncclResult_t (*begin_piece)(const struct nccl_call *call);

/*
 * Each piece is of all ranks, with the others' same piece. Of a buffer that has a block for each
 * rank it is a part of each block, and so at the same place in the first one.
 */
static ncclResult_t cut(const struct nccl_call *call, size_t most, begin_piece begin)
{
	size_t size = nccl_number_size(call->type);
	ncclResult_t result = ncclSuccess;

	for (size_t at = 0; at < call->count && result == ncclSuccess; at += most) {
		struct nccl_call piece = *call;

		piece.send = call->send ? (const char *)call->send + at * size : NULL;
		piece.recv = call->recv ? (char *)call->recv + at * size : NULL;
		piece.count = call->count - at < most ? call->count - at : most;
		result = begin(&piece);
	}
	return result;
}

/* No type of MPI's has gaps and is added up: one rank's block after the other, each to its rank. */
static ncclResult_t reduce_each(const struct nccl_call *call, size_t most, begin_piece begin)
{
	size_t bytes = call->count * nccl_number_size(call->type);
	ncclResult_t result = ncclSuccess;

	for (int i = 0; i < call->comm->size && result == ncclSuccess; i++) {
		struct nccl_call one = *call;

		one.kind = NCCL_REDUCE;
		one.root = i;
		one.send = (const char *)call->send + (size_t)i * bytes;
		result = cut(&one, most, begin);
	}
	return result;
}

ncclResult_t nccl_pieces(const struct nccl_call *call, size_t most, begin_piece begin)
{
	struct nccl_call apart = *call;

	switch (call->kind) {
	case NCCL_REDUCE_SCATTER:
		return reduce_each(call, most, begin);
	case NCCL_ALL_GATHER:
	case NCCL_ALL_TO_ALL:
	case NCCL_GATHER:
	case NCCL_SCATTER:
		apart.stride = call->count;
		return cut(&apart, most, begin);
	default:
		return cut(call, most, begin);
	}
}
