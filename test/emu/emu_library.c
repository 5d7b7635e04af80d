/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries of CUDA 12: an image that is loaded into no context, but into each in which one of its
 * kernels is first launched, or asked about.
 */
#include "emu_fatbin.h"
#include "emu_module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUkern_st {
	enum emu_handle kind; /* EMU_KERNEL: a launch takes one as a function */
	struct CUkern_st *next;
	CUlibrary library;
	char *name;
	bool says_most; /* somebody has said how much dynamic memory there may be */
	uint32_t most_dynamic;
};

/* In a context. */
struct instance {
	struct instance *next;
	unsigned long long context;
	CUmodule module;
};

struct CUlib_st {
	struct emu_packed *packed;
	struct CUkern_st *kernels; /* in the image's order */
	unsigned num_kernels;
	struct instance *instances; /* under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- loading ---- */

static bool add_kernel(CUlibrary library, struct CUkern_st ***end, const char *name, size_t length)
{
	struct CUkern_st *kernel = calloc(1, sizeof(*kernel));

	if (!kernel)
		return false;
	*kernel = (struct CUkern_st){EMU_KERNEL, NULL, library, strndup(name, length), false, 0};
	**end = kernel;
	*end = &kernel->next;
	library->num_kernels++;
	return kernel->name;
}

static bool find_kernels(CUlibrary library)
{
	static const char word[] = ".entry ";
	struct CUkern_st **end = &library->kernels;
	char error[320], *text = emu_fatbin_unpack(library->packed, error, sizeof(error));
	bool enough = true;

	if (!text)
		fprintf(stderr, "cuemu: a library can't be used: %s\n", error);
	for (const char *at = text; at && enough && (at = strstr(at, word));) {
		at += sizeof(word) - 1;
		enough = add_kernel(library, &end, at, strcspn(at, "( \n\t"));
	}
	free(text);
	return text && enough;
}

static void free_library(CUlibrary library)
{
	struct CUkern_st *kernel;

	while ((kernel = library->kernels)) {
		library->kernels = kernel->next;
		free(kernel->name);
		free(kernel);
	}
	free(library->packed);
	free(library);
}

static CUresult load(CUlibrary *out, const void *image)
{
	char error[320] = "";
	CUlibrary library;

	if (!image || !out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!emu_fatbin_is_image(image))
		return CUDA_ERROR_INVALID_IMAGE;
	library = calloc(1, sizeof(*library));
	if (!library)
		return CUDA_ERROR_OUT_OF_MEMORY;
	library->packed = emu_fatbin_take(image, error, sizeof(error));
	if (!library->packed || !find_kernels(library)) {
		if (*error)
			fprintf(stderr, "cuemu: a library can't be used: %s\n", error);
		free_library(library);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*out = library;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *code,
					   CUjit_option *jit_options, void **jit_values,
					   unsigned num_jit, CUlibraryOption *options,
					   void **values, unsigned num)
{
	(void)jit_options;
	(void)jit_values;
	(void)num_jit;
	(void)options;
	(void)values;
	(void)num;
	EMU_ENTER();
	return load(library, code);
}

EMU_API CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *library, const char *path,
					       CUjit_option *jit_options, void **jit_values,
					       unsigned num_jit, CUlibraryOption *options,
					       void **values, unsigned num)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	FILE *file = fopen(path, "rb");
	char *image = NULL;
	long bytes;

	(void)jit_options;
	(void)jit_values;
	(void)num_jit;
	(void)options;
	(void)values;
	(void)num;
	EMU_ENTER();
	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (!fseek(file, 0, SEEK_END) && (bytes = ftell(file)) > 0) {
		rewind(file);
		image = calloc(1, (size_t)bytes + 16); /* text ends with 0 */
		if (image && fread(image, 1, (size_t)bytes, file) == (size_t)bytes)
			result = load(library, image);
	}
	fclose(file);
	free(image);
	return result;
}

EMU_API CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
	struct instance *instance;

	EMU_ENTER();
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	while ((instance = library->instances)) {
		library->instances = instance->next;
		cuModuleUnload(instance->module);
		free(instance);
	}
	free_library(library);
	return CUDA_SUCCESS;
}

