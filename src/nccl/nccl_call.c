/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"

#include <limits.h>

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

static bool is_op(const struct ncclComm *comm, ncclRedOp_t op)
{
	int user = (int)op - (int)ncclNumOps;

	return op >= 0 && (user < 0 || (user < NCCL_MAX_USER_OPS && comm->ops[user].used));
}

ncclResult_t nccl_call_check(const struct nccl_call *call)
{
	if (!call->comm)
		return nccl_fail(ncclInvalidArgument, "%s: the communicator is NULL", call->name);
	if (!nccl_type_size(call->type))
		return nccl_fail(ncclInvalidArgument, "%s: there is no datatype %d", call->name,
				 (int)call->type);
	if (is_rooted(call->kind) && (call->root < 0 || call->root >= call->comm->size))
		return nccl_fail(ncclInvalidArgument, "%s: there is no rank %d among %d",
				 call->name, call->root, call->comm->size);
	if (reduces(call->kind) && !is_op(call->comm, call->op))
		return nccl_fail(ncclInvalidArgument, "%s: there is no operation %d", call->name,
				 (int)call->op);
	if (call->count > INT_MAX)
		return nccl_fail(ncclInvalidArgument,
				 "%s: %zu elements are more than MPI counts, 2^31 - 1", call->name,
				 call->count);
	return ncclSuccess;
}

/* ---- on our stream ---- */

static bool is_at(const void *buffer, const void *base, int rank, size_t bytes)
{
	return buffer == (const char *)base + (size_t)rank * bytes;
}

static ncclResult_t bring_scalar(const struct nccl_reduction *reduction,
				 const struct ncclComm *comm)
{
	const struct nccl_user_op *user = reduction->user;

	if (!user || !user->scalar)
		return ncclSuccess;
	return nccl_of_driver(nccl_driver.cuMemcpyAsync((CUdeviceptr)user->value,
							(CUdeviceptr)user->scalar,
							nccl_type_size(user->type), comm->stream),
			      "cuMemcpyAsync");
}

/*
 * In place a reduction to all has its output where the rank's block of the input is; MPI has it in
 * the first block, and takes two buffers else, of which one may be inside the other as they are
 * staged.
 */
static int enqueue_reduction(const struct nccl_call *call, const struct nccl_reduction *r)
{
	const struct ncclComm *comm = call->comm;
	const void *send = call->send == call->recv ? MPI_IN_PLACE : call->send;
	int count = (int)call->count;

	gpucoll_hook_next(&r->hooks);
	switch (call->kind) {
	case NCCL_REDUCE:
		if (comm->rank != call->root)
			send = call->send;
		return gpucoll_reduce_enqueue(send, call->recv, count, r->type, r->op, call->root,
					      comm->ordered, comm->stream);
	case NCCL_ALL_REDUCE:
		return gpucoll_allreduce_enqueue(send, call->recv, count, r->type, r->op,
						 comm->ordered, comm->stream);
	default:
		return gpucoll_reduce_scatter_block_enqueue(send, call->recv, count, r->type, r->op,
							    comm->ordered, comm->stream);
	}
}

static ncclResult_t begin_reduction(const struct nccl_call *call)
{
	bool scatters = call->kind == NCCL_REDUCE_SCATTER;
	size_t in = call->count * (scatters ? (size_t)call->comm->size : 1);
	size_t out = call->kind == NCCL_REDUCE && call->comm->rank != call->root ? 0 : call->count;
	struct nccl_reduction reduction;
	ncclResult_t result = nccl_reduction(call->comm, call->op, call->type, in, out, &reduction);

	if (result == ncclSuccess)
		result = bring_scalar(&reduction, call->comm);
	if (result == ncclSuccess)
		result = nccl_of_mpi(enqueue_reduction(call, &reduction), call->name);
	return result;
}

