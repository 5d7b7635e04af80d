/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many instructions of threads the emulated device interprets in a second, on one core:
 *
 *     nvcc -arch=sm_80 -cudart shared -o ptx-speed bench/ptx-speed.cu -ldl
 *     LD_LIBRARY_PATH=build/emu CUEMU_SMS=1 ./ptx-speed
 */
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <cuda_runtime.h>
#include <dlfcn.h>

__global__ void integers(unsigned *out, int rounds)
{
	unsigned x = threadIdx.x;

	for (int i = 0; i < rounds; i++)
		x = x * 1664525u + (x >> 7) + 1013904223u;
	out[threadIdx.x] = x;
}

__global__ void copies(unsigned *out, int rounds)
{
	for (int i = 0; i < rounds; i++)
		out[1024 + (threadIdx.x + i) % 1024] = out[(threadIdx.x + 7 * i) % 1024];
}

static void measure(const char *name, void (*kernel)(unsigned *, int), int threads)
{
	enum { ROUNDS = 20000 };
	uint64_t (*count)(void) = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "cuemu_executed");
	unsigned *memory;
	struct timespec start, end;
	uint64_t before;
	double seconds;

	if (!count || cudaMalloc(&memory, 8192) != cudaSuccess) {
		printf("this is not the emulated device\n");
		return;
	}
	kernel<<<1, threads>>>(memory, 1);
	cudaDeviceSynchronize();
	before = count();
	clock_gettime(CLOCK_MONOTONIC, &start);
	kernel<<<1, threads>>>(memory, ROUNDS);
	if (cudaDeviceSynchronize() != cudaSuccess)
		printf("%s failed\n", name);
	clock_gettime(CLOCK_MONOTONIC, &end);
	seconds =
		(double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
	printf("%-9s %4d threads: %7.1f million instructions/s\n", name, threads,
	       1e-6 * (double)(count() - before) / seconds);
	cudaFree(memory);
}

int main(void)
{
	static const int threads[] = {1, 32, 256};

	for (int i = 0; i < 3; i++) {
		measure("integers", integers, threads[i]);
		measure("copies", copies, threads[i]);
	}
	return 0;
}
