/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_module.h"
#include "gpu/kernels/gpu_types.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The fatbins as the build made them, 16-byte aligned as the driver wants them. */
__asm__(".section .rodata\n"
	".balign 16\n"
	"gpu_module_await:\n"
	".incbin \"gpu_await.fatbin\"\n"
	".balign 16\n"
	"gpu_module_runs:\n"
	".incbin \"gpu_runs.fatbin\"\n"
	".balign 16\n"
	"gpu_module_exchange:\n"
	".incbin \"gpu_exchange.fatbin\"\n"
	".balign 16\n"
	"gpu_module_execute:\n"
	".incbin \"gpu_execute.fatbin\"\n"
	".balign 16\n"
	"gpu_module_probe:\n"
	".incbin \"gpu_probe.fatbin\"\n"
	".balign 16\n"
	"gpu_module_verify:\n"
	".incbin \"gpu_verify.fatbin\"\n"
	".previous\n");
extern const char gpu_module_await[], gpu_module_runs[], gpu_module_exchange[],
	gpu_module_execute[], gpu_module_probe[], gpu_module_verify[];

enum image {
	IMAGE_AWAIT,
	IMAGE_RUNS,
	IMAGE_EXCHANGE,
	IMAGE_EXECUTE,
	IMAGE_PROBE,
	IMAGE_VERIFY,
	NUM_IMAGES
};
static const char *const images[NUM_IMAGES] = {gpu_module_await,    gpu_module_runs,
					       gpu_module_exchange, gpu_module_execute,
					       gpu_module_probe,    gpu_module_verify};

static const struct {
	enum image image;
	const char *name;
} kernels[GPU_KERNEL_NUM] = {
	[GPU_KERNEL_AWAIT] = {IMAGE_AWAIT, "gpu_await"},
	[GPU_KERNEL_COPY_RUNS] = {IMAGE_RUNS, "gpu_copy_runs"},
	[GPU_KERNEL_EXCHANGE] = {IMAGE_EXCHANGE, "gpu_exchange"},
	[GPU_KERNEL_PACK] = {IMAGE_RUNS, "gpu_pack"},
	[GPU_KERNEL_PROBE] = {IMAGE_PROBE, "gpu_probe"},
	[GPU_KERNEL_VERIFY] = {IMAGE_VERIFY, "gpu_verify"},
	[GPU_KERNEL_EXECUTE] = {IMAGE_EXECUTE, "gpu_execute"},
	[GPU_KERNEL_EXECUTE_FLOAT_SUM] = {IMAGE_EXECUTE, "gpu_execute_float_sum"},
	[GPU_KERNEL_EXECUTE_DOUBLE_SUM] = {IMAGE_EXECUTE, "gpu_execute_double_sum"},
	[GPU_KERNEL_EXECUTE_INT32_SUM] = {IMAGE_EXECUTE, "gpu_execute_int32_sum"},
	[GPU_KERNEL_EXECUTE_INT64_SUM] = {IMAGE_EXECUTE, "gpu_execute_int64_sum"},
	[GPU_KERNEL_EXECUTE_FLOAT16_SUM] = {IMAGE_EXECUTE, "gpu_execute_float16_sum"},
	[GPU_KERNEL_EXECUTE_BFLOAT16_SUM] = {IMAGE_EXECUTE, "gpu_execute_bfloat16_sum"},
	[GPU_KERNEL_EXECUTE_FLOAT_MAX] = {IMAGE_EXECUTE, "gpu_execute_float_max"},
	[GPU_KERNEL_EXECUTE_DOUBLE_MAX] = {IMAGE_EXECUTE, "gpu_execute_double_max"},
};

