/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the library's own. */
#ifndef UTIL_THREAD_H
#define UTIL_THREAD_H

#include "util/util_status.h"

#include <pthread.h>

/*
 * Start a thread that takes none of the application's signals. `name` is what debuggers show, at
 * most 15 characters. An error has been logged. Thread-safe.
 */
enum util_status util_thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
				   void *argument);

#endif
