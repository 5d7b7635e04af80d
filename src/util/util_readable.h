/* SPDX-License-Identifier: BSD-3-Clause */
/* What the CPU may read, asked of the kernel, as a load of one's own may end the process. */
#ifndef UTIL_READABLE_H
#define UTIL_READABLE_H

#include <stdbool.h>

/* Whether a load of a byte at the address would do. Two system calls and more; any thread. */
bool util_may_be_read(const void *address);

#endif
