/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/stage/core_stage.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi.h"
#include "gpu/gpu_module.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_synchronous.h"
#include "gpu/kernels/gpu_runs.h"

#include <stdint.h>
#include <string.h>

/*
 * Room to move the stage when its shifted address would be one of MPI's constants (NULL,
 * MPI_IN_PLACE).
 */
enum { ALIGNMENT = 256 };

/*
 * A copy of the driver costs some microseconds, a launch not many more; beyond this many the kernel
 * copies.
 */
enum { MAX_DRIVER_COPIES = 16, KERNEL_THREADS = 256, KERNEL_BLOCKS = 256 };

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
	return core_address(shifted, ALIGNMENT);
}

/*
 * Copies that are put on the application's stream may wait there. One from memory that is not
 * pinned would read it at once.
 */
static enum util_status get_block(const struct core_stage *stage, size_t bytes,
				  struct gpu_staging_block **out)
{
	return stage->ordered ? gpu_staging_get_pinned(bytes, &stage->where, out)
			      : gpu_staging_get(bytes, &stage->where, out);
}

enum util_status core_stage_open(struct core_stage *stage, void *address, ptrdiff_t lo,
				 ptrdiff_t hi, const struct gpu_pointer *where,
				 struct gpu_stream *on)
{
	size_t bytes = (size_t)(hi - lo) + 2 * ALIGNMENT;
	enum util_status status;

	*stage = (struct core_stage){
		.address = address, .lo = lo, .hi = hi, .where = *where, .stream = on};
	stage->borrowed = stage->ordered = on != NULL;
	status = get_block(stage, bytes, &stage->block);
	if (status != UTIL_OK)
		return status;
	stage->host_address = shifted_address(stage);
	stage->single = gpu_pointer_covers(where, core_address(address, lo), (size_t)(hi - lo));
	if (stage->single && !on)
		gpu_synchronous_make(core_address(address, lo), where);
	return UTIL_OK;
}

/*
 * One stream of a context will do: the copies in are over before copies out begin, and what was
 * waited for on one is on all.
 */
enum util_status core_stage_take_stream(struct core_stage *stage, const struct core_stage *first)
{
	if (stage->stream)
		return UTIL_OK;
	if (first && first->stream && first->where.context == stage->where.context &&
	    first->where.device == stage->where.device) {
		stage->stream = first->stream;
		stage->borrowed = true;
		return UTIL_OK;
	}
	return gpu_stream_get(&stage->where, &stage->stream);
}

enum util_status core_stage_poll_legacy(struct core_stage *stage)
{
	return stage->borrowed ? UTIL_OK : gpu_stream_poll_legacy(stage->stream);
}

enum util_status core_stage_poll(struct core_stage *stage)
{
	enum util_status status = stage->copying ? gpu_stream_poll(stage->stream) : UTIL_OK;

	/* Where the driver only can't say, it may be copying. */
	if (status == UTIL_OK)
		stage->copying = false;
	return status;
}

void core_stage_settle(struct core_stage *stage)
{
	stage->copying = false;
}

