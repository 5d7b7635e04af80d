/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runtime library over the emulated driver: what OSU's benchmarks, gpucoll-bench and the CUDA
 * programs of MPI test suites call. Contexts are made at the first call that needs one, as the real
 * runtime does.
 */
#include "emu_cudart.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

/* The two enumerations give one number to one meaning, but for a few. */
static cudaError_t from_driver(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return cudaSuccess;
	case CUDA_ERROR_INVALID_CONTEXT:
		return cudaErrorDeviceUninitialized;
	default:
		return (cudaError_t)result;
	}
}

cudaError_t emu_rt_done(CUresult result)
{
	/* Not ready is an answer, not an error that cudaGetLastError tells. */
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		last_error = from_driver(result);
	return from_driver(result);
}

/*
 * Make the current device's primary context current, unless the program set a context of its own.
 */
CUresult emu_rt_enter(void)
{
	CUcontext context = NULL, primary;
	CUdevice device;
	CUresult result = cuInit(0);

	if (result != CUDA_SUCCESS)
		return result;
	unsigned long long id;
	if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	    cuCtxGetId(context, &id) == CUDA_SUCCESS && cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    device == current_device)
		return CUDA_SUCCESS;
	result = cuDevicePrimaryCtxRetain(&primary, current_device);
	return result == CUDA_SUCCESS ? cuCtxSetCurrent(primary) : result;
}

RT_API cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
	CUresult result = cuInit(0);

	*count = 0;
	return emu_rt_done(result == CUDA_SUCCESS ? cuDeviceGetCount(count) : result);
}

RT_API cudaError_t CUDARTAPI cudaSetDevice(int device)
{
	int count;

	if (cudaGetDeviceCount(&count) != cudaSuccess)
		return last_error;
	if (device < 0 || device >= count)
		return emu_rt_done(CUDA_ERROR_INVALID_DEVICE);
	current_device = device;
	return emu_rt_done(emu_rt_enter());
}

RT_API cudaError_t CUDARTAPI cudaGetDevice(int *device)
{
	*device = current_device;
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
	ENTER();
	return emu_rt_done(cuCtxSynchronize());
}

RT_API cudaError_t CUDARTAPI cudaDeviceReset(void)
{
	CUresult result = cuInit(0);

	return emu_rt_done(result == CUDA_SUCCESS ? cuDevicePrimaryCtxReset(current_device)
						  : result);
}

RT_API cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	ENTER();
	return emu_rt_done(cuDeviceCanAccessPeer(can, device, peer));
}

RT_API cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
						    int device)
{
	ENTER();
	return emu_rt_done(cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
}

RT_API cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char *id, int length, int device)
{
	ENTER();
	return emu_rt_done(cuDeviceGetPCIBusId(id, length, device));
}

static int attribute_of(CUdevice_attribute attribute, int device)
{
	int value = 0;

	cuDeviceGetAttribute(&value, attribute, device);
	return value;
}

static void fill_limits(struct cudaDeviceProp *p, int device)
{
	p->warpSize = attribute_of(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
	p->maxThreadsPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
	for (int i = 0; i < 3; i++) {
		p->maxThreadsDim[i] = attribute_of(
			(CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i), device);
		p->maxGridSize[i] = attribute_of(
			(CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i), device);
	}
	p->sharedMemPerBlock =
		(size_t)attribute_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
	p->sharedMemPerBlockOptin =
		(size_t)attribute_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
	p->sharedMemPerMultiprocessor = (size_t)attribute_of(
		CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
	p->regsPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, device);
	p->regsPerMultiprocessor =
		attribute_of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, device);
	p->maxThreadsPerMultiProcessor =
		attribute_of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
	p->maxBlocksPerMultiProcessor =
		attribute_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device);
	p->totalConstMem = (size_t)attribute_of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device);
	p->l2CacheSize = attribute_of(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
	p->memoryBusWidth = attribute_of(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device);
	p->memPitch = (size_t)attribute_of(CU_DEVICE_ATTRIBUTE_MAX_PITCH, device);
	p->textureAlignment = (size_t)attribute_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device);
	p->multiProcessorCount = attribute_of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	p->asyncEngineCount = attribute_of(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, device);
	p->pciBusID = attribute_of(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
}

