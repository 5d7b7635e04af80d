/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs with kernels of their own: what nvcc's host code registers before main, launches, and
 * variables of the device. A program's modules are loaded when something of them is first used,
 * once for each device.
 */
#include "emu_cudart.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16 };

struct binary {
	const void *image;
	CUmodule modules[MAX_DEVICES];
};

/* A function or a variable, by its name on the device and its address on the host. */
struct symbol {
	struct symbol *next;
	const void *host;
	const char *name;
	struct binary *binary;
	bool is_variable;
	void **managed; /* where the host's code looks for a managed variable's address; or NULL */
	CUfunction functions[MAX_DEVICES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *symbols;

/* ---- registration ---- */

RT_API void **CUDARTAPI __cudaRegisterFatBinary(void *image);
RT_API void **CUDARTAPI __cudaRegisterFatBinary(void *image)
{
	struct binary *binary = calloc(1, sizeof(*binary));

	if (!binary)
		emu_die("no memory for a program's kernels");
	binary->image = image;
	return (void **)binary;
}

RT_API void CUDARTAPI __cudaRegisterFatBinaryEnd(void **handle);
RT_API void CUDARTAPI __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

/* At exit, when a stream may yet be at work on its kernels: what they are made of stays. */
RT_API void CUDARTAPI __cudaUnregisterFatBinary(void **handle);
RT_API void CUDARTAPI __cudaUnregisterFatBinary(void **handle)
{
	struct binary *binary = (struct binary *)handle;

	pthread_mutex_lock(&lock);
	for (struct symbol **link = &symbols; *link;) {
		struct symbol *symbol = *link;

		if (symbol->binary == binary) {
			*link = symbol->next;
			free(symbol);
		} else {
			link = &symbol->next;
		}
	}
	pthread_mutex_unlock(&lock);
	free(binary);
}

static struct symbol *add(void **handle, const void *host, const char *name, bool is_variable)
{
	struct symbol *symbol = calloc(1, sizeof(*symbol));

	if (!symbol)
		emu_die("no memory for a program's kernels");
	symbol->host = host;
	symbol->name = name;
	symbol->binary = (struct binary *)handle;
	symbol->is_variable = is_variable;
	pthread_mutex_lock(&lock);
	symbol->next = symbols;
	symbols = symbol;
	pthread_mutex_unlock(&lock);
	return symbol;
}

RT_API void CUDARTAPI __cudaRegisterFunction(void **handle, const char *host, char *name,
					     const char *device_name, int limit, void *tid,
					     void *bid, void *bdim, void *gdim, int *warp);
RT_API void CUDARTAPI __cudaRegisterFunction(void **handle, const char *host, char *name,
					     const char *device_name, int limit, void *tid,
					     void *bid, void *bdim, void *gdim, int *warp)
{
	(void)name, (void)limit, (void)tid, (void)bid, (void)bdim, (void)gdim, (void)warp;
	add(handle, host, device_name, false);
}

RT_API void CUDARTAPI __cudaRegisterVar(void **handle, char *host, char *address,
					const char *device_name, int ext, size_t bytes,
					int constant, int global);
RT_API void CUDARTAPI __cudaRegisterVar(void **handle, char *host, char *address,
					const char *device_name, int ext, size_t bytes,
					int constant, int global)
{
	(void)address, (void)ext, (void)bytes, (void)constant, (void)global;
	add(handle, host, device_name, true);
}

/* ---- what a host address stands for, on the current device ---- */

static struct symbol *find(const void *host, bool is_variable)
{
	struct symbol *symbol;

	pthread_mutex_lock(&lock);
	for (symbol = symbols;
	     symbol && (symbol->host != host || symbol->is_variable != is_variable);
	     symbol = symbol->next)
		;
	pthread_mutex_unlock(&lock);
	return symbol;
}

/* Under the lock. */
static CUresult module_of(struct binary *binary, CUdevice device, CUmodule *module)
{
	CUresult result = CUDA_SUCCESS;

	if (!binary->modules[device])
		result = cuModuleLoadFatBinary(&binary->modules[device], binary->image);
	*module = binary->modules[device];
	return result;
}

static CUresult function_of(struct symbol *symbol, CUfunction *function)
{
	CUmodule module;
	CUdevice device;
	CUresult result = cuCtxGetDevice(&device);

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	if (!symbol->functions[device]) {
		result = module_of(symbol->binary, device, &module);
		if (result == CUDA_SUCCESS)
			result = cuModuleGetFunction(&symbol->functions[device], module,
						     symbol->name);
	}
	*function = symbol->functions[device];
	pthread_mutex_unlock(&lock);
	return result;
}

static CUresult find_function(const void *host, CUfunction *function)
{
	struct symbol *symbol = find(host, false);

	return symbol ? function_of(symbol, function) : (CUresult)cudaErrorInvalidDeviceFunction;
}

static CUresult find_variable(const void *host, CUdeviceptr *address, size_t *bytes)
{
	struct symbol *symbol = find(host, true);
	CUmodule module;
	CUdevice device;
	CUresult result;

	if (!symbol)
		return (CUresult)cudaErrorInvalidSymbol;
	result = cuCtxGetDevice(&device);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	result = module_of(symbol->binary, device, &module);
	pthread_mutex_unlock(&lock);
	return result == CUDA_SUCCESS ? cuModuleGetGlobal(address, bytes, module, symbol->name)
				      : result;
}

RT_API void CUDARTAPI __cudaRegisterManagedVar(void **handle, void **host, char *address,
					       const char *device_name, int ext, size_t bytes,
					       int constant, int global);
RT_API void CUDARTAPI __cudaRegisterManagedVar(void **handle, void **host, char *address,
					       const char *device_name, int ext, size_t bytes,
					       int constant, int global)
{
	(void)address, (void)ext, (void)bytes, (void)constant, (void)global;
	add(handle, host, device_name, true)->managed = host;
}

/* Before the host's first look at a managed variable. */
RT_API char CUDARTAPI __cudaInitModule(void **handle);
RT_API char CUDARTAPI __cudaInitModule(void **handle)
{
	CUdeviceptr at;
	size_t bytes;

	if (emu_rt_enter() != CUDA_SUCCESS)
		return 0;
	for (struct symbol *symbol = symbols; symbol; symbol = symbol->next) {
		if (symbol->binary == (struct binary *)handle && symbol->managed &&
		    find_variable(symbol->host, &at, &bytes) == CUDA_SUCCESS)
			*symbol->managed = (void *)at;
	}
	return 1;
}

/* ---- launches ---- */

/* Between <<< >>> and the call, which may have launches among its arguments. */
enum { MAX_PUSHED = 16 };

static _Thread_local struct configuration {
	dim3 grid, block;
	size_t shared;
	struct CUstream_st *stream;
} pushed[MAX_PUSHED];
static _Thread_local int num_pushed;

RT_API unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
						      struct CUstream_st *stream);
RT_API unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
						      struct CUstream_st *stream)
{
	if (num_pushed == MAX_PUSHED)
		return 1;
	pushed[num_pushed++] = (struct configuration){grid, block, shared, stream};
	return 0;
}