/* NCCL's has two buffers at the root. */
static ncclResult_t begin_broadcast(const struct nccl_call *call, MPI_Datatype type)
{
	const struct ncclComm *comm = call->comm;
	size_t bytes = call->count * nccl_type_size(call->type);
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

static int enqueue_move(const struct nccl_call *call, MPI_Datatype type)
{
	enum { TAG = 1 };
	const struct ncclComm *comm = call->comm;
	size_t bytes = call->count * nccl_type_size(call->type);
	bool at_root = comm->rank == call->root;
	const void *send = call->send;
	void *recv = call->recv;
	int count = (int)call->count;

	switch (call->kind) {
	case NCCL_ALL_GATHER:
		send = is_at(send, recv, comm->rank, bytes) ? MPI_IN_PLACE : send;
		return gpucoll_allgather_enqueue(send, count, type, recv, count, type,
						 comm->ordered, comm->stream);
	case NCCL_ALL_TO_ALL:
		send = send == recv ? MPI_IN_PLACE : send;
		return gpucoll_alltoall_enqueue(send, count, type, recv, count, type, comm->ordered,
						comm->stream);
	case NCCL_GATHER:
		send = at_root && is_at(send, recv, comm->rank, bytes) ? MPI_IN_PLACE : send;
		return gpucoll_gather_enqueue(send, count, type, recv, count, type, call->root,
					      comm->ordered, comm->stream);
	case NCCL_SCATTER:
		recv = at_root && is_at(recv, send, comm->rank, bytes) ? MPI_IN_PLACE : recv;
		return gpucoll_scatter_enqueue(send, count, type, recv, count, type, call->root,
					       comm->ordered, comm->stream);
	case NCCL_SEND:
		return gpucoll_send_enqueue(send, count, type, call->root, TAG, comm->ordered,
					    comm->stream);
	default:
		return gpucoll_recv_enqueue(recv, count, type, call->root, TAG, comm->ordered,
					    MPI_STATUS_IGNORE, comm->stream);
	}
}

static ncclResult_t begin_here(const struct nccl_call *call)
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

/* ---- between the program's stream and ours ---- */

static ncclResult_t follow(CUstream stream, CUevent event, CUstream after)
{
	ncclResult_t result =
		nccl_of_driver(nccl_driver.cuEventRecord(event, after), "cuEventRecord");

	if (result != ncclSuccess)
		return result;
	return nccl_of_driver(nccl_driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

static ncclResult_t begin(const struct nccl_call *call)
{
	const struct ncclComm *comm = call->comm;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	ncclResult_t result;

	if (nccl_driver.cuStreamIsCapturing(call->stream, &status) != CUDA_SUCCESS ||
	    status != CU_STREAM_CAPTURE_STATUS_NONE)
		return nccl_fail(ncclInvalidUsage,
				 "%s can't be captured in a graph: the host takes part in it",
				 call->name);
	result = follow(comm->stream, comm->before, call->stream);
	if (result == ncclSuccess)
		result = begin_here(call);
	if (result == ncclSuccess)
		result = follow(call->stream, comm->after, comm->stream);
	return result;
}

ncclResult_t nccl_call_begin(const struct nccl_call *call)
{
	struct ncclComm *comm = call->comm;
	CUcontext ignored;
	ncclResult_t result;

	/* Nothing is moved, on any rank. */
	if (!largest(call))
		return ncclSuccess;
	pthread_mutex_lock(&comm->lock);
	result = nccl_of_driver(nccl_driver.cuCtxPushCurrent(comm->context), "cuCtxPushCurrent");
	if (result == ncclSuccess) {
		result = begin(call);
		nccl_driver.cuCtxPopCurrent(&ignored);
	}
	pthread_mutex_unlock(&comm->lock);
	return result;
}

/* ---- the interface ---- */

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	struct nccl_call call = {.kind = NCCL_REDUCE,
				 .name = __func__,
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

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
			   int root, ncclComm_t comm, cudaStream_t stream)
{
	struct nccl_call call = {.kind = NCCL_BROADCAST,
				 .name = __func__,
				 .send = send,
				 .recv = recv,
				 .count = count,
				 .type = type,
				 .root = root,
				 .comm = comm,
				 .stream = stream};

	return nccl_group_call(&call);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
		       cudaStream_t stream)
{
	return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	struct nccl_call call = {.kind = NCCL_ALL_REDUCE,
				 .name = __func__,
				 .send = send,
				 .recv = recv,
				 .count = count,
				 .type = type,
				 .op = op,
				 .comm = comm,
				 .stream = stream};

	return nccl_group_call(&call);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	struct nccl_call call = {.kind = NCCL_REDUCE_SCATTER,
				 .name = __func__,
				 .send = send,
				 .recv = recv,
				 .count = recvcount,
				 .type = type,
				 .op = op,
				 .comm = comm,
				 .stream = stream};

	return nccl_group_call(&call);
}

/* One that moves data only. */
static ncclResult_t move(enum nccl_kind kind, const char *name, const void *send, void *recv,
			 size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			 cudaStream_t stream)
{
	struct nccl_call call = {.kind = kind,
				 .name = name,
				 .send = send,
				 .recv = recv,
				 .count = count,
				 .type = type,
				 .root = root,
				 .comm = comm,
				 .stream = stream};

	return nccl_group_call(&call);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream)
{
	return move(NCCL_ALL_GATHER, __func__, send, recv, sendcount, type, 0, comm, stream);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
			  ncclComm_t comm, cudaStream_t stream)
{
	return move(NCCL_ALL_TO_ALL, __func__, send, recv, count, type, 0, comm, stream);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			ncclComm_t comm, cudaStream_t stream)
{
	return move(NCCL_GATHER, __func__, send, recv, count, type, root, comm, stream);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
			 ncclComm_t comm, cudaStream_t stream)
{
	return move(NCCL_SCATTER, __func__, send, recv, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream)
{
	return move(NCCL_SEND, __func__, send, NULL, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return move(NCCL_RECV, __func__, NULL, recv, count, type, peer, comm, stream);
}
