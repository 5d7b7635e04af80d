/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_word.h"
#include "gpu/gpu_module.h"
#include "gpu/kernels/gpu_await.h"

bool gpu_word_is_possible(const struct gpu_stream *stream)
{
	int can = 0;
	CUdevice device;

	return gpu_driver.cuDeviceGet(&device, gpu_stream_where(stream)->device) == CUDA_SUCCESS &&
	       gpu_driver.cuDeviceGetAttribute(&can,
					       CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
					       device) == CUDA_SUCCESS &&
	       can;
}

enum util_status gpu_word_store(struct gpu_stream *stream, uint64_t address, uint64_t value)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, gpu_stream_where(stream));
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuStreamWriteValue64(gpu_stream_handle(stream), address, value,
						 CU_STREAM_WRITE_VALUE_DEFAULT);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuStreamWriteValue64");
}

enum util_status gpu_word_await(struct gpu_stream *stream, uint64_t address, uint64_t value)
{
	struct gpu_scope scope;
	enum util_status status = gpu_scope_enter(&scope, gpu_stream_where(stream));
	CUresult result;

	if (status != UTIL_OK)
		return status;
	result = gpu_driver.cuStreamWaitValue64(gpu_stream_handle(stream), address, value,
						CU_STREAM_WAIT_VALUE_GEQ);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuStreamWaitValue64");
}

enum util_status gpu_word_pass(struct gpu_stream *stream, uint64_t came, uint64_t awaited,
			       uint64_t value)
{
	struct gpu_await_args args = {.came = came, .awaited = awaited, .number = value};

	return gpu_module_launch(stream, GPU_KERNEL_AWAIT, 1, 1, &args);
}
