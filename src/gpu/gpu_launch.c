/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_launch.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * A block is worth its start from 8 KiB on, at which each of its threads has one 16-byte word; with
 * all multiprocessors at work each has many words in flight. The polls between two looks at the
 * stream take some 10 us.
 */
enum { BLOCK_BYTES = GPU_THREADS * 16, WARP = 32, MAX_BLOCKS = 512, POLLS_PER_QUERY = 256 };

/* Pinned. */
struct gpu_launch_memory {
	_Alignas(16) struct gpu_work work[GPU_MAX_LANES];
	uint64_t abort;
	uint64_t found[GPU_VERIFY_FOUND];
	uint64_t words[MAX_BLOCKS];
};

enum util_status gpu_launch_open(struct gpu_launch *launch, struct gpu_stream *stream)
{
	enum util_status status;

	*launch = (struct gpu_launch){.stream = stream,
				      .multiprocessors = gpu_module_multiprocessors(stream)};
	if (!launch->multiprocessors)
		return UTIL_ERR_UNSUPPORTED;
	status = gpu_staging_get(sizeof(*launch->host), gpu_stream_where(stream), &launch->memory);
	if (status != UTIL_OK)
		return status;
	launch->host = launch->memory->base;
	launch->device = gpu_staging_device_address(launch->memory, stream);
	if (launch->device)
		return UTIL_OK;
	gpu_launch_close(launch);
	return UTIL_ERR_UNSUPPORTED;
}

void gpu_launch_close(struct gpu_launch *launch)
{
	gpu_staging_put(launch->memory);
	launch->memory = NULL;
}

unsigned gpu_launch_blocks(uint64_t bytes, unsigned most)
{
	uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

	return blocks < 1 ? 1 : blocks < most ? (unsigned)blocks : most;
}

unsigned gpu_launch_most(const struct gpu_launch *launch)
{
	return launch->multiprocessors < MAX_BLOCKS ? launch->multiprocessors : MAX_BLOCKS;
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
			      unsigned blocks, unsigned threads)
{
	launch->blocks = blocks;
	launch->ended = launch->polls = 0;
	launch->aborted = launch->late = false;
	launch->host->abort = 0;
	memset(launch->host->words, 0, blocks * sizeof(uint64_t));
	return gpu_module_launch(launch->stream, kernel, blocks, threads, args);
}

static uint64_t device_address(const struct gpu_launch *launch, size_t offset)
{
	return launch->device + offset;
}

static enum gpu_kernel kernel_for(uint32_t type, uint32_t op)
{
	static const struct {
		uint32_t type, op;
		enum gpu_kernel kernel;
	} hot[] = {{GPU_TYPE_FLOAT, GPU_OP_SUM, GPU_KERNEL_EXECUTE_FLOAT_SUM},
		   {GPU_TYPE_DOUBLE, GPU_OP_SUM, GPU_KERNEL_EXECUTE_DOUBLE_SUM},
		   {GPU_TYPE_INT32, GPU_OP_SUM, GPU_KERNEL_EXECUTE_INT32_SUM},
		   {GPU_TYPE_INT64, GPU_OP_SUM, GPU_KERNEL_EXECUTE_INT64_SUM},
		   {GPU_TYPE_FLOAT16, GPU_OP_SUM, GPU_KERNEL_EXECUTE_FLOAT16_SUM},
		   {GPU_TYPE_BFLOAT16, GPU_OP_SUM, GPU_KERNEL_EXECUTE_BFLOAT16_SUM},
		   {GPU_TYPE_FLOAT, GPU_OP_MAX, GPU_KERNEL_EXECUTE_FLOAT_MAX},
		   {GPU_TYPE_DOUBLE, GPU_OP_MAX, GPU_KERNEL_EXECUTE_DOUBLE_MAX}};

