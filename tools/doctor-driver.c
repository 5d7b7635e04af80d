/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library assumes of the driver, and what things cost there, asked of the first device. */
#include "doctor.h"
#include "gpu/gpu_context.h"
#include "gpu/gpu_ipc.h"
#include "gpu/gpu_launch.h"
#include "gpu/gpu_pointer.h"
#include "util/util_time.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Besides those of gpu_driver.h. */
#define DOCTOR_CALLS(X)                                                                            \
	X(cuCtxSynchronize)                                                                        \
	X(cuDevicePrimaryCtxReset)                                                                 \
	X(cuMemAllocAsync)                                                                         \
	X(cuMemAllocFromPoolAsync)                                                                 \
	X(cuMemAllocManaged)                                                                       \
	X(cuMemCreate)                                                                             \
	X(cuMemGetAllocationGranularity)                                                           \
	X(cuMemGetInfo)                                                                            \
	X(cuMemPoolCreate)                                                                         \
	X(cuStreamCreate)                                                                          \
	X(cuStreamSynchronize)

static struct {
#define DOCTOR_FIELD(name) __typeof__(&name) name;
	DOCTOR_CALLS(DOCTOR_FIELD)
#undef DOCTOR_FIELD
} driver;

#define DOCTOR_TEXT(name) #name
#define DOCTOR_SYMBOL(name) DOCTOR_TEXT(name)

static bool bind_calls(void)
{
	static const struct {
		const char *symbol;
		size_t offset;
	} calls[] = {
#define DOCTOR_ROW(name) {DOCTOR_SYMBOL(name), offsetof(__typeof__(driver), name)},
		DOCTOR_CALLS(DOCTOR_ROW)
#undef DOCTOR_ROW
	};
	void *library = dlopen("libcuda.so.1", RTLD_LAZY);

	for (size_t i = 0; library && i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *address = dlsym(library, calls[i].symbol);

		if (!address)
			return false;
		memcpy((char *)&driver + calls[i].offset, &address, sizeof(address));
	}
	return library;
}

/* ---- the driver and the device ---- */

static void say_versions(void)
{
	int version = 0;

	gpu_driver.cuDriverGetVersion(&version);
	if (version / 1000 < CUDA_VERSION / 1000)
		doctor_say(DOCTOR_BAD, "driver", "kernels do not load, and all is staged",
			   "a driver for that CUDA, or the library built with an older toolkit",
			   "for CUDA %d.%d; the library was built with %d.%d", version / 1000,
			   version % 1000 / 10, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
	else
		doctor_say(DOCTOR_OK, "driver", NULL, NULL,
			   "for CUDA %d.%d; the library was built with %d.%d", version / 1000,
			   version % 1000 / 10, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}

static void say_device(const struct gpu_launch *launch)
{
	char name[256] = "?";
	int major = 0, minor = 0;
	CUdevice device;

	gpu_driver.cuDeviceGet(&device, 0);
	gpu_driver.cuDeviceGetName(name, sizeof(name), device);
	gpu_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					device);
	gpu_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					device);
	doctor_say(DOCTOR_OK, "device 0", NULL, NULL,
		   "%s, compute capability %d.%d, %u multiprocessors; the library's kernels load%s",
		   name, major, minor, launch->multiprocessors,
		   strstr(name, " MIG ") ? "; an instance of a GPU (MIG)" : "");
}

static void say_limits(void)
{
	if (gpu_device_limits_kernels(0))
		doctor_say(DOCTOR_WARN, "display",
			   "what is enqueued goes through the host's memory",
			   "a device without a display (nvidia-xconfig; nvidia-smi shows which)",
			   "the driver ends kernels that take long, and the process's context");
	if (!gpu_device_leaves_managed(0))
		doctor_say(DOCTOR_NOTE, "managed memory",
			   "nonblocking calls on device buffers are staged",
			   "blocking calls, while no other thread touches managed memory",
			   "the host may touch none while a kernel runs (WSL, Tegra)");
}

bool doctor_has_mps(void)
{
	const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[512];

	snprintf(path, sizeof(path), "%s/control", pipes ? pipes : "/tmp/nvidia-mps");
	return access(path, F_OK) == 0;
}

static void say_environment(void)
{
	static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
					    "CUDA_MPS_PIPE_DIRECTORY",
					    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (getenv(names[i]))
			doctor_say(DOCTOR_NOTE, "environment", NULL, NULL, "%s=%s", names[i],
				   getenv(names[i]));
	}
	doctor_say(DOCTOR_NOTE, "MPS", NULL, NULL, "its control daemon is %s",
		   doctor_has_mps() ? "there" : "not there");
}

/* ---- kinds of memory ---- */

struct kind {
	const char *name, *effect;
	CUdeviceptr address;
	bool direct; /* it is to be exported */
};

