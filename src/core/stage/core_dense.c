/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/stage/core_dense.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_wait.h"
#include "gpu/gpu_module.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_synchronous.h"
#include "gpu/kernels/gpu_runs.h"

#include <string.h>

/*
 * A copy of the driver costs some microseconds, a launch not many more; beyond this many the kernel
 * copies, threads by so many bytes of a run.
 */
enum {
	MAX_DRIVER_COPIES = 8,
	THREADS = 256,
	MOST_BLOCKS = 256,
	LANE_BYTES = 16,
	MOST_LANES_SHIFT = 5
};

static enum util_status get(const struct core_dense *dense, size_t bytes,
			    struct gpu_staging_block **out)
{
	return dense->pinned ? gpu_staging_get_pinned(bytes, &dense->where, out)
			     : gpu_staging_get(bytes, &dense->where, out);
}

enum util_status core_dense_open(struct core_dense *dense, const struct core_operand *operand,
				 const struct gpu_pointer *where, bool pinned)
{
	const struct core_piece *piece = &operand->pieces[0];
	const struct core_typemap *map = piece->map;
	void *first = core_address(operand->address, operand->lo);
	size_t span = (size_t)(operand->hi - operand->lo);

	*dense = (struct core_dense){
		.address = core_address(operand->address, piece->offset),
		.map = map,
		.count = piece->count,
		/* A pair's padding belongs to its only run. */
		.size = map->num_runs == 1 ? map->runs[0].length : map->size,
		.where = *where,
		.pinned = pinned,
		.single = gpu_pointer_covers(where, first, span),
	};
	if (dense->single)
		gpu_synchronous_make(first, where);
	return get(dense, core_dense_bytes(dense), &dense->block);
}

size_t core_dense_bytes(const struct core_dense *dense)
{
	return dense->count * dense->size;
}

void *core_dense_data(const struct core_dense *dense)
{
	return dense->block->base;
}

static void begin_dense(struct core_dense *dense, size_t bytes, bool unpacks)
{
	size_t all = core_dense_bytes(dense);

	dense->bytes = bytes < all ? bytes : all;
	dense->unpacks = unpacks;
	dense->state = dense->bytes ? CORE_DENSE_READY : CORE_DENSE_IDLE;
}

void core_dense_pack(struct core_dense *dense, size_t bytes)
{
	begin_dense(dense, bytes, false);
}

void core_dense_unpack(struct core_dense *dense, size_t bytes)
{
	begin_dense(dense, bytes, true);
}

/* ---- copies ---- */

static enum util_status copy_run(struct core_dense *dense, void *there, size_t at, size_t length)
{
	void *here = (char *)dense->block->base + at;
	void *to = dense->unpacks ? there : here;
	const void *from = dense->unpacks ? here : there;

	return dense->single ? gpu_stream_copy(dense->stream, to, from, length)
			     : gpu_stream_copy_pieces(dense->stream, to, from, length);
}

/* Runs of one length that stand `pitch` bytes apart there, and `step` in the stage. */
static enum util_status copy_rows(struct core_dense *dense, void *there, ptrdiff_t pitch, size_t at,
				  size_t step, size_t length, size_t rows)
{
	void *here = (char *)dense->block->base + at;

	return dense->unpacks ? gpu_stream_copy_rows(dense->stream, there, (size_t)pitch, here,
						     step, length, rows)
			      : gpu_stream_copy_rows(dense->stream, here, step, there,
						     (size_t)pitch, length, rows);
}

/* The n-th runs of so many elements at a time. */
static enum util_status copy_columns(struct core_dense *dense, size_t elements)
{
	const struct core_typemap *map = dense->map;
	enum util_status status = UTIL_OK;
	size_t at = 0;

	for (size_t i = 0; i < map->num_runs && status == UTIL_OK; i++) {
		status = copy_rows(dense, core_address(dense->address, map->runs[i].offset),
				   map->extent, at, dense->size, map->runs[i].length, elements);
		at += map->runs[i].length;
	}
	return status;
}

