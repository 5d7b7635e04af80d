/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"
#include "nccl/nccl_number.h"

#include <limits.h>
#include <stdlib.h>

/*
 * The elements that MPI counts. Calls of more are done by pieces of so many bytes, as the library
 * takes datatypes with gaps up to 2 GiB. Tests have less.
 */
#ifndef NCCL_MOST
#define NCCL_MOST INT_MAX
#define NCCL_PIECE (1 << 30)
#endif

/* ---- what is wrong with a call ---- */

static bool is_rooted(enum nccl_kind kind)
{
	return kind == NCCL_REDUCE || kind == NCCL_BROADCAST || kind == NCCL_GATHER ||
	       kind == NCCL_SCATTER || kind == NCCL_SEND || kind == NCCL_RECV;
}

static bool reduces(enum nccl_kind kind)
{
	return kind == NCCL_REDUCE || kind == NCCL_ALL_REDUCE || kind == NCCL_REDUCE_SCATTER;
}

/* Elements of the larger buffer. */
static size_t largest(const struct nccl_call *call)
{
	switch (call->kind) {
	case NCCL_REDUCE_SCATTER:
	case NCCL_ALL_GATHER:
	case NCCL_ALL_TO_ALL:
	case NCCL_GATHER:
	case NCCL_SCATTER:
		return call->count * (size_t)call->comm->size;
	default:
		return call->count;
	}
}

static bool take_op(struct nccl_call *call)
{
	int user = (int)call->op - (int)ncclNumOps;
	bool there = call->op >= 0 && user < NCCL_MAX_USER_OPS;

	if (!there || user < 0)
		return there;
	pthread_mutex_lock(&call->comm->lock);
	call->user = call->comm->ops[user];
	pthread_mutex_unlock(&call->comm->lock);
	return call->user.used;
}

ncclResult_t nccl_call_check(struct nccl_call *call)
{
	if (!call->comm)
		return nccl_fail(ncclInvalidArgument, "%s: the communicator is NULL", call->name);
	if (!nccl_number_size(call->type))
		return nccl_fail(ncclInvalidArgument, "%s: there is no datatype %d", call->name,
				 (int)call->type);
	if (is_rooted(call->kind) && (call->root < 0 || call->root >= call->comm->size))
		return nccl_fail(ncclInvalidArgument, "%s: there is no rank %d among %d",
				 call->name, call->root, call->comm->size);
	if (reduces(call->kind) && !take_op(call))
		return nccl_fail(ncclInvalidArgument, "%s: there is no operation %d", call->name,
				 (int)call->op);
	if (call->user.used && call->user.type != call->type)
		return nccl_fail(ncclInvalidArgument,
				 "%s: operation %d is for datatype %d, and was given %d",
				 call->name, (int)call->op, (int)call->user.type, (int)call->type);
	if (call->count >
	    (size_t)PTRDIFF_MAX / nccl_number_size(call->type) / (size_t)call->comm->size)
		return nccl_fail(ncclInvalidArgument, "%s: there is no memory for %zu elements",
				 call->name, call->count);
	return ncclSuccess;
}

static size_t message_bytes(const struct nccl_call *call)
{
	return call->count * nccl_number_size(call->type);
}

static bool is_to_itself(const struct nccl_call *call)
{
	return nccl_call_is_grouped(call) && call->root == call->comm->rank && call->count;
}

/* The next one of the kind from `i` on that the communicator's rank sends to itself. */
static int find_own(const struct nccl_call *calls, int num, int i, enum nccl_kind kind,
		    const struct ncclComm *comm)
{
	while (i < num &&
	       (!is_to_itself(&calls[i]) || calls[i].kind != kind || calls[i].comm != comm))
		i++;
	return i;
}

static bool own_fit(const struct nccl_call *calls, int num, const struct ncclComm *comm)
{
	int send = -1, recv = -1;

	do {
		send = find_own(calls, num, send + 1, NCCL_SEND, comm);
		recv = find_own(calls, num, recv + 1, NCCL_RECV, comm);
	} while (send < num && recv < num &&
		 message_bytes(&calls[send]) == message_bytes(&calls[recv]));
	return send == num && recv == num;
}