static void say_kind(const struct kind *kind)
{
	struct gpu_export export = {0};
	struct gpu_pointer where;
	bool exported, device;

	gpu_pointer_classify((void *)kind->address, &where);
	device = where.memory != GPU_MEMORY_HOST;
	exported = where.memory == GPU_MEMORY_DEVICE &&
		   gpu_ipc_export(kind->address, &where, &export) == UTIL_OK;
	doctor_say(!device || (kind->direct && !exported) ? DOCTOR_WARN : DOCTOR_OK, kind->name,
		   !device    ? "it goes to the MPI as host memory"
		   : exported ? "direct: others map it"
			      : "through windows: memory of the library's own, slice by slice",
		   NULL, "%s memory%s, buffer id %llu, allocation of %zu bytes, %s",
		   where.memory == GPU_MEMORY_DEVICE    ? "device"
		   : where.memory == GPU_MEMORY_MANAGED ? "managed"
		   : device                             ? "the host's VMM"
							: "host",
		   where.context ? "" : " without a context", where.buffer_id, where.bytes,
		   exported ? "exported" : "not exported");
}

static CUdeviceptr make_vmm(bool on_host)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address = 0;
	size_t bytes;

#if CUDA_VERSION >= 12020
	if (on_host)
		prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
#else
	if (on_host)
		return 0;