	for (size_t i = 0; i < sizeof(hot) / sizeof(hot[0]); i++) {
		if (hot[i].type == type && hot[i].op == op)
			return hot[i].kernel;
	}
	return GPU_KERNEL_EXECUTE;
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

int gpu_type_parts(enum gpu_type type, struct gpu_type_part parts[GPU_TYPE_MOST_PARTS])
{
	if (type == GPU_TYPE_SHORT_INT) {
		parts[0] = (struct gpu_type_part){0, 2};
		parts[1] = (struct gpu_type_part){4, 4};
		return 2;
	}
	parts[0] = (struct gpu_type_part){0, gpu_type_bytes(type) - gpu_type_tail(type)};
	return 1;
}

unsigned gpu_type_tail(enum gpu_type type)
{
	return type == GPU_TYPE_LONG_INT || type == GPU_TYPE_DOUBLE_INT ? 4 : 0;
}

enum util_status gpu_launch_execute(struct gpu_launch *launch, struct gpu_execute_args *args,
				    const struct gpu_work *work, unsigned num, uint64_t bytes)
{
	unsigned blocks = num * args->parts;

	if (blocks > MAX_BLOCKS || num > GPU_MAX_LANES)
		return UTIL_ERR_UNSUPPORTED;
	args->done = device_address(launch, offsetof(struct gpu_launch_memory, words));
	args->abort = device_address(launch, offsetof(struct gpu_launch_memory, abort));
	args->work = 0;
	if (num > GPU_FEW_LANES) {
		args->work = device_address(launch, offsetof(struct gpu_launch_memory, work));
		memcpy(launch->host->work, work, num * sizeof(*work));
	} else {
		memcpy(args->few_work, work, num * sizeof(*work));
	}
	return start(launch, kernel_for(args->type, args->op), args, blocks, threads_for(bytes));
}

enum util_status gpu_launch_leave(struct gpu_stream *stream, struct gpu_execute_args *args,
				  const struct gpu_work *work, unsigned num, uint64_t bytes)
{
	if (num > GPU_FEW_LANES)
		return UTIL_ERR_UNSUPPORTED;
	args->work = args->done = 0;
	memset(args->few_work, 0, sizeof(args->few_work));
	if (num)
		memcpy(args->few_work, work, num * sizeof(*work));
	return gpu_module_launch(stream, kernel_for(args->type, args->op),
				 (num ? num : 1) * args->parts, threads_for(bytes), args);
}

/* What drivers before 12.1 take. */
_Static_assert(sizeof(struct gpu_exchange_args) <= 4096 && sizeof(struct gpu_execute_args) <= 4096,
	       "a kernel's arguments fit the space for parameters");

enum util_status gpu_launch_exchange(struct gpu_stream *stream, struct gpu_exchange_args *args,
				     unsigned blocks, uint64_t bytes)
{
	return gpu_module_launch(stream, GPU_KERNEL_EXCHANGE, blocks, threads_for(bytes), args);
}

enum util_status gpu_launch_all(struct gpu_stream *stream)
{
	struct gpu_execute_args args = {.parts = 1};
	struct gpu_exchange_args none = {.num_routes = 0};
	enum util_status status = gpu_launch_exchange(stream, &none, 1, 0);

	for (int kernel = GPU_KERNEL_EXECUTE; kernel < GPU_KERNEL_NUM && status == UTIL_OK;
	     kernel++)
		status = gpu_module_launch(stream, (enum gpu_kernel)kernel, 1, WARP, &args);
	return status;
}

enum util_status gpu_launch_probe(struct gpu_launch *launch, struct gpu_probe_args *args,
				  unsigned blocks)
{
	args->done = device_address(launch, offsetof(struct gpu_launch_memory, words));
	return start(launch, GPU_KERNEL_PROBE, args, blocks, WARP);
}

void gpu_card_make(uint64_t seed, uint32_t rank, void *card)
{
	uint64_t words[GPU_CARD_BYTES / sizeof(uint64_t)] = {0};

	for (uint32_t i = 0; i < 2; i++)
		words[i] = gpu_card_value(seed, rank, i);
	words[GPU_CARD_WORD / sizeof(uint64_t)] = words[0];
	memcpy(card, words, sizeof(words));
}

enum util_status gpu_card_exchange(struct gpu_stream *stream, uint64_t mine, uint32_t rank,
				   uint64_t theirs, uint32_t other)
{
	uint64_t there = theirs + gpu_card_place(GPU_CARD_COPIED, rank);
	uint64_t here = mine + gpu_card_place(GPU_CARD_TAKEN, other);
	enum util_status status =
		gpu_stream_copy(stream, (void *)there, (const void *)mine, GPU_CARD_BYTES);

	if (status != UTIL_OK)
		return status;
	return gpu_stream_copy(stream, (void *)here, (const void *)theirs, GPU_CARD_BYTES);
}

enum util_status gpu_launch_verify(struct gpu_launch *launch, struct gpu_verify_args *args)
{
	args->done = device_address(launch, offsetof(struct gpu_launch_memory, words));
	args->found = device_address(launch, offsetof(struct gpu_launch_memory, found));
	return start(launch, GPU_KERNEL_VERIFY, args, 1, WARP);
}

uint64_t gpu_launch_found(const struct gpu_launch *launch, int what)
{
	return launch->host->found[what];
}

static bool is_blocking;

/* The driver looks once, too. */
static void look_at_environment(void)
{
	const char *value = getenv("CUDA_LAUNCH_BLOCKING");

	is_blocking = value && *value && strcmp(value, "0") != 0;
}

bool gpu_launch_is_blocking(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_at_environment);
	return is_blocking;
}

