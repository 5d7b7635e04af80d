/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"
#include "nccl/nccl_number.h"

typedef ncclResult_t (*begin_piece)(const struct nccl_call *call);

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* One in which elements stand alone: of all ranks, each piece with the others' same piece. */
static ncclResult_t cut(const struct nccl_call *call, size_t most, begin_piece begin)
{
	size_t size = nccl_number_size(call->type);
	ncclResult_t result = ncclSuccess;

	for (size_t at = 0; at < call->count && result == ncclSuccess; at += most) {
		struct nccl_call piece = *call;

		piece.send = call->send ? (const char *)call->send + at * size : NULL;
		piece.recv = call->recv ? (char *)call->recv + at * size : NULL;
		piece.count = min(most, call->count - at);
		result = begin(&piece);
	}
	return result;
}

/* With `rank` for the root, or the peer, and its block of a buffer that has one for each rank. */
static struct nccl_call with(const struct nccl_call *call, enum nccl_kind kind, int rank)
{
	size_t at = (size_t)rank * call->count * nccl_number_size(call->type);
	bool gathers = kind == NCCL_BROADCAST || kind == NCCL_RECV;
	struct nccl_call one = *call;

	one.kind = kind;
	one.root = rank;
	if (gathers)
		one.recv = (char *)call->recv + at;
	else
		one.send = (const char *)call->send + at;
	return one;
}

static ncclResult_t for_each_rank(const struct nccl_call *call, enum nccl_kind kind, size_t most,
				  begin_piece begin)
{
	ncclResult_t result = ncclSuccess;

	for (int i = 0; i < call->comm->size && result == ncclSuccess; i++) {
		struct nccl_call one = with(call, kind, i);

		result = cut(&one, most, begin);
	}
	return result;
}

/* To the root, or from it: the block that has only one place. */
static ncclResult_t with_root(const struct nccl_call *call, enum nccl_kind kind, size_t most,
			      begin_piece begin)
{
	struct nccl_call one = *call;

	one.kind = kind;
	return cut(&one, most, begin);
}

ncclResult_t nccl_pieces(const struct nccl_call *call, size_t most, begin_piece begin)
{
	bool at_root = call->comm->rank == call->root;
	ncclResult_t result;

	switch (call->kind) {
	case NCCL_ALL_GATHER:
		return for_each_rank(call, NCCL_BROADCAST, most, begin);
	case NCCL_REDUCE_SCATTER:
		return for_each_rank(call, NCCL_REDUCE, most, begin);
	/* Sends do not hold up the stream, so that nobody waits for what comes after his turn. */
	case NCCL_ALL_TO_ALL:
		result = for_each_rank(call, NCCL_SEND, most, begin);
		return result == ncclSuccess ? for_each_rank(call, NCCL_RECV, most, begin) : result;
	case NCCL_GATHER:
		result = with_root(call, NCCL_SEND, most, begin);
		return at_root && result == ncclSuccess
			       ? for_each_rank(call, NCCL_RECV, most, begin)
			       : result;
	case NCCL_SCATTER:
		result = at_root ? for_each_rank(call, NCCL_SEND, most, begin) : ncclSuccess;
		return result == ncclSuccess ? with_root(call, NCCL_RECV, most, begin) : result;
	default:
		return cut(call, most, begin);
	}
}
