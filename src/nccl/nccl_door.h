/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's interface over MPI: what its files share. A library of its own (libnccl.so.2) for each
 * MPI, which calls MPI and gpucoll.h, as any program.
 *
 * A communicator is one of MPI's with the ranks in NCCL's order, and its duplicate for one stream
 * of ours (gpucoll_stream_comm): what a program puts on a stream of its own goes there between two
 * events, so that a communicator's calls are in one order whatever streams they name.
 */
#ifndef NCCL_DOOR_H
#define NCCL_DOOR_H

#include <cuda.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpucoll/gpucoll.h" /* after mpi.h */
#include "gpucoll/nccl.h"
#include "pmpi/pmpi_hooks.h"

/* The driver's functions that are called, and bound when first asked for. */
#define NCCL_DRIVER_CALLS(X)                                                                       \
	X(cuCtxGetCurrent)                                                                         \
	X(cuCtxGetDevice)                                                                          \
	X(cuDeviceGet)                                                                             \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuInit)                                                                                  \
	X(cuCtxPopCurrent)                                                                         \
	X(cuCtxPushCurrent)                                                                        \
	X(cuCtxSetCurrent)                                                                         \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy)                                                                          \
	X(cuEventRecord)                                                                           \
	X(cuGetErrorName)                                                                          \
	X(cuMemAlloc)                                                                              \
	X(cuMemFree)                                                                               \
	X(cuMemFreeHost)                                                                           \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemcpyAsync)                                                                           \
	X(cuStreamCreate)                                                                          \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamSynchronize)                                                                     \
	X(cuStreamWaitEvent)

struct nccl_driver {
#define NCCL_DRIVER_FIELD(name) __typeof__(&name) name;
	NCCL_DRIVER_CALLS(NCCL_DRIVER_FIELD)
#undef NCCL_DRIVER_FIELD
};
extern struct nccl_driver nccl_driver;

/* Bind it. ncclSuccess, or what is missing. Thread-safe. */
ncclResult_t nccl_driver_bind(void);

/* The thread's context, which is made that of the device where there is none; -1: the first. */
ncclResult_t nccl_driver_context(int device, CUcontext *context);

/* An operation of ncclRedOpCreatePreMulSum. */
struct nccl_user_op {
	bool used;
	ncclDataType_t type;
	const void *scalar;            /* in device memory; NULL: */
	_Alignas(8) char immediate[8]; /* it itself */
};

enum { NCCL_MAX_USER_OPS = 64, NCCL_SCALAR_BYTES = 16 };

struct ncclComm {
	MPI_Comm ranks, ordered; /* of all ranks in their order; its duplicate for the stream */
	CUcontext context;
	CUstream stream;       /* ours, non-blocking */
	CUevent before, after; /* of the program's stream, and of ours */
	int rank, size, device;
	bool groups;          /* messages are kernels, all of a group at once; alike on all ranks */
	pthread_mutex_t lock; /* calls go on the stream one after the other */
	ncclResult_t error;   /* the first that was found later; atomic */
	bool aborted;         /* it is in a list (nccl_comm.c); under its lock */
	struct ncclComm *next_aborted;
	struct nccl_user_op ops[NCCL_MAX_USER_OPS]; /* under the lock */
	char *scalars; /* pinned: where the stream brings the operations' scalars */
};

/* ---- errors (nccl_error.c) ---- */

/* Keep the text for ncclGetLastError, and write it where NCCL_DEBUG is set. Returns the result. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* What MPI's code, or the driver's, of a call means; ncclSuccess of success. */
ncclResult_t nccl_of_mpi(int error, const char *call);
ncclResult_t nccl_of_driver(CUresult result, const char *call);

/* ---- types and operations (nccl_type.c) ---- */

/* MPI's type for it. */
ncclResult_t nccl_type(ncclDataType_t type, MPI_Datatype *out);

/* MPI is about to end. */
void nccl_type_finish(void);

/* How MPI is to reduce, and what the host does before and after it. Under the communicator's lock.
 */
struct nccl_reduction {
	MPI_Datatype type;
	MPI_Op op;
	struct core_hooks hooks;
	const void *from; /* the scalar to be brought, in device memory; NULL: none */
	void *to;
};

struct nccl_call;

/* `in`, `out`: elements of the input and the output. */
ncclResult_t nccl_reduction(const struct nccl_call *call, size_t in, size_t out,
			    struct nccl_reduction *reduction);

/* ---- groups (nccl_group.c) ---- */

enum nccl_kind {
	NCCL_REDUCE,
	NCCL_BROADCAST,
	NCCL_ALL_REDUCE,
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_GATHER,
	NCCL_ALL_TO_ALL,
	NCCL_GATHER,
	NCCL_SCATTER,
	NCCL_SEND,
	NCCL_RECV
};

/* A call as the program made it. */
struct nccl_call {
	enum nccl_kind kind;
	const char *name;
	const void *send;
	void *recv;
	size_t count;
	size_t stride; /* elements from one rank's block to the next; 0: as many as a block has */
	ncclDataType_t type;
	ncclRedOp_t op;
	struct nccl_user_op user; /* a copy of it, which may end before the group does */
	int root;                 /* or the peer */
	struct ncclComm *comm;
	CUstream stream;
};

/* Check the call, and begin it, or keep it until the group's end. */
ncclResult_t nccl_group_call(struct nccl_call *call);

/* ---- calls (nccl_call.c) ---- */

/* What is wrong with it; ncclSuccess: nothing. Takes a copy of the operation. */
ncclResult_t nccl_call_check(struct nccl_call *call);

/*
 * The same of a group: that a rank receives in it what it sends to itself, where a group's messages
 * are one kernel.
 */
ncclResult_t nccl_call_check_own(const struct nccl_call *calls, int num);

/*
 * Have the communicator's stream wait for the program's; begin the call there; have the program's
 * wait for it. In this order, of all calls of a group.
 */
ncclResult_t nccl_call_before(const struct nccl_call *call);
ncclResult_t nccl_call_begin(const struct nccl_call *call);
ncclResult_t nccl_call_after(const struct nccl_call *call);

/* Whether it is a message; and one of a communicator whose groups of messages are begun at once. */
static inline bool nccl_call_is_message(const struct nccl_call *call)
{
	return call->kind == NCCL_SEND || call->kind == NCCL_RECV;
}
static inline bool nccl_call_is_grouped(const struct nccl_call *call)
{
	return nccl_call_is_message(call) && call->comm->groups;
}

/* Begin those of `num` calls that are such messages, of the communicator, in their order. */
ncclResult_t nccl_call_begin_messages(const struct nccl_call *calls, int num,
				      struct ncclComm *comm);

/* ---- calls of more elements than MPI counts (nccl_pieces.c) ---- */

/*
 * Begin the call by others, with `most` elements in a block at most: of its kind; a scattered
 * reduction by reductions to one rank after the other.
 */
ncclResult_t nccl_pieces(const struct nccl_call *call, size_t most,
			 ncclResult_t (*begin)(const struct nccl_call *call));

#endif
