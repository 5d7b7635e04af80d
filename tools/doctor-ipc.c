/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the driver makes of handles of legacy IPC that no documentation says: of small allocations
 * in one block, of a handle that is opened twice, of mappings of memory that was freed, of a second
 * context. One process exports and another opens; what they find out the first one says, when they
 * have ended.
 */
#include "doctor-watch.h"
#include "doctor.h"
#include "gpu/gpu_driver.h"
#include "util/util_time.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SMALL = 4096, LARGE = 64 << 20, MOST_LINES = 8, LIMIT_S = 10, LAST = 4, GIVEN_UP = 100 };

struct board {
	_Atomic int
		step; /* who has done a step says so; release and acquire of what comes before */
	CUipcMemHandle small[2], large, again;
	_Atomic int num;
	char lines[MOST_LINES][200];
};

static void note(struct board *board, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void note(struct board *board, const char *format, ...)
{
	int line = atomic_fetch_add(&board->num, 1);
	va_list args;

	va_start(args, format);
	if (line < MOST_LINES)
		vsnprintf(board->lines[line], sizeof(board->lines[0]), format, args);
	va_end(args);
}

/* Also for the other, which would wait. */
static void give_up(struct board *board)
{
	atomic_store(&board->step, GIVEN_UP);
	_exit(1);
}

/* The process ends where the other does not come. */
static void wait_for(struct board *board, int step)
{
	uint64_t end = util_now() + (uint64_t)LIMIT_S * 1000000000;

	while (atomic_load(&board->step) < step) {
		if (util_now() > end)
			give_up(board);
		sched_yield();
	}
	if (atomic_load(&board->step) == GIVEN_UP)
		_exit(1);
}

static void open_context(struct board *board)
{
	CUcontext context;

	if (!gpu_driver_load() || gpu_driver.cuInit(0) != CUDA_SUCCESS ||
	    gpu_driver.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
	    gpu_driver.cuCtxPushCurrent(context) != CUDA_SUCCESS)
		give_up(board);
}

static size_t free_memory(void)
{
	__typeof__(&cuMemGetInfo) get_info;
	void *address = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemGetInfo_v2");
	size_t left = 0, all;

	memcpy(&get_info, &address, sizeof(address));
	if (get_info)
		get_info(&left, &all);
	return left;
}

static void export_memory(struct board *board)
{
	CUdeviceptr small[2], large, again;
	size_t before;

	open_context(board);
	for (int i = 0; i < 2; i++) {
		if (gpu_driver.cuMemAlloc(&small[i], SMALL) != CUDA_SUCCESS ||
		    gpu_driver.cuIpcGetMemHandle(&board->small[i], small[i]) != CUDA_SUCCESS)
			give_up(board);
	}
	if (gpu_driver.cuMemAlloc(&large, LARGE) != CUDA_SUCCESS ||
	    gpu_driver.cuIpcGetMemHandle(&board->large, large) != CUDA_SUCCESS)
		give_up(board);
	atomic_store(&board->step, 1);
	wait_for(board, 2);
	before = free_memory();
	gpu_driver.cuMemFree(large);
	note(board, "memory that another process has mapped: freeing %d MiB gives back %lld",
	     LARGE >> 20, (long long)(free_memory() - before) >> 20);
	if (gpu_driver.cuMemAlloc(&again, LARGE) != CUDA_SUCCESS ||
	    gpu_driver.cuIpcGetMemHandle(&board->again, again) != CUDA_SUCCESS)
		give_up(board);
	note(board, "what is allocated next is at %s address",
	     again == large ? "the same" : "another");
	atomic_store(&board->step, 3);
	wait_for(board, LAST);
}

static CUresult open_handle(CUdeviceptr *address, CUipcMemHandle handle)
{
	return gpu_driver.cuIpcOpenMemHandle(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* NULL: there can be none. */
static CUcontext second_context(void)
{
	CUcontext context = NULL;
#if CUDA_VERSION >= 13000
	static const char name[] = "cuCtxCreate_v4";
	CUresult (*create)(CUcontext * context, CUctxCreateParams * params, unsigned flags,
			   CUdevice device);
#else
	static const char name[] = "cuCtxCreate_v2";
	CUresult (*create)(CUcontext * context, unsigned flags, CUdevice device);
#endif
	void *address = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name);

	memcpy(&create, &address, sizeof(address));
	if (!create)
		return NULL;
#if CUDA_VERSION >= 13000
	return create(&context, NULL, 0, 0) == CUDA_SUCCESS ? context : NULL;
#else
	return create(&context, 0, 0) == CUDA_SUCCESS ? context : NULL;
#endif
}

static void import_memory(struct board *board)
{
	CUdeviceptr small[2] = {0}, twice = 0, large, again, other;
	CUresult results[3];

	open_context(board);
	wait_for(board, 1);
	results[0] = open_handle(&small[0], board->small[0]);
	results[1] = open_handle(&small[1], board->small[1]);
	results[2] = open_handle(&twice, board->small[0]);
	note(board, "two small allocations: %s, %s, %lld bytes apart", doctor_name_of(results[0]),
	     doctor_name_of(results[1]), (long long)(small[1] - small[0]));
	note(board, "a handle that is open, again: %s%s", doctor_name_of(results[2]),
	     results[2] != CUDA_SUCCESS ? ""
	     : twice == small[0]        ? ", at the same address"
					: ", at another address");
	open_handle(&large, board->large);
	atomic_store(&board->step, 2);
	wait_for(board, 3);
	note(board, "what took the place of freed memory, with its mapping still there: %s",
	     doctor_name_of(open_handle(&again, board->again)));
	if (second_context())
		note(board, "by a second context of the device: %s",
		     doctor_name_of(open_handle(&other, board->small[0])));
	atomic_store(&board->step, LAST);
}

void doctor_look_at_ipc(void)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static void (*const parts[])(struct board *) = {export_memory, import_memory};

	if (board == MAP_FAILED)
		return;
	for (int i = 0; i < 2; i++) {
		if (doctor_watch_fork() == 0) {
			parts[i](board);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	for (int i = 0; i < board->num && i < MOST_LINES; i++)
		doctor_say(DOCTOR_NOTE, "IPC handles", NULL, NULL, "%s", board->lines[i]);
	if (atomic_load(&board->step) != LAST)
		doctor_say(DOCTOR_WARN, "IPC handles",
			   "buffers on devices go through pinned memory of the host",
			   "WSL, Tegra and some virtual GPUs have none",
			   "the driver gives none, or they do not open");
	munmap(board, sizeof(*board));
}
