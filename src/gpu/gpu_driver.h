/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver, bound at run time.
 *
 * The library must load where there is no driver, and a program that uses no GPU must not have one
 * loaded for it. So nothing links libcuda: it is looked for among the objects that the process has
 * loaded already, and it is there before the first device pointer can exist.
 */
#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include "util/util_status.h"

#include <cuda.h>
#include <link.h>
#include <stdbool.h>

/*
 * Every driver function that the library calls. cuda.h's macros give each the version of its
 * header.
 */
#define GPU_DRIVER_CALLS(X)                                                                        \
	X(cuCtxGetCurrent)                                                                         \
	X(cuCtxGetDevice)                                                                          \
	X(cuCtxGetStreamPriorityRange)                                                             \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy)                                                                          \
	X(cuEventQuery)                                                                            \
	X(cuEventRecord)                                                                           \
	X(cuCtxGetId)                                                                              \
	X(cuCtxSynchronize)                                                                        \
	X(cuCtxPopCurrent)                                                                         \
	X(cuCtxPushCurrent)                                                                        \
	X(cuDeviceCanAccessPeer)                                                                   \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuDeviceGetCount)                                                                        \
	X(cuDeviceGetName)                                                                         \
	X(cuDeviceGetPCIBusId)                                                                     \
	X(cuDeviceGetUuid_v2)                                                                      \
	X(cuDevicePrimaryCtxGetState)                                                              \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuDeviceTotalMem)                                                                        \
	X(cuDriverGetVersion)                                                                      \
	X(cuFuncGetAttribute)                                                                      \
	X(cuGetErrorName)                                                                          \
	X(cuGetErrorString)                                                                        \
	X(cuInit)                                                                                  \
	X(cuIpcCloseMemHandle)                                                                     \
	X(cuIpcGetMemHandle)                                                                       \
	X(cuIpcOpenMemHandle)                                                                      \
	X(cuLaunchKernel)                                                                          \
	X(cuMemAddressFree)                                                                        \
	X(cuMemAddressReserve)                                                                     \
	X(cuMemAlloc)                                                                              \
	X(cuMemExportToShareableHandle)                                                            \
	X(cuMemFree)                                                                               \
	X(cuMemGetAddressRange)                                                                    \
	X(cuMemImportFromShareableHandle)                                                          \
	X(cuMemMap)                                                                                \
	X(cuMemPoolDestroy)                                                                        \
	X(cuMemPoolExportPointer)                                                                  \
	X(cuMemPoolExportToShareableHandle)                                                        \
	X(cuMemPoolImportFromShareableHandle)                                                      \
	X(cuMemPoolImportPointer)                                                                  \
	X(cuMemPoolSetAccess)                                                                      \
	X(cuMemRelease)                                                                            \
	X(cuMemRetainAllocationHandle)                                                             \
	X(cuMemSetAccess)                                                                          \
	X(cuMemUnmap)                                                                              \
	X(cuMemHostGetDevicePointer)                                                               \
	X(cuMemHostRegister)                                                                       \
	X(cuMemHostUnregister)                                                                     \
	X(cuMemcpy2DAsync)                                                                         \
	X(cuMemsetD8Async)                                                                         \
	X(cuMemcpyAsync)                                                                           \
	X(cuModuleGetFunction)                                                                     \
	X(cuLaunchHostFunc)                                                                        \
	X(cuModuleLoadData)                                                                        \
	X(cuPointerGetAttributes)                                                                  \
	X(cuPointerSetAttribute)                                                                   \
	X(cuStreamCreateWithPriority)                                                              \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamGetCtx)                                                                          \
	X(cuStreamGetId)                                                                           \
	X(cuStreamIsCapturing)                                                                     \
	X(cuStreamQuery)                                                                           \
	X(cuStreamWaitValue64)                                                                     \
	X(cuStreamWriteValue64)                                                                    \
	X(cuThreadExchangeStreamCaptureMode)

/*
 * Those that a driver of CUDA 12.0 lacks, or that are asked for what it does not have: NULL there.
 */
#define GPU_DRIVER_NEW_CALLS(X)                                                                    \
	X(cuCtxGetFlags)                                                                           \
	X(cuCtxSetFlags)                                                                           \
	X(cuMemGetAccess)

struct gpu_driver {
#define GPU_DRIVER_FIELD(name) __typeof__(&name) name;
	GPU_DRIVER_CALLS(GPU_DRIVER_FIELD)
	GPU_DRIVER_NEW_CALLS(GPU_DRIVER_FIELD)
#undef GPU_DRIVER_FIELD
};

/* Valid once gpu_driver_bound. Read-only afterwards. */
extern struct gpu_driver gpu_driver;
extern bool gpu_driver_bound;

/* The last loaded object that has been looked at; see gpu_driver_present. */
extern struct link_map *gpu_driver_last_object;

/* The slow half of gpu_driver_present: look through what was loaded since. Thread-safe. */
bool gpu_driver_look(void);

/*
 * Whether libcuda is in this process; binds it when first seen. Until then the cost is one load:
 * the dynamic linker appends each object that it loads to a list, so nothing is new while the last
 * object that was looked at has no successor. (gpu_driver_look keeps a reference on that object, so
 * it can't vanish.)
 *
 * Ordering: a program that hands us a device pointer made it with libcuda, so the load of libcuda
 * happens before the call in this thread or before a synchronisation of the program's own. Relaxed
 * is enough.
 */
static inline bool gpu_driver_present(void)
{
	if (__atomic_load_n(&gpu_driver_bound, __ATOMIC_ACQUIRE))
		return true;
	struct link_map *last = __atomic_load_n(&gpu_driver_last_object, __ATOMIC_ACQUIRE);
	if (last && !__atomic_load_n(&last->l_next, __ATOMIC_RELAXED))
		return false;
	return gpu_driver_look();
}

/* Load libcuda if it can be had, for tools that look at the machine. False when there is none. */
bool gpu_driver_load(void);

/*
 * Whether this machine seems to have a driver that a program could load later: its device node, or
 * libcuda on the loader's path. Loads nothing.
 */
bool gpu_driver_installed(void);

/*
 * Log a failed driver call at level warn, with its name and the driver's text. Returns
 * UTIL_ERR_CUDA.
 */
enum util_status gpu_driver_error(CUresult result, const char *call);

#endif
