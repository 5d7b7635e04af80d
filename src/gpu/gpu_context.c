/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_context.h"
#include "util/util_config.h"
#include "util/util_hash.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MAX_DEVICES = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[MAX_DEVICES]; /* under the lock: retained by us, NULL where not */

static enum util_status primary_context(int ordinal, CUcontext *out)
{
	CUresult result = CUDA_SUCCESS;
	CUdevice device;

	if (ordinal < 0 || ordinal >= MAX_DEVICES)
		return UTIL_ERR_UNSUPPORTED;
	pthread_mutex_lock(&lock);
	if (!primary[ordinal]) {
		result = gpu_driver.cuDeviceGet(&device, ordinal);
		if (result == CUDA_SUCCESS)
			result = gpu_driver.cuDevicePrimaryCtxRetain(&primary[ordinal], device);
		if (result != CUDA_SUCCESS)
			primary[ordinal] = NULL;
	}
	*out = primary[ordinal];
	pthread_mutex_unlock(&lock);
	return result == CUDA_SUCCESS ? UTIL_OK
				      : gpu_driver_error(result, "cuDevicePrimaryCtxRetain");
}

static enum util_status enter(struct gpu_scope *scope, const struct gpu_pointer *pointer,
			      CUresult *result)
{
	CUcontext context = pointer->context;
	enum util_status status;

	if (pointer->memory == GPU_MEMORY_LOST)
		return UTIL_ERR_CUDA;
	if (!context) {
		status = primary_context(pointer->device, &context);
		if (status != UTIL_OK)
			return status;
	}
	*result = gpu_driver.cuCtxPushCurrent(context);
	if (*result != CUDA_SUCCESS)
		return UTIL_ERR_CUDA;
	scope->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	gpu_driver.cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	return UTIL_OK;
}

enum util_status gpu_scope_enter(struct gpu_scope *scope, const struct gpu_pointer *pointer)
{
	CUresult result = CUDA_SUCCESS;
	enum util_status status = enter(scope, pointer, &result);

	return result == CUDA_SUCCESS ? status : gpu_driver_error(result, "cuCtxPushCurrent");
}

bool gpu_scope_enter_again(struct gpu_scope *scope, const struct gpu_pointer *pointer)
{
	CUresult result;

	return enter(scope, pointer, &result) == UTIL_OK;
}

void gpu_scope_leave(struct gpu_scope *scope)
{
	CUcontext ignored;

	gpu_driver.cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	gpu_driver.cuCtxPopCurrent(&ignored);
}

/* Asks nothing of a context that may be gone. */
static bool primary_is_alive(int ordinal)
{
	unsigned flags;
	int active = 0;
	CUdevice device;

	return gpu_driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
	       gpu_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
	       active;
}

bool gpu_scope_enter_alive(struct gpu_scope *scope, int ordinal, unsigned long long context_id)
{
	struct gpu_pointer primary_memory = {.device = ordinal};
	unsigned long long id;

	/* Where the primary context lives, entering it creates nothing. */
	if (!primary_is_alive(ordinal) || gpu_scope_enter(scope, &primary_memory) != UTIL_OK)
		return false;
	if (gpu_driver.cuCtxGetId(NULL, &id) == CUDA_SUCCESS && id == context_id)
		return true;
	gpu_scope_leave(scope);
	return false;
}

/*
 * Errors that headers of CUDA 12 lack: of a fault that the GPU keeps to itself, and of a kernel's
 * end with tensor memory in use.
 */
enum { ERROR_CONTAINED = 226, ERROR_TENSOR_MEMORY_LEAK = 721 };

/*
 * Of errors that leave the process in an inconsistent state, as cuda.h says; of memory and of
 * NVLink, where it does not, drivers do.
 */
static bool is_sticky(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return false;
	}
}

bool gpu_context_is_lost(const struct gpu_pointer *pointer)
{
	struct gpu_scope scope;
	CUevent event;
	CUresult result = CUDA_SUCCESS;

	if (enter(&scope, pointer, &result) != UTIL_OK)
		return is_sticky(result);
	result = gpu_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		gpu_driver.cuEventDestroy(event);
	gpu_scope_leave(&scope);
	return is_sticky(result);
}