/* What programs ask for. */
RT_API cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	CUresult result;

	ENTER();
	*properties = (struct cudaDeviceProp){.major = 9,
					      .canMapHostMemory = 1,
					      .unifiedAddressing = 1,
					      .managedMemory = 1,
					      .concurrentManagedAccess = 1,
					      .concurrentKernels = 1,
					      .cooperativeLaunch = 1,
					      .streamPrioritiesSupported = 1};
	result = cuDeviceGetName(properties->name, sizeof(properties->name), device);
	if (result == CUDA_SUCCESS)
		result = cuDeviceTotalMem(&properties->totalGlobalMem, device);
	if (result == CUDA_SUCCESS)
		fill_limits(properties, device);
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaDriverGetVersion(int *version)
{
	return emu_rt_done(cuDriverGetVersion(version));
}

RT_API cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

/* ---- memory ---- */

RT_API cudaError_t CUDARTAPI cudaMalloc(void **out, size_t size)
{
	CUdeviceptr address = 0;
	CUresult result = CUDA_SUCCESS;

	ENTER();
	if (size) /* the runtime, unlike the driver, gives NULL for nothing */
		result = cuMemAlloc(&address, size);
	*out = (void *)address;
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr address = 0;
	CUresult result;

	ENTER();
	result = cuMemAllocPitch(&address, pitch, width, height, 4);
	*out = (void *)address;
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaMallocManaged(void **out, size_t size, unsigned flags)
{
	CUdeviceptr address = 0;
	CUresult result;

	ENTER();
	result = cuMemAllocManaged(&address, size, flags);
	*out = (void *)address;
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaMallocAsync(void **out, size_t size, cudaStream_t stream)
{
	CUdeviceptr address = 0;
	CUresult result;

	ENTER();
	result = cuMemAllocAsync(&address, size, stream);
	*out = (void *)address;
	return emu_rt_done(result);
}

RT_API cudaError_t CUDARTAPI cudaFree(void *address)
{
	ENTER();
	return emu_rt_done(cuMemFree((CUdeviceptr)address));
}

RT_API cudaError_t CUDARTAPI cudaFreeAsync(void *address, cudaStream_t stream)
{
	ENTER();
	return emu_rt_done(cuMemFreeAsync((CUdeviceptr)address, stream));
}

RT_API cudaError_t CUDARTAPI cudaMallocHost(void **out, size_t size)
{
	ENTER();
	return emu_rt_done(cuMemHostAlloc(out, size, 0));
}

RT_API cudaError_t CUDARTAPI cudaHostAlloc(void **out, size_t size, unsigned flags)
{
	ENTER();
	return emu_rt_done(cuMemHostAlloc(out, size, flags));
}

RT_API cudaError_t CUDARTAPI cudaFreeHost(void *address)
{
	ENTER();
	return address ? emu_rt_done(cuMemFreeHost(address)) : cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaHostRegister(void *address, size_t size, unsigned flags)
{
	ENTER();
	return emu_rt_done(cuMemHostRegister(address, size, flags));
}

RT_API cudaError_t CUDARTAPI cudaHostUnregister(void *address)
{
	ENTER();
	return emu_rt_done(cuMemHostUnregister(address));
}

RT_API cudaError_t CUDARTAPI cudaMemGetInfo(size_t *unused, size_t *total)
{
	ENTER();
	return emu_rt_done(cuMemGetInfo(unused, total));
}

RT_API cudaError_t CUDARTAPI cudaMemcpy(void *to, const void *from, size_t size,
					enum cudaMemcpyKind kind)
{
	(void)kind; /* unified addressing: the addresses tell */
	ENTER();
	return emu_rt_done(cuMemcpy((CUdeviceptr)to, (CUdeviceptr)from, size));
}

RT_API cudaError_t CUDARTAPI cudaMemcpyAsync(void *to, const void *from, size_t size,
					     enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)kind;
	ENTER();
	return emu_rt_done(cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, size, stream));
}

static CUDA_MEMCPY2D describe_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch,
				 size_t width, size_t height)
{
	return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = (CUdeviceptr)from,
			       .srcPitch = from_pitch,
			       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .dstDevice = (CUdeviceptr)to,
			       .dstPitch = to_pitch,
			       .WidthInBytes = width,
			       .Height = height};
}

