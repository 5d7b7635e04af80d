/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kernels are written with. A kernel is C in the style of the rest of the tree; it is compiled
 * by nvcc for the GPU and as C++ for the emulated device (its host twin), and must be right for any
 * number of threads in a block, one included. It touches memory through the helpers of this file
 * only: the emulated device keeps its memory elsewhere than the addresses say.
 */
#ifndef GPU_KERNEL_H
#define GPU_KERNEL_H

#include "gpu/kernels/gpu_types.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 16 bytes, the widest access of a thread. */
struct __attribute__((aligned(16))) gpu_vec {
	uint64_t w[2];
};

enum { GPU_VEC = 16, GPU_LINE = 128, GPU_LINE_SHARES = GPU_LINE / GPU_VEC };

#ifdef __CUDACC__

/*
 * A kernel takes one argument, a struct that fits the launch's parameter space, and reads it there.
 * The bound keeps its registers to what GPU_THREADS threads can have.
 */
#define GPU_KERNEL(name, type)                                                                     \
	extern "C" __global__ void __launch_bounds__(GPU_THREADS, 1)                               \
		name(const __grid_constant__ type args)
#define GPU_DEVICE static __device__ __forceinline__
#define GPU_MEMBER __device__ __forceinline__     /* of an object */
#define GPU_CALLED static __device__ __noinline__ /* once, where inlining it would take long */
#define GPU_SHARED __shared__
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLLED _Pragma("unroll 1") /* the compiler would make these loops long */

enum { GPU_TILE = 4 };

GPU_DEVICE unsigned gpu_thread(void)
{
	return threadIdx.x;
}

GPU_DEVICE unsigned gpu_threads(void)
{
	return blockDim.x;
}

GPU_DEVICE unsigned gpu_block(void)
{
	return blockIdx.x;
}

GPU_DEVICE unsigned gpu_blocks(void)
{
	return gridDim.x;
}

/* All threads of the block have come here, and see what the others wrote before. */
GPU_DEVICE void gpu_block_barrier(void)
{
	__syncthreads();
}

/*
 * All memory that addresses name is global, and the compiler is told so: it makes the accesses
 * global ones too, and sees that they don't touch what it keeps in local or shared memory.
 */
GPU_DEVICE void *gpu_place(uint64_t address)
{
	return __cvta_global_to_generic(address);
}

/*
 * Words that other processors look at, at system scope. Who uses a pair says what it orders.
 * Release: all that this thread did or has seen before, and with a block barrier before it all that
 * the block did, comes before the store. Acquire: what follows comes after the load.
 */
GPU_DEVICE void gpu_store_release(uint64_t address, uint64_t value)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

GPU_DEVICE uint64_t gpu_load_acquire(uint64_t address)
{
	uint64_t value;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
	return value;
}

/* Words of 8 bytes that are stored and loaded whole, and order nothing else. */
GPU_DEVICE void gpu_store_relaxed(uint64_t address, uint64_t value)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

GPU_DEVICE uint64_t gpu_load_relaxed(uint64_t address)
{
	uint64_t value;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
	return value;
}

/*
 * Add to a word of this device, and return what it was; whole among other such additions. Release
 * and acquire, at system scope: who adds later has seen all that who added before did or has seen.
 */
GPU_DEVICE uint64_t gpu_add(uint64_t address, uint64_t value)
{
	uint64_t before;

	asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;"
		     : "=l"(before)
		     : "l"(address), "l"(value)
		     : "memory");
	return before;
}

/* Two such words at once: each of them is whole, the two together need not be. */
GPU_DEVICE struct gpu_vec gpu_load_pair(uint64_t address)
{
	struct gpu_vec vec;

	asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
		     : "=l"(vec.w[0]), "=l"(vec.w[1])
		     : "l"(address)
		     : "memory");
	return vec;
}

