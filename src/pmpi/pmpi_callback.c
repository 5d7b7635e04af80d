/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI calls back in the middle of a call is the application's, and so is what that calls: a
 * collective is counted as any other, since other ranks may make it from elsewhere, and its buffers
 * may be on the device. Around copy functions of attributes the constructor's wrapper steps out of
 * its call. Error handlers may be called in any: so MPI is given functions of ours. It tells a
 * handler nothing that could lead to the application's function but by which it calls: there is one
 * of ours for each.
 */
#include "pmpi/pmpi_call.h"
#include "util/util_readable.h"

#include <pthread.h>
#include <stdarg.h>

/* ---- who is called back ---- */

/* Those that this thread is in, the innermost one last. */
enum { MOST_CALLBACKS = 16 };
static _Thread_local struct {
	int num;
	struct callback {
		const char *frame; /* of ours, around it */
		const void *ret;   /* what that one returns to */
		MPI_Comm copied;
	} all[MOST_CALLBACKS];
} callbacks __attribute__((tls_model("initial-exec")));

static void set_num(int num)
{
	callbacks.num = num;
	core_called_back = num > 0;
}

/* A coroutine's stack may be no memory any more. */
static bool is_left(const struct callback *one, const char *here)
{
	return !util_may_be_read(one->frame + sizeof(void *)) ||
	       pmpi_is_left(here, one->frame, one->ret);
}

bool pmpi_look_back(const char *here)
{
	int num = callbacks.num;

	while (num && is_left(&callbacks.all[num - 1], here))
		num--;
	set_num(num);
	return num > 0;
}

bool pmpi_is_copied(MPI_Comm comm)
{
	struct callback *last;

	if (!pmpi_is_called_back())
		return false;
	last = &callbacks.all[callbacks.num - 1];
	if (last->copied != comm)
		return false;
	last->copied = MPI_COMM_NULL;
	return true;
}

struct pmpi_outer pmpi_step_out(MPI_Comm copied, char *frame, void *ret)
{
	struct pmpi_outer outer = {.depth = pmpi_depth,
				   .door = pmpi_door,
				   .frame = pmpi_frame,
				   .ret = pmpi_return,
				   .callbacks = callbacks.num,
				   .message_passes = core_message_passes,
				   .last_path = core_last_path};

	if (callbacks.num < MOST_CALLBACKS) { /* in more the jumps out of them are not seen */
		callbacks.all[callbacks.num] = (struct callback){frame, ret, copied};
		set_num(callbacks.num + 1);
	}
	pmpi_depth = 0;
	core_message_passes = false;
	return outer;
}

void pmpi_step_in(const struct pmpi_outer *outer)
{
	set_num(outer->callbacks);
	pmpi_depth = outer->depth;
	pmpi_door = outer->door;
	pmpi_frame = outer->frame;
	pmpi_return = outer->ret;
	core_message_passes = outer->message_passes;
	core_last_path = outer->last_path;
}

/* ---- error handlers ---- */

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
	 * others on the communicator wait for. Where there is no call to step out of, a constructor
	 * may have done so.
	 */
	if ((!pmpi_depth && !core_called_back) || core_drive_holds) {
		function(object, error, first, second);
		return;
	}
	outer = pmpi_step_out(MPI_COMM_NULL, __builtin_frame_address(0),
			      __builtin_return_address(0));
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