/* The runs of an element, which are rows of a matrix, at a time. */
static enum util_status copy_matrices(struct core_dense *dense, size_t elements)
{
	const struct core_span *first = &dense->map->runs[0];
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < elements && status == UTIL_OK; i++)
		status = copy_rows(dense,
				   core_address(dense->address,
						(ptrdiff_t)i * dense->map->extent + first->offset),
				   dense->map->shared->pitch, i * dense->size, first->length,
				   first->length, dense->map->num_runs);
	return status;
}

static bool are_rows(const struct core_dense *dense, ptrdiff_t pitch)
{
	for (size_t i = 0; i < dense->map->num_runs; i++) {
		if (pitch < (ptrdiff_t)dense->map->runs[i].length)
			return false;
	}
	return true;
}

/* As many whole elements as can be copied by few calls of the driver. */
static enum util_status copy_whole(struct core_dense *dense, size_t *elements)
{
	const struct core_typemap *map = dense->map;
	size_t whole = dense->bytes / dense->size;
	bool regular = map->shared && map->shared->regular;

	*elements = 0;
	if (!dense->single || map->num_runs * whole <= MAX_DRIVER_COPIES)
		return UTIL_OK;
	*elements = whole;
	if (map->num_runs <= whole && are_rows(dense, map->extent))
		return copy_columns(dense, whole);
	if (regular && are_rows(dense, map->shared->pitch))
		return copy_matrices(dense, whole);
	*elements = 0;
	return UTIL_OK;
}

static enum util_status copy_by_driver(struct core_dense *dense)
{
	size_t begin, at;
	enum util_status status = copy_whole(dense, &begin);

	at = begin * dense->size;
	for (size_t i = begin; i < dense->count && status == UTIL_OK; i++) {
		void *origin = core_address(dense->address, (ptrdiff_t)i * dense->map->extent);

		for (size_t j = 0; j < dense->map->num_runs && status == UTIL_OK; j++) {
			size_t left = dense->bytes - at, length = dense->map->runs[j].length;

			length = length < left ? length : left;
			if (!length)
				return status;
			status = copy_run(dense, core_address(origin, dense->map->runs[j].offset),
					  at, length);
			at += length;
		}
	}
	return status;
}

/* Put the runs where kernels can read them. 0: there is no room. */
static uint64_t upload_runs(struct core_dense *dense)
{
	const struct core_span *run = dense->map->runs;
	struct gpu_dense_run *table;
	uint64_t at = 0;

	if (!dense->table &&
	    get(dense, dense->map->num_runs * sizeof(*table), &dense->table) != UTIL_OK)
		return 0;
	table = dense->table->base;
	for (size_t i = 0; i < dense->map->num_runs; i++) {
		table[i] = (struct gpu_dense_run){run[i].offset, run[i].length, at};
		at += run[i].length;
	}
	return gpu_staging_device_address(dense->table, dense->stream);
}

/* Threads that share a run, for the mean one: 1 << this. */
static uint32_t lanes_shift_of(const struct core_dense *dense)
{
	size_t mean = dense->size / dense->map->num_runs;
	uint32_t shift = 0;

	while (shift < MOST_LANES_SHIFT && (size_t)LANE_BYTES << shift < mean)
		shift++;
	return shift;
}

/*
 * UTIL_ERR_UNSUPPORTED where the driver's copies must do it: memory that is not pinned, kernels
 * that don't load.
 */
static enum util_status copy_by_kernel(struct core_dense *dense)
{
	struct gpu_pack_args args = {
		.dense = gpu_staging_device_address(dense->block, dense->stream),
		.num_runs = dense->map->num_runs,
		.num_elements = dense->count,
		.extent = dense->map->extent,
		.size = dense->size,
		.bytes = dense->bytes,
		.lanes_shift = lanes_shift_of(dense),
		.unpacks = dense->unpacks,
	};
	const struct core_typemap *map = dense->map;
	bool regular = map->num_runs == 1 || (map->shared && map->shared->regular);
	ptrdiff_t first = 0;
	size_t blocks;