RT_API cudaError_t CUDARTAPI cudaMemcpy2D(void *to, size_t to_pitch, const void *from,
					  size_t from_pitch, size_t width, size_t height,
					  enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY2D copy = describe_2d(to, to_pitch, from, from_pitch, width, height);

	(void)kind;
	ENTER();
	return emu_rt_done(cuMemcpy2D(&copy));
}

RT_API cudaError_t CUDARTAPI cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
					       size_t from_pitch, size_t width, size_t height,
					       enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUDA_MEMCPY2D copy = describe_2d(to, to_pitch, from, from_pitch, width, height);

	(void)kind;
	ENTER();
	return emu_rt_done(cuMemcpy2DAsync(&copy, stream));
}

/* Addresses tell the devices. */
RT_API cudaError_t CUDARTAPI cudaMemcpyPeer(void *to, int to_device, const void *from,
					    int from_device, size_t size)
{
	(void)to_device, (void)from_device;
	ENTER();
	return emu_rt_done(cuMemcpy((CUdeviceptr)to, (CUdeviceptr)from, size));
}

RT_API cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void *to, int to_device, const void *from,
						 int from_device, size_t size, cudaStream_t stream)
{
	(void)to_device, (void)from_device;
	ENTER();
	return emu_rt_done(cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, size, stream));
}

RT_API cudaError_t CUDARTAPI cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	CUdeviceptr at = 0;
	CUresult result;

	ENTER();
	result = cuMemHostGetDevicePointer(&at, host, flags);
	*device = (void *)at;
	return emu_rt_done(result);
}

/* How to wait, which is the emulated device's own matter; and what a profiler would see. */
RT_API cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned flags)
{
	(void)flags;
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaProfilerStart(void);
RT_API cudaError_t CUDARTAPI cudaProfilerStart(void)
{
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaProfilerStop(void);
RT_API cudaError_t CUDARTAPI cudaProfilerStop(void)
{
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int device, unsigned flags)
{
	CUcontext peer;
	CUresult result;

	ENTER();
	result = cuDevicePrimaryCtxRetain(&peer, device);
	return emu_rt_done(result == CUDA_SUCCESS ? cuCtxEnablePeerAccess(peer, flags) : result);
}

RT_API cudaError_t CUDARTAPI cudaMemset(void *to, int value, size_t size)
{
	ENTER();
	return size ? emu_rt_done(cuMemsetD8((CUdeviceptr)to, (unsigned char)value, size))
		    : cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
	ENTER();
	return size ? emu_rt_done(
			      cuMemsetD8Async((CUdeviceptr)to, (unsigned char)value, size, stream))
		    : cudaSuccess;
}

/* A hint; the emulated device's managed memory is where it is. */
#if CUDART_VERSION >= 13000
RT_API cudaError_t CUDARTAPI cudaMemPrefetchAsync(const void *address, size_t size,
						  struct cudaMemLocation to, unsigned flags,
						  cudaStream_t stream)
{
	(void)flags;
#else
RT_API cudaError_t CUDARTAPI cudaMemPrefetchAsync(const void *address, size_t size, int to,
						  cudaStream_t stream)
{
#endif
	(void)address;
	(void)size;
	(void)to;
	(void)stream;
	ENTER();
	return cudaSuccess;
}

RT_API cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
						      const void *address)
{
	unsigned type = 0, managed = 0;
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *data[] = {&type, &managed, &attributes->device};
	CUresult result;

	ENTER();
	result = cuPointerGetAttributes(3, wanted, data, (CUdeviceptr)address);
	attributes->type = managed                        ? cudaMemoryTypeManaged
			   : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
			   : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
							  : cudaMemoryTypeUnregistered;
	attributes->devicePointer = type ? (void *)address : NULL;
	attributes->hostPointer = type == CU_MEMORYTYPE_HOST || managed ? (void *)address : NULL;
	return emu_rt_done(result);
}

/* ---- streams and events ---- */

RT_API cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t *stream)
{
	ENTER();
	return emu_rt_done(cuStreamCreate(stream, 0));
}

RT_API cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	ENTER();
	return emu_rt_done(cuStreamCreate(stream, flags));
}

