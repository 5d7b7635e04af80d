/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_packed.h"
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_type.h"
#include "gpu/gpu_launch.h"
#include "gpu/gpu_pointer.h"

#include <stdlib.h>

/* Elements of the two buffers, 0 where the call has none here; and what it does to the second. */
struct elements {
	int64_t send, recv;
	bool reads_recv, only_reads;
};

static struct elements moved(const struct core_call *call, int rank, int size)
{
	int64_t send = call->sendcount, recv = call->recvcount;
	bool root = rank == call->root, in_place = core_mpi_is_in_place(call->sendbuf);

	switch (call->coll) {
	case CORE_BCAST:
		return (struct elements){0, recv, root, root};
	case CORE_GATHER:
		return (struct elements){in_place ? 0 : send, root ? size * recv : 0, in_place,
					 false};
	case CORE_SCATTER:
		return (struct elements){root ? size * send : 0,
					 core_mpi_is_in_place(call->recvbuf) ? 0 : recv, false,
					 false};
	case CORE_ALLGATHER:
		return (struct elements){in_place ? 0 : send, size * recv, in_place, false};
	default: /* alltoall */
		return (struct elements){in_place ? 0 : size * send, size * recv, in_place, false};
	}
}

static struct elements reduced(const struct core_call *call, int rank, int size)
{
	struct elements elements = {call->recvcount, call->recvcount,
				    core_mpi_is_in_place(call->sendbuf), false};

	if (call->coll == CORE_REDUCE_SCATTER_BLOCK)
		elements.send = size * call->recvcount;
	for (int i = 0; call->coll == CORE_REDUCE_SCATTER && i < size; i++)
		elements.send = (i ? elements.send : 0) + core_mpi_received_count(call, i);
	if (call->coll == CORE_REDUCE_SCATTER)
		elements.recv = core_mpi_received_count(call, rank);
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
	enum util_status status = UTIL_OK;

	if (side->staged) {
		side->dense.single = false;
		return UTIL_OK;
	}
	if (!side->room) {
		status = core_mpi_find_order(&side->map);
		if (status == UTIL_OK && !side->map.in_order)
			status = UTIL_ERR_UNSUPPORTED;
	}
	if (status == UTIL_OK)
		status = core_dense_open(&side->dense, &side->operand, gpu_stream_where(on), true);
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

	if (!elements)
		return UTIL_OK;
	side->always = side->pinned = true;
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
	size_t bytes = side->staged ? core_dense_bytes(&side->dense) : 0;

	if (!elements)
		return;
	*count = (int64_t)bytes / (elements / *count);
	*type = (core_handle)MPI_BYTE;
}

/*
 * Pairs with padding, which kernels know as they lie: a stage has them as they lie, too, but for
 * the last one's padding, which need not be there. Returns their bytes; 0: they are to be packed;
 * less: they lie as neither will do.
 */
static int64_t bytes_of_pairs(const struct core_call *call, int64_t elements, core_handle type)
{
	bool swaps = call->coll == CORE_ALLTOALL && core_mpi_is_in_place(call->sendbuf);
	struct core_mpi_solid solid = {0};

	if (elements <= 0 || swaps || !core_mpi_find_solid(core_mpi_as_type(type), &solid) ||
	    solid.padded == GPU_TYPE_NONE)
		return 0;
	if (solid.lb || (elements > 1 && !solid.follows))
		return -1;
	return elements * (int64_t)solid.bytes - (int64_t)gpu_type_tail(solid.padded);
}

/* A buffer of so many elements. */
static enum util_status open_buffer(struct core_mpi_side *side, const struct core_call *call,
				    void **buffer, int64_t *count, core_handle *type,
				    int64_t elements, struct gpu_stream *on)
{
	int64_t pairs = bytes_of_pairs(call, elements, *type);
	enum util_status status;

	if (elements < 0 || (elements && core_mpi_as_type(*type) == MPI_DATATYPE_NULL))
		return UTIL_ERR_MPI;
	if (pairs < 0)
		return UTIL_ERR_UNSUPPORTED;
	if (pairs)
		return open_side(side, buffer, pairs, (core_handle)MPI_BYTE, on);
	status = open_side(side, buffer, elements, *type, on);
	if (status == UTIL_OK && !core_coll_reduces(call->coll))
		count_bytes(side, elements, count, type);
	return status;
}

