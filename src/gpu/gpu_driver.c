/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_driver.h"
#include "util/util_log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBCUDA "libcuda.so.1"

struct gpu_driver gpu_driver;
bool gpu_driver_bound;
struct link_map *gpu_driver_last_object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool
	unusable; /* a libcuda that lacks a call we need: said once, then as if it were not there */

/*
 * The two-step stringification lets cuda.h turn cuMemHostRegister into cuMemHostRegister_v2 first.
 */
#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

static const struct {
	const char *symbol;
	size_t offset;
	bool needed;
} calls[] = {
#define ROW(name) {SYMBOL(name), offsetof(struct gpu_driver, name), true},
	GPU_DRIVER_CALLS(ROW)
#undef ROW
#define ROW(name) {SYMBOL(name), offsetof(struct gpu_driver, name), false},
		GPU_DRIVER_NEW_CALLS(ROW)
#undef ROW
};

static bool bind_calls(void *handle)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *address = dlsym(handle, calls[i].symbol);

		if (!address && calls[i].needed) {
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_GPU,
				 "%s lacks %s: the driver is older than CUDA 12.0, device buffers "
				 "are handed to the MPI as they are",
				 LIBCUDA, calls[i].symbol);
			return false;
		}
		memcpy((char *)&gpu_driver + calls[i].offset, &address, sizeof(address));
	}
	return true;
}

/*
 * Under the lock. The handle is kept for ever: its functions may be called until the process ends.
 */
static bool bind_handle(void *handle)
{
	if (!handle || unusable)
		return false;
	if (!bind_calls(handle)) {
		unusable = true;
		return false;
	}
	__atomic_store_n(&gpu_driver_bound, true, __ATOMIC_RELEASE);
	return true;
}

struct last_object {
	struct link_map *map;
	char *name; /* owned; NULL: out of memory */
};

/* dl_iterate_phdr holds the dynamic linker's lock around this, so that the list stands still. */
static int find_last(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct last_object *last = argument;

	(void)info;
	(void)size;
	while (last->map->l_next)
		last->map = last->map->l_next;
	last->name = strdup(last->map->l_name ? last->map->l_name : "");
	return 1;
}

/*
 * Take a reference on the last object so that its link_map stays allocated. The main program, the
 * vdso and such can't be opened by name, nor be unloaded. NULL, so that the next call looks again:
 * the object was unloaded by another thread before it could be taken.
 */
static struct link_map *pin_last_object(void)
{
	void *self = dlopen(NULL, RTLD_LAZY), *handle;
	struct link_map *pinned = NULL;
	struct last_object last = {0};

	if (!self || dlinfo(self, RTLD_DI_LINKMAP, &last.map))
		return NULL;
	dl_iterate_phdr(find_last, &last);
	if (last.name && (!*last.name || !strchr(last.name, '/'))) {
		pinned = last.map;
	} else if (last.name) {
		handle = dlopen(last.name, RTLD_LAZY | RTLD_NOLOAD);
		if (handle && !dlinfo(handle, RTLD_DI_LINKMAP, &pinned) && pinned != last.map)
			pinned = NULL;
	}
	free(last.name);
	dlclose(self);
	return pinned;
}

bool gpu_driver_look(void)
{
	pthread_mutex_lock(&lock);
	if (!gpu_driver_bound) {
		/*
		 * First the list, then the search: what is loaded in between is seen by the next
		 * call.
		 */
		struct link_map *last = pin_last_object();

		if (!bind_handle(dlopen(LIBCUDA, RTLD_LAZY | RTLD_NOLOAD)))
			__atomic_store_n(&gpu_driver_last_object, last, __ATOMIC_RELEASE);
	}
	bool bound = gpu_driver_bound;
	pthread_mutex_unlock(&lock);
	return bound;
}

bool gpu_driver_load(void)
{
	pthread_mutex_lock(&lock);
	bool bound = gpu_driver_bound || bind_handle(dlopen(LIBCUDA, RTLD_LAZY));
	pthread_mutex_unlock(&lock);
	return bound;
}

static bool on_library_path(void)
{
	static const char system_path[] =
		"/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib/aarch64-linux-gnu:"
		"/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/usr/lib:"
		"/usr/lib/wsl/lib:/usr/local/nvidia/lib64";
	const char *paths[] = {getenv("LD_LIBRARY_PATH"), system_path};
	char name[4096];

	for (size_t i = 0; i < 2; i++) {
		for (const char *dir = paths[i]; dir && *dir;) {
			size_t length = strcspn(dir, ":");

			snprintf(name, sizeof(name), "%.*s/%s", (int)length, dir, LIBCUDA);
			if (length && !access(name, F_OK))
				return true;
			dir += length + (dir[length] == ':');
		}
	}
	return false;
}

bool gpu_driver_installed(void)
{
	return gpu_driver_present() || !access("/dev/nvidiactl", F_OK) || on_library_path();
}

enum util_status gpu_driver_error(CUresult result, const char *call)
{
	const char *name = "an unknown error", *text = "";

	gpu_driver.cuGetErrorName(result, &name);
	gpu_driver.cuGetErrorString(result, &text);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_GPU, "%s failed: %s (%d): %s", call, name ? name : "?",
		 (int)result, text ? text : "?");
	return result == CUDA_ERROR_OUT_OF_MEMORY ? UTIL_ERR_NO_MEMORY : UTIL_ERR_CUDA;
}
