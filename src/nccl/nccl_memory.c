/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"

ncclResult_t ncclMemAlloc(void **address, size_t size)
{
	ncclResult_t result = nccl_driver_bind();
	CUdeviceptr memory = 0;
	CUcontext context;

	if (result == ncclSuccess)
		result = nccl_driver_context(-1, &context);
	if (result != ncclSuccess)
		return result;
	if (!address)
		return nccl_fail(ncclInvalidArgument, "ncclMemAlloc: the address is NULL");
	result = nccl_of_driver(nccl_driver.cuMemAlloc(&memory, size ? size : 1), "cuMemAlloc");
	if (result == ncclSuccess)
		*address = (void *)memory;
	return result;
}

ncclResult_t ncclMemFree(void *address)
{
	ncclResult_t result = nccl_driver_bind();

	if (result != ncclSuccess || !address)
		return result;
	return nccl_of_driver(nccl_driver.cuMemFree((CUdeviceptr)address), "cuMemFree");
}

/* The library maps and pins what it needs itself: the handle is the address. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *address, size_t size, void **handle)
{
	(void)size;
	if (!comm || !handle)
		return nccl_fail(ncclInvalidArgument, "ncclCommRegister: an argument is NULL");
	*handle = address;
	return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	(void)handle;
	return comm ? ncclSuccess
		    : nccl_fail(ncclInvalidArgument,
				"ncclCommDeregister: the communicator is NULL");
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *address, size_t size,
				    ncclWindow_t *window, int flags)
{
	(void)size;
	(void)flags;
	if (!comm || !window)
		return nccl_fail(ncclInvalidArgument,
				 "ncclCommWindowRegister: an argument is NULL");
	*window = address;
	return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
	return ncclCommDeregister(comm, window);
}
