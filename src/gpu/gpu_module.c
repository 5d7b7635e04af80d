/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_module.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdlib.h>

/* The fatbin as the build made it, 16-byte aligned as the driver wants it. */
__asm__(".section .rodata\n"
	".balign 16\n"
	"gpu_module_image:\n"
	".incbin \"gpu_kernels.fatbin\"\n"
	".previous\n");
extern const char gpu_module_image[];

static const char *const names[GPU_KERNEL_NUM] = {[GPU_KERNEL_COPY_RUNS] = "gpu_copy_runs"};

struct module {
	struct module *next;
	unsigned long long context_id;
	bool usable;
	CUfunction functions[GPU_KERNEL_NUM];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct module *modules; /* under the lock; entries do not change once they are in the list */

/* In the context's scope. A context whose module can't be loaded is remembered as such. */
static void load(struct module *module)
{
	CUmodule handle;
	CUresult result = gpu_driver.cuModuleLoadData(&handle, gpu_module_image);

	for (int i = 0; i < GPU_KERNEL_NUM && result == CUDA_SUCCESS; i++)
		result = gpu_driver.cuModuleGetFunction(&module->functions[i], handle, names[i]);
	module->usable = result == CUDA_SUCCESS;
	if (!module->usable)
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_GPU,
			 "the kernels can't be loaded (%d); the driver's copies are used instead",
			 (int)result);
}

/* In the context's scope. */
static struct module *find_or_load(unsigned long long context_id)
{
	struct module *module;

	pthread_mutex_lock(&lock);
	for (module = modules; module && module->context_id != context_id; module = module->next)
		;
	if (!module && (module = calloc(1, sizeof(*module)))) {
		module->context_id = context_id;
		load(module);
		module->next = modules;
		modules = module;
	}
	pthread_mutex_unlock(&lock);
	return module;
}

enum util_status gpu_module_launch(struct gpu_stream *stream, enum gpu_kernel kernel,
				   unsigned blocks, unsigned threads, void *args)
{
	void *parameters[] = {args};
	enum util_status status = UTIL_ERR_UNSUPPORTED;
	struct gpu_scope scope;
	struct module *module;
	CUresult result;

	if (gpu_scope_enter(&scope, gpu_stream_where(stream)) != UTIL_OK)
		return UTIL_ERR_CUDA;
	module = find_or_load(gpu_stream_context_id(stream));
	if (module && module->usable) {
		result = gpu_driver.cuLaunchKernel(module->functions[kernel], blocks, 1, 1, threads,
						   1, 1, 0, gpu_stream_handle(stream), parameters,
						   NULL);
		status = result == CUDA_SUCCESS ? UTIL_OK
						: gpu_driver_error(result, "cuLaunchKernel");
	}
	gpu_scope_leave(&scope);
	return status;
}

void gpu_module_finalize(void)
{
	while (modules) {
		struct module *module = modules;

		modules = module->next;
		free(module);
	}
}
