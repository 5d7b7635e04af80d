/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UTIL_BIND_H
#define UTIL_BIND_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/*
 * Set the pointer to a function at `to` to the library's function of the name. False: it has none.
 */
static inline bool util_bind(void *library, const char *name, void *to)
{
	void *address = dlsym(library, name);

	memcpy(to, &address, sizeof(address));
	return address;
}

#endif
