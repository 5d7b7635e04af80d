/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process, rank 1, that reads rates of 16 GB/s as 17: the texts that others sent it are as if
 * they had come otherwise.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FILE *fmemopen(void *text, size_t bytes, const char *mode)
{
	FILE *(*real)(void *, size_t, const char *) = NULL;
	const char *rank = getenv("PMI_RANK");
	char *other;

	*(void **)&real = dlsym(RTLD_NEXT, "fmemopen");
	rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
	if (!rank || strcmp(rank, "1") || strncmp(text, "gpucoll-machine", 15))
		return real(text, bytes, mode);
	other = strndup(text, bytes); /* lives as long as the process */
	for (char *at = other; at && (at = strstr(at, "rate=16")); at++)
		at[6] = '7';
	return real(other, bytes, mode);
}
