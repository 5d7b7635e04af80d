/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"
#include "util/util_bind.h"

#include <stddef.h>

struct nccl_driver nccl_driver;

/* In two steps, so that cuda.h can turn cuMemAlloc into cuMemAlloc_v2 first. */
#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

static const struct {
	const char *symbol;
	size_t offset;
} calls[] = {
#define ROW(name) {SYMBOL(name), offsetof(struct nccl_driver, name)},
	NCCL_DRIVER_CALLS(ROW)
#undef ROW
};

static const char *missing = "libcuda.so.1";

static void bind_calls(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);

	for (size_t i = 0; handle && i < sizeof(calls) / sizeof(calls[0]); i++) {
		missing = calls[i].symbol;
		if (!util_bind(handle, calls[i].symbol, (char *)&nccl_driver + calls[i].offset))
			return;
	}
	if (!handle)
		return;
	missing = nccl_driver.cuInit(0) == CUDA_SUCCESS ? NULL : "CUDA device";
}

ncclResult_t nccl_driver_bind(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, bind_calls);
	return missing ? nccl_fail(ncclUnhandledCudaError, "there is no %s", missing) : ncclSuccess;
}

/* As the runtime's first call would. */
static CUresult take_primary(int ordinal, CUcontext *context)
{
	CUdevice device;
	CUresult result = nccl_driver.cuDeviceGet(&device, ordinal);

	if (result == CUDA_SUCCESS)
		result = nccl_driver.cuDevicePrimaryCtxRetain(context, device);
	return result == CUDA_SUCCESS ? nccl_driver.cuCtxSetCurrent(*context) : result;
}

ncclResult_t nccl_driver_context(int device, CUcontext *context)
{
	CUresult result = nccl_driver.cuCtxGetCurrent(context);
	CUdevice current;

	if (result == CUDA_SUCCESS && !*context)
		result = take_primary(device < 0 ? 0 : device, context);
	else if (result == CUDA_SUCCESS && device >= 0 &&
		 nccl_driver.cuCtxGetDevice(&current) == CUDA_SUCCESS && current != device)
		result = take_primary(device, context);
	return nccl_of_driver(result, "taking a CUDA context");
}