	if (!args.dense)
		return UTIL_ERR_UNSUPPORTED;
	if (regular) {
		first = map->runs[0].offset;
		args.pitch = map->shared ? map->shared->pitch : 0;
		args.length = map->runs[0].length;
	} else {
		args.runs = upload_runs(dense);
		if (!args.runs)
			return UTIL_ERR_UNSUPPORTED;
	}
	args.origin = (uintptr_t)core_address(dense->address, first);
	blocks = ((args.num_runs * args.num_elements << args.lanes_shift) + THREADS - 1) / THREADS;
	return gpu_module_launch(dense->stream, GPU_KERNEL_PACK,
				 (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), THREADS,
				 &args);
}

static enum util_status copy_dense(struct core_dense *dense)
{
	enum util_status status = UTIL_ERR_UNSUPPORTED;

	/* Of several allocations some may be memory that no kernel in this context reaches. */
	if (dense->map->num_runs * dense->count > MAX_DRIVER_COPIES && dense->single)
		status = copy_by_kernel(dense);
	return status == UTIL_ERR_UNSUPPORTED ? copy_by_driver(dense) : status;
}

/* In a thread of the driver's, which makes no call to it here. */
static void copy_here(const struct core_dense *dense, bool unpacks)
{
	char *data = dense->block->base;

	for (size_t i = 0; i < dense->count; i++) {
		char *origin = core_address(dense->address, (ptrdiff_t)i * dense->map->extent);

		for (size_t j = 0; j < dense->map->num_runs; j++) {
			const struct core_span *run = &dense->map->runs[j];

			if (unpacks)
				memcpy(origin + run->offset, data, run->length);
			else
				memcpy(data, origin + run->offset, run->length);
			data += run->length;
		}
	}
}

static void pack_here(void *dense)
{
	copy_here(dense, false);
}

static void unpack_here(void *dense)
{
	copy_here(dense, true);
}

enum util_status core_dense_put(struct core_dense *dense, struct gpu_stream *on, bool unpacks)
{
	enum util_status status;

	if (dense->host)
		return gpu_stream_call(on, unpacks ? unpack_here : pack_here, dense);

	begin_dense(dense, core_dense_bytes(dense), unpacks);
	dense->stream = on;
	status = copy_dense(dense);
	dense->stream = NULL;
	dense->state = CORE_DENSE_IDLE;
	return status;
}

/* ---- to the end ---- */

static void put_stream(struct core_dense *dense)
{
	if (dense->stream)
		gpu_stream_put(dense->stream);
	dense->stream = NULL;
}

static enum util_status step_dense(struct core_dense *dense)
{
	enum util_status status;

	if (dense->state == CORE_DENSE_COPY)
		return gpu_stream_poll(dense->stream);
	if (!dense->stream) {
		status = gpu_stream_get(&dense->where, &dense->stream);
		if (status != UTIL_OK)
			return status;
	}
	status = dense->ready ? UTIL_OK : gpu_stream_poll_legacy(dense->stream);
	if (status != UTIL_OK)
		return status;
	dense->state = CORE_DENSE_COPY;
	status = copy_dense(dense);
	return status == UTIL_OK ? gpu_stream_poll(dense->stream) : status;
}

enum util_status core_dense_progress(struct core_dense *dense)
{
	enum util_status status;

	if (dense->state == CORE_DENSE_IDLE)
		return UTIL_OK;
	status = step_dense(dense);
	if (status != UTIL_OK)
		return status;
	put_stream(dense);
	dense->state = CORE_DENSE_IDLE;
	return UTIL_OK;
}

enum util_status core_dense_wait(struct core_dense *dense)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = core_dense_progress(dense)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	return status;
}

void core_dense_close(struct core_dense *dense)
{
	/*
	 * After an error copies may still be under way, and the block must not be another's before
	 * they end.
	 */
	if (dense->state == CORE_DENSE_COPY)
		core_wait_stream(dense->stream);
	put_stream(dense);
	if (dense->block)
		gpu_staging_put(dense->block);
	if (dense->table)
		gpu_staging_put(dense->table);
	memset(dense, 0, sizeof(*dense));
}