/* ---- in the current context ---- */

/* Under the lock. */
static CUresult add_instance(CUlibrary library, CUmodule *module)
{
	struct instance *instance = calloc(1, sizeof(*instance));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (instance)
		result = emu_module_load(&instance->module, library->packed);
	if (result != CUDA_SUCCESS) {
		free(instance);
		return result;
	}
	instance->context = emu_current()->id;
	instance->next = library->instances;
	library->instances = instance;
	*module = instance->module;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	CUcontext context = emu_current();
	CUresult result = CUDA_SUCCESS;
	struct instance *instance;

	EMU_ENTER();
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	for (instance = library->instances; instance && instance->context != context->id;)
		instance = instance->next;
	if (instance)
		*module = instance->module;
	else
		result = add_instance(library, module);
	pthread_mutex_unlock(&lock);
	return result;
}

EMU_API CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
					    const char *name)
{
	CUmodule module;
	CUresult result;

	EMU_ENTER();
	result = cuLibraryGetModule(&module, library);
	return result == CUDA_SUCCESS ? cuModuleGetGlobal(address, bytes, module, name) : result;
}

EMU_API CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
					     const char *name)
{
	EMU_ENTER();
	return cuLibraryGetGlobal(address, bytes, library, name);
}

/* ---- kernels ---- */

EMU_API CUresult CUDAAPI cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	EMU_ENTER();
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	*kernel = library->kernels;
	while (*kernel && strcmp((*kernel)->name, name))
		*kernel = (*kernel)->next;
	return *kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#if CUDA_VERSION >= 12040
EMU_API CUresult CUDAAPI cuLibraryGetKernelCount(unsigned *num, CUlibrary library)
{
	EMU_ENTER();
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	*num = library->num_kernels;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel *kernels, unsigned num,
						   CUlibrary library)
{
	CUkernel kernel;

	EMU_ENTER();
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = library->kernels;
	for (unsigned i = 0; i < num && kernel; i++, kernel = kernel->next)
		kernels[i] = kernel;
	return CUDA_SUCCESS;
}
#endif

EMU_API CUresult CUDAAPI cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUmodule module;
	CUresult result;

	EMU_ENTER();
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	result = cuLibraryGetModule(&module, kernel->library);
	if (result == CUDA_SUCCESS)
		result = cuModuleGetFunction(function, module, kernel->name);
	if (result == CUDA_SUCCESS && kernel->says_most)
		(*function)->most_dynamic = kernel->most_dynamic;
	return result;
}

CUresult emu_function_of(CUfunction handle, CUfunction *function)
{
	if (!handle)
		return CUDA_ERROR_INVALID_HANDLE;
	*function = handle;
	return handle->kind == EMU_KERNEL ? cuKernelGetFunction(function, (CUkernel)handle)
					  : CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12050
EMU_API CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
	EMU_ENTER();
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	*library = kernel->library;
	return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 12030
EMU_API CUresult CUDAAPI cuKernelGetName(const char **name, CUkernel kernel)
{
	EMU_ENTER();
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = kernel->name;
	return CUDA_SUCCESS;
}
#endif

/* All devices are alike, so the current context's tells of each. */
EMU_API CUresult CUDAAPI cuKernelGetAttribute(int *value, CUfunction_attribute attribute,
					      CUkernel kernel, CUdevice device)
{
	CUfunction function;
	CUresult result;

	(void)device;
	EMU_ENTER();
	result = cuKernelGetFunction(&function, kernel);
	return result == CUDA_SUCCESS ? cuFuncGetAttribute(value, attribute, function) : result;
}

EMU_API CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value,
					      CUkernel kernel, CUdevice device)
{
	(void)device;
	EMU_ENTER();
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		return CUDA_SUCCESS;
	if (value < 0 || value > EMU_MAX_SHARED)
		return CUDA_ERROR_INVALID_VALUE;
	kernel->says_most = true;
	kernel->most_dynamic = (uint32_t)value;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config,
						CUdevice device)
{
	(void)config;
	(void)device;
	EMU_ENTER();
	return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