void core_stage_rest(struct core_stage *stage)
{
	struct core_wait wait = {0};

	/*
	 * After an error copies may still be under way, and the block must not be another's before
	 * they end.
	 */
	while (core_stage_poll(stage) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	while (stage->tables) {
		struct gpu_staging_block *table = stage->tables;

		stage->tables = table->next;
		gpu_staging_put(table);
	}
	if (stage->stream && !stage->borrowed)
		gpu_stream_put(stage->stream);
	stage->stream = NULL;
	stage->borrowed = false;
	stage->copying = false; /* also where the driver can't say any more */
}

void core_stage_close(struct core_stage *stage)
{
	core_stage_rest(stage);
	if (stage->block)
		gpu_staging_put(stage->block);
	memset(stage, 0, sizeof(*stage));
}

static enum util_status copy_bytes(struct core_stage *stage, void *to, const void *from,
				   size_t length)
{
	if (stage->single)
		return gpu_stream_copy(stage->stream, to, from, length);
	return gpu_stream_copy_pieces(stage->stream, to, from, length);
}

/*
 * `rows` runs of one length, `pitch` apart (of either sign), starting at `offset` from the
 * addresses.
 */
static enum util_status copy_rows(struct core_stage *stage, void *to, const void *from,
				  ptrdiff_t offset, size_t length, ptrdiff_t pitch, size_t rows)
{
	enum util_status status = UTIL_OK;

	to = core_address(to, offset);
	from = core_address(from, offset);
	if (rows == 1 || pitch == (ptrdiff_t)length)
		return copy_bytes(stage, to, from, rows * length);
	if (pitch < 0) {
		to = core_address(to, (ptrdiff_t)(rows - 1) * pitch);
		from = core_address(from, (ptrdiff_t)(rows - 1) * pitch);
		pitch = -pitch;
	}
	if ((size_t)pitch >= length && stage->single)
		return gpu_stream_copy_rows(stage->stream, to, (size_t)pitch, from, (size_t)pitch,
					    length, rows);
	/*
	 * Elements that overlap, which is legal where they are only read; or several allocations.
	 */
	for (size_t i = 0; i < rows && status == UTIL_OK; i++)
		status = copy_bytes(stage, core_address(to, (ptrdiff_t)i * pitch),
				    core_address(from, (ptrdiff_t)i * pitch), length);
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

/*
 * Put the runs where kernels can read them; the table stays until the stage is closed. 0: there is
 * no room.
 */
static uint64_t upload_runs(struct core_stage *stage, const struct core_typemap *map)
{
	size_t bytes = map->num_runs * sizeof(struct gpu_run);
	struct gpu_staging_block *block;
	struct gpu_run *table;

	if (get_block(stage, bytes, &block) != UTIL_OK)
		return 0;
	block->next = stage->tables;
	stage->tables = block;
	table = block->base;
	for (size_t i = 0; i < map->num_runs; i++)
		table[i] = (struct gpu_run){map->runs[i].offset, map->runs[i].length};
	return gpu_staging_device_address(block, stage->stream);
}

/*
 * UTIL_ERR_UNSUPPORTED where the driver's copies must do it: memory that is not pinned, kernels
 * that don't load.
 */
static enum util_status copy_by_kernel(struct core_stage *stage, const struct core_piece *piece,
				       bool out)
{
	const struct core_typemap *map = piece->map;
	uint64_t block = gpu_staging_device_address(stage->block, stage->stream);
	uint64_t runs = block ? upload_runs(stage, map) : 0;
	uint64_t host = block + ((uintptr_t)stage->host_address - (uintptr_t)stage->block->base) +
			(uint64_t)piece->offset;
	uint64_t device = (uintptr_t)stage->address + (uint64_t)piece->offset;
	struct gpu_copy_runs_args args = {.to = out ? device : host,
					  .from = out ? host : device,
					  .runs = runs,
					  .num_runs = map->num_runs,
					  .num_elements = piece->count,
					  .extent = map->extent};
	size_t blocks = (map->num_runs * piece->count + KERNEL_THREADS - 1) / KERNEL_THREADS;

	if (!runs)
		return UTIL_ERR_UNSUPPORTED;
	return gpu_module_launch(stage->stream, GPU_KERNEL_COPY_RUNS,
				 (unsigned)(blocks < KERNEL_BLOCKS ? blocks : KERNEL_BLOCKS),
				 KERNEL_THREADS, &args);
}

/*
 * Copy run by run, by whichever way takes fewer calls of the driver: by rows of an element or by
 * runs of a kind.
 */
static enum util_status copy_by_driver(struct core_stage *stage, const struct core_piece *piece,
				       bool by_rows, ptrdiff_t pitch, bool out)
{
	const struct core_typemap *map = piece->map;
	enum util_status status = UTIL_OK;
	void *to = out ? stage->address : stage->host_address;
	const void *from = out ? stage->host_address : stage->address;

	for (size_t i = 0; by_rows && i < piece->count && status == UTIL_OK; i++)
		status = copy_rows(stage, to, from,
				   piece->offset + (ptrdiff_t)i * map->extent + map->runs[0].offset,
				   map->runs[0].length, pitch, map->num_runs);
	for (size_t i = 0; !by_rows && i < map->num_runs && status == UTIL_OK; i++)
		status = copy_rows(stage, to, from, piece->offset + map->runs[i].offset,
				   map->runs[i].length, map->extent, piece->count);
	return status;
}

static enum util_status copy_piece(struct core_stage *stage, const struct core_piece *piece,
				   bool out)
{
	const struct core_typemap *map = piece->map;
	ptrdiff_t pitch = 0;
	bool by_rows = piece->count < map->num_runs && runs_are_regular(map, &pitch);
	size_t calls = by_rows ? piece->count : map->num_runs;
	enum util_status status = UTIL_ERR_UNSUPPORTED;

	/* Of several allocations some may be memory that no kernel in this context reaches. */
	if (calls > MAX_DRIVER_COPIES && stage->single)
		status = copy_by_kernel(stage, piece, out);
	if (status == UTIL_ERR_UNSUPPORTED)
		status = copy_by_driver(stage, piece, by_rows, pitch, out);
	return status;
}

enum util_status core_stage_copy_in(struct core_stage *stage, const struct core_operand *operand)
{
	enum util_status status = UTIL_OK;

	stage->copying = true;
	for (size_t i = 0; i < operand->num_pieces && status == UTIL_OK; i++)
		status = copy_piece(stage, &operand->pieces[i], false);
	return status;
}

enum util_status core_stage_copy_out(struct core_stage *stage, const struct core_operand *operand)
{
	enum util_status status = UTIL_OK;

	stage->copying = true;
	for (size_t i = 0; i < operand->num_pieces && status == UTIL_OK; i++)
		status = copy_piece(stage, &operand->pieces[i], true);
	return status;
}