ncclResult_t nccl_call_check_own(const struct nccl_call *calls, int num)
{
	const struct ncclComm *last = NULL;

	for (int i = 0; i < num; i++) {
		const struct ncclComm *comm = calls[i].comm;

		/* Those of a communicator mostly follow on each other. */
		if (comm == last || !is_to_itself(&calls[i]))
			continue;
		if (!own_fit(calls, num, comm))
			return nccl_fail(ncclInvalidUsage,
					 "what rank %d sends to itself is not what it receives in "
					 "the same group",
					 comm->rank);
		last = comm;
	}
	return ncclSuccess;
}

/* ---- on our stream ---- */

static bool is_at(const void *buffer, const void *base, int rank, size_t bytes)
{
	return buffer == (const char *)base + (size_t)rank * bytes;
}

static ncclResult_t bring_scalar(const struct nccl_reduction *reduction,
				 const struct nccl_call *call)
{
	if (!reduction->from)
		return ncclSuccess;
	return nccl_of_driver(
		nccl_driver.cuMemcpyAsync((CUdeviceptr)reduction->to, (CUdeviceptr)reduction->from,
					  nccl_number_size(call->type), call->comm->stream),
		"cuMemcpyAsync");
}

/*
 * In place is each rank's own matter in NCCL, and all ranks' in MPI, where the output of a
 * scattered reduction is elsewhere, too. As they are staged apart, both are two buffers for the
 * MPI.
 */
static int enqueue_reduction(const struct nccl_call *call, const struct nccl_reduction *r)
{
	const struct ncclComm *comm = call->comm;
	int count = (int)call->count;

	gpucoll_hook_next(&r->hooks);
	switch (call->kind) {
	case NCCL_REDUCE:
		return gpucoll_reduce_enqueue(call->send, call->recv, count, r->type, r->op,
					      call->root, comm->ordered, comm->stream);
	case NCCL_ALL_REDUCE:
		return gpucoll_allreduce_enqueue(call->send, call->recv, count, r->type, r->op,
						 comm->ordered, comm->stream);
	default:
		return gpucoll_reduce_scatter_block_enqueue(call->send, call->recv, count, r->type,
							    r->op, comm->ordered, comm->stream);
	}
}

static ncclResult_t begin_reduction(const struct nccl_call *call)
{
	bool scatters = call->kind == NCCL_REDUCE_SCATTER;
	size_t in = call->count * (scatters ? (size_t)call->comm->size : 1);
	size_t out = call->kind == NCCL_REDUCE && call->comm->rank != call->root ? 0 : call->count;
	struct nccl_reduction reduction;
	ncclResult_t result = nccl_reduction(call, in, out, &reduction);

	if (result == ncclSuccess)
		result = bring_scalar(&reduction, call);
	if (result == ncclSuccess)
		result = nccl_of_mpi(enqueue_reduction(call, &reduction), call->name);
	return result;
}

/* NCCL's has two buffers at the root. */
static ncclResult_t begin_broadcast(const struct nccl_call *call, MPI_Datatype type)
{
	const struct ncclComm *comm = call->comm;
	size_t bytes = call->count * nccl_number_size(call->type);
	ncclResult_t result = ncclSuccess;

	if (comm->rank == call->root && call->send != call->recv && bytes)
		result = nccl_of_driver(nccl_driver.cuMemcpyAsync((CUdeviceptr)call->recv,
								  (CUdeviceptr)call->send, bytes,
								  comm->stream),
					"cuMemcpyAsync");
	if (result != ncclSuccess)
		return result;
	return nccl_of_mpi(gpucoll_bcast_enqueue(call->recv, (int)call->count, type, call->root,
						 comm->ordered, comm->stream),
			   call->name);
}

/* What stands `stride` elements from one rank's to the next. */
struct blocks {
	int count;
	MPI_Datatype type;
	size_t bytes; /* from one to the next */
};

/* One element each, where they do not follow on each other; end_blocks. */
static int begin_blocks(const struct nccl_call *call, MPI_Datatype type, struct blocks *blocks)
{
	size_t stride = call->stride ? call->stride : call->count;
	MPI_Datatype solid;
	int error;

	*blocks = (struct blocks){(int)call->count, type, stride * nccl_number_size(call->type)};
	if (stride == call->count)
		return MPI_SUCCESS;
	blocks->count = 1;
	error = MPI_Type_contiguous((int)call->count, type, &solid);
	if (error != MPI_SUCCESS)
		return error;
	error = MPI_Type_create_resized(solid, 0, (MPI_Aint)blocks->bytes, &blocks->type);
	MPI_Type_free(&solid);
	return error == MPI_SUCCESS ? MPI_Type_commit(&blocks->type) : error;
}

