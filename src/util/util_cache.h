/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UTIL_CACHE_H
#define UTIL_CACHE_H

/* Words that different processes write are kept so far apart. */
enum { UTIL_CACHE_LINE = 64 };

#endif
