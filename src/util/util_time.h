/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UTIL_TIME_H
#define UTIL_TIME_H

#include <stdint.h>
#include <time.h>

/* In ns, as a constant. */
#define UTIL_SECONDS(seconds) ((uint64_t)(seconds)*1000000000)

/* A clock that never jumps, in ns. */
static inline uint64_t util_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return UTIL_SECONDS(now.tv_sec) + (uint64_t)now.tv_nsec;
}

#endif
