/* SPDX-License-Identifier: BSD-3-Clause */
/* Initialisation, devices, contexts, errors and the look-up of driver functions. */
#include "emu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = CUDA_VERSION, MAX_STACK = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static struct CUctx_st *contexts; /* never freed, so that stale handles are told from live ones */
static CUcontext primary[EMU_MAX_DEVICES];
static unsigned long long last_id;

static _Thread_local CUcontext stack[MAX_STACK];
static _Thread_local int depth;

#define NEED_INIT()                                                                                \
	do {                                                                                       \
		EMU_ENTER();                                                                       \
		if (!initialized)                                                                  \
			return CUDA_ERROR_NOT_INITIALIZED;                                         \
	} while (0)

bool emu_is_initialized(void)
{
	return initialized;
}

CUcontext emu_current(void)
{
	return depth && stack[depth - 1] && stack[depth - 1]->alive ? stack[depth - 1] : NULL;
}

EMU_API CUresult CUDAAPI cuInit(unsigned flags)
{
	EMU_ENTER();
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!emu_config.devices)
		return CUDA_ERROR_NO_DEVICE;
	initialized = true;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	*version = VERSION;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	NEED_INIT();
	*count = emu_config.devices;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
	NEED_INIT();
	if (ordinal < 0 || ordinal >= emu_config.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

static bool is_device(CUdevice device)
{
	return device >= 0 && device < emu_config.devices;
}

EMU_API CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
	NEED_INIT();
	if (!is_device(device) || length <= 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)length, "Emulated CUDA device%s",
		 emu_config.mig ? " MIG 1g.8gb" : "");
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	NEED_INIT();
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	memset(uuid, 0, sizeof(*uuid));
	memcpy(uuid->bytes, &device, sizeof(device));
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	NEED_INIT();
	if (!is_device(device) || length < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(id, (size_t)length, "0000:%02X:00.0",
		 emu_config.mig ? 1 : (unsigned)(device + 1) & 0xff);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	NEED_INIT();
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = emu_config.memory;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
					      CUdevice device)
{
	const struct {
		CUdevice_attribute attribute;
		int value;
	} values[] = {
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, emu_config.sms},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, !emu_config.managed_alone},
		{CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, emu_config.display},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
		 emu_config.exclusive ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS : CU_COMPUTEMODE_DEFAULT},
		{CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device + 1},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
		{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
		{CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1 << 10},
		{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
		{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
		{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
		{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
		{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
		{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
		{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
		{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
		{CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
		{CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
		{CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
		{CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
		{CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0},
		{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0},
		{CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID, 0},
		{CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0},
		{CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
		{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
		{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0},
		{CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
		{CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
		{CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff},
		{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
		{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
		{CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
		{CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
		{CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
#if CUDA_VERSION >= 12040
		{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
#endif
	};

	NEED_INIT();
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		if (values[i].attribute == attribute) {
			*value = values[i].value;
			return CUDA_SUCCESS;
		}
	}
	emu_die("cuDeviceGetAttribute: attribute %d is not emulated", (int)attribute);
}

EMU_API CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	NEED_INIT();
	if (!is_device(device) || !is_device(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = emu_config.p2p[device][peer];
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
						 CUdevice from, CUdevice to)
{
	NEED_INIT();
	if (!is_device(from) || !is_device(to))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && emu_config.p2p[from][to];
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	NEED_INIT();
	if (flags || !emu_current() || !peer || !peer->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	return emu_config.p2p[emu_current()->device][peer->device]
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

/* ---- contexts ---- */

static CUcontext context_new(int device, bool is_primary)
{
	CUcontext context = calloc(1, sizeof(*context));

	context->device = device;
	context->primary = is_primary;
	context->next = contexts;
	contexts = context;
	return context;
}

static void context_begin(CUcontext context)
{
	context->alive = true;
	context->id = ++last_id;
}

static void context_end(CUcontext context)
{
	emu_context_wait(context);
	emu_free_context(context);
	emu_stream_free(context->legacy);
	emu_stream_free(context->per_thread);
	context->legacy = context->per_thread = NULL;
	context->alive = false;
}

static bool is_known(CUcontext context)
{
	CUcontext known = contexts;

	while (known && known != context)
		known = known->next;
	return known && known->alive;
}

EMU_API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	NEED_INIT();
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (!primary[device])
		primary[device] = context_new(device, true);
	if (!primary[device]->alive)
		context_begin(primary[device]);
	primary[device]->refs++;
	*context = primary[device];
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
	NEED_INIT();
	if (!is_device(device) || !primary[device] || !primary[device]->refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	if (--primary[device]->refs == 0 && primary[device]->alive)
		context_end(primary[device]);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* "Resetting the primary context does not release it": the references stay. */
EMU_API CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device)
{
	NEED_INIT();
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (primary[device] && primary[device]->alive)
		context_end(primary[device]);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	NEED_INIT();
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = primary[device] && primary[device]->alive;
	return CUDA_SUCCESS;
}

/* The form that programs built with CUDA 12 import. */
#undef cuCtxCreate
EMU_API CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
EMU_API CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	NEED_INIT();
	(void)flags;
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	*context = context_new(device, false);
	context_begin(*context);
	pthread_mutex_unlock(&lock);
	return cuCtxPushCurrent(*context);
}

#if CUDA_VERSION >= 13000
EMU_API CUresult CUDAAPI cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params,
					unsigned flags, CUdevice device)
{
	(void)params;
	return cuCtxCreate_v2(context, flags, device);
}
#endif

EMU_API CUresult CUDAAPI cuCtxDestroy(CUcontext context)
{
	NEED_INIT();
	if (!is_known(context) || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	context_end(context);
	pthread_mutex_unlock(&lock);
	if (depth && stack[depth - 1] == context)
		depth--;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
	NEED_INIT();
	if (!is_known(context)) {
		if (emu_config.stale_die)
			emu_die("cuCtxPushCurrent of a context that has ended, which CUDA does not "
				"define");
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (depth == MAX_STACK)
		emu_die("cuCtxPushCurrent: %d contexts pushed and none popped", depth);
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
	NEED_INIT();
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
	NEED_INIT();
	if (context && !is_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!depth)
		depth = 1;
	stack[depth - 1] = context;
	if (!context)
		depth--;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
	NEED_INIT();
	*context = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
	NEED_INIT();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = emu_current()->device;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *id)
{
	NEED_INIT();
	if (!context)
		context = emu_current();
	if (!is_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = context->id;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxGetFlags(unsigned *flags)
{
	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*flags = emu_current()->sync_memops ? CU_CTX_SYNC_MEMOPS : 0;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxSetFlags(unsigned flags)
{
	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	emu_current()->sync_memops = flags & CU_CTX_SYNC_MEMOPS;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuCtxSynchronize(void)
{
	NEED_INIT();
	EMU_UNSAFE();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	emu_context_wait(emu_current());
	return emu_lost();
}

/* ---- errors ---- */

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
	 "peer access is not supported"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
	 "an illegal memory access was encountered"},
	{CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
	{CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
	{CUDA_ERROR_INVALID_ADDRESS_SPACE, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
	 "operation not supported on global/shared address space"},
	{CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
	 "too many blocks in cooperative launch"},
	{CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	 "part or all of the requested memory range is already mapped"},
	{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	 "pointer does not correspond to a registered memory region"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int find_error(CUresult code)
{
	for (int i = 0; i < (int)(sizeof(errors) / sizeof(errors[0])); i++) {
		if (errors[i].code == code)
			return i;
	}
	return -1;
}

EMU_API CUresult CUDAAPI cuGetErrorName(CUresult code, const char **name)
{
	int found = find_error(code);

	*name = found < 0 ? "an injected error" : errors[found].name;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuGetErrorString(CUresult code, const char **text)
{
	int found = find_error(code);

	*text = found < 0 ? "an injected error" : errors[found].text;
	return CUDA_SUCCESS;
}

/* ---- look-up ---- */

/* Made by gen-stubs.py: the functions that this driver covers, by their full names. */
extern const struct emu_symbol {
	const char *name;
	void *address;
} emu_symbols[];

static void *find_symbol(const char *name, const char *suffix)
{
	char full[128];

	snprintf(full, sizeof(full), "%s%s", name, suffix);
	for (int i = 0; emu_symbols[i].name; i++) {
		if (!strcmp(emu_symbols[i].name, full))
			return emu_symbols[i].address;
	}
	return NULL;
}

/*
 * The newest form that is no newer than the program was built for: _v4 came with 13.0
 * (cuCtxCreate).
 */
EMU_API CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version,
					  cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	static const struct {
		const char *suffix;
		int since;
	} forms[] = {{"_v4", 12050}, {"_v3", 12000}, {"_v2", 3020}, {"", 0}};

	EMU_ENTER();
	(void)flags;
	*function = NULL;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]) && !*function; i++) {
		if (version >= forms[i].since)
			*function = find_symbol(symbol, forms[i].suffix);
	}
	if (status)
		*status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
				    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