GPU_DEVICE void gpu_store_pair(uint64_t address, struct gpu_vec vec)
{
	asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(vec.w[0]),
		     "l"(vec.w[1])
		     : "memory");
}

/*
 * A line: 128 bytes of a GPU's memory that GPU_LINE_THREADS neighbours of a warp store at once,
 * each its share of 16 bytes. Over NVLink such a store arrives whole, and such a load sees it whole
 * or not at all; PTX promises that of no more than 8 bytes, and PCI Express may cut a line (see
 * docs/memory-model.md). The threads of a line come to each of these together.
 */
enum { GPU_LINE_THREADS = 8 };

GPU_DEVICE uint32_t gpu_line_mask(void)
{
	return 0xffU << (gpu_thread() & 24);
}

/* Whether it is so for any of the line's threads. */
GPU_DEVICE bool gpu_line_any(bool mine)
{
	return __any_sync(gpu_line_mask(), mine);
}

/*
 * The thread's shares of two lines that follow on each other; the last 8 bytes of each are its
 * flag. False: these are not the lines with that flag.
 */
GPU_DEVICE bool gpu_load_lines(uint64_t lines, uint32_t share, uint64_t flag, struct gpu_vec *vecs)
{
	bool other = false;

	__syncwarp(gpu_line_mask());
	GPU_UNROLL
	for (int i = 0; i < 2; i++) {
		vecs[i] = gpu_load_pair(lines + GPU_LINE * i + GPU_VEC * share);
		other |= share == GPU_LINE_SHARES - 1 && vecs[i].w[1] != flag;
	}
	return !gpu_line_any(other);
}

/* The last share's second half is the flag. */
GPU_DEVICE void gpu_store_lines(uint64_t lines, uint32_t share, const struct gpu_vec *vecs)
{
	__syncwarp(gpu_line_mask());
	GPU_UNROLL
	for (int i = 0; i < 2; i++)
		gpu_store_pair(lines + GPU_LINE * i + GPU_VEC * share, vecs[i]);
}

/* Nanoseconds, from some moment on. */
GPU_DEVICE uint64_t gpu_clock(void)
{
	uint64_t now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	return now;
}

/* The same, but never a block's own. */
GPU_DEVICE uint64_t gpu_now(void)
{
	return gpu_clock();
}

/* Before looking again at a word that is not as it should be. */
GPU_DEVICE void gpu_pause(void)
{
}

#else

/*
 * The host twin: test/emu/emu_kernel.c says which thread of which block runs, and where memory is.
 */
extern "C" unsigned emu_thread(void);
extern "C" unsigned emu_threads(void);
extern "C" unsigned emu_block(void);
extern "C" unsigned emu_blocks(void);
extern "C" void emu_block_barrier(void);
extern "C" uint64_t emu_clock(void);
extern "C" uint64_t emu_now(void);
extern "C" void emu_pause(void);
extern "C" void *emu_kernel_place(uint64_t address);
extern "C" uint64_t emu_arena_start, emu_arena_bytes; /* see test/emu/emu.h */
struct emu_range {
	uint64_t start, bytes;
};
extern "C" const struct emu_range *emu_pinned; /* see test/emu/emu_device.h */

#define GPU_KERNEL(name, type)                                                                     \
	extern "C" void name(const type *emu_args);                                                \
	static inline void name##_body(const type &args);                                          \
	extern "C" void name(const type *emu_args)                                                 \
	{                                                                                          \
		name##_body(*emu_args);                                                            \
	}                                                                                          \
	static inline void name##_body(const type &args)
#define GPU_DEVICE static inline __attribute__((always_inline))
#define GPU_MEMBER inline __attribute__((always_inline))
#define GPU_CALLED static
#define GPU_SHARED static thread_local /* the threads of a block share an OS thread */
#define GPU_UNROLL
#define GPU_ROLLED

enum { GPU_TILE = 16 }; /* between the looks at a chunk, which cost a core more than latency does */