RT_API cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
							void *stream);
RT_API cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
							void *stream)
{
	const struct configuration *last = &pushed[num_pushed - 1];

	if (!num_pushed)
		return cudaErrorMissingConfiguration;
	num_pushed--;
	*grid = last->grid;
	*block = last->block;
	*shared = last->shared;
	*(struct CUstream_st **)stream = last->stream;
	return cudaSuccess;
}

static CUresult launch(CUfunction function, dim3 grid, dim3 block, void **args, size_t shared,
		       cudaStream_t stream)
{
	return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
			      (unsigned)shared, stream, args, NULL);
}

RT_API cudaError_t CUDARTAPI cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args,
					      size_t shared, cudaStream_t stream)
{
	CUfunction function;
	CUresult result;

	ENTER();
	result = find_function(host, &function);
	return emu_rt_done(result == CUDA_SUCCESS
				   ? launch(function, grid, block, args, shared, stream)
				   : result);
}

RT_API cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block,
							 void **args, size_t shared,
							 cudaStream_t stream)
{
	CUfunction function;
	CUresult result;

	ENTER();
	result = find_function(host, &function);
	if (result == CUDA_SUCCESS)
		result =
			cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x,
						  block.y, block.z, (unsigned)shared, stream, args);
	return emu_rt_done(result);
}

/* Attributes say how, but for what is cooperative. */
RT_API cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host,
						 void **args)
{
	for (unsigned i = 0; i < config->numAttrs; i++) {
		if (config->attrs[i].id == cudaLaunchAttributeCooperative &&
		    config->attrs[i].val.cooperative)
			return cudaLaunchCooperativeKernel(host, config->gridDim, config->blockDim,
							   args, config->dynamicSmemBytes,
							   config->stream);
		if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
			emu_die("clusters of blocks are not emulated");
	}
	return cudaLaunchKernel(host, config->gridDim, config->blockDim, args,
				config->dynamicSmemBytes, config->stream);
}

#if CUDART_VERSION >= 12010
/* What nvcc's host code of CUDA 13 calls: the handle is the symbol, which suits every device. */
RT_API cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t *kernel, const void *host);
RT_API cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	*kernel = (cudaKernel_t)find(host, false);
	return *kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

RT_API cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
						void **args, size_t shared, cudaStream_t stream);
