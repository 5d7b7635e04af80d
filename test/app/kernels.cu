/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What CUDA C++ has for kernels, on one device, compared with the host: for the interpreter of PTX.
 * An argument names a kernel that does wrong instead.
 */
#include <cassert>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

static int failures;

static void expect(bool well, const char *what)
{
	if (well)
		return;
	printf("%s: wrong\n", what);
	failures++;
}

static void check(cudaError_t error)
{
	if (error != cudaSuccess)
		printf("error: %s\n", cudaGetErrorString(error));
	failures += error != cudaSuccess;
}

/* Results of a kernel that leaves an int for each thread. */
template <typename Kernel>
static int *run(Kernel kernel, int blocks, int threads, size_t shared = 0)
{
	static int host[4096];
	int *device;

	check(cudaMalloc(&device, sizeof(host)));
	check(cudaMemset(device, 0xee, sizeof(host)));
	kernel<<<blocks, threads, shared>>>(device);
	check(cudaGetLastError());
	check(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
	check(cudaFree(device));
	return host;
}

__device__ static int index_of_thread(void)
{
	return blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- templates, virtual functions, recursion, tables ---- */

template <int N> struct power {
	__host__ __device__ static int of(int x)
	{
		return x * power<N - 1>::of(x);
	}
};
template <> struct power<0> {
	__host__ __device__ static int of(int)
	{
		return 1;
	}
};

__host__ __device__ static int ackermann(int m, int n)
{
	return !m ? n + 1 : ackermann(m - 1, n ? ackermann(m, n - 1) : 1);
}

__host__ __device__ static int choose(int x)
{
	switch (x % 9) {
	case 0:
		return 11;
	case 1:
		return x * 3;
	case 2:
		return x - 100;
	case 3:
		return -x;
	case 5:
		return x ^ 0x55;
	case 6:
		return x << 3;
	case 7:
		return ~x;
	default:
		return 77;
	}
}

struct shape {
	int side;
	__host__ __device__ virtual int area(void) const
	{
		return side;
	}
	__host__ __device__ shape(int side) : side(side)
	{
	}
};
struct square : shape {
	__host__ __device__ int area(void) const override
	{
		return side * side;
	}
	__host__ __device__ square(int side) : shape(side)
	{
	}
};

__host__ __device__ static int twice(int x)
{
	return 2 * x;
}
__host__ __device__ static int thrice(int x)
{
	return 3 * x;
}

__host__ __device__ static int of_pointers(int x)
{
	int (*functions[2])(int) = {twice, thrice};
	square big(x % 10);
	shape small(x % 7);
	const shape *shapes[2] = {&big, &small};

	return functions[x % 2](x) + shapes[x / 2 % 2]->area();
}

__host__ __device__ static int of_language(int x)
{
	int table[10];

	for (int i = 0; i < 10; i++)
		table[(i * 7 + x) % 10] = i * x;
	return of_pointers(x) + power<3>::of(x % 50) + ackermann(x % 3, x % 4) + choose(x) +
	       table[x % 10];
}

__global__ void language(int *out)
{
	out[index_of_thread()] = of_language(index_of_thread());
}

/* ---- arithmetic ---- */

__host__ __device__ static int of_integers(int x)
{
	long long wide = (long long)x * 0x123456789LL - 0x7777777777LL;
	unsigned long long u = (unsigned long long)wide;
	short narrow = (short)(x * 1237);
	signed char tiny = (signed char)(x * 31);

	return (int)(wide / (x + 3)) + (int)(wide % 1009) + (int)(u / 1000003u) +
	       (int)(u % (unsigned)(x + 7)) + narrow / 7 + tiny % 5 + (int)(u >> (x % 64)) +
	       (int)(wide << (x % 17));
}

__global__ void integers(int *out)
{
	out[index_of_thread()] = of_integers(index_of_thread());
}

__host__ __device__ static double of_doubles(int x)
{
	double a = x * .37 + 1, b = 1. / a;

	return a * b - b / 3 + (float)a * (float)b + (double)(long long)(a * 1e6) +
	       (float)(x * 16777217LL);
}

__global__ void doubles(int *out)
{
	((double *)out)[index_of_thread()] = of_doubles(index_of_thread());
}

__global__ void functions(int *out)
{
	float x = .1f * (float)index_of_thread() + .5f;

	((float *)out)[index_of_thread()] = sinf(x) + expf(-x) * logf(x) + powf(x, 1.5f) +
					    rsqrtf(x) + erff(x) + (float)tgamma((double)x / 9 + 1) +
					    (float)sin(1e22 * x);
}

__global__ void halves(int *out)
{
	int i = index_of_thread();
	__half2 a = __floats2half2_rn((float)i, .25f * (float)i);
	__nv_bfloat16 b = __float2bfloat16((float)i * 1.01f);
	__half2 c = __hfma2(a, a, __float2half2_rn(1.f));

	out[i] = (int)__low2float(c) + (int)__high2float(c) + (int)__bfloat162float(b);
}

static int of_halves(int i)
{
	float square = __half2float(__float2half((float)i * (float)i + 1));
	float quarter = __half2float(__float2half(.0625f * (float)i * (float)i + 1));

	return (int)square + (int)quarter +
	       (int)__bfloat162float(__float2bfloat16((float)i * 1.01f));
}

/* ---- warps, blocks, memory ---- */

__global__ void sum_of_warps(int *out)
{
	int value = index_of_thread();

	for (int offset = 16; offset; offset /= 2)
		value += __shfl_xor_sync(~0u, value, offset);
	value += __popc(__ballot_sync(~0u, threadIdx.x % 3 == 0));
#if __CUDA_ARCH__ >= 800
	value += __reduce_max_sync(~0u, threadIdx.x % 32);
#else
	value += 31;
#endif
	value += __any_sync(~0u, threadIdx.x == 40) * 1000 + __ffs(value & 0xf0);
	out[index_of_thread()] = value;
}

static int of_warps(int i)
{
	int warp = i / 32 % 4, first = i / 32 * 32, threes = 0;

	for (int lane = 0; lane < 32; lane++)
		threes += (warp * 32 + lane) % 3 == 0;
	threes += 32 * first + 31 * 16 + 31;
	for (int bit = 4; bit < 8; bit++) {
		if (threes >> bit & 1)
			return threes + (warp == 1) * 1000 + bit + 1;
	}
	return threes + (warp == 1) * 1000;
}

__constant__ int weights[4] = {1, 10, 100, 1000};
__device__ int arrived;
__device__ long long total = 5;

__global__ void blocks_count(int *out)
{
	extern __shared__ int dynamic[];
	__shared__ int last;

	dynamic[threadIdx.x] = weights[threadIdx.x % 4];
	if (__syncthreads_count(threadIdx.x % 2) != blockDim.x / 2)
		__trap();
	atomicAdd((unsigned long long *)&total,
		  (unsigned long long)dynamic[blockDim.x - 1 - threadIdx.x]);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicInc((unsigned *)&arrived, gridDim.x - 1) == gridDim.x - 1;
	__syncthreads();
	if (last)
		out[threadIdx.x] = (int)*(volatile long long *)&total;
}

/* Lanes of a warp that wait for each other, which only threads with counters of their own can do.
 */
__global__ void lanes_take_turns(int *out)
{
	__shared__ volatile int turn;

	if (threadIdx.x == 0)
		turn = 0;
	__syncthreads();
	while (turn != (int)(blockDim.x - 1 - threadIdx.x))
		;
	out[threadIdx.x] = turn;
	turn = turn + 1;
}

__device__ int table[128];

/* Copies to shared memory behind the threads' back, of which the last word is zeros. */
__global__ void copies_ahead(int *out)
{
	__shared__ alignas(16) int room[2][64];
	auto block = cooperative_groups::this_thread_block();

	table[2 * threadIdx.x] = 3 * (int)threadIdx.x;
	table[2 * threadIdx.x + 1] = 7;
	__syncthreads();
	__pipeline_memcpy_async(&room[0][threadIdx.x], &table[threadIdx.x], sizeof(int),
				threadIdx.x == 63 ? sizeof(int) : 0);
	__pipeline_commit();
	cooperative_groups::memcpy_async(block, room[1], &table[64], sizeof(room[1]));
	__pipeline_wait_prior(0);
	cooperative_groups::wait(block);
	__syncthreads();
	out[threadIdx.x] = room[0][63 - threadIdx.x] + 1000 * room[1][threadIdx.x];
}

struct link {
	struct link *next;
	int number;
};

/* A list of each thread's, and memory that there is not. */
__global__ void has_a_heap(int *out)
{
	struct link *first = NULL;
	int sum = malloc((size_t)1 << 40) ? 1000 : 0;

	for (int i = 0; i <= (int)threadIdx.x; i++) {
		struct link *link = (struct link *)malloc(sizeof(*link));

		*link = (struct link){first, i};
		first = link;
	}
	while (first) {
		struct link *link = first;

		sum += link->number;
		first = link->next;
		free(link);
	}
	out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void frees_twice(int *out)
{
	void *memory = malloc(100);

	free(memory);
	free(memory);
	out[threadIdx.x] = 1;
}

__managed__ int managed = 3;

__global__ void adds(int *out)
{
	atomicAdd(&managed, 1);
	out[threadIdx.x] = 0;
}

/* Blocks that meet. */
__global__ void grid_meets(int *out)
{
	cooperative_groups::grid_group grid = cooperative_groups::this_grid();
	auto tile = cooperative_groups::tiled_partition<8>(cooperative_groups::this_thread_block());
	int me = (int)grid.thread_rank(), other;

	out[me] = me;
	grid.sync();
	other = out[(me + 77) % grid.size()];
	grid.sync();
	out[me] = other + cooperative_groups::reduce(tile, 1, cooperative_groups::plus<int>());
}

__global__ void prints(int *out)
{
	if (threadIdx.x == 3)
		printf("%s has %d threads, %5.2f%% %c %llx\n", "it", blockDim.x, 12.5, 'z',
		       0x123456789abcULL);
	out[threadIdx.x] = 0;
}

static void cooperate(void)
{
	int *device, host[192];
	void *args[] = {&device};
	bool well = true;

	check(cudaMalloc(&device, sizeof(host)));
	check(cudaLaunchCooperativeKernel((void *)grid_meets, dim3(3), dim3(64), args, 0, 0));
	check(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 192; i++)
		well &= host[i] == (i + 77) % 192 + 8;
	expect(well, "a grid that meets");
	expect(cudaLaunchCooperativeKernel((void *)grid_meets, dim3(5000), dim3(64), args, 0, 0) ==
		       cudaErrorCooperativeLaunchTooLarge,
	       "a grid that is too large");
	expect(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge, "the last error");
	check(cudaFree(device));
}

static void compare(void)
{
	int *out, counted = 0, most = 0;
	bool well = true;
	long long sum;

	out = run(language, 5, 100);
	for (int i = 0; i < 500; i++)
		well &= out[i] == of_language(i);
	expect(well, "language");
	out = run(integers, 3, 256);
	for (int i = 0; i < 768; i++)
		well &= out[i] == of_integers(i);
	expect(well, "integers");
	out = run(doubles, 2, 128);
	for (int i = 0; i < 256; i++)
		well &= ((double *)out)[i] == of_doubles(i);
	expect(well, "doubles");
	out = run(functions, 1, 64);
	for (int i = 0; i < 64; i++) {
		double x = .1f * (float)i + .5f;
		double right = sin(x) + exp(-x) * log(x) + pow(x, 1.5) + 1 / sqrt(x) + erf(x) +
			       tgamma(x / 9 + 1) + sin(1e22 * (double)(.1f * (float)i + .5f));

		well &= fabs(((float *)out)[i] - right) < 1e-5 * (1 + fabs(right));
	}
	expect(well, "functions");
	out = run(halves, 1, 200);
	for (int i = 0; i < 200; i++)
		well &= out[i] == of_halves(i);
	expect(well, "halves");
	out = run(sum_of_warps, 2, 128);
	for (int i = 0; i < 256; i++)
		well &= out[i] == of_warps(i);
	expect(well, "warps");
	out = run(blocks_count, 7, 64, 64 * sizeof(int));
	for (int i = 0; i < 64; i++)
		well &= out[i] == 5 + 7 * 16 * 1111;
	expect(well, "blocks");
	check(cudaMemcpyFromSymbol(&sum, total, sizeof(sum)));
	check(cudaMemcpyFromSymbol(&counted, arrived, sizeof(counted)));
	expect(sum == 5 + 7 * 16 * 1111 && !counted, "variables");
	out = run(copies_ahead, 1, 64);
	for (int i = 0; i < 64; i++) {
		int ahead = i ? (63 - i) % 2 ? 7 : 3 * ((63 - i) / 2) : 0, at = 64 + i;

		well &= out[i] == ahead + 1000 * (at % 2 ? 7 : 3 * (at / 2));
	}
	expect(well, "copies");
	for (int round = 0; round < 3; round++) { /* as long as all is given back */
		out = run(has_a_heap, 3, 40);
		for (int i = 0; i < 3 * 40; i++)
			well &= out[i] == (i % 40) * (i % 40 + 1) / 2;
	}
	expect(well, "heap");
	out = run(lanes_take_turns, 1, 48);
	for (int i = 0; i < 48; i++)
		well &= out[i] == 47 - i;
	expect(well, "turns");
	managed += 10;
	run(adds, 1, 32);
	expect(managed == 3 + 10 + 32, "a managed variable");
	cooperate();
	run(prints, 1, 32);
	check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, blocks_count, 256, 0));
	expect(most == 8, "occupancy");
}

/* ---- what does wrong ---- */

__global__ void out_of_bounds(int *out)
{
	if (threadIdx.x == 17)
		out[(size_t)1 << 34] = 1;
}

__global__ void misaligned(int *out)
{
	*(int *)((char *)out + 2) = 1;
}

__global__ void asserts(int *out)
{
	assert(threadIdx.x < 9 || !out);
}

__global__ void stops(int *out)
{
	if (threadIdx.x == 1)
		__trap();
	*out = 1;
}

/* Without a barrier between. */
__global__ void races(int *out)
{
	__shared__ int room[64];

	room[threadIdx.x] = (int)threadIdx.x + 1;
	*(volatile int *)&out[threadIdx.x] = room[63 - threadIdx.x];
}

__global__ void reads_nothing(int *out)
{
	__shared__ int room[64];

	if (threadIdx.x < 63)
		room[threadIdx.x] = 1;
	__syncthreads();
	out[threadIdx.x] = room[threadIdx.x];
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!*what)
		compare();
	else if (!strcmp(what, "out_of_bounds"))
		run(out_of_bounds, 1, 32);
	else if (!strcmp(what, "misaligned"))
		run(misaligned, 1, 1);
	else if (!strcmp(what, "asserts"))
		run(asserts, 1, 32);
	else if (!strcmp(what, "stops"))
		run(stops, 1, 2);
	else if (!strcmp(what, "frees_twice"))
		run(frees_twice, 1, 1);
	else if (!strcmp(what, "races"))
		run(races, 1, 64);
	else if (!strcmp(what, "reads_nothing"))
		run(reads_nothing, 1, 64);
	else
		printf("%s is not known\n", what);
	printf("%d failures\n", failures);
	return failures != 0;
}