static void end_blocks(struct blocks *blocks, MPI_Datatype type)
{
	if (blocks->type != type)
		MPI_Type_free(&blocks->type);
}

static int enqueue_blocks(const struct nccl_call *call, MPI_Datatype type,
			  const struct blocks *blocks)
{
	const struct core_hooks apart = {.apart = true};
	const struct ncclComm *comm = call->comm;
	bool at_root = comm->rank == call->root;
	const void *send = call->send;
	void *recv = call->recv;
	int count = (int)call->count, num = blocks->count;

	switch (call->kind) {
	case NCCL_ALL_GATHER:
		gpucoll_hook_next(&apart);
		return gpucoll_allgather_enqueue(send, count, type, recv, num, blocks->type,
						 comm->ordered, comm->stream);
	case NCCL_ALL_TO_ALL:
		gpucoll_hook_next(&apart);
		return gpucoll_alltoall_enqueue(send, num, blocks->type, recv, num, blocks->type,
						comm->ordered, comm->stream);
	case NCCL_GATHER:
		send = at_root && is_at(send, recv, comm->rank, blocks->bytes) ? MPI_IN_PLACE
									       : send;
		return gpucoll_gather_enqueue(send, count, type, recv, num, blocks->type,
					      call->root, comm->ordered, comm->stream);
	default:
		recv = at_root && is_at(recv, send, comm->rank, blocks->bytes) ? MPI_IN_PLACE
									       : recv;
		return gpucoll_scatter_enqueue(send, num, blocks->type, recv, count, type,
					       call->root, comm->ordered, comm->stream);
	}
}

static int enqueue_move(const struct nccl_call *call, MPI_Datatype type)
{
	enum { TAG = 1 };
	const struct ncclComm *comm = call->comm;
	const void *send = call->send;
	void *recv = call->recv;
	int count = (int)call->count, error;
	struct blocks blocks;

	switch (call->kind) {
	case NCCL_SEND:
		return gpucoll_send_enqueue(send, count, type, call->root, TAG, comm->ordered,
					    comm->stream);
	case NCCL_RECV:
		return gpucoll_recv_enqueue(recv, count, type, call->root, TAG, comm->ordered,
					    MPI_STATUS_IGNORE, comm->stream);
	default:
		error = begin_blocks(call, type, &blocks);
		if (error == MPI_SUCCESS)
			error = enqueue_blocks(call, type, &blocks);
		end_blocks(&blocks, type);
		return error;
	}
}

/* Of `num` calls the messages of the communicator, as one kernel. */
static ncclResult_t enqueue_messages(const struct nccl_call *calls, int num, struct ncclComm *comm)
{
	struct core_message_part *parts = calloc((size_t)num, sizeof(*parts));
	const char *name = NULL;
	int num_parts = 0, error;

	if (!parts)
		return nccl_fail(ncclSystemError, "no memory for %d messages", num);
	for (int i = 0; i < num; i++) {
		const struct nccl_call *call = &calls[i];

		if (call->comm != comm || !nccl_call_is_message(call) || !call->count)
			continue;
		name = name ? "ncclGroupEnd" : call->name;
		parts[num_parts++] = (struct core_message_part){
			.rank = call->root,
			.sends = call->kind == NCCL_SEND,
			.buffer = call->kind == NCCL_SEND ? (void *)call->send : call->recv,
			.count = (int64_t)message_bytes(call)};
	}
	error = num_parts ? gpucoll_hook_group(parts, num_parts, name, comm->ordered, comm->stream)
			  : MPI_SUCCESS;
	free(parts);
	return nccl_of_mpi(error, name);
}

static ncclResult_t begin_counted(const struct nccl_call *call)
{
	MPI_Datatype type;
	ncclResult_t result;

	if (reduces(call->kind))
		return begin_reduction(call);
	result = nccl_type(call->type, &type);
	if (result != ncclSuccess)
		return result;
	if (call->kind == NCCL_BROADCAST)
		return begin_broadcast(call, type);
	return nccl_of_mpi(enqueue_move(call, type), call->name);
}

static ncclResult_t begin_here(const struct nccl_call *call)
{
	if (nccl_call_is_grouped(call))
		return enqueue_messages(call, 1, call->comm);
	if (call->count <= NCCL_MOST)
		return begin_counted(call);
	return nccl_pieces(call, NCCL_PIECE / nccl_number_size(call->type), begin_counted);
}

