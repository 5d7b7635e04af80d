/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules. A kernel of this project's has a twin on the host, which runs in its place; all others,
 * and these as well where CUEMU_KERNELS=ptx, are interpreted. A module's PTX is parsed when a
 * function or a variable is first asked for.
 */
#include "emu_module.h"
#include "emu_fatbin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUmod_st {
	bool has_ptx;
	struct emu_packed *packed; /* NULL: none, or parsed */
	char error[320];
	struct ptx_module *code;
	struct CUfunc_st *functions;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t place_variable(struct ptx_variable *variable)
{
	CUdeviceptr at = 0;
	size_t bytes = variable->bytes ? variable->bytes : 1;
	CUresult result = variable->is_managed ? cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL)
					       : cuMemAlloc(&at, bytes);

	if (result != CUDA_SUCCESS)
		return 0;
	if (variable->initial)
		memcpy(emu_copy_place((uintptr_t)at), variable->initial, variable->bytes);
	else
		memset(emu_copy_place((uintptr_t)at), 0, variable->bytes);
	return (uint64_t)at;
}

static char *read_file(const char *path)
{
	FILE *in = fopen(path, "r");
	char *text = NULL;
	size_t room = 0;

	if (!in)
		return NULL;
	if (getdelim(&text, &room, 0, in) < 0) {
		free(text);
		text = NULL;
	}
	fclose(in);
	return text;
}

/*
 * CUEMU_PTX names a folder: a module whose first kernel is called NAME is replaced by NAME.ptx of
 * that folder, if there is one, for instance what nvcc makes for another architecture.
 */
static char *replace(char *text)
{
	const char *folder = getenv("CUEMU_PTX"), *entry = text ? strstr(text, ".entry ") : NULL;
	char path[1024], *other;

	if (!folder || !*folder || !entry)
		return text;
	entry += strlen(".entry ");
	snprintf(path, sizeof(path), "%s/%.*s.ptx", folder, (int)strcspn(entry, "( \n"), entry);
	other = read_file(path);
	if (!other)
		return text;
	free(text);
	return other;
}

static void parse(CUmodule module)
{
	char *text =
		replace(emu_fatbin_unpack(module->packed, module->error, sizeof(module->error)));

	free(module->packed);
	module->packed = NULL;
	if (text)
		module->code =
			ptx_parse(text, place_variable, module->error, sizeof(module->error));
	free(text);
}

/* Under the lock. */
static const struct ptx_module *code_of(CUmodule module)
{
	if (module->packed)
		parse(module);
	if (!module->code)
		fprintf(stderr, "cuemu: a module can't be used: %s\n", module->error);
	return module->code;
}

static CUresult load(CUmodule *module, const void *image)
{
	CUmodule loaded;

	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	if (!emu_fatbin_is_image(image))
		return CUDA_ERROR_INVALID_IMAGE;
	loaded = calloc(1, sizeof(*loaded));
	if (!loaded)
		return CUDA_ERROR_OUT_OF_MEMORY;
	loaded->packed = emu_fatbin_take(image, loaded->error, sizeof(loaded->error));
	loaded->has_ptx = loaded->packed != NULL;
	*module = loaded;
	return CUDA_SUCCESS;
}

CUresult emu_module_load(CUmodule *module, const struct emu_packed *packed)
{
	CUmodule loaded = calloc(1, sizeof(*loaded));

	if (loaded)
		loaded->packed = emu_fatbin_copy(packed);
	if (!loaded || !loaded->packed) {
		free(loaded);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	loaded->has_ptx = true;
	*module = loaded;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
	EMU_ENTER();
	EMU_UNSAFE();
	return load(module, image);
}

EMU_API CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned num,
					    CUjit_option *options, void **values)
{
	(void)num;
	(void)options;
	(void)values;
	EMU_ENTER();
	EMU_UNSAFE();
	return load(module, image);
}

EMU_API CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	EMU_ENTER();
	EMU_UNSAFE();
	return load(module, image);
}

/* Its variables go with the context, as they may be in use. */
EMU_API CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
	EMU_ENTER();
	EMU_UNSAFE();
	while (module->functions) {
		struct CUfunc_st *function = module->functions;

		module->functions = function->next;
		free(function);
	}
	if (module->code)
		ptx_free(module->code);
	free(module->packed);
	free(module);
	return CUDA_SUCCESS;
}

