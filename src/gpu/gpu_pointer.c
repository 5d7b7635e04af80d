/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_context.h"
#include "util/util_log.h"
#include "util/util_readable.h"

/* The thread's device may read and write it, which need not be so. */
static bool may_access(const void *address)
{
	CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
				.id = gpu_context_current_device()};
	unsigned long long flags = 0;

	return gpu_driver.cuMemGetAccess &&
	       gpu_driver.cuMemGetAccess(&flags, &device, (CUdeviceptr)address) == CUDA_SUCCESS &&
	       flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/*
 * What the driver calls the host's memory need not be the CPU's to touch: that of the virtual
 * memory API, on a NUMA node of the host, is not. It has no context, as registered memory has, and
 * a handle. (open-mpi/ompi #12751; ompi and ucx ask likewise.)
 */
static bool is_host_vmm(const void *address, CUcontext context)
{
	CUmemGenericAllocationHandle handle;

	if (context || gpu_driver.cuMemRetainAllocationHandle(
			       &handle, (void *)(uintptr_t)address) != CUDA_SUCCESS)
		return false;
	gpu_driver.cuMemRelease(handle);
	return may_access(address);
}

/* Of pinned memory only, so it need not be quick. */
static bool is_host_vmm_there(const void *address)
{
	CUcontext context = NULL;
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT};
	void *data[] = {&context};

	return gpu_driver.cuPointerGetAttributes(1, wanted, data, (CUdeviceptr)address) ==
		       CUDA_SUCCESS &&
	       is_host_vmm(address, context);
}

/*
 * After an error that ends a context, such as a bad access by one of the application's kernels, the
 * driver may answer every question with that error. The real MPI would die of the device's memory,
 * and be blamed for it. Without CUDA, or a context of it, no memory is a device's.
 */
static bool is_lost(CUresult result, const void *address)
{
	return result != CUDA_ERROR_NOT_INITIALIZED && result != CUDA_ERROR_STUB_LIBRARY &&
	       result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_INVALID_VALUE &&
	       !util_may_be_read(address);
}

/* What it is taken for where the driver has no answer. A warning once: it will not have one. */
static enum gpu_memory without_answer(CUresult result, const void *address)
{
	static bool told;
	const char *name = NULL;
	bool again;

	if (!is_lost(result, address))
		return GPU_MEMORY_HOST;
	again = __atomic_exchange_n(&told, true, __ATOMIC_RELAXED);
	gpu_driver.cuGetErrorName(result, &name);
	util_log(again ? UTIL_LOG_INFO : UTIL_LOG_WARN, UTIL_SUBSYS_GPU,
		 "%p is device memory, of which the CUDA driver only says %s (%d): it has failed "
		 "before this call, by a kernel or copy that compute-sanitizer may name",
		 address, name ? name : "an unknown error", (int)result);
	return GPU_MEMORY_LOST;
}

bool gpu_pointer_is_device(const void *address)
{
	unsigned type = 0, managed = 0;
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED};
	void *data[] = {&type, &managed};
	CUresult result = gpu_driver.cuPointerGetAttributes(2, wanted, data, (CUdeviceptr)address);

	if (result != CUDA_SUCCESS)
		return is_lost(result, address);
	return managed || type == CU_MEMORYTYPE_DEVICE ||
	       (type == CU_MEMORYTYPE_HOST && is_host_vmm_there(address));
}

bool gpu_pointer_is_out_of_reach(const void *address)
{
	struct gpu_pointer pointer = {.memory = GPU_MEMORY_HOST};

	if (gpu_pointer_is_device(address))
		gpu_pointer_classify(address, &pointer);
	return pointer.memory == GPU_MEMORY_DEVICE || pointer.memory == GPU_MEMORY_LOST;
}

/*
 * The virtual memory API may put other memory where some was, as PyTorch's expandable segments do,
 * and the header does not say that the buffer's id is another one then. 0: the driver knows no such
 * attribute.
 */
static uint64_t memory_block_of(CUdeviceptr start)
{
	unsigned long long block = 0;
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID};
	void *data[] = {&block};

	return gpu_driver.cuPointerGetAttributes(1, wanted, data, start) == CUDA_SUCCESS ? block
											 : 0;
}

/*
 * Of pools and the virtual memory API. What the attributes call a range there is what was reserved,
 * in which several allocations may be mapped side by side, and parts not at all (cuda.h,
 * CU_POINTER_ATTRIBUTE_RANGE_SIZE). Where even the driver can't tell, nothing is known to be
 * covered.
 */
static void find_mapping(const void *address, struct gpu_pointer *out)
{
	CUdeviceptr start = 0;
	size_t bytes = 0;
	CUresult result = gpu_driver.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address);
	struct gpu_scope scope;

	/* The thread may have no context, or one that is gone. */
	if (result != CUDA_SUCCESS && gpu_scope_enter(&scope, out) == UTIL_OK) {
		result = gpu_driver.cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)address);
		gpu_scope_leave(&scope);
	}
	out->start = start;
	out->bytes = result == CUDA_SUCCESS ? bytes : 0;
	if (result == CUDA_SUCCESS && out->buffer_id)
		out->buffer_id ^= memory_block_of(start) << 32;
}

void gpu_pointer_classify(const void *address, struct gpu_pointer *out)
{
	unsigned type = 0, managed = 0;
	CUpointer_attribute wanted[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
		CU_POINTER_ATTRIBUTE_BUFFER_ID,      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *data[] = {&type,           &managed,    &out->device, &out->context,
			&out->buffer_id, &out->start, &out->bytes};
	CUresult result;

	*out = (struct gpu_pointer){.memory = GPU_MEMORY_HOST, .device = -1};
	if (!gpu_driver_present())
		return;
	result = gpu_driver.cuPointerGetAttributes(sizeof(wanted) / sizeof(wanted[0]), wanted, data,
						   (CUdeviceptr)address);
	if (result != CUDA_SUCCESS) {
		*out = (struct gpu_pointer){.memory = without_answer(result, address),
					    .device = -1};
		return;
	}
	if (managed)
		out->memory = GPU_MEMORY_MANAGED;
	else if (type == CU_MEMORYTYPE_DEVICE)
		out->memory = GPU_MEMORY_DEVICE;
	else if (type == CU_MEMORYTYPE_HOST && is_host_vmm(address, out->context))
		out->memory = GPU_MEMORY_HOST_VMM;
	if (out->memory == GPU_MEMORY_HOST_VMM)
		out->device = gpu_context_current_device();
	if (out->memory != GPU_MEMORY_HOST && out->memory != GPU_MEMORY_MANAGED && !out->context)
		find_mapping(address, out);
}

bool gpu_pointer_is_reached(const void *address, const struct gpu_pointer *by)
{
	unsigned type = 0, managed = 0;
	int device = -1;
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *data[] = {&type, &managed, &device};

	if (gpu_driver.cuPointerGetAttributes(3, wanted, data, (CUdeviceptr)address) !=
	    CUDA_SUCCESS)
		return false;
	return managed || type == CU_MEMORYTYPE_HOST ||
	       (type == CU_MEMORYTYPE_DEVICE && device == by->device);
}

bool gpu_pointer_covers(const struct gpu_pointer *pointer, const void *address, size_t bytes)
{
	uintptr_t first = (uintptr_t)address - pointer->start;

	return first <= pointer->bytes && bytes <= pointer->bytes - first;
}

bool gpu_pointer_in_one_context(const struct gpu_pointer *a, const struct gpu_pointer *b)
{
	return a->device == b->device && (!a->context || !b->context || a->context == b->context);
}