RT_API cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
						void **args, size_t shared, cudaStream_t stream)
{
	CUfunction function;
	CUresult result;

	ENTER();
	if (!kernel)
		return emu_rt_done((CUresult)cudaErrorInvalidDeviceFunction);
	result = function_of((struct symbol *)kernel, &function);
	return emu_rt_done(result == CUDA_SUCCESS
				   ? launch(function, grid, block, args, shared, stream)
				   : result);
}
#endif

/* ---- functions ---- */

RT_API cudaError_t CUDARTAPI cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
						   const void *host)
{
	CUfunction function;
	CUresult result;
	int most, fixed, local, registers, dynamic;

	ENTER();
	result = find_function(host, &function);
	if (result != CUDA_SUCCESS)
		return emu_rt_done(result);
	cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
	cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
	cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
	cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
	cuFuncGetAttribute(&dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
	memset(attributes, 0, sizeof(*attributes));
	attributes->maxThreadsPerBlock = most;
	attributes->sharedSizeBytes = (size_t)fixed;
	attributes->localSizeBytes = (size_t)local;
	attributes->numRegs = registers;
	attributes->maxDynamicSharedSizeBytes = dynamic;
	cuFuncGetAttribute(&attributes->ptxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION, function);
	attributes->binaryVersion = attributes->ptxVersion;
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaFuncSetAttribute(const void *host,
						  enum cudaFuncAttribute attribute, int value)
{
	CUfunction function;
	CUresult result;

	ENTER();
	result = find_function(host, &function);
	if (result == CUDA_SUCCESS && attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
		result = cuFuncSetAttribute(function,
					    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value);
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaFuncSetCacheConfig(const void *host, enum cudaFuncCache config)
{
	CUfunction function;

	(void)config;
	ENTER();
	return emu_rt_done(find_function(host, &function));
}

/* As many as a multiprocessor's threads and shared memory allow. */
RT_API cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *blocks, const void *host, int threads, size_t dynamic, unsigned flags)
{
	enum { THREADS = 2048, SHARED = 228 << 10, BLOCKS = 32 };
	CUfunction function;
	CUresult result;
	int fixed = 0;
	size_t shared;

	(void)flags;
	ENTER();
	result = find_function(host, &function);
	if (result == CUDA_SUCCESS)
		result = cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
	if (result != CUDA_SUCCESS || threads < 1)
		return emu_rt_done(result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result);
	shared = (size_t)fixed + dynamic;
	*blocks = THREADS / threads < BLOCKS ? THREADS / threads : BLOCKS;
	if (shared && SHARED / shared < (size_t)*blocks)
		*blocks = (int)(SHARED / shared);
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
									   const void *host,
									   int threads,
									   size_t dynamic)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads,
								      dynamic, 0);
}

/* ---- variables ---- */

RT_API cudaError_t CUDARTAPI cudaGetSymbolAddress(void **address, const void *symbol)
{
	CUdeviceptr at = 0;
	CUresult result;

	ENTER();
	result = find_variable(symbol, &at, NULL);
	*address = (void *)at;
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
	CUdeviceptr at;

	ENTER();
	return emu_rt_done(find_variable(symbol, &at, bytes));
}

/* Where a copy to or from a variable goes, if it fits. */
static CUresult place_in(const void *symbol, size_t count, size_t offset, CUdeviceptr *at)
{
	size_t bytes;
	CUresult result = find_variable(symbol, at, &bytes);

	if (result != CUDA_SUCCESS)
		return result;
	*at += offset;
	return offset > bytes || count > bytes - offset ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

RT_API cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void *symbol, const void *from, size_t count,
						size_t offset, enum cudaMemcpyKind kind)
{
	CUdeviceptr at;
	CUresult result;

	ENTER();
	result = place_in(symbol, count, offset, &at);
	return result == CUDA_SUCCESS ? cudaMemcpy((void *)at, from, count, kind)
				      : emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaMemcpyFromSymbol(void *to, const void *symbol, size_t count,
						  size_t offset, enum cudaMemcpyKind kind)
{
	CUdeviceptr at;
	CUresult result;

	ENTER();
	result = place_in(symbol, count, offset, &at);
	return result == CUDA_SUCCESS ? cudaMemcpy(to, (const void *)at, count, kind)
				      : emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaMemcpyToSymbolAsync(const void *symbol, const void *from,
						     size_t count, size_t offset,
						     enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUdeviceptr at;
	CUresult result;

	ENTER();
	result = place_in(symbol, count, offset, &at);
	return result == CUDA_SUCCESS ? cudaMemcpyAsync((void *)at, from, count, kind, stream)
				      : emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t count,
						       size_t offset, enum cudaMemcpyKind kind,
						       cudaStream_t stream)
{
	CUdeviceptr at;
	CUresult result;

	ENTER();
	result = place_in(symbol, count, offset, &at);
	return result == CUDA_SUCCESS ? cudaMemcpyAsync(to, (const void *)at, count, kind, stream)
				      : emu_rt_done(result);
}