struct module {
	struct module *next;
	unsigned long long context_id;
	unsigned multiprocessors; /* 0: not usable */
	CUfunction functions[GPU_KERNEL_NUM];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct module *modules; /* under the lock; entries do not change once they are in the list */

/*
 * The driver loads a function lazily: asking for this makes it do so now, while the call can still
 * be staged.
 */
static CUresult check_kernel(CUfunction function)
{
	int threads = 0;
	CUresult result = gpu_driver.cuFuncGetAttribute(
		&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);

	if (result == CUDA_SUCCESS && threads < GPU_THREADS)
		result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	return result;
}

static CUresult load_kernels(struct module *module)
{
	CUresult result = CUDA_SUCCESS;
	CUmodule handles[NUM_IMAGES];

	for (int i = 0; i < NUM_IMAGES && result == CUDA_SUCCESS; i++)
		result = gpu_driver.cuModuleLoadData(&handles[i], images[i]);
	for (int i = 0; i < GPU_KERNEL_NUM && result == CUDA_SUCCESS; i++)
		result = gpu_driver.cuModuleGetFunction(&module->functions[i],
							handles[kernels[i].image], kernels[i].name);
	for (int i = 0; i < GPU_KERNEL_NUM && result == CUDA_SUCCESS; i++)
		result = check_kernel(module->functions[i]);
	return result;
}

/*
 * Once: all contexts' fail alike. Most likely the library was built for other GPUs than these, or
 * with a toolkit that is newer than the driver.
 */
static void warn(CUresult result)
{
	static atomic_bool warned;
	const char *name = NULL;

	gpu_driver.cuGetErrorName(result, &name);
	util_log(atomic_exchange(&warned, true) ? UTIL_LOG_INFO : UTIL_LOG_WARN, UTIL_SUBSYS_GPU,
		 "the driver does not load the library's kernels (%s): collectives are staged. It "
		 "may have been built for other GPUs (configure --with-cuda-arch) or with a newer "
		 "CUDA than the driver's",
		 name ? name : "an unknown error");
}

/* In the context's scope. A context whose kernels can't be loaded is remembered as such. */
static void load_module(struct module *module, int ordinal)
{
	CUresult result = load_kernels(module);
	CUdevice device;
	int count = 1;

	if (result == CUDA_SUCCESS)
		result = gpu_driver.cuDeviceGet(&device, ordinal);
	if (result == CUDA_SUCCESS)
		result = gpu_driver.cuDeviceGetAttribute(
			&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	if (result == CUDA_SUCCESS)
		module->multiprocessors = (unsigned)count;
	else
		warn(result);
}

/* Under the lock. */
static struct module *find_module(unsigned long long context_id)
{
	struct module *module = modules;

	while (module && module->context_id != context_id)
		module = module->next;
	return module;
}

/* Under the lock. */
static struct module *load_new(const struct gpu_stream *stream)
{
	struct module *module = calloc(1, sizeof(*module));
	struct gpu_scope scope;

	if (!module)
		return NULL;
	module->context_id = gpu_stream_context_id(stream);
	if (gpu_scope_enter(&scope, gpu_stream_where(stream)) == UTIL_OK) {
		load_module(module, gpu_stream_where(stream)->device);
		gpu_scope_leave(&scope);
	}
	module->next = modules;
	modules = module;
	return module;
}

static struct module *find_or_load(const struct gpu_stream *stream)
{
	struct module *module;

	pthread_mutex_lock(&lock);
	module = find_module(gpu_stream_context_id(stream));
	if (!module)
		module = load_new(stream);
	pthread_mutex_unlock(&lock);
	return module;
}

enum util_status gpu_module_launch(struct gpu_stream *stream, enum gpu_kernel kernel,
				   unsigned blocks, unsigned threads, void *args)
{
	struct module *module = find_or_load(stream);
	void *parameters[] = {args};
	struct gpu_scope scope;
	CUresult result;

	if (!module || !module->multiprocessors)
		return UTIL_ERR_UNSUPPORTED;
	if (gpu_scope_enter(&scope, gpu_stream_where(stream)) != UTIL_OK)
		return UTIL_ERR_CUDA;
	result = gpu_driver.cuLaunchKernel(module->functions[kernel], blocks, 1, 1, threads, 1, 1,
					   0, gpu_stream_handle(stream), parameters, NULL);
	gpu_scope_leave(&scope);
	return result == CUDA_SUCCESS ? UTIL_OK : gpu_driver_error(result, "cuLaunchKernel");
}

unsigned gpu_module_multiprocessors(const struct gpu_stream *stream)
{
	struct module *module = find_or_load(stream);

	return module ? module->multiprocessors : 0;
}

void gpu_module_finalize(void)
{
	while (modules) {
		struct module *module = modules;

		modules = module->next;
		free(module);
	}
}
