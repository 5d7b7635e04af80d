/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches. The blocks of one run on OS threads, as many at a time as the device has
 * multiprocessors: each interprets its PTX (ptx/ptx.h), or is the kernel's twin on the host. The
 * threads of a twin's block take turns on its OS thread (coroutines) and change at barriers, so
 * that a barrier that is missing shows: a thread then reads what its neighbour has not written yet.
 * CUEMU_THREADS says how many a block has, whatever the launch asks for (kernels are right for any
 * number): 2 by default, 1 for speed.
 */
#include "emu_module.h"
#include "emu_device.h"
#include "emu_twins.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { MAX_THREADS = 64, STACK_BYTES = 256 << 10, MAX_ARGS = 32764 };

/* Of emu_test_kernels.cu: shifts a block's numbers round by one through shared memory. */
struct emu_rotate_args {
	uint64_t array, barrier;
};

/* A twin's name, its function and the row of the table. */
#define TWINS(X)                                                                                   \
	EMU_TWINS(X)                                                                               \
	X(emu_rotate, struct emu_rotate_args)

#define DECLARE(name, type)                                                                        \
	void name(const type *args);                                                               \
	static void run_##name(const void *args)                                                   \
	{                                                                                          \
		name(args);                                                                        \
	}
TWINS(DECLARE)

#define ROW(name, type) {#name, run_##name, sizeof(type)},
static const struct emu_twin twins[] = {TWINS(ROW)};

const struct emu_twin *emu_twin_find(const char *name)
{
	for (size_t i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
		if (!strcmp(twins[i].name, name))
			return &twins[i];
	}
	return NULL;
}

struct launch {
	const struct CUfunc_st *function;
	struct ptx_grid grid;
	unsigned blocks;
	uint64_t number; /* of the process's launches */
	bool cooperates;
	uint64_t room; /* threads of the device's that it takes */
	atomic_bool failed;
	atomic_uint next_block;
	pthread_t beginner, threads[MAX_THREADS]; /* who began it, and the others */
	unsigned workers, started;
	int turn; /* what holds the device, or -1: nobody else wants it */
	pthread_mutex_t turn_lock;
	uint64_t turn_began;      /* ns */
	_Atomic uint64_t away_ns; /* that others had the device in turns between */
	_Alignas(16) unsigned char args[];
};

/* The block that an OS thread runs. */
struct block {
	struct launch *launch;
	unsigned index, threads, current, alive, arrived, generation;
	bool ended[MAX_THREADS];
	char *stacks;
	uint64_t naps;
	ucontext_t scheduler, contexts[]; /* of each thread, if there are several */
};
static _Thread_local struct block *block;

/* Those that were in emu_pinned, since something was unpinned. */
struct known {
	const struct known *next;
	struct emu_range range;
};
static const struct known *_Atomic all_known;
static atomic_uint unpinned; /* times */
static const struct emu_range nothing;
const struct emu_range *emu_pinned = &nothing;

static void set_pinned(const struct emu_range *range)
{
	__atomic_store_n(&emu_pinned, range, __ATOMIC_SEQ_CST);
}

/* What was known is not freed: a kernel may be looking at it. */
void emu_forget_pinned(void)
{
	atomic_fetch_add(&unpinned, 1);
	atomic_store(&all_known, NULL);
	set_pinned(&nothing);
}

static const struct known *find_known(uint64_t address)
{
	const struct known *known = atomic_load(&all_known);

	while (known && address - known->range.start >= known->range.bytes)
		known = known->next;
	return known;
}

/* Another thread may add the same at the same time; one of the two is not found then. */
static const struct known *add_known(uint64_t address)
{
	struct known *known = malloc(sizeof(*known));
	struct emu_alloc alloc;

	if (!known || !emu_find(address, &alloc))
		emu_die("a kernel touched %#lx, which is neither device nor pinned memory",
			(unsigned long)address);
	known->range = (struct emu_range){alloc.address, alloc.size};
	known->next = atomic_load(&all_known);
	while (!atomic_compare_exchange_weak(&all_known, &known->next, known))
		;
	return known;
}