/* A bit for each device. Relaxed: kernels of two operations have nothing in common but room. */
static uint64_t reserved;

bool gpu_launch_reserve(int device)
{
	uint64_t bit = UINT64_C(1) << (device % 64);

	return !(__atomic_fetch_or(&reserved, bit, __ATOMIC_RELAXED) & bit);
}

void gpu_launch_release(int device)
{
	__atomic_fetch_and(&reserved, ~(UINT64_C(1) << (device % 64)), __ATOMIC_RELAXED);
}

static unsigned drawn[64]; /* of each device */

unsigned gpu_launch_draw(int device, unsigned room, unsigned most)
{
	unsigned *of = &drawn[device % 64], left, mine;
	unsigned before = __atomic_load_n(of, __ATOMIC_RELAXED);

	do {
		left = room > before ? room - before : 0;
		/* One is left for the others. */
		mine = left < 2 ? 0 : left < 8 ? 1 : left / 4;
		mine = mine < most ? mine : most;
	} while (!__atomic_compare_exchange_n(of, &before, before + mine, false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return mine;
}

void gpu_launch_put_back(int device, unsigned blocks)
{
	__atomic_fetch_sub(&drawn[device % 64], blocks, __ATOMIC_RELAXED);
}

unsigned gpu_launch_drawn(int device)
{
	return __atomic_load_n(&drawn[device % 64], __ATOMIC_RELAXED);
}

/* Relaxed: it orders nothing. */
void gpu_launch_abort(struct gpu_launch *launch)
{
	__atomic_store_n(&launch->host->abort, 1, __ATOMIC_RELAXED);
}

/* Acquire: the pair of gpu_block_done's release in each block. */
static bool all_ended(struct gpu_launch *launch)
{
	while (launch->ended < launch->blocks) {
		uint64_t how =
			__atomic_load_n(&launch->host->words[launch->ended], __ATOMIC_ACQUIRE);

		if (!how)
			return false;
		launch->aborted |= how != GPU_END_DONE;
		launch->late |= how == GPU_END_LATE;
		launch->ended++;
	}
	return true;
}

enum util_status gpu_launch_look(struct gpu_launch *launch)
{
	if (!all_ended(launch))
		return UTIL_IN_PROGRESS;
	return launch->aborted ? UTIL_ERR_PEER : UTIL_OK;
}

enum util_status gpu_launch_poll(struct gpu_launch *launch)
{
	enum util_status status = gpu_launch_look(launch);

	if (status != UTIL_IN_PROGRESS)
		return status;
	if (++launch->polls % POLLS_PER_QUERY)
		return UTIL_IN_PROGRESS;
	status = gpu_stream_poll(launch->stream);
	if (status != UTIL_OK)
		return status;
	status = gpu_launch_look(launch);
	if (status != UTIL_IN_PROGRESS)
		return status;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_GPU, "a kernel ended without having done its work");
	return UTIL_ERR_CUDA;
}
