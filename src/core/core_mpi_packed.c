/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_packed.h"
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_type.h"
#include "gpu/gpu_pointer.h"

#include <stdlib.h>

/* Elements of the two buffers, 0 where the call has none here. */
struct elements {
	int64_t send, recv;
	bool reads_recv;
};

static struct elements moved(const struct core_call *call, int rank, int size)
{
	int64_t send = call->sendcount, recv = call->recvcount;
	bool root = rank == call->root, in_place = core_mpi_is_in_place(call->sendbuf);

	switch (call->coll) {
	case CORE_BCAST:
		return (struct elements){0, recv, root};
	case CORE_GATHER:
		return (struct elements){in_place ? 0 : send, root ? size * recv : 0, in_place};
	case CORE_SCATTER:
		return (struct elements){root ? size * send : 0,
					 core_mpi_is_in_place(call->recvbuf) ? 0 : recv, false};
	case CORE_ALLGATHER:
		return (struct elements){in_place ? 0 : send, size * recv, in_place};
	default: /* alltoall */
		return (struct elements){in_place ? 0 : size * send, size * recv, in_place};
	}
}

static int64_t count_at(const struct core_call *call, int rank)
{
	return call->wide_counts ? ((const MPI_Count *)call->recvcounts)[rank]
				 : ((const int *)call->recvcounts)[rank];
}

static struct elements reduced(const struct core_call *call, int rank, int size)
{
	struct elements elements = {call->recvcount, call->recvcount,
				    core_mpi_is_in_place(call->sendbuf)};

	if (call->coll == CORE_REDUCE_SCATTER_BLOCK)
		elements.send = size * call->recvcount;
	for (int i = 0; call->coll == CORE_REDUCE_SCATTER && i < size; i++)
		elements.send = (i ? elements.send : 0) + count_at(call, i);
	if (call->coll == CORE_REDUCE_SCATTER)
		elements.recv = count_at(call, rank);
	if ((call->coll == CORE_REDUCE && rank != call->root) ||
	    (call->coll == CORE_EXSCAN && rank == 0))
		elements.recv = 0;
	if (elements.reads_recv) {
		elements.recv = elements.send;
		elements.send = 0;
	}
	return elements;
}

/* Memory that kernels don't reach is copied by the driver, or, of the host, by the host. */
static enum util_status open_out_of_reach(struct core_mpi_side *side, struct gpu_stream *on)
{
	enum util_status status;

	if (side->staged) {
		side->dense.single = false;
		return UTIL_OK;
	}
	status = side->room ? UTIL_OK : core_mpi_find_order(&side->map);
	if (status == UTIL_OK && !side->room && !side->map.in_order)
		status = UTIL_ERR_UNSUPPORTED;
	if (status == UTIL_OK)
		status = core_dense_open(&side->dense, &side->operand, gpu_stream_where(on));
	if (status != UTIL_OK)
		return status;
	side->dense.host = side->staged = true;
	return UTIL_OK;
}

static enum util_status open_side(struct core_mpi_side *side, void **buffer, int64_t elements,
				  core_handle type, struct gpu_stream *on)
{
	struct core_operand *operand = &side->operand;
	enum util_status status;
	uint64_t address;

	side->made = MPI_DATATYPE_NULL;
	if (!elements)
		return UTIL_OK;
	side->always = true;
	status = core_mpi_side_open(side, *buffer, elements, type, MPI_BYTE);
	if (status != UTIL_OK || operand->lo == operand->hi)
		return status;
	if (!side->staged ||
	    !gpu_pointer_is_reached(core_address(*buffer, operand->lo), gpu_stream_where(on)))
		status = open_out_of_reach(side, on);
	if (status != UTIL_OK)
		return status;
	/* What MPI sends twice has no such stage. */
	address = side->dense.block ? gpu_staging_device_address(side->dense.block, on) : 0;
	if (!address)
		return UTIL_ERR_UNSUPPORTED;
	*buffer = (void *)address;
	return UTIL_OK;
}

/* As bytes, in as many blocks as before. */
static void count_bytes(const struct core_mpi_side *side, int64_t elements, int64_t *count,
			core_handle *type)
{
	if (!side->staged)
		return;
	*count = (int64_t)core_dense_bytes(&side->dense) / (elements / *count);
	*type = (core_handle)MPI_BYTE;
}

enum util_status core_mpi_packed_open(struct core_mpi_packed *packed, struct core_call *call,
				      int rank, int size, struct gpu_stream *on)
{
	bool reduces = core_coll_reduces(call->coll);
	struct elements elements = reduces ? reduced(call, rank, size) : moved(call, rank, size);
	void *send = (void *)call->sendbuf;
	enum util_status status;

	packed->recv.made = MPI_DATATYPE_NULL;
	packed->packs_recv = elements.reads_recv;
	status = open_side(&packed->send, &send, elements.send,
			   reduces ? call->recvtype : call->sendtype, on);
	call->sendbuf = send;
	if (status == UTIL_OK)
		status =
			open_side(&packed->recv, &call->recvbuf, elements.recv, call->recvtype, on);
	if (status != UTIL_OK || reduces)
		return status;
	count_bytes(&packed->send, elements.send, &call->sendcount, &call->sendtype);
	count_bytes(&packed->recv, elements.recv, &call->recvcount, &call->recvtype);
	return UTIL_OK;
}

static enum util_status put(struct core_mpi_side *side, struct gpu_stream *on, bool unpacks)
{
	return side->staged ? core_dense_put(&side->dense, on, unpacks) : UTIL_OK;
}

enum util_status core_mpi_packed_pack(struct core_mpi_packed *packed, struct gpu_stream *on)
{
	enum util_status status = put(&packed->send, on, false);

	return status == UTIL_OK && packed->packs_recv ? put(&packed->recv, on, false) : status;
}

enum util_status core_mpi_packed_unpack(struct core_mpi_packed *packed, struct gpu_stream *on)
{
	return put(&packed->recv, on, true);
}

void core_mpi_packed_free(struct core_mpi_packed *packed)
{
	core_mpi_side_close(&packed->send);
	core_mpi_side_close(&packed->recv);
	free(packed);
}