GPU_DEVICE unsigned gpu_thread(void)
{
	return emu_thread();
}

GPU_DEVICE unsigned gpu_threads(void)
{
	return emu_threads();
}

GPU_DEVICE unsigned gpu_block(void)
{
	return emu_block();
}

GPU_DEVICE unsigned gpu_blocks(void)
{
	return emu_blocks();
}

GPU_DEVICE void gpu_block_barrier(void)
{
	emu_block_barrier();
}

GPU_DEVICE void *gpu_place(uint64_t address)
{
	const struct emu_range *pinned;

	if (__builtin_expect(address - emu_arena_start < emu_arena_bytes, 1))
		return (void *)(address + emu_arena_bytes);
	pinned = __atomic_load_n(&emu_pinned, __ATOMIC_ACQUIRE);
	if (address - pinned->start < pinned->bytes)
		return (void *)address;
	return emu_kernel_place(address);
}

GPU_DEVICE void gpu_store_release(uint64_t address, uint64_t value)
{
	__atomic_store_n((uint64_t *)gpu_place(address), value, __ATOMIC_RELEASE);
}

GPU_DEVICE uint64_t gpu_load_acquire(uint64_t address)
{
	return __atomic_load_n((const uint64_t *)gpu_place(address), __ATOMIC_ACQUIRE);
}

GPU_DEVICE void gpu_store_relaxed(uint64_t address, uint64_t value)
{
	__atomic_store_n((uint64_t *)gpu_place(address), value, __ATOMIC_RELAXED);
}

GPU_DEVICE uint64_t gpu_load_relaxed(uint64_t address)
{
	return __atomic_load_n((const uint64_t *)gpu_place(address), __ATOMIC_RELAXED);
}

GPU_DEVICE uint64_t gpu_add(uint64_t address, uint64_t value)
{
	return __atomic_fetch_add((uint64_t *)gpu_place(address), value, __ATOMIC_ACQ_REL);
}

GPU_DEVICE struct gpu_vec gpu_load_pair(uint64_t address)
{
	struct gpu_vec vec;

	vec.w[0] = gpu_load_relaxed(address);
	vec.w[1] = gpu_load_relaxed(address + 8);
	return vec;
}

GPU_DEVICE void gpu_store_pair(uint64_t address, struct gpu_vec vec)
{
	gpu_store_relaxed(address, vec.w[0]);
	gpu_store_relaxed(address + 8, vec.w[1]);
}

/*
 * In the twin one thread has all shares of a line, and comes with one after the other; the last
 * one's flag stands for the whole.
 */
enum { GPU_LINE_THREADS = 1 };

GPU_DEVICE bool gpu_line_any(bool mine)
{
	return mine;
}

GPU_DEVICE bool gpu_load_lines(uint64_t lines, uint32_t share, uint64_t flag, struct gpu_vec *vecs)
{
	for (int i = 0; i < 2; i++) {
		uint64_t line = lines + GPU_LINE * i;

		if (gpu_load_acquire(line + GPU_LINE - 8) != flag)
			return false;
		for (int w = 0; w < 2; w++)
			vecs[i].w[w] = gpu_load_relaxed(line + GPU_VEC * share + 8 * w);
	}
	return true;
}

GPU_DEVICE void gpu_store_lines(uint64_t lines, uint32_t share, const struct gpu_vec *vecs)
{
	for (int i = 0; i < 2; i++) {
		uint64_t at = lines + GPU_LINE * i + GPU_VEC * share;

		gpu_store_relaxed(at, vecs[i].w[0]);
		gpu_store_release(at + 8, vecs[i].w[1]);
	}
}

GPU_DEVICE uint64_t gpu_clock(void)
{
	return emu_clock();
}

GPU_DEVICE uint64_t gpu_now(void)
{
	return emu_now();
}

GPU_DEVICE void gpu_pause(void)
{
	emu_pause();
}

#endif