RT_API cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
							  int priority)
{
	ENTER();
	return emu_rt_done(cuStreamCreateWithPriority(stream, flags, priority));
}

RT_API cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER();
	return emu_rt_done(cuCtxGetStreamPriorityRange(least, greatest));
}

RT_API cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
						void *data)
{
	ENTER();
	return emu_rt_done(cuLaunchHostFunc(stream, function, data));
}

struct callback {
	cudaStreamCallback_t function;
	cudaStream_t stream;
	void *data;
};

static void CUDART_CB call_back(void *argument)
{
	struct callback *callback = argument;

	callback->function(callback->stream, cudaSuccess, callback->data);
	free(callback);
}

RT_API cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream,
						   cudaStreamCallback_t function, void *data,
						   unsigned flags)
{
	struct callback *callback = malloc(sizeof(*callback));

	(void)flags;
	ENTER();
	if (!callback)
		return emu_rt_done(CUDA_ERROR_OUT_OF_MEMORY);
	*callback = (struct callback){function, stream, data};
	return emu_rt_done(cuLaunchHostFunc(stream, call_back, callback));
}

RT_API cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream)
{
	ENTER();
	return emu_rt_done(cuStreamDestroy(stream));
}

RT_API cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream)
{
	ENTER();
	return emu_rt_done(cuStreamSynchronize(stream));
}

RT_API cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream)
{
	ENTER();
	return emu_rt_done(cuStreamQuery(stream));
}

RT_API cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
						 unsigned flags)
{
	ENTER();
	return emu_rt_done(cuStreamWaitEvent(stream, event, flags));
}

RT_API cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t *event)
{
	ENTER();
	return emu_rt_done(cuEventCreate(event, 0));
}

RT_API cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	ENTER();
	return emu_rt_done(cuEventCreate(event, flags));
}

RT_API cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event)
{
	ENTER();
	return emu_rt_done(cuEventDestroy(event));
}

RT_API cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	ENTER();
	return emu_rt_done(cuEventRecord(event, stream));
}

RT_API cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event)
{
	ENTER();
	return emu_rt_done(cuEventQuery(event));
}

RT_API cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event)
{
	ENTER();
	return emu_rt_done(cuEventSynchronize(event));
}

RT_API cudaError_t CUDARTAPI cudaEventElapsedTime(float *milliseconds, cudaEvent_t start,
						  cudaEvent_t end)
{
	ENTER();
	return emu_rt_done(cuEventElapsedTime(milliseconds, start, end));
}

/* ---- graphs ---- */

RT_API cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream,
						    enum cudaStreamCaptureMode mode)
{
	ENTER();
	return emu_rt_done(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

RT_API cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	ENTER();
	return emu_rt_done(cuStreamEndCapture(stream, graph));
}

RT_API cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph)
{
	ENTER();
	return emu_rt_done(cuGraphDestroy(graph));
}

RT_API cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
						  unsigned long long flags)
{
	ENTER();
	return emu_rt_done(cuGraphInstantiateWithFlags(exec, graph, flags));
}

RT_API cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	ENTER();
	return emu_rt_done(cuGraphLaunch(exec, stream));
}

RT_API cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	ENTER();
	return emu_rt_done(cuGraphExecDestroy(exec));
}

/* ---- errors ---- */

RT_API const char *CUDARTAPI cudaGetErrorString(cudaError_t error)
{
	const char *text = "unknown error";

	if (error == cudaErrorDeviceUninitialized)
		return "invalid device context";
	if (error == cudaErrorInvalidDeviceFunction)
		return "invalid device function";
	if (error == cudaErrorInvalidSymbol)
		return "invalid device symbol";
	if (error == cudaErrorMissingConfiguration)
		return "__global__ function call is not configured";
	cuGetErrorString((CUresult)error, &text);
	return text;
}

RT_API const char *CUDARTAPI cudaGetErrorName(cudaError_t error)
{
	const char *name = "cudaErrorUnknown";

	cuGetErrorName((CUresult)error, &name);
	return name;
}

RT_API cudaError_t CUDARTAPI cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

RT_API cudaError_t CUDARTAPI cudaPeekAtLastError(void)
{
	return last_error;
}
