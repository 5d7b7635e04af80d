/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules and the functions in them: what a launch runs. */
#ifndef EMU_MODULE_H
#define EMU_MODULE_H

#include "emu.h"
#include "ptx/ptx.h"

/* A kernel's source, compiled for the host. */
struct emu_twin {
	const char *name;
	void (*run)(const void *args);
	size_t size; /* of its arguments */
};

/* NULL: none of this name (emu_kernel.c). */
const struct emu_twin *emu_twin_find(const char *name);

/* What a launch may be given as a function. */
enum emu_handle { EMU_FUNCTION, EMU_KERNEL };

enum { EMU_MAX_SHARED = 227 << 10 };

struct CUfunc_st {
	enum emu_handle kind; /* EMU_FUNCTION */
	struct CUfunc_st *next;
	CUmodule module;
	const struct emu_twin *twin; /* of a kernel of this project's; or NULL */
	const struct ptx_module *code;
	const struct ptx_function *kernel; /* what is interpreted; NULL: the twin runs */
	uint32_t most_dynamic;             /* shared memory that a launch may ask for */
};

/* A library's kernel stands for its function in the current context (emu_library.c). */
CUresult emu_function_of(CUfunction handle, CUfunction *function);

/* The heap of kernels in a context that is the calling thread's. NULL: no memory. */
struct emu_heap *emu_heap_of(CUcontext context);

struct emu_packed;

/* A module of this image, which stays the caller's, in the current context. */
CUresult emu_module_load(CUmodule *module, const struct emu_packed *packed);

const char *emu_function_name(const struct CUfunc_st *function);

/* Bytes of the arguments that a launch passes in one piece. */
size_t emu_function_arg_bytes(const struct CUfunc_st *function);

#endif
