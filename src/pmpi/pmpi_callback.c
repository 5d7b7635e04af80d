/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Error handlers of the application, which MPI calls inside the call that fails. What they call is
 * the application's: a collective is counted as any other, since other ranks may make it from
 * elsewhere, and its buffers may be on the device. So MPI is given functions of ours, which step
 * out of the call (pmpi_call.h). MPI tells a handler nothing that could lead to the application's
 * function but by which it calls: there is one of ours for each.
 */
#include "pmpi/pmpi_call.h"

#include <pthread.h>
#include <stdarg.h>

/*
 * Of a communicator, a window, a file or a session. What comes behind is the MPI's own: Open MPI
 * passes two more pointers, MPICH none that means anything.
 */
typedef void handler(void *object, int *error, ...);

enum { NUM_HANDLERS = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handler *handlers[NUM_HANDLERS]; /* once set they stay. Under the lock until MPI has ours */

static __attribute__((noinline)) void call_back(handler *function, void *object, int *error,
						va_list more)
{
	void *first = va_arg(more, void *), *second = va_arg(more, void *);
	struct pmpi_outer outer;

	/*
	 * A call of the queue's is made for the application, which is elsewhere, and holds what
	 * others on the communicator wait for.
	 */
	if (!pmpi_depth || core_drive_holds) {
		function(object, error, first, second);
		return;
	}
	outer = pmpi_step_out(MPI_COMM_NULL);
	function(object, error, first, second);
	pmpi_step_in(&outer);
}

/* clang-format off */
#define HANDLERS(ROW) \
	ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) \
	ROW(8) ROW(9) ROW(10) ROW(11) ROW(12) ROW(13) ROW(14) ROW(15) \
	ROW(16) ROW(17) ROW(18) ROW(19) ROW(20) ROW(21) ROW(22) ROW(23) \
	ROW(24) ROW(25) ROW(26) ROW(27) ROW(28) ROW(29) ROW(30) ROW(31)
/* clang-format on */

#define ROW(number)                                                                                \
	static void handler_##number(void *object, int *error, ...)                                \
	{                                                                                          \
		va_list more;                                                                      \
                                                                                                   \
		va_start(more, error);                                                             \
		call_back(handlers[number], object, error, more);                                  \
		va_end(more);                                                                      \
	}
HANDLERS(ROW)
#undef ROW

static handler *const ours[NUM_HANDLERS] = {
#define ROW(number) handler_##number,
	HANDLERS(ROW)
#undef ROW
};

/* The one of ours that calls the function. The function itself: it is ours, or there is no more. */
static handler *find(handler *function)
{
	int i = 0;

	for (int j = 0; j < NUM_HANDLERS; j++)
		if (ours[j] == function)
			return function;
	while (i < NUM_HANDLERS && handlers[i] && handlers[i] != function)
		i++;
	if (i == NUM_HANDLERS)
		return function;
	handlers[i] = function;
	return ours[i];
}

pmpi_function *pmpi_handler_for(pmpi_function *function)
{
	handler *found;

	if (!function)
		return NULL;
	pthread_mutex_lock(&lock);
	found = find((handler *)function);
	pthread_mutex_unlock(&lock);
	return (pmpi_function *)found;
}
