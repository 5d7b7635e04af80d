/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/p2p/core_mpi_side.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_type.h"
#include "core/p2p/core_mpi_trial.h"
#include "util/util_log.h"

#include <limits.h>

_Thread_local bool core_mpi_side_opens_ready;

/*
 * Where the data lie one after the other as MPI sends them, the application's own count and type
 * will do.
 */
static bool is_solid(const struct core_typemap *map, int64_t count)
{
	struct core_mpi_solid solid;

	return map->runs == &map->only_run &&
	       (count == 1 || map->extent == (ptrdiff_t)map->only_run.length) &&
	       core_mpi_find_solid(core_mpi_as_type(map->type), &solid);
}

static enum util_status describe_side(struct core_mpi_side *side, void *buffer, int64_t count,
				      MPI_Datatype type)
{
	struct core_operand *operand = &side->operand;
	struct core_typemap *map = &side->map;
	ptrdiff_t last;

	operand->address = buffer;
	if (!core_mpi_type_map(type, map))
		return UTIL_ERR_MPI;
	operand->maps = map;
	operand->num_maps = 1;
	side->element = map->size;
	if (!map->size)
		return UTIL_OK;
	if (is_solid(map, count)) {
		side->room = map->only_run.length;
		map->only_run.length *= (size_t)count;
		map->hi = map->lo + (ptrdiff_t)map->only_run.length;
		count = 1;
	}
	side->piece = (struct core_piece){0, (size_t)count, map};
	operand->pieces = &side->piece;
	operand->num_pieces = 1;
	last = (ptrdiff_t)(count - 1) * map->extent;
	operand->lo = map->lo + (last < 0 ? last : 0);
	operand->hi = map->hi + (last > 0 ? last : 0);
	return UTIL_OK;
}

/* Memory of the host and of devices is not mapped in one block of so many bits of an address. */
enum { BLOCK_BITS = 21 };

/*
 * Whether there may be device memory between two ends in host memory: under MPI_BOTTOM, or of a
 * header on the heap and a trailer on the stack. To look at what is nearer would cost programs on
 * host memory more than it finds.
 */
static bool may_hide_device(const struct core_operand *operand)
{
	return !operand->address || core_mpi_type_is_far_apart(operand->maps);
}

static void classify_runs(const struct core_operand *operand, struct gpu_pointer *where)
{
	const struct core_typemap *map = operand->maps;
	uintptr_t known = 0;

	for (size_t i = 0; i < map->num_runs && where->memory == GPU_MEMORY_HOST; i++) {
		void *at = core_address(operand->address, map->runs[i].offset);

		if ((uintptr_t)at >> BLOCK_BITS == known)
			continue;
		known = (uintptr_t)at >> BLOCK_BITS;
		gpu_pointer_classify(at, where);
	}
}

/*
 * Data are where their ends are, but for these types. One that can't be looked into is left to the
 * MPI.
 */
static void classify(struct core_mpi_side *side, struct gpu_pointer *where)
{
	struct core_operand *operand = &side->operand;
	const struct core_typemap *map = operand->maps;

	gpu_pointer_classify(core_address(operand->address, operand->lo), where);
	if (where->memory == GPU_MEMORY_HOST)
		gpu_pointer_classify(core_address(operand->address, operand->hi - 1), where);
	if (where->memory != GPU_MEMORY_HOST || !may_hide_device(operand))
		return;
	if (!map->runs)
		core_mpi_find_runs(operand);
	if (map->runs)
		classify_runs(operand, where);
}

/* A message of bytes, of which an int may not tell how many. */
static enum util_status type_of_bytes(struct core_mpi_side *side, MPI_Datatype type, size_t bytes)
{
	enum { LARGE = 1 << 30 };
	int lengths[2] = {(int)(bytes / LARGE), (int)(bytes % LARGE)};
	MPI_Aint displs[2] = {0, (MPI_Aint)(bytes - bytes % LARGE)};
	MPI_Datatype types[2] = {MPI_DATATYPE_NULL, type};

	side->count = (int64_t)bytes;
	side->type = type;
	if (bytes <= INT_MAX)
		return UTIL_OK;
	side->count = 1;
	PMPI_Type_contiguous(LARGE, type, &types[0]);
	PMPI_Type_create_struct(2, lengths, displs, types, &side->made);
	PMPI_Type_free(&types[0]);
	PMPI_Type_commit(&side->made);
	side->type = side->made;
	return UTIL_OK;
}

/* MPI sends some bytes twice: the real MPI is to find them as they lie. */
static enum util_status open_as_they_lie(struct core_mpi_side *side,
					 const struct gpu_pointer *where)
{
	struct core_operand *operand = &side->operand;
	enum util_status status = core_stage_open(&side->stage, operand->address, operand->lo,
						  operand->hi, where, NULL);

	side->buffer = side->stage.host_address;
	return status;
}

