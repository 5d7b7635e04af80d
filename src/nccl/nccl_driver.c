/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

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
		void *address = dlsym(handle, calls[i].symbol);

		missing = calls[i].symbol;
		if (!address)
			return;
		memcpy((char *)&nccl_driver + calls[i].offset, &address, sizeof(address));
	}
	if (handle)
		missing = NULL;
}

ncclResult_t nccl_driver_bind(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, bind_calls);
	return missing ? nccl_fail(ncclUnhandledCudaError, "there is no %s", missing) : ncclSuccess;
}