/* ---- functions ---- */

const char *emu_function_name(const struct CUfunc_st *function)
{
	return function->twin ? function->twin->name : function->kernel->name;
}

/* Under the lock. */
static CUresult add_function(CUmodule module, const char *name, CUfunction *out)
{
	const struct emu_twin *twin = emu_twin_find(name);
	bool interprets = !twin || emu_config.interprets;
	const struct ptx_module *code = interprets ? code_of(module) : NULL;
	const struct ptx_function *kernel = code ? ptx_find_function(code, name) : NULL;
	struct CUfunc_st *function;

	if (interprets && !code)
		return module->has_ptx ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_NOT_FOUND;
	if (interprets && !kernel && ptx_why_not(code, name)) {
		fprintf(stderr, "cuemu: a kernel can't be run: %s\n", ptx_why_not(code, name));
		return CUDA_ERROR_INVALID_PTX;
	}
	if (interprets && (!kernel || !kernel->is_kernel))
		return CUDA_ERROR_NOT_FOUND;
	function = calloc(1, sizeof(*function));
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*function = (struct CUfunc_st){EMU_FUNCTION, module->functions, module, twin, code,
				       kernel,       48 << 10};
	module->functions = function;
	*out = function;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module,
					     const char *name)
{
	CUresult result = CUDA_SUCCESS;

	EMU_ENTER();
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	*function = module->functions;
	while (*function && strcmp(emu_function_name(*function), name))
		*function = (*function)->next;
	if (!*function)
		result = add_function(module, name, function);
	pthread_mutex_unlock(&lock);
	return result;
}

EMU_API CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module,
					   const char *name)
{
	const struct ptx_module *code;
	const struct ptx_variable *variable;

	EMU_ENTER();
	pthread_mutex_lock(&lock);
	code = code_of(module);
	variable = code ? ptx_find_variable(code, name) : NULL;
	pthread_mutex_unlock(&lock);
	if (!code)
		return CUDA_ERROR_INVALID_PTX;
	if (!variable || variable->space == PTX_SHARED)
		return CUDA_ERROR_NOT_FOUND;
	if (address)
		*address = (CUdeviceptr)variable->address;
	if (bytes)
		*bytes = variable->bytes;
	return CUDA_SUCCESS;
}

size_t emu_function_arg_bytes(const struct CUfunc_st *function)
{
	return function->kernel ? function->kernel->param_bytes : function->twin->size;
}

EMU_API CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
					    CUfunction function)
{
	CUresult result;

	EMU_ENTER();
	result = emu_function_of(function, &function);
	if (result != CUDA_SUCCESS)
		return result;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = PTX_MAX_BLOCK;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = function->kernel ? (int)function->kernel->shared_bytes : 0;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = function->kernel ? (int)function->kernel->frame_bytes : 0;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 32;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = (int)function->most_dynamic;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value =
			function->code && function->code->target ? (int)function->code->target : 90;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
		*value = 0;
		break;
	default:
		emu_die("cuFuncGetAttribute: attribute %d is not emulated", (int)attribute);
	}
	return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12030
EMU_API CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction function)
{
	EMU_ENTER();
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (function->kind == EMU_KERNEL)
		return cuKernelGetName(name, (CUkernel)function);
	*name = emu_function_name(function);
	return CUDA_SUCCESS;
}
#endif

EMU_API CUresult CUDAAPI cuFuncGetModule(CUmodule *module, CUfunction function)
{
	CUresult result;

	EMU_ENTER();
	result = emu_function_of(function, &function);
	if (result == CUDA_SUCCESS)
		*module = function->module;
	return result;
}

EMU_API CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
					    int value)
{
	EMU_ENTER();
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (function->kind == EMU_KERNEL)
		return cuKernelSetAttribute(attribute, value, (CUkernel)function, 0);
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value < 0 || value > EMU_MAX_SHARED)
			return CUDA_ERROR_INVALID_VALUE;
		function->most_dynamic = (uint32_t)value;
	}
	return CUDA_SUCCESS;
}