static enum util_status open_dense(struct core_mpi_side *side, const struct gpu_pointer *where,
				   MPI_Datatype bytes)
{
	const struct core_typemap *map = side->operand.maps;
	enum util_status status =
		core_dense_open(&side->dense, &side->operand, where, side->pinned);

	if (status != UTIL_OK)
		return status;
	side->dense.ready = side->ready;
	side->buffer = core_dense_data(&side->dense);
	if (!side->room)
		return type_of_bytes(side, bytes, core_dense_bytes(&side->dense));
	side->buffer = core_address(side->buffer, -map->only_run.offset);
	return UTIL_OK;
}

enum util_status core_mpi_side_open(struct core_mpi_side *side, const void *buffer, int64_t count,
				    core_handle type, MPI_Datatype bytes)
{
	struct core_typemap *map;
	struct gpu_pointer where;
	enum util_status status;

	side->buffer = (void *)buffer;
	side->count = count;
	side->type = core_mpi_as_type(type);
	side->made = MPI_DATATYPE_NULL;
	side->ready = core_mpi_side_opens_ready;
	if (count <= 0 || side->type == MPI_DATATYPE_NULL)
		return UTIL_OK;
	status = describe_side(side, side->buffer, count, side->type);
	if (status != UTIL_OK || side->operand.lo == side->operand.hi)
		return status;
	classify(side, &where);
	if (where.memory == GPU_MEMORY_HOST || (!side->always && core_mpi_leaves_messages(&where)))
		return status;
	side->staged = true;
	map = side->operand.maps;
	if (side->room)
		return open_dense(side, &where, bytes);
	if (bytes == MPI_DATATYPE_NULL)
		status = core_mpi_find_runs(&side->operand);
	else
		status = core_mpi_find_order(map);
	if (status == UTIL_OK)
		status = map->in_order && bytes != MPI_DATATYPE_NULL
				 ? open_dense(side, &where, bytes)
				 : open_as_they_lie(side, &where);
	if (status == UTIL_ERR_UNSUPPORTED)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "a datatype that is a distributed array or has bytes twice can't be "
			 "staged where an element has more than 2 GiB");
	return status;
}

void core_mpi_side_close(struct core_mpi_side *side)
{
	if (side->dense.block)
		core_dense_close(&side->dense);
	if (side->stage.block)
		core_stage_close(&side->stage);
	if (side->made != MPI_DATATYPE_NULL)
		PMPI_Type_free(&side->made);
	core_runs_put(side->map.shared);
}

/* ---- copies ---- */

static enum util_status wait_for_side(enum util_status (*poll)(struct core_stage *),
				      struct core_stage *stage)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = poll(stage)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	return status;
}

static enum util_status pack_as_they_lie(struct core_mpi_side *side)
{
	enum util_status status = core_stage_take_stream(&side->stage, NULL);

	if (status == UTIL_OK && !side->ready)
		status = wait_for_side(core_stage_poll_legacy, &side->stage);
	if (status == UTIL_OK)
		status = core_stage_copy_in(&side->stage, &side->operand);
	if (status == UTIL_OK)
		status = wait_for_side(core_stage_poll, &side->stage);
	core_stage_rest(&side->stage);
	return status;
}

enum util_status core_mpi_side_pack(struct core_mpi_side *side)
{
	if (!side->staged)
		return UTIL_OK;
	if (side->stage.block)
		return pack_as_they_lie(side);
	core_dense_pack(&side->dense, core_dense_bytes(&side->dense));
	return core_dense_wait(&side->dense);
}

bool core_mpi_side_is_filled_first(const struct core_mpi_side *side)
{
	return side->staged && side->room != side->element && side->room;
}

void core_mpi_side_unpack(struct core_mpi_side *side, size_t bytes)
{
	size_t all = core_dense_bytes(&side->dense);

	if (bytes < all && core_mpi_side_is_filled_first(side))
		bytes = (bytes + side->element - 1) / side->element * side->room;
	core_dense_unpack(&side->dense, bytes < all ? bytes : all);
}

void core_mpi_side_unpack_all(struct core_mpi_side *side)
{
	if (side->stage.block)
		side->unpacking = CORE_SIDE_DUE;
	else if (side->staged)
		core_dense_unpack(&side->dense, core_dense_bytes(&side->dense));
}

static enum util_status progress_stage(struct core_mpi_side *side)
{
	enum util_status status = UTIL_OK;

	if (side->unpacking == CORE_SIDE_IDLE)
		return UTIL_OK;
	if (side->unpacking == CORE_SIDE_DUE) {
		side->unpacking = CORE_SIDE_COPIES;
		status = core_stage_take_stream(&side->stage, NULL);
		if (status == UTIL_OK)
			status = core_stage_copy_out(&side->stage, &side->operand);
	}
	if (status == UTIL_OK)
		status = core_stage_poll(&side->stage);
	if (status == UTIL_IN_PROGRESS)
		return status;
	core_stage_rest(&side->stage);
	side->unpacking = CORE_SIDE_IDLE;
	return status;
}

enum util_status core_mpi_side_progress(struct core_mpi_side *side)
{
	return side->stage.block ? progress_stage(side) : core_dense_progress(&side->dense);
}

enum util_status core_mpi_side_wait(struct core_mpi_side *side)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = core_mpi_side_progress(side)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	return status;
}