/*
 * Where a kernel finds the byte of this address. Host memory must be pinned: on hardware a kernel
 * that touches other host memory ends with its context.
 */
void *emu_kernel_place(uint64_t address)
{
	unsigned before = atomic_load(&unpinned);
	const struct known *known;

	if (emu_in_arena(address))
		return emu_shadow(address);
	known = find_known(address);
	if (!known)
		known = add_known(address);
	set_pinned(&known->range);
	if (atomic_load(&unpinned) != before)
		emu_forget_pinned();
	return (void *)address;
}

unsigned emu_thread(void)
{
	return block->current;
}

unsigned emu_threads(void)
{
	return block->threads;
}

unsigned emu_block(void)
{
	return block->index;
}

unsigned emu_blocks(void)
{
	return block->launch->blocks;
}

/* Go on with the next thread of the block that has not ended, if there is another. */
static void yield(void)
{
	unsigned from = block->current, to = from;

	do {
		to = (to + 1) % block->threads;
	} while (block->ended[to] && to != from);
	if (to == from)
		return;
	block->current = to;
	swapcontext(&block->contexts[from], &block->contexts[to]);
}

static void release_barrier(void)
{
	block->arrived = 0;
	block->generation++;
}

void emu_block_barrier(void)
{
	unsigned generation = block->generation;

	if (++block->arrived == block->alive) {
		release_barrier();
		return;
	}
	while (block->generation == generation)
		yield();
}

/* Of a block that waits; in nanoseconds. */
enum { NAP = 100000 };

/*
 * The device's clock: what the thread ran and meant to nap, so that it stands still while the
 * machine runs other things. It is as slow as the device (CUEMU_SLOWNESS): blocks that run at the
 * same time on hardware take turns on a few cores here.
 */
uint64_t emu_clock(void)
{
	struct timespec ran;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
	return ((uint64_t)ran.tv_sec * 1000000000 + (uint64_t)ran.tv_nsec + block->naps * NAP +
		atomic_load(&block->launch->away_ns)) /
	       (uint64_t)emu_config.slowness;
}

uint64_t emu_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/*
 * The kernel is preempted when its slice is over, here by the first block that waits: the others
 * then wait for the lock. Who is away does not know it, but for the clock, which goes on.
 */
static void give_turn_away(struct launch *launch)
{
	uint64_t slice = (uint64_t)emu_config.slice_us * 1000 * (uint64_t)emu_config.slowness, left;
	struct timespec others = {0, NAP};

	pthread_mutex_lock(&launch->turn_lock);
	left = emu_now();
	if (left - launch->turn_began >= slice) {
		flock(launch->turn, LOCK_UN);
		nanosleep(&others, NULL); /* they have been waiting */
		if (flock(launch->turn, LOCK_EX))
			emu_die("CUEMU_TIME_SLICED: no lock");
		launch->turn_began = emu_now();
		atomic_fetch_add(&launch->away_ns, launch->turn_began - left);
	}
	pthread_mutex_unlock(&launch->turn_lock);
}

static void *run_blocks(void *argument);

static void start_workers(struct launch *launch)
{
	while (launch->started < launch->workers) {
		if (pthread_create(&launch->threads[launch->started++], NULL, run_blocks, launch))
			emu_die("no thread for a block");
	}
}

/*
 * What is waited for may be another thread of the block, or a block of another process, which needs
 * the core: on hardware all of them make progress. A yield gives way to threads of the same session
 * only, where the kernel groups them by sessions: blocks that yielded were seen to keep those of
 * other ranks from both cores for 3 s. Blocks that nap for less than this wake only to nap again.
 * In the caller, as benchmarks run it, each rank has a core, and blocks of which none waits run one
 * after the other.
 */
