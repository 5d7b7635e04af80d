/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_thread.h"
#include "util/util_log.h"

#include <signal.h>
#include <string.h>

enum util_status util_thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
				   void *argument)
{
	/* A fault of the thread's own ends the process silently where its signal is blocked. */
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
	sigset_t others, old;
	int error;

	sigfillset(&others);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&others, faults[i]);
	pthread_sigmask(SIG_SETMASK, &others, &old);
	error = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "no thread %s: %s", name,
			 strerror(error));
		return UTIL_ERR_SYSTEM;
	}
	pthread_setname_np(*thread, name);
	return UTIL_OK;
}