enum util_status core_mpi_packed_open(struct core_mpi_packed *packed, struct core_call *call,
				      int rank, int size, struct gpu_stream *on)
{
	bool reduces = core_coll_reduces(call->coll);
	struct elements elements = reduces ? reduced(call, rank, size) : moved(call, rank, size);
	const struct core_call as_given = *call;
	void *send = (void *)call->sendbuf;
	core_handle type = reduces ? call->recvtype : call->sendtype;
	enum util_status status;

	packed->send.made = packed->recv.made = MPI_DATATYPE_NULL;
	packed->packs_recv =
		elements.reads_recv || bytes_of_pairs(call, elements.recv, call->recvtype) > 0;
	packed->unpacks_recv = !elements.only_reads;
	status = open_buffer(&packed->send, &as_given, &send, &call->sendcount, &type,
			     elements.send, on);
	call->sendbuf = send;
	if (!reduces)
		call->sendtype = type;
	if (status != UTIL_OK)
		return status;
	return open_buffer(&packed->recv, &as_given, &call->recvbuf, &call->recvcount,
			   &call->recvtype, elements.recv, on);
}

struct core_mpi_packed *core_mpi_packed_new_group(int num)
{
	struct core_mpi_packed *packed = calloc(1, sizeof(*packed));

	if (!packed)
		return NULL;
	packed->send.made = packed->recv.made = MPI_DATATYPE_NULL;
	packed->sides = calloc((size_t)num, sizeof(*packed->sides));
	if (!packed->sides) {
		free(packed);
		return NULL;
	}
	packed->num_sides = num;
	for (int i = 0; i < num; i++)
		packed->sides[i].made = MPI_DATATYPE_NULL;
	return packed;
}

size_t core_mpi_packed_bytes(const struct core_mpi_packed *packed)
{
	size_t bytes = packed->send.staged ? core_dense_bytes(&packed->send.dense) : 0;

	for (int i = 0; i < packed->num_sides; i++)
		bytes += packed->sides[i].staged ? core_dense_bytes(&packed->sides[i].dense) : 0;
	return bytes + (packed->recv.staged ? core_dense_bytes(&packed->recv.dense) : 0);
}

enum util_status core_mpi_packed_open_side(struct core_mpi_side *side, void **buffer, int64_t count,
					   core_handle type, struct gpu_stream *on, uint64_t *bytes)
{
	enum util_status status = open_side(side, buffer, count, type, on);

	*bytes = status == UTIL_OK && side->staged ? core_dense_bytes(&side->dense) : 0;
	return status;
}

enum util_status core_mpi_packed_put_side(struct core_mpi_side *side, struct gpu_stream *on,
					  bool unpacks)
{
	return side->staged ? core_dense_put(&side->dense, on, unpacks) : UTIL_OK;
}

enum util_status core_mpi_packed_pack(struct core_mpi_packed *packed, struct gpu_stream *on)
{
	enum util_status status = core_mpi_packed_put_side(&packed->send, on, false);

	return status == UTIL_OK && packed->packs_recv
		       ? core_mpi_packed_put_side(&packed->recv, on, false)
		       : status;
}

enum util_status core_mpi_packed_unpack(struct core_mpi_packed *packed, struct gpu_stream *on)
{
	return packed->unpacks_recv ? core_mpi_packed_put_side(&packed->recv, on, true) : UTIL_OK;
}

void core_mpi_packed_free(struct core_mpi_packed *packed)
{
	core_mpi_side_close(&packed->send);
	core_mpi_side_close(&packed->recv);
	for (int i = 0; i < packed->num_sides; i++)
		core_mpi_side_close(&packed->sides[i]);
	free(packed->sides);
	free(packed);
}
