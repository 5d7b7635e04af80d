/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Pack and MPI_Unpack of device memory. The packed side is bytes, of which those behind the
 * position are staged. The other one is given to the real MPI as bytes, too, as they are in a dense
 * stage; but not by the external forms, which turn numbers' bytes round.
 */
#include "core/mpi/core_mpi_raise.h"
#include "core/mpi/core_mpi_type.h"
#include "core/p2p/core_mpi_side.h"
#include "core/p2p/core_pack.h"

static bool packs(const struct core_pack_call *call)
{
	return call->kind == CORE_PACK || call->kind == CORE_PACK_EXTERNAL;
}

static bool is_external(const struct core_pack_call *call)
{
	return call->kind == CORE_PACK_EXTERNAL || call->kind == CORE_UNPACK_EXTERNAL;
}

static int64_t position_of(const struct core_pack_call *call)
{
	return call->wide ? *(const int64_t *)call->position : *(const int *)call->position;
}

/* The most that the elements may take in packed form. -1: the arguments are wrong. */
static int64_t packed_bytes(const struct core_pack_call *call)
{
	int64_t count = packs(call) ? call->incount : call->outcount;
	MPI_Datatype type = core_mpi_as_type(call->datatype);
	MPI_Count size;

	if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS)
		return -1;
	/* Externally, few types are longer: a long double has 16 bytes, as here. */
	return 2 * count * size + 64;
}

/* The side that has elements, and the part of the packed one that the call is about. */
struct sides {
	struct core_mpi_side elements, packed;
};

static enum util_status open_sides(const struct core_pack_call *call, struct sides *sides)
{
	const void *buffer = packs(call) ? call->inbuf : call->outbuf;
	const char *packed = packs(call) ? call->outbuf : call->inbuf;
	int64_t left = (packs(call) ? call->outsize : call->insize) - position_of(call);
	int64_t most = packed_bytes(call);
	enum util_status status;

	if (most < 0 || left < 0 || position_of(call) < 0)
		return UTIL_ERR_MPI;
	status = core_mpi_side_open(&sides->elements, buffer,
				    packs(call) ? call->incount : call->outcount, call->datatype,
				    is_external(call) ? MPI_DATATYPE_NULL : MPI_BYTE);
	if (status != UTIL_OK)
		return status;
	return core_mpi_side_open(&sides->packed, packed + position_of(call),
				  left < most ? left : most, (core_handle)MPI_BYTE, MPI_BYTE);
}

static struct core_pack_call replace(const struct core_pack_call *call, const struct sides *sides)
{
	const struct core_mpi_side *in = packs(call) ? &sides->elements : &sides->packed;
	const struct core_mpi_side *out = packs(call) ? &sides->packed : &sides->elements;
	struct core_pack_call real = *call;

	if (in->staged)
		real.inbuf = in->buffer;
	if (out->staged)
		real.outbuf = out->buffer;
	if (sides->packed.staged && packs(call))
		real.outbuf = core_address(real.outbuf, -position_of(call));
	else if (sides->packed.staged)
		real.inbuf = core_address(real.inbuf, -position_of(call));
	if (sides->elements.staged) {
		real.incount = real.outcount = sides->elements.count;
		real.datatype = (core_handle)sides->elements.type;
	}
	return real;
}

/* What is not written between and in elements is to be as it was. */
static enum util_status copy_in(const struct core_pack_call *call, struct sides *sides)
{
	bool filled =
		sides->elements.stage.block || core_mpi_side_is_filled_first(&sides->elements);
	enum util_status status = UTIL_OK;

	if (!packs(call))
		status = core_mpi_side_pack(&sides->packed);
	if (status == UTIL_OK && (packs(call) || filled))
		status = core_mpi_side_pack(&sides->elements);
	return status;
}

static enum util_status copy_out(const struct core_pack_call *call, struct sides *sides,
				 int64_t before)
{
	if (!packs(call)) {
		core_mpi_side_unpack_all(&sides->elements);
		return core_mpi_side_wait(&sides->elements);
	}
	if (!sides->packed.staged)
		return UTIL_OK;
	core_mpi_side_unpack(&sides->packed, (size_t)(position_of(call) - before));
	return core_dense_wait(&sides->packed.dense);
}

/* The external forms have no communicator. */
static int raise_error(const struct core_pack_call *call, enum util_status status)
{
	return core_mpi_raise_on(is_external(call) ? core_mpi_world() : call->comm, status);
}

static int run_pack(const struct core_pack_call *call, struct sides *sides)
{
	int64_t before = position_of(call);
	enum util_status status = copy_in(call, sides);
	struct core_pack_call real = replace(call, sides);
	int result = MPI_SUCCESS;

	if (status == UTIL_OK)
		result = real.real(&real);
	if (status == UTIL_OK && result == MPI_SUCCESS)
		status = copy_out(call, sides, before);
	return status == UTIL_OK ? result : raise_error(call, status);
}

int core_pack_run(const struct core_pack_call *call)
{
	struct sides sides = {{0}, {0}};
	enum util_status status;
	int result;

	core_mpi_note_comm(call->comm);
	sides.elements.made = sides.packed.made = MPI_DATATYPE_NULL;
	status = open_sides(call, &sides);
	if (status == UTIL_ERR_MPI || (!sides.elements.staged && !sides.packed.staged))
		result = call->real(call);
	else if (status != UTIL_OK)
		result = raise_error(call, status);
	else
		result = run_pack(call, &sides);
	core_mpi_side_close(&sides.elements);
	core_mpi_side_close(&sides.packed);
	return result;
}
