/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_stage.h"

#include <stdint.h>
#include <string.h>

/* Room to move the stage when its shifted address would be one of MPI's constants (NULL,
 * MPI_IN_PLACE). */
enum { ALIGNMENT = 256 };

/*
 * The shifted address keeps the device address's alignment (256, cudaMalloc's), for the real MPI's
 * vector loops. It may lie outside the block when lo is not 0; only [lo, hi) from it is used.
 */
static void *shifted_address(const struct core_stage *stage)
{
	uintptr_t first = (uintptr_t)stage->address + (uintptr_t)stage->lo;
	uintptr_t start = (uintptr_t)stage->block->base + first % ALIGNMENT;
	void *shifted = (void *)(start - (uintptr_t)stage->lo);

	if (shifted && !core_mpi_is_in_place(shifted))
		return shifted;
	return (char *)shifted + ALIGNMENT;
}

enum util_status core_stage_open(struct core_stage *stage, void *address, ptrdiff_t lo,
				 ptrdiff_t hi, const struct gpu_pointer *where)
{
	size_t bytes = (size_t)(hi - lo) + 2 * ALIGNMENT;
	enum util_status status;

	*stage = (struct core_stage){.address = address, .lo = lo, .hi = hi, .where = *where};
	status = gpu_stream_get(where, &stage->stream);
	if (status != UTIL_OK)
		return status;
	status = gpu_staging_get(bytes, where, &stage->block);
	if (status != UTIL_OK) {
		core_stage_close(stage);
		return status;
	}
	stage->host_address = shifted_address(stage);
	stage->pending = gpu_pointer_may_be_pending((char *)address + lo, where);
	return UTIL_OK;
}

void core_stage_close(struct core_stage *stage)
{
	/* After an error copies may still be under way, and the block must not be another's before
	 * they end. */
	while (stage->stream && gpu_stream_poll(stage->stream) == UTIL_IN_PROGRESS)
		core_mpi_drive();
	if (stage->block)
		gpu_staging_put(stage->block);
	if (stage->stream)
		gpu_stream_put(stage->stream);
	memset(stage, 0, sizeof(*stage));
}

/* `rows` runs of one length, `pitch` apart (of either sign), starting at `offset` from the
 * addresses. */
static enum util_status copy_rows(struct core_stage *stage, char *to, const char *from,
				  ptrdiff_t offset, size_t length, ptrdiff_t pitch, size_t rows)
{
	enum util_status status = UTIL_OK;

	to += offset;
	from += offset;
	if (rows == 1 || pitch == (ptrdiff_t)length)
		return gpu_stream_copy(stage->stream, to, from, rows * length);
	if (pitch < 0) {
		to += (ptrdiff_t)(rows - 1) * pitch;
		from += (ptrdiff_t)(rows - 1) * pitch;
		pitch = -pitch;
	}
	/* Under MPI_BOTTOM rows may be in different allocations, which one copy of the driver can't
	 * span. */
	if ((size_t)pitch >= length && stage->address)
		return gpu_stream_copy_rows(stage->stream, to, from, length, (size_t)pitch, rows);
	/* Elements that overlap, which is legal where they are only read; or allocations far apart.
	 */
	for (size_t i = 0; i < rows && status == UTIL_OK; i++)
		status = gpu_stream_copy(stage->stream, to + (ptrdiff_t)i * pitch,
					 from + (ptrdiff_t)i * pitch, length);
	return status;
}

/* Whether the runs of an element are rows of a matrix (vectors, subarrays of two dimensions). */
static bool runs_are_regular(const struct core_typemap *map, ptrdiff_t *pitch)
{
	if (map->num_runs < 2)
		return false;
	*pitch = map->runs[1].offset - map->runs[0].offset;
	for (size_t i = 1; i < map->num_runs; i++) {
		if (map->runs[i].length != map->runs[0].length ||
		    map->runs[i].offset - map->runs[i - 1].offset != *pitch)
			return false;
	}
	return true;
}

/* Copy a piece run by run, choosing the fewest driver calls: by rows of an element or by runs of a
 * kind. */
static enum util_status copy_piece(struct core_stage *stage, char *to, const char *from,
				   const struct core_piece *piece)
{
	const struct core_typemap *map = piece->map;
	enum util_status status = UTIL_OK;
	ptrdiff_t pitch;

	if (piece->count < map->num_runs && runs_are_regular(map, &pitch)) {
		for (size_t i = 0; i < piece->count && status == UTIL_OK; i++)
			status = copy_rows(stage, to, from,
					   piece->offset + (ptrdiff_t)i * map->extent +
						   map->runs[0].offset,
					   map->runs[0].length, pitch, map->num_runs);
		return status;
	}
	for (size_t i = 0; i < map->num_runs && status == UTIL_OK; i++)
		status = copy_rows(stage, to, from, piece->offset + map->runs[i].offset,
				   map->runs[i].length, map->extent, piece->count);
	return status;
}

enum util_status core_stage_copy_in(struct core_stage *stage, const struct core_operand *operand)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < operand->num_pieces && status == UTIL_OK; i++)
		status =
			copy_piece(stage, stage->host_address, stage->address, &operand->pieces[i]);
	return status;
}

enum util_status core_stage_copy_out(struct core_stage *stage, const struct core_operand *operand)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < operand->num_pieces && status == UTIL_OK; i++)
		status =
			copy_piece(stage, stage->address, stage->host_address, &operand->pieces[i]);
	return status;
}
