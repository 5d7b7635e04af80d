/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UTIL_TIME_H
#define UTIL_TIME_H

#include <stdint.h>
#include <time.h>

/* A clock that never jumps, in ns. */
static inline uint64_t util_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
