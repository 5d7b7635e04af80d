/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_launch.h"
#include "util/util_log.h"

#include <string.h>

/*
 * A block is worth its start from 8 KiB on, at which each of its threads has one 16-byte word; with
 * all multiprocessors at work each has many words in flight. The polls between two looks at the
 * stream take some 10 us.
 */
enum { BLOCK_BYTES = GPU_THREADS * 16, WARP = 32, MAX_BLOCKS = 512, POLLS_PER_QUERY = 256 };

enum util_status gpu_launch_open(struct gpu_launch *launch, struct gpu_stream *stream)
{
	enum util_status status;

	*launch = (struct gpu_launch){.stream = stream,
				      .multiprocessors = gpu_module_multiprocessors(stream)};
	if (!launch->multiprocessors)
		return UTIL_ERR_UNSUPPORTED;
	status = gpu_staging_get(MAX_BLOCKS * sizeof(uint64_t), gpu_stream_where(stream),
				 &launch->words);
	if (status != UTIL_OK)
		return status;
	launch->done = gpu_staging_device_address(launch->words, stream);
	if (launch->done)
		return UTIL_OK;
	gpu_launch_close(launch);
	return UTIL_ERR_UNSUPPORTED;
}

void gpu_launch_close(struct gpu_launch *launch)
{
	gpu_staging_put(launch->words);
	launch->words = NULL;
}

static unsigned blocks_for(const struct gpu_launch *launch, uint64_t bytes)
{
	uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
	unsigned most = launch->multiprocessors < MAX_BLOCKS ? launch->multiprocessors : MAX_BLOCKS;

	return blocks < 1 ? 1 : blocks < most ? (unsigned)blocks : most;
}

/* Fewer threads start sooner. */
static unsigned threads_for(uint64_t bytes)
{
	uint64_t warps = (bytes / 16 + WARP - 1) / WARP;

	return warps < 2                    ? 2 * WARP
	       : warps * WARP < GPU_THREADS ? (unsigned)warps * WARP
					    : GPU_THREADS;
}

static enum util_status start(struct gpu_launch *launch, enum gpu_kernel kernel, void *args,
			      uint64_t bytes)
{
	launch->ended = launch->polls = 0;
	memset(launch->words->base, 0, launch->blocks * sizeof(uint64_t));
	return gpu_module_launch(launch->stream, kernel, launch->blocks, threads_for(bytes), args);
}

static enum gpu_kernel kernel_for(uint32_t type, uint32_t op)
{
	static const struct {
		uint32_t type, op;
		enum gpu_kernel kernel;
	} hot[] = {{GPU_TYPE_FLOAT, GPU_OP_SUM, GPU_KERNEL_REDUCE_FLOAT_SUM},
		   {GPU_TYPE_DOUBLE, GPU_OP_SUM, GPU_KERNEL_REDUCE_DOUBLE_SUM},
		   {GPU_TYPE_INT32, GPU_OP_SUM, GPU_KERNEL_REDUCE_INT32_SUM},
		   {GPU_TYPE_INT64, GPU_OP_SUM, GPU_KERNEL_REDUCE_INT64_SUM},
		   {GPU_TYPE_FLOAT16, GPU_OP_SUM, GPU_KERNEL_REDUCE_FLOAT16_SUM},
		   {GPU_TYPE_BFLOAT16, GPU_OP_SUM, GPU_KERNEL_REDUCE_BFLOAT16_SUM},
		   {GPU_TYPE_FLOAT, GPU_OP_MAX, GPU_KERNEL_REDUCE_FLOAT_MAX},
		   {GPU_TYPE_DOUBLE, GPU_OP_MAX, GPU_KERNEL_REDUCE_DOUBLE_MAX}};

	for (size_t i = 0; i < sizeof(hot) / sizeof(hot[0]); i++) {
		if (hot[i].type == type && hot[i].op == op)
			return hot[i].kernel;
	}
	return GPU_KERNEL_REDUCE;
}

unsigned gpu_type_bytes(enum gpu_type type)
{
	static const unsigned bytes[GPU_TYPE_NUM] = {
		[GPU_TYPE_INT8] = 1,          [GPU_TYPE_UINT8] = 1,
		[GPU_TYPE_INT16] = 2,         [GPU_TYPE_UINT16] = 2,
		[GPU_TYPE_INT32] = 4,         [GPU_TYPE_UINT32] = 4,
		[GPU_TYPE_INT64] = 8,         [GPU_TYPE_UINT64] = 8,
		[GPU_TYPE_FLOAT16] = 2,       [GPU_TYPE_BFLOAT16] = 2,
		[GPU_TYPE_FLOAT] = 4,         [GPU_TYPE_DOUBLE] = 8,
		[GPU_TYPE_COMPLEX_FLOAT] = 8, [GPU_TYPE_COMPLEX_DOUBLE] = 16,
		[GPU_TYPE_SHORT_INT] = 8,     [GPU_TYPE_INT_INT] = 8,
		[GPU_TYPE_LONG_INT] = 16,     [GPU_TYPE_FLOAT_INT] = 8,
		[GPU_TYPE_DOUBLE_INT] = 16,   [GPU_TYPE_FLOAT_FLOAT] = 8,
		[GPU_TYPE_DOUBLE_DOUBLE] = 16};

	return bytes[type];
}

enum util_status gpu_launch_reduce(struct gpu_launch *launch, struct gpu_reduce_args *args,
				   uint64_t bytes)
{
	args->done = launch->done;
	args->count = bytes / gpu_type_bytes((enum gpu_type)args->type);
	launch->blocks = blocks_for(launch, bytes);
	return start(launch, kernel_for(args->type, args->op), args, bytes);
}

enum util_status gpu_launch_copies(struct gpu_launch *launch, struct gpu_copies_args *args,
				   uint64_t bytes)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < args->num; i++)
		longest = args->copies[i].bytes > longest ? args->copies[i].bytes : longest;
	args->done = launch->done;
	launch->blocks = blocks_for(launch, bytes);
	/* Teams are of one size, so the copies must be nearly so. */
	args->teams = args->num <= launch->blocks && longest * args->num <= 2 * bytes;
	return start(launch, GPU_KERNEL_COPIES, args, bytes);
}

/* Acquire: the pair of gpu_block_done's release in each block. */
static bool all_ended(struct gpu_launch *launch)
{
	const uint64_t *words = launch->words->base;

	while (launch->ended < launch->blocks &&
	       __atomic_load_n(&words[launch->ended], __ATOMIC_ACQUIRE))
		launch->ended++;
	return launch->ended == launch->blocks;
}

enum util_status gpu_launch_poll(struct gpu_launch *launch)
{
	enum util_status status;

	if (all_ended(launch))
		return UTIL_OK;
	if (++launch->polls % POLLS_PER_QUERY)
		return UTIL_IN_PROGRESS;
	status = gpu_stream_poll(launch->stream);
	if (status != UTIL_OK || all_ended(launch))
		return status;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_GPU, "a kernel ended without having done its work");
	return UTIL_ERR_CUDA;
}