bool gpu_context_is_current(void)
{
	CUcontext current = NULL;

	return gpu_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current;
}

bool gpu_context_unpin(void *base, int device, unsigned long long context_id)
{
	struct gpu_scope scope;
	bool entered = gpu_scope_enter_alive(&scope, device, context_id);
	CUresult result;

	/* It is pinned for all contexts. */
	if (!entered && !gpu_context_is_current())
		return false;
	result = gpu_driver.cuMemHostUnregister(base);
	if (entered)
		gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

int gpu_context_current_device(void)
{
	CUdevice device;

	return gpu_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

bool gpu_context_current(struct gpu_pointer *where, unsigned long long *id)
{
	*where = (struct gpu_pointer){.memory = GPU_MEMORY_DEVICE};
	return gpu_driver.cuCtxGetCurrent(&where->context) == CUDA_SUCCESS && where->context &&
	       gpu_driver.cuCtxGetDevice(&where->device) == CUDA_SUCCESS &&
	       gpu_driver.cuCtxGetId(where->context, id) == CUDA_SUCCESS;
}

/* The function is left out by some, and the domain written with more digits. */
uint64_t gpu_identity_of(const char *bus)
{
	unsigned numbers[3];

	if (sscanf(bus, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]) != 3)
		return util_hash_text(UTIL_HASH_START, bus) | 1;
	return UINT64_C(1) << 63 | (uint64_t)numbers[0] << 16 | numbers[1] << 8 | numbers[2];
}

/*
 * The name of an instance of a GPU (MIG) says so. Instances have one PCI address, and kernels,
 * memory and multiprocessors apart.
 */
static bool is_instance(CUdevice device)
{
	char name[256] = "";

	return gpu_driver.cuDeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS &&
	       strstr(name, " MIG ");
}

static uint64_t identity_of(CUdevice device)
{
	CUuuid uuid = {{0}};
	char bus_id[32] = "";

	if (is_instance(device) && gpu_driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS)
		return (util_hash(UTIL_HASH_START, &uuid, sizeof(uuid)) | 1) & INT64_MAX;
	gpu_driver.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device);
	return gpu_identity_of(bus_id);
}

uint64_t gpu_device_identity(int ordinal)
{
	static _Atomic uint64_t known[MAX_DEVICES]; /* every thread would write the same */
	uint64_t hash;
	CUdevice device;

	if (ordinal < 0 || ordinal >= MAX_DEVICES)
		return UINT64_MAX;
	hash = atomic_load_explicit(&known[ordinal], memory_order_relaxed);
	if (hash)
		return hash;
	hash = gpu_driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS ? identity_of(device)
									: gpu_identity_of("");
	atomic_store_explicit(&known[ordinal], hash, memory_order_relaxed);
	return hash;
}

/* What the driver says of a device, which it is asked once. Every thread would write the same. */
struct answers {
	_Atomic unsigned char of[MAX_DEVICES]; /* 0: not known yet; 1: no; 2: yes */
};

static bool ask_device(struct answers *known, int ordinal, CUdevice_attribute attribute,
		       bool otherwise)
{
	unsigned char answer;
	CUdevice device;
	int value = 0;

	if (ordinal < 0 || ordinal >= MAX_DEVICES)
		return otherwise;
	answer = atomic_load_explicit(&known->of[ordinal], memory_order_relaxed);
	if (answer)
		return answer == 2;
	if (gpu_driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
	    gpu_driver.cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS)
		return otherwise;
	atomic_store_explicit(&known->of[ordinal], value ? 2 : 1, memory_order_relaxed);
	return value;
}

bool gpu_device_leaves_managed(int ordinal)
{
	static struct answers known;

	return ask_device(&known, ordinal, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, true);
}

bool gpu_device_limits_kernels(int ordinal)
{
	static struct answers known;

	return ask_device(&known, ordinal, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, false);
}

void gpu_context_finalize(void)
{
	CUdevice device;

	for (int i = 0; i < MAX_DEVICES; i++) {
		/* Our reference outlives a reset of the device. */
		if (primary[i] && gpu_driver.cuDeviceGet(&device, i) == CUDA_SUCCESS)
			gpu_driver.cuDevicePrimaryCtxRelease(device);
		primary[i] = NULL;
	}
}
