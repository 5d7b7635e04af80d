/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated CUDA driver: what its files share.
 *
 * Memory. One arena of address space is reserved twice over: [base, base + size) are the addresses
 * given out and stay PROT_NONE, so that host code that touches a device pointer gets SIGSEGV as on
 * hardware; [base + size, base + 2 size) is where the emulator itself, and the kernels' host twins,
 * see the same bytes. The bytes are in memfds, which other processes open through /proc (IPC) and
 * which vanish with the process.
 *
 * Time. Each stream has a thread that runs its operations in order, late on purpose
 * (CUEMU_DELAY_US), so that a missing synchronisation shows. For benchmarks, CUEMU_IN_CALLER=1 runs
 * an operation in the thread that submits it where nothing comes before it: waking a thread costs
 * more here than a launch does on hardware. A kernel must not wait for that thread then, as fused
 * ones of several nodes do.
 *
 * Environment: CUEMU_DEVICES, CUEMU_SMS, CUEMU_MEMORY (bytes a device), CUEMU_P2P (all, none, lies,
 * or a matrix of enum emu_p2p, as rows of digits separated by ','), CUEMU_ARENA (bytes),
 * CUEMU_DELAY_US, CUEMU_IN_CALLER (0 or 1), CUEMU_TIME_SLICED (0 or 1: processes take turns on the
 * devices), CUEMU_SLICE_US (of the device's time, then; 0: as long as a kernel), CUEMU_SLOWNESS
 * (what the threads of kernels run for a nanosecond of the device's clock), CUEMU_MIG (0 or 1: the
 * devices are instances of one GPU, and are called so), CUEMU_THREADS (in a block of a kernel of
 * this project's: 2 in a twin, 64 of PTX), CUEMU_STALE (error, or die: what becomes of who enters a
 * context that has ended), CUEMU_FAULT (see emu_fault), CUEMU_LEGACY (what a query of the legacy
 * stream tells of: blocking, of other blocking streams as well, or alone, which no document says),
 * CUEMU_MANAGED (what the devices say of the host's use of managed memory beside kernels: beside,
 * it may, or alone, it may not, which nobody enforces), CUEMU_FIRST_US (of the device's time, by
 * which the first launch of each kernel of this project's in a process begins late),
 * CUEMU_CONNECTIONS (hardware queues, which streams share: what stands in one waits for all that
 * was put there before; 0: each stream has its own), CUEMU_WAIT_US (before each look at a word for
 * which a stream waits, as where it has been put aside), CUEMU_ROOM (0 or 1: a kernel begins when
 * the process's others leave its blocks room on the multiprocessors, if not alone),
 * CUEMU_KERNELS (twins, or ptx: this project's kernels are interpreted, too), CUEMU_SEED (by which
 * the interpreter's threads take turns), CUEMU_PTX (see emu_module.c), CUEMU_CHECK_SHARED (1: races
 * in shared memory, and reads of what nobody has stored, are errors of kernels that are
 * interpreted).
 */
#ifndef EMU_H
#define EMU_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EMU_API __attribute__((visibility("default")))

enum { EMU_MAX_DEVICES = 16 };

/*
 * Of a device that is to reach another's memory. What lies maps, and then loses what is written and
 * reads other bytes: kernels and copies alike, or kernels only.
 */
enum emu_p2p { EMU_P2P_NONE, EMU_P2P_WORKS, EMU_P2P_LIES, EMU_P2P_LIES_TO_KERNELS };

struct emu_config {
	int devices, sms, threads, slowness;
	size_t memory, arena;
	unsigned delay_us, slice_us, first_us, wait_us;
	uint64_t seed;
	int connections; /* of a process to its devices; 0: one for each stream */
	bool in_caller, room, time_sliced, mig, legacy_alone, stale_die, interprets, check_shared;
	bool managed_alone;
	/* What devices say of themselves, and don't do: end long kernels; keep others out. */
	bool display, exclusive;
	bool blocking_launches; /* CUDA_LAUNCH_BLOCKING, as the driver */
	enum emu_p2p p2p[EMU_MAX_DEVICES][EMU_MAX_DEVICES];
};
extern struct emu_config emu_config;

/* Read the environment once. A bad value ends the program with a message that names it. */
void emu_config_load(void);

/*
 * Print "cuemu: ..." and end the program: for what a program must not do, and what is not emulated.
 */
void emu_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/*
 * Fault injection. CUEMU_FAULT is a list "NAME[:N][+][=CODE|=hang],...": the Nth call (default 1)
 * of the driver function NAME in this process, and with + all later ones, fails with CODE (default
 * 2, out of memory). The name `kernel` stands for the kernels themselves, which then do nothing.
 * Codes of kernels that fail (226, 700, 719 and such) are sticky: the context is lost and every
 * later call fails the same way. One that hangs never returns.
 */
CUresult emu_find_fault(const char *name);
extern atomic_bool emu_may_fault; /* until it is known that there are none */

static inline CUresult emu_fault(const char *name)
{
	if (!atomic_load_explicit(&emu_may_fault, memory_order_relaxed))
		return CUDA_SUCCESS;
	return emu_find_fault(name);
}

/* More of them from now on, for tests of what a program does after a while; found with dlsym. */
EMU_API void cuemu_add_faults(const char *text);

/* The context ends with this error: every later call gives it. */
void emu_lose(CUresult code);
/* That error, for who has waited for the device; or CUDA_SUCCESS. */
CUresult emu_lost(void);

/* The beginning of every driver function: injected faults, a lost device. */
#define EMU_ENTER()                                                                                \
	do {                                                                                       \
		CUresult fault_ = emu_fault(__func__);                                             \
		if (fault_ != CUDA_SUCCESS)                                                        \
			return fault_;                                                             \
	} while (0)

/* The same of a function that may be unsafe while a graph is captured. */
#define EMU_UNSAFE()                                                                               \
	do {                                                                                       \
		CUresult unsafe_ = emu_capture_unsafe();                                           \
		if (unsafe_ != CUDA_SUCCESS)                                                       \
			return unsafe_;                                                            \
	} while (0)

/* ---- contexts (emu_context.c) ---- */

struct emu_stream;

struct CUctx_st {
	int device;
	bool alive, primary, sync_memops;
	unsigned refs; /* of a primary context */
	unsigned long long id;
	struct emu_stream *legacy, *per_thread;
	struct CUctx_st *next;
};

bool emu_is_initialized(void);
/* The calling thread's context, NULL when it has none that lives. */
CUcontext emu_current(void);

/* ---- memory (emu_memory.c) ---- */

enum emu_kind { EMU_DEVICE, EMU_MANAGED, EMU_HOST, EMU_REGISTERED, EMU_IPC, EMU_POOL, EMU_VMM };

struct emu_region; /* one memfd, mapped */

struct emu_alloc {
	uintptr_t address;
	size_t size;
	enum emu_kind kind;
	int device;
	CUcontext context;
	unsigned long long buffer_id;
	unsigned long long block_id; /* of the physical memory behind it */
	bool sync_memops;
	bool on_host;              /* of the virtual memory API: the host has it */
	bool unmapped;             /* registered host memory that kernels don't reach */
	int uses;                  /* by other hardware */
	struct emu_region *region; /* NULL for host memory */
	void *physical;            /* of memory of the virtual memory API */
	uintptr_t reserved;        /* ... and the range that was reserved, in which it is mapped */
	size_t reserved_size;
	void *pool; /* of pool memory */
};

/* The arena's first address, and how far from it its shadow begins, for the kernels' twins. */
extern uint64_t emu_arena_start, emu_arena_bytes;

/* A copy of the allocation that holds the address. Any thread. */
bool emu_find(uintptr_t address, struct emu_alloc *out);
/* Whether what begins at the address, which is in the allocation, also ends there. */
bool emu_covers(const struct emu_alloc *alloc, uintptr_t address, size_t size);
/* Whether the address is in the arena, that is, no host memory. */
bool emu_in_arena(uintptr_t address);
/* How often memory has been freed: what was found before may be gone. */
extern atomic_uint emu_frees;
/* Some host memory is no longer pinned: kernels may not touch it. */
void emu_forget_pinned(void);
/*
 * Where the emulator may touch the byte that a program knows by this address; and where copies
 * do.
 */
void *emu_shadow(uintptr_t address);
void *emu_copy_place(uintptr_t address);
/*
 * The same for other hardware, which begins (1) or ends (-1) to read or write what is allocated
 * there, and must not be when it is freed (emu_ucp.c, which finds this with dlsym).
 */
EMU_API void *cuemu_reach(uintptr_t address, int change);
/* Whether [address, address + size) is host memory or lies within one live allocation. */
bool emu_range_is_valid(uintptr_t address, size_t size);
/* Free all that belongs to a context that ends. */
void emu_free_context(CUcontext context);
size_t emu_memory_used(int device);
/* Allocate pool memory, which has no context and no legacy IPC. */
CUresult emu_allocate_from(void *pool, CUdeviceptr *out, size_t size);
/* What another process needs to open the allocation, CU_IPC_HANDLE_SIZE bytes; and to open it. */
void emu_describe(const struct emu_alloc *alloc, void *wire);
CUresult emu_open(CUdeviceptr *out, const void *wire);

/* ---- copies (emu_copy.c) ---- */

/* Wait for what was begun by calls that returned before it was done, and touches this memory. */
void emu_copy_wait(uintptr_t start, size_t size);

/* ---- streams (emu_stream.c) ---- */

struct emu_stream *emu_stream_create(CUcontext context, bool blocking);
void emu_stream_free(struct emu_stream *stream); /* drains first */
/* Run `function(argument)` in the stream's order; the argument is freed afterwards. */
void emu_submit(struct emu_stream *stream, void (*function)(void *), void *argument);
/* The same of one that waits for others, and never runs in the thread that submits it. */
void emu_submit_waiting(struct emu_stream *stream, void (*function)(void *), void *argument);
void emu_stream_wait(struct emu_stream *stream);
bool emu_stream_is_idle(struct emu_stream *stream);
CUcontext emu_stream_context(const struct emu_stream *stream);
void emu_context_wait(CUcontext context);
bool emu_stream_is_blocking(const struct emu_stream *stream);
/* The same as emu_stream_of, for putting work on it: with the error where that can't be. */
CUresult emu_stream_use(CUstream handle, struct emu_stream **stream);
/* The stream that a handle means in the calling thread's context: NULL when it is none. */
struct emu_stream *emu_stream_of(CUstream handle);

/* ---- capturing graphs (emu_capture.c) ---- */

/* What is put on the stream goes into a graph. */
bool emu_capture_is_on(const struct emu_stream *stream);
/* The stream ends. */
void emu_capture_drop(const struct emu_stream *stream);

/*
 * Of what is put on a stream: whether it goes into a graph, which has the argument then, and hands
 * copies of it to the function. So an argument is one piece of memory, of malloc.
 */
bool emu_capture_take(struct emu_stream *stream, void (*function)(void *), void *argument,
		      bool waits);

/*
 * An event that was recorded on a capturing stream stands for what was put there before; a stream
 * that waits for it captures, too, from then on, until the first one's capture ends, which must
 * have waited for it by then.
 */
struct emu_captured {
	uint64_t number;           /* of the capture; 0: none */
	struct emu_stream *stream; /* on which it was recorded */
	uint64_t puts;             /* so many were put there before */
};

/* What an event that is recorded on the stream now stands for; `number` 0: no capture. */
struct emu_captured emu_capture_record(const struct emu_stream *stream);

/* The stream waits for such an event. */
CUresult emu_capture_follow(struct emu_stream *stream, const struct emu_captured *captured);
/*
 * Each breaks the captures that do not allow it, and returns the error then: a call that may be
 * unsafe; work on a stream of the context; waiting for a stream.
 */
CUresult emu_capture_unsafe(void);
CUresult emu_capture_use(struct emu_stream *stream, CUcontext context);
CUresult emu_capture_wait(struct emu_stream *stream);

#endif