void emu_pause(void)
{
	struct timespec nap = {0, NAP};

	if (block->launch->turn >= 0 && emu_config.slice_us)
		give_turn_away(block->launch);
	if (block->threads > 1)
		yield();
	if (emu_config.in_caller) {
		if (pthread_equal(pthread_self(), block->launch->beginner))
			start_workers(block->launch);
		sched_yield();
		return;
	}
	nanosleep(&nap, NULL);
	block->naps++;
}

static void thread_main(void)
{
	block->launch->function->twin->run(block->launch->args);
	block->ended[block->current] = true;
	/* Threads that have ended are not waited for at a barrier. */
	if (--block->alive && block->arrived == block->alive)
		release_barrier();
	if (block->alive)
		yield();
	setcontext(&block->scheduler);
}

/* An error ends the launch, and with it the context, which the first one says. */
static void interpret(struct launch *launch, unsigned index)
{
	struct ptx_end end;

	ptx_run_block(launch->function->code, launch->function->kernel, &launch->grid, launch->args,
		      index,
		      emu_config.seed + launch->number + index * UINT64_C(0x9e3779b97f4a7c15),
		      &end);
	if (!end.code || atomic_exchange(&launch->failed, true))
		return;
	fprintf(stderr, "cuemu: %s\n", end.text);
	emu_lose((CUresult)end.code);
}

static void run_block(unsigned index)
{
	block->index = index;
	if (block->launch->function->kernel) {
		interpret(block->launch, index);
		return;
	}
	block->alive = block->threads;
	block->current = block->arrived = 0;
	memset(block->ended, 0, block->threads * sizeof(block->ended[0]));
	if (block->threads == 1) {
		block->launch->function->twin->run(block->launch->args);
		return;
	}
	for (unsigned i = 0; i < block->threads; i++) {
		getcontext(&block->contexts[i]);
		block->contexts[i].uc_stack.ss_sp = block->stacks + (size_t)i * STACK_BYTES;
		block->contexts[i].uc_stack.ss_size = STACK_BYTES;
		block->contexts[i].uc_link = NULL;
		makecontext(&block->contexts[i], thread_main, 0);
	}
	swapcontext(&block->scheduler, &block->contexts[0]);
}

static void *run_blocks(void *argument)
{
	struct launch *launch = argument;
	unsigned index, threads = launch->function->kernel ? 1 : (unsigned)emu_config.threads;
	struct block alone;

	block = &alone;
	if (threads > 1) {
		block = malloc(sizeof(*block) + threads * sizeof(block->contexts[0]));
		block->stacks = malloc(threads * STACK_BYTES);
	}
	block->launch = launch;
	block->threads = threads;
	block->generation = 0;
	block->naps = 0;
	while ((index = atomic_fetch_add(&launch->next_block, 1)) < launch->blocks)
		run_block(index);
	if (threads > 1) {
		free(block->stacks);
		free(block);
	}
	block = NULL;
	return NULL;
}

/*
 * As on a GPU whose contexts take turns: kernels of two processes never run at the same time. The
 * lock is on the file of this library, so nothing is left behind. Each kernel opens the file, as
 * its lock is not to be another kernel's of this process.
 */
static int take_turn(void)
{
	Dl_info here;
	int fd;

	if (!emu_config.time_sliced)
		return -1;
	fd = dladdr(&emu_config, &here) ? open(here.dli_fname, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || flock(fd, LOCK_EX))
		emu_die("CUEMU_TIME_SLICED: no lock");
	return fd;
}

enum { THREADS_OF_SM = 2048 };

static pthread_mutex_t room_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t room_given = PTHREAD_COND_INITIALIZER;
static uint64_t room_taken; /* under the lock */

/* A block is on one multiprocessor; of more than fit at a time the others come later. */
static uint64_t room_of(const struct ptx_grid *grid)
{
	uint64_t threads = (uint64_t)grid->threads[0] * grid->threads[1] * grid->threads[2];
	uint64_t blocks = (uint64_t)grid->blocks[0] * grid->blocks[1] * grid->blocks[2];
	uint64_t most = (uint64_t)emu_config.sms * (THREADS_OF_SM / threads);

	return threads * (blocks < most ? blocks : most);
}