/*
 * Plain loads and stores of naturally aligned words, which no other thread accesses at the same
 * time.
 */
GPU_DEVICE uint8_t gpu_load8(uint64_t address)
{
	return *(const uint8_t *)gpu_place(address);
}

GPU_DEVICE uint64_t gpu_load64(uint64_t address)
{
	return *(const uint64_t *)gpu_place(address);
}

GPU_DEVICE void gpu_store8(uint64_t address, uint8_t value)
{
	*(uint8_t *)gpu_place(address) = value;
}

GPU_DEVICE void gpu_store64(uint64_t address, uint64_t value)
{
	*(uint64_t *)gpu_place(address) = value;
}

/*
 * A tile: GPU_TILE 16-byte words, `step` bytes apart, all on their way at once so that the latency
 * of memory, which for a peer's is long, is paid once. Addresses are 16-byte aligned.
 */
GPU_DEVICE void gpu_load_tile(struct gpu_vec *tile, uint64_t address, uint64_t step)
{
	const char *from = (const char *)gpu_place(address);

	GPU_UNROLL
	for (int i = 0; i < GPU_TILE; i++)
		tile[i] = *(const struct gpu_vec *)(from + i * step);
}

GPU_DEVICE void gpu_store_tile(const struct gpu_vec *tile, uint64_t address, uint64_t step)
{
	char *to = (char *)gpu_place(address);

	GPU_UNROLL
	for (int i = 0; i < GPU_TILE; i++)
		*(struct gpu_vec *)(to + i * step) = tile[i];
}

GPU_DEVICE struct gpu_vec gpu_load_vec(uint64_t address)
{
	return *(const struct gpu_vec *)gpu_place(address);
}

GPU_DEVICE void gpu_store_vec(uint64_t address, struct gpu_vec value)
{
	*(struct gpu_vec *)gpu_place(address) = value;
}

/* A value at an address of its type's alignment. */
template <typename T> GPU_DEVICE T gpu_load(uint64_t address)
{
	return *(const T *)gpu_place(address);
}

template <typename T> GPU_DEVICE void gpu_store(uint64_t address, T value)
{
	*(T *)gpu_place(address) = value;
}

/* A value at any address. */
template <typename T> GPU_DEVICE T gpu_load_bytes(uint64_t address)
{
	const char *from = (const char *)gpu_place(address);
	char bytes[sizeof(T)];
	T value;

	for (unsigned i = 0; i < sizeof(T); i++)
		bytes[i] = from[i];
	memcpy(&value, bytes, sizeof(T));
	return value;
}

template <typename T> GPU_DEVICE void gpu_store_bytes(uint64_t address, T value)
{
	char *to = (char *)gpu_place(address);
	char bytes[sizeof(T)];

	memcpy(bytes, &value, sizeof(T));
	for (unsigned i = 0; i < sizeof(T); i++)
		to[i] = bytes[i];
}

/*
 * One more look at a word was in vain: whether to give up. The abort word is in the host's memory,
 * so it is looked at seldom, and by a warp's threads, which wait together, at once: their loads of
 * one word are one request. Writer: the host, once a member has failed; it orders nothing.
 */
GPU_DEVICE bool gpu_give_up(uint64_t abort, uint32_t *tries)
{
	enum { LOOKS = 256 };

	gpu_pause();
	return ++*tries % LOOKS == 0 && abort && gpu_load_relaxed(abort);
}

/*
 * The end of a kernel. Writer: one thread of each block, for all that the block wrote (the barrier
 * makes it come after the other threads' stores, the release at system scope takes those along);
 * reader: the host, which then tells other processes that their memory has been written.
 */
GPU_DEVICE void gpu_block_done(uint64_t words, uint64_t how)
{
	gpu_block_barrier();
	if (gpu_thread() == 0)
		gpu_store_release(words + 8 * (uint64_t)gpu_block(), how);
}

#endif