#endif
	if (driver.cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
		    CUDA_SUCCESS ||
	    driver.cuMemCreate(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
		return 0;
	if (gpu_driver.cuMemAddressReserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS ||
	    gpu_driver.cuMemMap(address, bytes, 0, handle, 0) != CUDA_SUCCESS ||
	    gpu_driver.cuMemSetAccess(address, bytes, &access, 1) != CUDA_SUCCESS)
		return 0;
	return address;
}

static CUdeviceptr make_shared_pool(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemoryPool pool;
	CUdeviceptr address;

	if (driver.cuMemPoolCreate(&pool, &props) != CUDA_SUCCESS ||
	    driver.cuMemAllocFromPoolAsync(&address, 1 << 20, pool, 0) != CUDA_SUCCESS)
		return 0;
	driver.cuStreamSynchronize(0);
	return address;
}

static void say_kinds(void)
{
	struct kind kinds[] = {
		{.name = "cudaMalloc", .direct = true},  {.name = "cudaMallocAsync"},
		{.name = "shared pool", .direct = true}, {.name = "cudaMallocManaged"},
		{.name = "VMM", .direct = true},         {.name = "VMM on the host"}};
	enum { NUM = sizeof(kinds) / sizeof(kinds[0]) };

	gpu_driver.cuMemAlloc(&kinds[0].address, 1 << 20);
	driver.cuMemAllocAsync(&kinds[1].address, 1 << 20, 0);
	driver.cuStreamSynchronize(0);
	kinds[2].address = make_shared_pool();
	driver.cuMemAllocManaged(&kinds[3].address, 1 << 20, CU_MEM_ATTACH_GLOBAL);
	kinds[4].address = make_vmm(false);
	kinds[5].address = make_vmm(true);
	for (int i = 0; i < NUM; i++) {
		if (kinds[i].address)
			say_kind(&kinds[i]);
		else
			doctor_say(DOCTOR_NOTE, kinds[i].name, NULL, NULL,
				   "the driver has no such memory here");
	}
}

/* ---- the legacy stream ---- */

/* What a query tells while another stream is busy with fills; unknown: it was over too soon. */
static CUresult query_beside_fills(CUdeviceptr memory, size_t bytes, CUstream stream, int fills)
{
	CUresult result;

	for (int i = 0; i < fills; i++)
		gpu_driver.cuMemsetD8Async(memory, 0, bytes, stream);
	result = gpu_driver.cuStreamQuery(CU_STREAM_LEGACY);
	if (gpu_driver.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
		result = CUDA_ERROR_UNKNOWN;
	driver.cuCtxSynchronize();
	return result;
}

static CUresult query_beside(CUdeviceptr memory, size_t bytes, CUstream stream)
{
	enum { MOST_FILLS = 64 };
	CUresult result = CUDA_ERROR_UNKNOWN;

	for (int fills = 1; fills <= MOST_FILLS && result == CUDA_ERROR_UNKNOWN; fills *= 4)
		result = query_beside_fills(memory, bytes, stream, fills);
	return result;
}

static void say_legacy(void)
{
	size_t left = 0, all = 0, bytes = 256 << 20;
	CUdeviceptr memory;
	CUstream blocking;
	CUresult ordered, own;

	driver.cuMemGetInfo(&left, &all);
	while (bytes > left / 4)
		bytes /= 2;
	if (driver.cuStreamCreate(&blocking, CU_STREAM_DEFAULT) != CUDA_SUCCESS ||
	    gpu_driver.cuMemAlloc(&memory, bytes) != CUDA_SUCCESS)
		return;
	ordered = query_beside(memory, bytes, blocking);
	own = query_beside(memory, bytes, CU_STREAM_PER_THREAD);
	gpu_driver.cuMemFree(memory);
	doctor_say(
		DOCTOR_NOTE, "legacy stream",
		ordered == CUDA_ERROR_NOT_READY
			? "a call waits for the program's kernels on ordinary streams, too"
			: "a call waits for the legacy stream's own work",
		ordered == CUDA_ERROR_NOT_READY
			? "GPUCOLL_WAIT_DEFAULT_STREAM=0, where the program has its buffers ready"
			: NULL,
		"a query says %s beside a busy blocking stream, %s beside the thread's default "
		"stream",
		doctor_name_of(ordered), doctor_name_of(own));
}

/* ---- costs ---- */

enum { TIMES = 2000 };

static double us_since(uint64_t start)
{
	return 1e-3 * (double)(util_now() - start);
}

static void say_costs(struct gpu_launch *launch, struct gpu_stream *stream)
{
	/* As in a call, but that there is nothing to do. */
	struct gpu_execute_args args = {.parts = 1, .pieces = 1, .unit = 1};
	const struct gpu_work work = {0};
	struct gpu_pointer where;
	CUdeviceptr memory;
	uint64_t start;
	double classify, query, call = 0, total = 0;

	gpu_driver.cuMemAlloc(&memory, 1 << 20);
	start = util_now();
	for (int i = 0; i < TIMES; i++)
		gpu_pointer_classify((void *)memory, &where);
	classify = us_since(start) / TIMES;
	start = util_now();
	for (int i = 0; i < TIMES; i++)
		gpu_stream_poll_legacy(stream);
	query = us_since(start) / TIMES;
	for (int i = 0; i < TIMES / 10; i++) {
		start = util_now();
		gpu_launch_execute(launch, &args, &work, 1, 0);
		call += us_since(start);
		while (gpu_launch_poll(launch) == UTIL_IN_PROGRESS)
			;
		total += us_since(start);
	}
	doctor_say(DOCTOR_OK, "costs", NULL, NULL,
		   "us: what a pointer is %.2f, the legacy stream %.2f, a launch %.2f, until the "
		   "host sees its word %.2f",
		   classify, query, call / (TIMES / 10), total / (TIMES / 10));
	gpu_driver.cuMemFree(memory);
}

static void say_copies(struct gpu_stream *stream)
{
	enum { COPIES = 8 };
	size_t left = 0, all = 0, bytes = 256 << 20;
	CUdeviceptr memory;
	uint64_t start;

	driver.cuMemGetInfo(&left, &all);
	while (bytes > left / 4)
		bytes /= 2;
	if (gpu_driver.cuMemAlloc(&memory, bytes) != CUDA_SUCCESS)
		return;
	start = util_now();
	for (int i = 0; i < COPIES; i++)
		gpu_stream_copy(stream, (void *)memory, (void *)(memory + bytes / 2), bytes / 2);
	while (gpu_stream_poll(stream) == UTIL_IN_PROGRESS)
		;
	doctor_say(DOCTOR_OK, "copies", NULL, NULL, "%.1f GB/s inside the device, each way",
		   COPIES * (double)(bytes / 2) / us_since(start) * 1e-3);
	gpu_driver.cuMemFree(memory);
}

/* ---- last, as it ends the context ---- */

static void say_reset(void)
{
	struct gpu_pointer primary = {.memory = GPU_MEMORY_DEVICE};
	unsigned long long before = 0, after = 0;
	struct gpu_scope scope;
	CUresult result;

	if (gpu_scope_enter(&scope, &primary) != UTIL_OK)
		return;
	gpu_driver.cuCtxGetId(NULL, &before);
	gpu_scope_leave(&scope);
	result = driver.cuDevicePrimaryCtxReset(0);
	if (result == CUDA_SUCCESS &&
	    gpu_driver.cuDevicePrimaryCtxRetain(&primary.context, 0) == CUDA_SUCCESS &&
	    gpu_driver.cuCtxPushCurrent(primary.context) == CUDA_SUCCESS)
		gpu_driver.cuCtxGetId(NULL, &after);
	doctor_say(after && after != before ? DOCTOR_OK : DOCTOR_WARN, "reset",
		   after && after != before
			   ? "calls after cudaDeviceReset are accelerated anew"
			   : "calls after cudaDeviceReset may fail: please report this",
		   NULL, "cudaDeviceReset: %s; the next context's id is %s", doctor_name_of(result),
		   !after            ? "not known"
		   : after != before ? "another"
				     : "the same");
}

void doctor_look_at_driver(void)
{
	struct gpu_pointer where = {.memory = GPU_MEMORY_DEVICE};
	struct gpu_stream *stream;
	struct gpu_launch launch;
	struct gpu_scope scope;

	if (!gpu_driver_load() || gpu_driver.cuInit(0) != CUDA_SUCCESS || !bind_calls())
		return; /* which was said */
	say_versions();
	say_environment();
	if (gpu_stream_get(&where, &stream) != UTIL_OK ||
	    gpu_launch_open(&launch, stream) != UTIL_OK ||
	    gpu_scope_enter(&scope, &where) != UTIL_OK)
		return;
	say_device(&launch);
	say_limits();
	say_kinds();
	say_legacy();
	say_costs(&launch, stream);
	say_copies(stream);
	gpu_scope_leave(&scope);
	say_reset();
}