static void take_room(const struct launch *launch)
{
	uint64_t all = (uint64_t)emu_config.sms * THREADS_OF_SM;

	if (!emu_config.room)
		return;
	pthread_mutex_lock(&room_lock);
	while (room_taken && room_taken + launch->room > all)
		pthread_cond_wait(&room_given, &room_lock);
	room_taken += launch->room;
	pthread_mutex_unlock(&room_lock);
}

static void give_room(const struct launch *launch)
{
	if (!emu_config.room)
		return;
	pthread_mutex_lock(&room_lock);
	room_taken -= launch->room;
	pthread_cond_broadcast(&room_given);
	pthread_mutex_unlock(&room_lock);
}

/* In naps, as kernels that wait take them: beside other work both get as much longer. */
static void begin_late(const struct launch *launch)
{
	static atomic_bool began[sizeof(twins) / sizeof(twins[0])];
	const struct emu_twin *twin = launch->function->twin;
	uint64_t naps = (uint64_t)emu_config.first_us * 1000 * (uint64_t)emu_config.slowness / NAP;
	struct timespec time = {0, NAP};

	if (!naps || !twin || atomic_exchange(&began[twin - twins], true))
		return;
	while (naps--)
		nanosleep(&time, NULL);
}

static void run_launch(void *argument)
{
	struct launch *launch = argument;
	unsigned together = launch->blocks < (unsigned)emu_config.sms || launch->cooperates
				    ? launch->blocks
				    : (unsigned)emu_config.sms;

	launch->grid.stopped = &launch->failed;
	launch->grid.watches = emu_config.check_shared;
	if (emu_fault("kernel") != CUDA_SUCCESS) /* it stops in the middle, here at the beginning */
		return;
	begin_late(launch);
	launch->beginner = pthread_self();
	launch->workers = (together < MAX_THREADS ? together : MAX_THREADS) - 1;
	take_room(launch);
	launch->turn = take_turn();
	launch->turn_began = emu_now();
	if (!emu_config.in_caller)
		start_workers(launch);
	run_blocks(launch);
	for (unsigned i = 0; i < launch->started; i++)
		pthread_join(launch->threads[i], NULL);
	if (launch->turn >= 0)
		close(launch->turn);
	give_room(launch);
}

/* ---- the API ---- */

/* The arguments in one piece, as the kernel finds them. */
static void gather_args(const struct CUfunc_st *function, void **parameters, unsigned char *args)
{
	const struct ptx_function *kernel = function->kernel;

	if (!kernel) {
		memcpy(args, parameters[0], function->twin->size);
		return;
	}
	for (uint32_t i = 0; i < kernel->num_params; i++)
		memcpy(args + kernel->params[i].offset, parameters[i], kernel->params[i].bytes);
}

/* Of a grid's second and third dimension, a block's third; bytes that need no asking. */
enum { MAX_ROWS = 65535, MAX_DEEP = 64, SHARED = 48 << 10 };

static uint64_t product(const uint32_t sizes[3])
{
	return (uint64_t)sizes[0] * sizes[1] * sizes[2];
}

static bool is_valid(const struct CUfunc_st *function, const struct ptx_grid *grid, void **extra)
{
	uint64_t threads = product(grid->threads), blocks = product(grid->blocks);
	bool is_line = blocks == grid->blocks[0] && threads == grid->threads[0];
	uint64_t shared =
		grid->shared_bytes + (function->kernel ? function->kernel->shared_bytes : 0);

	return blocks && threads && blocks <= UINT32_MAX && threads <= PTX_MAX_BLOCK && !extra &&
	       grid->blocks[1] <= MAX_ROWS && grid->blocks[2] <= MAX_ROWS &&
	       grid->threads[2] <= MAX_DEEP && (is_line || function->kernel) &&
	       emu_function_arg_bytes(function) <= MAX_ARGS &&
	       grid->shared_bytes <= function->most_dynamic &&
	       (shared <= SHARED || function->most_dynamic > SHARED);
}

