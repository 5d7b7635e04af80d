/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kernels are written with. A kernel is C in the style of the rest of the tree; it is compiled
 * by nvcc for the GPU and as C++ for the emulated device (its host twin), and must be right for any
 * number of threads in a block, one included. It touches memory through the helpers of this file
 * only: the emulated device keeps its memory elsewhere than the addresses say.
 */
#ifndef GPU_KERNEL_H
#define GPU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__

/* A kernel takes one argument, a struct that fits the launch's parameter space. */
#define GPU_KERNEL(name, type) extern "C" __global__ void name(type args)
#define GPU_DEVICE static __device__ __forceinline__
#define GPU_SHARED __shared__

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

GPU_DEVICE void *gpu_place(uint64_t address)
{
	return (void *)address;
}

#else

/* The host twin: test/emu/emu_kernel.c says which thread of which block runs, and where memory is.
 */
extern "C" unsigned emu_thread(void);
extern "C" unsigned emu_threads(void);
extern "C" unsigned emu_block(void);
extern "C" unsigned emu_blocks(void);
extern "C" void emu_block_barrier(void);
extern "C" void *emu_kernel_place(uint64_t address);

#define GPU_KERNEL(name, type)                                                                     \
	extern "C" void name(type args);                                                           \
	extern "C" void name(type args)
#define GPU_DEVICE static inline
#define GPU_SHARED static thread_local /* the threads of a block share an OS thread */

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
	return emu_kernel_place(address);
}

#endif

/* Plain loads and stores of naturally aligned words, which no other thread accesses at the same
 * time. */
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

#endif
