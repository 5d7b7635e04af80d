/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory pools. Their memory is ordered by waiting, which is stricter than the stream's order. */
#include "emu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct CUmemPoolHandle_st {
	int device;
	int token; /* the descriptor that stands for it in other processes; -1: it is not shared */
	bool imported; /* from another process */
};

/* cudaMallocAsync's, which can't be shared. */
static struct CUmemPoolHandle_st default_pool = {0, -1, false};

EMU_API CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	CUmemoryPool pool;

	EMU_ENTER();
	if (props->location.id >= emu_config.devices)
		return CUDA_ERROR_INVALID_VALUE;
	pool = malloc(sizeof(*pool));
	*pool = (struct CUmemPoolHandle_st){props->location.id, -1, false};
	if (props->handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		pool->token = memfd_create("cuemu-pool", MFD_CLOEXEC);
	*out = pool;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
	EMU_ENTER();
	if (pool->token >= 0)
		close(pool->token);
	free(pool);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access,
					    size_t count)
{
	EMU_ENTER();
	for (size_t i = 0; i < count; i++) {
		int device = access[i].location.id;

		if (device != pool->device && !emu_config.p2p[device][pool->device])
			return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	}
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool,
						 CUstream stream)
{
	EMU_ENTER();
	if (!emu_stream_of(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	return pool->imported ? CUDA_ERROR_INVALID_VALUE : emu_allocate_from(pool, out, size);
}

EMU_API CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	EMU_ENTER();
	if (!emu_stream_of(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	return emu_allocate_from(&default_pool, out, size);
}

EMU_API CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	EMU_ENTER();
	if (!emu_stream_of(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	emu_context_wait(emu_current());
	return cuMemFree(address);
}

EMU_API CUresult CUDAAPI cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool,
							  CUmemAllocationHandleType type,
							  unsigned long long flags)
{
	EMU_ENTER();
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (pool->token < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (ftruncate(pool->token, pool->device + 1)) /* tells the device */
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)out = fcntl(pool->token, F_DUPFD_CLOEXEC, 0);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *os_handle,
							    CUmemAllocationHandleType type,
							    unsigned long long flags)
{
	int fd = (int)(intptr_t)os_handle;
	off_t bytes = lseek(fd, 0, SEEK_END);
	CUmemoryPool pool;

	EMU_ENTER();
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags || bytes < 1)
		return CUDA_ERROR_INVALID_VALUE;
	pool = malloc(sizeof(*pool));
	*pool = (struct CUmemPoolHandle_st){(int)bytes - 1, fcntl(fd, F_DUPFD_CLOEXEC, 0), true};
	*out = pool;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_find(address, &alloc) || alloc.kind != EMU_POOL || alloc.address != address ||
	    ((CUmemoryPool)alloc.pool)->token < 0)
		return CUDA_ERROR_INVALID_VALUE;
	emu_describe(&alloc, out);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool,
						CUmemPoolPtrExportData *data)
{
	EMU_ENTER();
	return pool->imported ? emu_open(out, data) : CUDA_ERROR_INVALID_VALUE;
}
