/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_thread.h"
#include "util/util_log.h"

#include <signal.h>
#include <string.h>

enum util_status util_thread_start(pthread_t *thread, const char *name, void *(*run)(void *))
{
	sigset_t all, old;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "no thread %s: %s", name,
			 strerror(error));
		return UTIL_ERR_SYSTEM;
	}
	pthread_setname_np(*thread, name);
	return UTIL_OK;
}