/* ---- between the program's stream and ours ---- */

static ncclResult_t follow(CUstream stream, CUevent event, CUstream after)
{
	ncclResult_t result =
		nccl_of_driver(nccl_driver.cuEventRecord(event, after), "cuEventRecord");

	if (result != ncclSuccess)
		return result;
	return nccl_of_driver(nccl_driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

/* A capture goes over to our stream by the first event, and comes back by the other. */
static ncclResult_t wait_before(const struct nccl_call *call)
{
	return follow(call->comm->stream, call->comm->before, call->stream);
}

static ncclResult_t wait_after(const struct nccl_call *call)
{
	return follow(call->stream, call->comm->after, call->comm->stream);
}

/* In the communicator's context, with its lock. ncclSuccess: leave is to follow. */
static ncclResult_t enter(struct ncclComm *comm)
{
	ncclResult_t result;

	pthread_mutex_lock(&comm->lock);
	result = nccl_of_driver(nccl_driver.cuCtxPushCurrent(comm->context), "cuCtxPushCurrent");
	if (result != ncclSuccess)
		pthread_mutex_unlock(&comm->lock);
	return result;
}

static void leave(struct ncclComm *comm)
{
	CUcontext ignored;

	nccl_driver.cuCtxPopCurrent(&ignored);
	pthread_mutex_unlock(&comm->lock);
}

/* Where nothing is moved, on any rank, not at all. */
static ncclResult_t inside(const struct nccl_call *call,
			   ncclResult_t (*part)(const struct nccl_call *call))
{
	ncclResult_t result;

	if (!largest(call))
		return ncclSuccess;
	result = enter(call->comm);
	if (result != ncclSuccess)
		return result;
	result = part(call);
	leave(call->comm);
	return result;
}

ncclResult_t nccl_call_before(const struct nccl_call *call)
{
	return inside(call, wait_before);
}

ncclResult_t nccl_call_begin(const struct nccl_call *call)
{
	return inside(call, begin_here);
}

ncclResult_t nccl_call_begin_messages(const struct nccl_call *calls, int num, struct ncclComm *comm)
{
	ncclResult_t result = enter(comm);

	if (result != ncclSuccess)
		return result;
	result = enqueue_messages(calls, num, comm);
	leave(comm);
	return result;
}

ncclResult_t nccl_call_after(const struct nccl_call *call)
{
	return inside(call, wait_after);
}

/* ---- the interface ---- */

static ncclResult_t ask(enum nccl_kind kind, const char *name, const void *send, void *recv,
			size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t comm, cudaStream_t stream)
{
	struct nccl_call call = {.kind = kind,
				 .name = name,
				 .send = send,
				 .recv = recv,
				 .count = count,
				 .type = type,
				 .op = op,
				 .root = root,
				 .comm = comm,
				 .stream = stream};

	return nccl_group_call(&call);
}

/* One that moves data only. */
static ncclResult_t move_data(enum nccl_kind kind, const char *name, const void *send, void *recv,
			      size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			      cudaStream_t stream)
{
	return ask(kind, name, send, recv, count, type, ncclSum, root, comm, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ask(NCCL_REDUCE, __func__, send, recv, count, type, op, root, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return ask(NCCL_ALL_REDUCE, __func__, send, recv, count, type, op, 0, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return ask(NCCL_REDUCE_SCATTER, __func__, send, recv, recvcount, type, op, 0, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
			   int root, ncclComm_t comm, cudaStream_t stream)
{
	return move_data(NCCL_BROADCAST, __func__, send, recv, count, type, root, comm, stream);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
		       cudaStream_t stream)
{
	return move_data(NCCL_BROADCAST, __func__, buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream)
{
	return move_data(NCCL_ALL_GATHER, __func__, send, recv, sendcount, type, 0, comm, stream);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
			  ncclComm_t comm, cudaStream_t stream)
{
	return move_data(NCCL_ALL_TO_ALL, __func__, send, recv, count, type, 0, comm, stream);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			ncclComm_t comm, cudaStream_t stream)
{
	return move_data(NCCL_GATHER, __func__, send, recv, count, type, root, comm, stream);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			 ncclComm_t comm, cudaStream_t stream)
{
	return move_data(NCCL_SCATTER, __func__, send, recv, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream)
{
	return move_data(NCCL_SEND, __func__, send, NULL, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return move_data(NCCL_RECV, __func__, NULL, recv, count, type, peer, comm, stream);
}
