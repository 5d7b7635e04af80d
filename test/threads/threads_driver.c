/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA driver for ranks that are threads of one process: device memory is memory of the process,
 * mapped where it is; a stream is a thread that does what is in its queue, and a kernel's blocks
 * are threads that run its twin. What the library can do without (mapping by descriptors, pools,
 * events) is not supported. It takes the place of gpu_driver.c.
 */
#include "../emu/emu_alone.h"
#include "../emu/emu_twins.h"
#include "gpu/gpu_driver.h"
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 8, MULTIPROCESSORS = 32, MOST_ARGS = 8192 };

struct gpu_driver gpu_driver;
bool gpu_driver_bound;
struct link_map *gpu_driver_last_object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- contexts: the primary one of each device, which is always there ---- */

static struct context {
	int device;
} contexts[MOST_DEVICES];

enum { MOST_PUSHED = 8 };
static _Thread_local struct {
	CUcontext stack[MOST_PUSHED];
	int num;
} current;

static CUcontext context_of(int device)
{
	contexts[device].device = device;
	return (CUcontext)&contexts[device];
}

static int device_of(CUcontext context)
{
	return (int)((struct context *)context - contexts);
}

void threads_driver_set_device(int device)
{
	current.stack[0] = context_of(device);
	current.num = 1;
}

