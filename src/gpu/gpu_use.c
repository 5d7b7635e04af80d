/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_use.h"
#include "gpu/gpu_driver.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool may_load = true;

/* An object of the process. */
struct object {
	char name[64];             /* of its file; "" of the program itself */
	const ElfW(Dyn) * dynamic; /* looked at only of what can't be unloaded */
	const char *strings;       /* of its symbols and of what it needs */
	bool is_own, loads_others;
	bool is_known; /* it comes with this library: no part of the program */
};

enum { MOST_OBJECTS = 512 };
struct objects {
	int num;
	struct object all[MOST_OBJECTS];
};

/* With the NUL: a string may be kept as the end of a longer one. */
static bool has_string(const char *strings, size_t bytes, const char *string)
{
	return strings && memmem(strings, bytes, string, strlen(string) + 1);
}

static void read_dynamic(struct object *object, const ElfW(Dyn) * dynamic, ElfW(Addr) base)
{
	size_t bytes = 0;

	object->dynamic = dynamic;
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		ElfW(Addr) at = dynamic->d_un.d_ptr;

		/* The C library makes addresses of the file's offsets where it may write. */
		if (dynamic->d_tag == DT_STRTAB)
			object->strings = (const char *)(at < base ? base + at : at);
		else if (dynamic->d_tag == DT_STRSZ)
			bytes = dynamic->d_un.d_val;
	}
	object->loads_others = has_string(object->strings, bytes, "dlopen") ||
			       has_string(object->strings, bytes, "dlmopen") ||
			       has_string(object->strings, bytes, "__libc_dlopen_mode");
}

/* Under the dynamic linker's lock. */
static int read_object(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	struct objects *objects = argument;
	struct object *object = &objects->all[objects->num];

	(void)size;
	/* What the kernel brings (the vDSO) has no path. */
	if (objects->num == MOST_OBJECTS || (*info->dlpi_name && !slash))
		return objects->num == MOST_OBJECTS;
	objects->num++;
	*object = (struct object){.dynamic = NULL};
	snprintf(object->name, sizeof(object->name), "%s", slash ? slash + 1 : "");
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + header->p_vaddr;

		if (header->p_type == PT_DYNAMIC)
			read_dynamic(object, (const ElfW(Dyn) *)start, info->dlpi_addr);
		if (header->p_type == PT_LOAD && (uintptr_t)&may_load - start < header->p_memsz)
			object->is_own = true;
	}
	return 0;
}

/*
 * What runs code on GPUs. The MPI, or hwloc, may need it, as the program may, which calls nothing
 * itself then.
 */
static bool is_for_gpus(const char *name)
{
	static const char *const begins[] = {"libcu",  "libnv",   "libOpenCL",
					     "libacc", "libgomp", "libomp"};

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return true;
	}
	return false;
}

/* This object, and what it needs, come with this library. */
static void know(struct objects *objects, struct object *object)
{
	if (object->is_known || is_for_gpus(object->name))
		return;
	object->is_known = true;
	for (const ElfW(Dyn) *entry = object->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag != DT_NEEDED || !object->strings)
			continue;
		for (int i = 0; i < objects->num; i++) {
			if (!strcmp(objects->all[i].name, object->strings + entry->d_un.d_val))
				know(objects, &objects->all[i]);
		}
	}
}

void gpu_use_look(void)
{
	static struct objects objects;
	bool loads = false;

	objects.num = 0;
	dl_iterate_phdr(read_object, &objects);
	for (int i = 0; i < objects.num; i++) {
		if (objects.all[i].is_own)
			know(&objects, &objects.all[i]);
	}
	for (int i = 0; i < objects.num; i++)
		loads |= !objects.all[i].is_known && objects.all[i].loads_others;
	may_load = loads || objects.num == MOST_OBJECTS;
}

bool gpu_use_may_come(void)
{
	return may_load || gpu_driver_present();
}
