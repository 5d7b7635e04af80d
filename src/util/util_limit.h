/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits that a process is to know before it runs into them. */
#ifndef UTIL_LIMIT_H
#define UTIL_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/*
 * Whether a file, also one in memory, may have so many bytes (ulimit -f): making it larger would
 * end the process by SIGXFSZ. False with errno EFBIG.
 */
static inline bool util_file_may_have(size_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= bytes)
		return true;
	errno = EFBIG;
	return false;
}

#endif