static CUresult ctx_get_current(CUcontext *out)
{
	*out = current.num ? current.stack[current.num - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult ctx_get_device(CUdevice *out)
{
	if (!current.num)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = device_of(current.stack[current.num - 1]);
	return CUDA_SUCCESS;
}

static CUresult ctx_get_id(CUcontext context, unsigned long long *id)
{
	if (!context)
		ctx_get_current(&context);
	*id = context ? (unsigned long long)device_of(context) + 1 : 0;
	return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult ctx_push(CUcontext context)
{
	if (current.num == MOST_PUSHED)
		abort();
	current.stack[current.num++] = context;
	return CUDA_SUCCESS;
}

static CUresult ctx_pop(CUcontext *out)
{
	*out = current.stack[--current.num];
	return CUDA_SUCCESS;
}

static CUresult ctx_priorities(int *least, int *greatest)
{
	if (least)
		*least = 0;
	*greatest = 0;
	return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
	(void)device;
	*flags = 0;
	*active = 1;
	return CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *out, CUdevice device)
{
	*out = context_of(device);
	return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice device)
{
	(void)device;
	return CUDA_SUCCESS;
}

/* ---- devices ---- */

static CUresult init(unsigned flags)
{
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult driver_version(int *version)
{
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

static CUresult device_count(int *count)
{
	*count = threads_job.num_devices;
	return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal < threads_job.num_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult device_name(char *name, int bytes, CUdevice device)
{
	snprintf(name, (size_t)bytes, "device %d", device);
	return CUDA_SUCCESS;
}

static CUresult device_bus(char *name, int bytes, CUdevice device)
{
	snprintf(name, (size_t)bytes, "0000:%02x:00.0", device + 1);
	return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)device;
	*value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? MULTIPROCESSORS : 0;
	return CUDA_SUCCESS;
}

static bool reach(int a, int b)
{
	return a == b || !threads_job.apart;
}

static CUresult device_can_access(int *can, CUdevice device, CUdevice other)
{
	*can = device != other && reach(device, other);
	return CUDA_SUCCESS;
}

static CUresult device_memory(size_t *bytes, CUdevice device)
{
	(void)device;
	*bytes = (size_t)1 << 30;
	return CUDA_SUCCESS;
}

static CUresult error_name(CUresult error, const char **name)
{
	(void)error;
	*name = "an error";
	return CUDA_SUCCESS;
}

/* ---- memory ---- */

/* An allocation of this rank, or one of another that is mapped here. */
struct allocation {
	struct allocation *next;
	char *start;
	size_t bytes;
	unsigned long long id;
	int device;
	bool hidden;
};

static struct allocation *allocations; /* under the lock, and so is what they hold */

static CUresult add(char *start, size_t bytes, int device, bool hidden)
{
	static unsigned long long last_id;
	struct allocation *a = calloc(1, sizeof(*a));

	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct allocation){
		.start = start, .bytes = bytes, .device = device, .hidden = hidden};
	pthread_mutex_lock(&lock);
	a->id = ++last_id;
	a->next = allocations;
	allocations = a;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static void drop(const char *start)
{
	struct allocation **link = &allocations, *a;

	pthread_mutex_lock(&lock);
	while ((*link)->start != start)
		link = &(*link)->next;
	a = *link;
	*link = a->next;
	pthread_mutex_unlock(&lock);
	free(a);
}

/* Under the lock. */
static struct allocation *find(uintptr_t address)
{
	struct allocation *a = allocations;

	while (a && address - (uintptr_t)a->start >= a->bytes)
		a = a->next;
	return a;
}

void *threads_driver_allocate(int device, size_t bytes, bool hidden)
{
	size_t rounded = (bytes / 512 + 1) * 512;
	char *memory = aligned_alloc(512, rounded);

	return memory && add(memory, rounded, device, hidden) == CUDA_SUCCESS ? memory : NULL;
}

/* Others may have it mapped, so its addresses are not used again. */
void threads_driver_free(void *memory)
{
	drop(memory);
}

static CUresult mem_alloc(CUdeviceptr *out, size_t bytes)
{
	CUdevice device = 0;

	ctx_get_device(&device);
	*out = (CUdeviceptr)threads_driver_allocate(device, bytes, false);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult mem_free(CUdeviceptr address)
{
	threads_driver_free((void *)address);
	return CUDA_SUCCESS;
}

static CUresult address_range(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
	struct allocation *a;

	pthread_mutex_lock(&lock);
	a = find(address);
	if (a) {
		*start = (CUdeviceptr)a->start;
		*bytes = a->bytes;
	}
	pthread_mutex_unlock(&lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void set_attribute(const struct allocation *a, CUpointer_attribute attribute, void *out)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = a->device;
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)out = context_of(a->device);
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)out = a->id;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(void **)out = a->start;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = a->bytes;
		break;
	default: /* the caller's zero is right */
		break;
	}
}

static CUresult pointer_attributes(unsigned num, CUpointer_attribute *attributes, void **out,
				   CUdeviceptr address)
{
	struct allocation *a;

	pthread_mutex_lock(&lock);
	a = find(address);
	for (unsigned i = 0; a && i < num; i++)
		set_attribute(a, attributes[i], out[i]);
	pthread_mutex_unlock(&lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pointer_set(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	(void)value;
	(void)attribute;
	(void)address;
	return CUDA_SUCCESS;
}

struct handle {
	char *start;
	size_t bytes;
	int device;
};

static CUresult ipc_get(CUipcMemHandle *out, CUdeviceptr address)
{
	struct handle handle = {0};
	struct allocation *a;

	pthread_mutex_lock(&lock);
	a = find(address);
	if (a && a->hidden)
		a = NULL;
	if (a)
		handle = (struct handle){a->start, a->bytes, a->device};
	pthread_mutex_unlock(&lock);
	memset(out, 0, sizeof(*out));
	memcpy(out, &handle, sizeof(handle));
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult ipc_open(CUdeviceptr *out, CUipcMemHandle in, unsigned flags)
{
	struct handle handle;
	CUdevice device = 0;

	(void)flags;
	ctx_get_device(&device);
	memcpy(&handle, &in, sizeof(handle));
	if (!reach(device, handle.device))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	*out = (CUdeviceptr)handle.start;
	return add(handle.start, handle.bytes, device, false);
}

static CUresult ipc_close(CUdeviceptr address)
{
	drop((const char *)address);
	return CUDA_SUCCESS;
}

/* Memory of the host that was pinned. */
static struct pinned {
	struct pinned *next;
	char *start;
	size_t bytes;
} * pinned; /* under the lock */

static CUresult host_register(void *memory, size_t bytes, unsigned flags)
{
	struct pinned *new = calloc(1, sizeof(*new));

	(void)flags;
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	*new = (struct pinned){pinned, memory, bytes};
	pinned = new;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static CUresult host_unregister(void *memory)
{
	struct pinned **link = &pinned, *old;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->start != memory)
		link = &(*link)->next;
	old = *link;
	if (old)
		*link = old->next;
	pthread_mutex_unlock(&lock);
	free(old);
	return old ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* Of the host, and not pinned. */
static bool is_pageable(uintptr_t address)
{
	struct pinned *p;
	bool pageable;

	pthread_mutex_lock(&lock);
	p = pinned;
	while (p && address - (uintptr_t)p->start >= p->bytes)
		p = p->next;
	pageable = !p && !find(address);
	pthread_mutex_unlock(&lock);
	return pageable;
}

static CUresult host_device_pointer(CUdeviceptr *out, void *memory, unsigned flags)
{
	(void)flags;
	*out = (CUdeviceptr)memory;
	return CUDA_SUCCESS;
}

/* ---- kernels ---- */

struct kernel {
	const char *name;
	void (*twin)(const void *args);
	size_t bytes; /* of its arguments */
};

#define TWIN(name, type) void name(const type *args);
EMU_TWINS(TWIN)

#define ROW(name, type) {#name, (void (*)(const void *))name, sizeof(type)},
static struct kernel kernels[] = {EMU_TWINS(ROW)};

static CUresult module_load(CUmodule *module, const void *image)
{
	*module = (CUmodule)kernels;
	return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult module_function(CUfunction *out, CUmodule module, const char *name)
{
	(void)module;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (strcmp(kernels[i].name, name))
			continue;
		*out = (CUfunction)&kernels[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult function_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	(void)attribute;
	(void)function;
	*value = 1024;
	return CUDA_SUCCESS;
}

struct launch {
	const struct kernel *kernel;
	const void *args;
	unsigned index, num;
};

static void *run_block(void *argument)
{
	const struct launch *launch = argument;

	emu_alone_begin(launch->index, launch->num);
	launch->kernel->twin(launch->args);
	return NULL;
}

static void run_kernel(const struct kernel *kernel, const void *args, unsigned num)
{
	struct launch *blocks = calloc(num, sizeof(*blocks));
	pthread_t *threads = calloc(num, sizeof(*threads));

	if (!blocks || !threads)
		abort();
	for (unsigned i = 0; i < num; i++) {
		blocks[i] = (struct launch){kernel, args, i, num};
		if (pthread_create(&threads[i], NULL, run_block, &blocks[i]))
			abort();
	}
	for (unsigned i = 0; i < num; i++)
		pthread_join(threads[i], NULL);
	free(blocks);
	free(threads);
}

/* ---- streams ---- */

struct operation {
	struct operation *next;
	const struct kernel *kernel; /* NULL: a copy */
	unsigned blocks;
	void *to;
	const void *from;
	size_t bytes;
	void *copied; /* from, where it is the operation's own */
	_Alignas(16) char args[MOST_ARGS];
};

struct stream {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct operation *first; /* under the lock: the one that is being done, or is next */
	bool ends;
	pthread_t thread;
};

static void carry_out(const struct operation *o)
{
	if (o->kernel)
		run_kernel(o->kernel, o->args, o->blocks);
	else
		memcpy(o->to, o->from, o->bytes);
}

static void *run_stream(void *argument)
{
	struct stream *stream = argument;

	pthread_mutex_lock(&stream->lock);
	while (stream->first || !stream->ends) {
		struct operation *o = stream->first;

		if (!o) {
			pthread_cond_wait(&stream->more, &stream->lock);
			continue;
		}
		pthread_mutex_unlock(&stream->lock);
		carry_out(o);
		pthread_mutex_lock(&stream->lock);
		stream->first = o->next;
		free(o->copied);
		free(o);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

static CUresult stream_create(CUstream *out, unsigned flags, int priority)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	(void)flags;
	(void)priority;
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->more, NULL);
	if (pthread_create(&stream->thread, NULL, run_stream, stream))
		abort();
	*out = (CUstream)stream;
	return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream handle)
{
	struct stream *stream = (struct stream *)handle;

	pthread_mutex_lock(&stream->lock);
	stream->ends = true;
	pthread_cond_signal(&stream->more);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	free(stream);
	return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream handle)
{
	struct stream *stream = (struct stream *)handle;
	bool busy;

	if (handle == CU_STREAM_LEGACY)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&stream->lock);
	busy = stream->first != NULL;
	pthread_mutex_unlock(&stream->lock);
	return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult exchange_capture_mode(CUstreamCaptureMode *mode)
{
	(void)mode;
	return CUDA_SUCCESS;
}

static void append(CUstream handle, struct operation *operation)
{
	struct stream *stream = (struct stream *)handle;
	struct operation **link = &stream->first;

	pthread_mutex_lock(&stream->lock);
	while (*link)
		link = &(*link)->next;
	*link = operation;
	pthread_cond_signal(&stream->more);
	pthread_mutex_unlock(&stream->lock);
}

/*
 * As CUDA does it: from pageable memory all is read before this returns, and to it all is written.
 */
static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct operation *o = calloc(1, sizeof(*o));

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->to = (void *)to;
	o->from = (const void *)from;
	o->bytes = bytes;
	if (is_pageable(from)) {
		o->from = o->copied = malloc(bytes + 1);
		if (!o->copied)
			abort();
		memcpy(o->copied, (const void *)from, bytes);
	}
	append(stream, o);
	while (is_pageable(to) && stream_query(stream) == CUDA_ERROR_NOT_READY)
		sched_yield();
	return CUDA_SUCCESS;
}

static CUresult fill_async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	struct operation *o = calloc(1, sizeof(*o));

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->to = (void *)to;
	o->bytes = bytes;
	o->from = o->copied = malloc(bytes + 1);
	if (!o->copied)
		abort();
	memset(o->copied, value, bytes);
	append(stream, o);
	return CUDA_SUCCESS;
}

/* Of the rank's thread. */
static long launches[THREADS_WAYS];

static void count(const struct kernel *kernel, const void *args)
{
	const struct gpu_execute_args *execute = args;

	if (strncmp(kernel->name, "gpu_execute", strlen("gpu_execute")))
		return;
	if (execute->waits)
		launches[THREADS_FUSED + execute->protocol]++;
	else
		launches[execute->width && !execute->work ? THREADS_STEPPED : THREADS_DIRECT]++;
}

const long *rank_launches(void)
{
	return launches;
}

static CUresult launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned tx,
		       unsigned ty, unsigned tz, unsigned shared, CUstream stream,
		       void **parameters, void **extra)
{
	const struct kernel *kernel = (const struct kernel *)function;
	struct operation *o = calloc(1, sizeof(*o));

	(void)y, (void)z, (void)tx, (void)ty, (void)tz, (void)shared, (void)extra;
	if (!o || kernel->bytes > sizeof(o->args))
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->kernel = kernel;
	o->blocks = x;
	memcpy(o->args, parameters[0], kernel->bytes);
	count(kernel, o->args);
	append(stream, o);
	return CUDA_SUCCESS;
}

/* ---- the table ---- */

static CUresult unsupported(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static void set_rest(void)
{
	void **calls = (void **)&gpu_driver;

	for (size_t i = 0; i < sizeof(gpu_driver) / sizeof(*calls); i++) {
		if (!calls[i])
			calls[i] = (void *)(uintptr_t)unsupported;
	}
}

__attribute__((constructor)) static void bind(void)
{
	gpu_driver = (struct gpu_driver){
		.cuCtxGetCurrent = ctx_get_current,
		.cuCtxGetDevice = ctx_get_device,
		.cuCtxGetId = ctx_get_id,
		.cuCtxGetStreamPriorityRange = ctx_priorities,
		.cuCtxPopCurrent = ctx_pop,
		.cuCtxPushCurrent = ctx_push,
		.cuDeviceCanAccessPeer = device_can_access,
		.cuDeviceGet = device_get,
		.cuDeviceGetAttribute = device_attribute,
		.cuDeviceGetCount = device_count,
		.cuDeviceGetName = device_name,
		.cuDeviceGetPCIBusId = device_bus,
		.cuDevicePrimaryCtxGetState = primary_state,
		.cuDevicePrimaryCtxRelease = primary_release,
		.cuDevicePrimaryCtxRetain = primary_retain,
		.cuDeviceTotalMem = device_memory,
		.cuDriverGetVersion = driver_version,
		.cuFuncGetAttribute = function_attribute,
		.cuGetErrorName = error_name,
		.cuGetErrorString = error_name,
		.cuInit = init,
		.cuIpcCloseMemHandle = ipc_close,
		.cuIpcGetMemHandle = ipc_get,
		.cuIpcOpenMemHandle = ipc_open,
		.cuLaunchKernel = launch,
		.cuMemAlloc = mem_alloc,
		.cuMemFree = mem_free,
		.cuMemGetAddressRange = address_range,
		.cuMemHostGetDevicePointer = host_device_pointer,
		.cuMemHostRegister = host_register,
		.cuMemHostUnregister = host_unregister,
		.cuMemsetD8Async = fill_async,
		.cuMemcpyAsync = copy_async,
		.cuModuleGetFunction = module_function,
		.cuModuleLoadData = module_load,
		.cuPointerGetAttributes = pointer_attributes,
		.cuPointerSetAttribute = pointer_set,
		.cuStreamCreateWithPriority = stream_create,
		.cuStreamDestroy = stream_destroy,
		.cuStreamIsCapturing = stream_is_capturing,
		.cuStreamQuery = stream_query,
		.cuThreadExchangeStreamCaptureMode = exchange_capture_mode,
	};
	set_rest();
	gpu_driver_bound = true;
}

bool gpu_driver_look(void)
{
	return true;
}

bool gpu_driver_load(void)
{
	return true;
}

bool gpu_driver_installed(void)
{
	return true;
}

enum util_status gpu_driver_error(CUresult result, const char *call)
{
	fprintf(stderr, "%s failed: %d\n", call, (int)result);
	return result == CUDA_ERROR_OUT_OF_MEMORY ? UTIL_ERR_NO_MEMORY : UTIL_ERR_CUDA;
}