/*
 * Where a grid's blocks meet, in a cooperative launch (cooperative_groups: struct grid_workspace):
 * 8 bytes of pinned memory, of many in turn.
 */
static uint64_t take_workspace(uint64_t number)
{
	enum { MANY = 256 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t *all;
	void *memory = NULL;
	uint64_t *mine = NULL;

	pthread_mutex_lock(&lock);
	if (!all &&
	    cuMemHostAlloc(&memory, MANY * sizeof(*all), CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS)
		all = memory;
	if (all)
		mine = &all[number % MANY];
	pthread_mutex_unlock(&lock);
	if (mine)
		*mine = 0;
	return (uint64_t)(uintptr_t)mine;
}

/* All blocks of a cooperative launch run at the same time. */
static bool fits(const struct ptx_grid *grid)
{
	uint64_t threads = product(grid->threads), blocks = product(grid->blocks);

	return blocks <= MAX_THREADS &&
	       blocks <= (uint64_t)emu_config.sms * (THREADS_OF_SM / threads);
}

static CUresult launch_grid(CUfunction function, const struct ptx_grid *grid, CUstream handle,
			    void **parameters, bool cooperates)
{
	static atomic_uint_fast64_t launches;
	struct emu_stream *stream;
	struct launch *launch;
	CUresult result = emu_stream_use(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	launch = malloc(sizeof(*launch) + emu_function_arg_bytes(function) + 1);
	if (!launch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	launch->function = function;
	launch->grid = *grid;
	launch->room = room_of(grid);
	if (function->kernel && function->code->has_heap)
		launch->grid.heap = emu_heap_of(emu_current());
	if (function->twin)
		launch->grid.threads[0] = (uint32_t)emu_config.threads;
	launch->blocks = (unsigned)product(grid->blocks);
	launch->cooperates = cooperates;
	launch->number = atomic_fetch_add(&launches, 1);
	if (cooperates)
		launch->grid.workspace = take_workspace(launch->number);
	atomic_init(&launch->failed, false);
	atomic_init(&launch->next_block, 0);
	atomic_init(&launch->away_ns, 0);
	pthread_mutex_init(&launch->turn_lock, NULL);
	launch->started = 0;
	gather_args(function, parameters, launch->args);
	emu_submit(stream, run_launch, launch);
	if (emu_config.blocking_launches && !emu_capture_is_on(stream))
		emu_stream_wait(stream);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
					unsigned grid_z, unsigned block_x, unsigned block_y,
					unsigned block_z, unsigned shared, CUstream handle,
					void **parameters, void **extra)
{
	struct ptx_grid grid = {.blocks = {grid_x, grid_y, grid_z},
				.threads = {block_x, block_y, block_z},
				.shared_bytes = shared};
	CUresult result;

	EMU_ENTER();
	result = emu_function_of(function, &function);
	if (result != CUDA_SUCCESS)
		return result;
	if (!is_valid(function, &grid, extra))
		return CUDA_ERROR_INVALID_VALUE;
	return launch_grid(function, &grid, handle, parameters, false);
}

EMU_API CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
						   unsigned grid_y, unsigned grid_z,
						   unsigned block_x, unsigned block_y,
						   unsigned block_z, unsigned shared,
						   CUstream handle, void **parameters)
{
	struct ptx_grid grid = {.blocks = {grid_x, grid_y, grid_z},
				.threads = {block_x, block_y, block_z},
				.shared_bytes = shared};
	CUresult result;

	EMU_ENTER();
	result = emu_function_of(function, &function);
	if (result != CUDA_SUCCESS)
		return result;
	if (!is_valid(function, &grid, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	if (!fits(&grid))
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return launch_grid(function, &grid, handle, parameters, true);
}
