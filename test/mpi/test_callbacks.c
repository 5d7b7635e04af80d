/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI calls back in the middle of a call, error handlers and copy functions of attributes,
 * calls MPI in turn: collectives of device memory, on all ranks, wherever each comes from.
 *
 *     test_callbacks CASE        one of the names in the table at the end
 */
#include "test.h"

#include "gpucoll/gpucoll.h" /* after mpi.h */

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#pragma weak gpucoll_last_path

enum { COUNT = 5003 };

/* Sums on the device, which are known; whether they are right and not staged. */
static bool sums_are_right(MPI_Comm comm)
{
	struct buffer in = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)),
		      out = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int *mine = malloc(COUNT * sizeof(int)), *sums = malloc(COUNT * sizeof(int)), rank, size;
	bool right;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	for (int i = 0; i < COUNT; i++) {
		mine[i] = i + 3 * rank;
		sums[i] = size * i + 3 * size * (size - 1) / 2;
	}
	buffer_put(&in, mine, COUNT * sizeof(int));
	MPI_Allreduce(in.data, out.data, COUNT, MPI_INT, MPI_SUM, comm);
	right = !gpucoll_last_path || gpucoll_last_path() == GPUCOLL_PATH_ACCEL;
	right &= buffer_equals(&out, sums, "MPI_Allreduce");
	buffer_free(&in);
	buffer_free(&out);
	free(mine);
	free(sums);
	return right;
}

/* Numbers on the device go to the next rank. */
static bool numbers_go_round(MPI_Comm comm)
{
	struct buffer out = buffer_new(PLACE_DEVICE, sizeof(int)),
		      in = buffer_new(PLACE_DEVICE, sizeof(int));
	MPI_Request requests[2];
	MPI_Status statuses[2];
	int rank, size, from;
	bool right;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	from = (rank + size - 1) % size;
	buffer_put(&out, &rank, sizeof(rank));
	MPI_Irecv(in.data, 1, MPI_INT, from, 2, comm, &requests[0]);
	MPI_Isend(out.data, 1, MPI_INT, (rank + 1) % size, 2, comm, &requests[1]);
	MPI_Waitall(2, requests, statuses);
	right = buffer_equals(&in, &from, "MPI_Irecv");
	buffer_free(&out);
	buffer_free(&in);
	return right;
}

static bool all_is_right(MPI_Comm comm)
{
	bool sums = sums_are_right(comm);

	return numbers_go_round(comm) && sums;
}

static MPI_Comm failing, other; /* errors are made on the first one */
static int num_errors;          /* that came to the handler */
static bool all_right;
static jmp_buf before_the_call;
static bool jumps;

static void add_up(MPI_Comm *comm, int *error, ...)
{
	int class;

	MPI_Error_class(*error, &class);
	num_errors++;
	all_right &= *comm == failing || *comm == MPI_COMM_WORLD;
	all_right &= class == MPI_ERR_TRUNCATE;
	all_right &= all_is_right(other);
	all_right &= all_is_right(MPI_COMM_WORLD);
	if (jumps)
		longjmp(before_the_call, 1);
}

static void set_handler(MPI_Comm comm, MPI_Comm_errhandler_function *function)
{
	MPI_Errhandler handler;

	MPI_Comm_create_errhandler(function, &handler);
	MPI_Comm_set_errhandler(comm, handler);
	MPI_Errhandler_free(&handler);
}

static void prepare(const char *what)
{
	snprintf(test_name, sizeof(test_name), "%s", what);
	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	MPI_Comm_dup(MPI_COMM_WORLD, &failing);
	set_handler(failing, add_up);
	set_handler(MPI_COMM_WORLD, add_up); /* where MPICH raises those of MPI_Wait */
	all_right = true;
	num_errors = 0;
	all_right &= all_is_right(other);
}

static void finish(void)
{
	all_right &= all_is_right(other);
	all_right &= all_is_right(MPI_COMM_WORLD);
	test_result(all_right);
	MPI_Comm_free(&failing);
	MPI_Comm_free(&other);
}

static void send_too_much(void)
{
	int two[2] = {1, 2};

	MPI_Send(two, 2, MPI_INT, (test_rank + 1) % test_size, 1, failing);
}

/*
 * Two numbers come to where there is room for one, into memory of the kind. Where all ranks `send`
 * them they come after they are waited for.
 */
static void receive_too_much(enum place place, bool waits, bool send)
{
	struct buffer buffer = buffer_new(place, sizeof(int));
	MPI_Request request = MPI_REQUEST_NULL;
	int result;

	if (waits)
		MPI_Irecv(buffer.data, 1, MPI_INT, MPI_ANY_SOURCE, 1, failing, &request);
	if (send) {
		MPI_Barrier(failing);
		send_too_much();
	}
	if (waits)
		result = MPI_Wait(&request, MPI_STATUS_IGNORE);
	else
		result = MPI_Recv(buffer.data, 1, MPI_INT, MPI_ANY_SOURCE, 1, failing,
				  MPI_STATUS_IGNORE);
	all_right &= result != MPI_SUCCESS;
	buffer_free(&buffer);
}

/* Of messages: blocking ones, and the end of others. */
static void handler(void)
{
	prepare("collectives in an error handler");
	for (int i = 0; i < 4; i++)
		receive_too_much(i % 2 ? PLACE_DEVICE : PLACE_HOST, i / 2, true);
	all_right &= num_errors == 4;
	finish();
}

/* The last rank's come from its handler, the others' from the program. */
static void handler_of_some(void)
{
	prepare("collectives in the error handler of one rank");
	for (int i = 0; i < 4; i++) {
		if ((test_rank + 1) % test_size == test_size - 1)
			send_too_much();
		if (test_rank == test_size - 1) {
			receive_too_much(i % 2 ? PLACE_DEVICE : PLACE_HOST, i / 2, false);
			continue;
		}
		all_right &= all_is_right(other);
		all_right &= all_is_right(MPI_COMM_WORLD);
	}
	finish();
}

/* Of a collective on host and on device memory. */
static void handler_of_collective(void)
{
	int two[2] = {1, 2};

	prepare("collectives in the error handler of a collective");
	for (int i = 0; i < 2; i++) {
		struct buffer buffer = buffer_new(i ? PLACE_DEVICE : PLACE_HOST, sizeof(int));

		MPI_Allgather(two, 2, MPI_INT, buffer.data, 1, MPI_INT, failing);
		buffer_free(&buffer);
	}
	all_right &= num_errors == 2;
	finish();
}

/* The handler leaves the call by a jump after its own calls. */
static void handler_jumps(void)
{
	prepare("an error handler that jumps after collectives");
	jumps = true;
	for (volatile int i = 0; i < 4; i++) {
		if (setjmp(before_the_call))
			continue;
		receive_too_much(i % 2 ? PLACE_DEVICE : PLACE_HOST, i / 2, true);
		MPI_Abort(MPI_COMM_WORLD, 4);
	}
	all_right &= num_errors == 4;
	finish();
}

static MPI_Comm innermost; /* whose errors leave by a jump what calls on it */

static void jump(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	longjmp(before_the_call, 1);
}

static void fail_inside(void)
{
	int number;

	if (setjmp(before_the_call))
		return;
	MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, innermost, MPI_STATUS_IGNORE);
	MPI_Abort(MPI_COMM_WORLD, 4);
}

/* Catches an error of its own. */
static void fail_and_add_up(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	num_errors++;
	fail_inside();
	all_right &= all_is_right(other);
}

static void open_innermost(void)
{
	int two[2] = {1, 2};

	MPI_Comm_dup(MPI_COMM_WORLD, &innermost);
	set_handler(innermost, jump);
	MPI_Send(two, 2, MPI_INT, (test_rank + 1) % test_size, 1, innermost);
}

/* Requests in all places of a table, if their handles are kept in one. */
static void make_requests(void)
{
	enum { NUM = 1024 };
	MPI_Request *requests = malloc(NUM * sizeof(*requests)), sending;
	int *numbers = malloc(NUM * sizeof(*numbers));
	int next = (test_rank + 1) % test_size, before = (test_rank + test_size - 1) % test_size;

	for (int i = 0; i < NUM; i++)
		MPI_Irecv(&numbers[i], 1, MPI_INT, before, i, other, &requests[i]);
	for (int i = 0; i < NUM; i++) {
		MPI_Isend(&i, 1, MPI_INT, next, i, other, &sending);
		MPI_Wait(&sending, MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < NUM; i++) {
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		all_right &= numbers[i] == i;
	}
	free(requests);
	free(numbers);
}

/* One that is left by a jump in another, among requests that stay. */
static void handler_in_handler(void)
{
	struct buffer in = buffer_new(PLACE_DEVICE, sizeof(int)),
		      out = buffer_new(PLACE_DEVICE, sizeof(int)),
		      one = buffer_new(PLACE_DEVICE, sizeof(int));
	int sum = test_size * (test_size - 1) / 2;
	MPI_Request requests[2];
	MPI_Status statuses[2];

	prepare("an error handler that catches an error");
	open_innermost();
	set_handler(failing, fail_and_add_up);
	set_handler(MPI_COMM_WORLD, fail_and_add_up);
	buffer_put(&in, &test_rank, sizeof(int));
	MPI_Irecv(one.data, 1, MPI_INT, MPI_ANY_SOURCE, 1, failing, &requests[0]);
	MPI_Barrier(failing);
	send_too_much();
	if (test_rank == 0)
		usleep(300000); /* the others' sums are under way when they come to the error */
	MPI_Iallreduce(in.data, out.data, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, statuses);
	all_right &= num_errors == 1;
	make_requests();
	MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
	all_right &= buffer_equals(&out, &sum, "MPI_Iallreduce");
	MPI_Comm_free(&innermost);
	buffer_free(&in);
	buffer_free(&out);
	buffer_free(&one);
	finish();
}

static void add_up_there(MPI_Comm *comm, int *error, ...)
{
	struct buffer number = buffer_new(PLACE_DEVICE, sizeof(int));
	int one = 1;

	(void)error;
	num_errors++;
	buffer_put(&number, &one, sizeof(one));
	MPI_Allreduce(MPI_IN_PLACE, number.data, 1, MPI_INT, MPI_SUM, *comm);
	all_right &= buffer_equals(&number, &test_size, "MPI_Allreduce");
	buffer_free(&number);
}

/* One rank's call is refused, and its handler makes the one on the communicator that all make. */
static void handler_of_refused(void)
{
	int none = 0;

	prepare("a collective in the handler of its communicator");
	set_handler(failing, add_up_there);
	if (test_rank == 0)
		MPI_Bcast(&none, -1, MPI_INT, 0, failing);
	else
		add_up_there(&failing, &none);
	all_right &= num_errors == 1;
	for (int i = 0; i < 3; i++)
		add_up_there(&failing, &none);
	finish();
}

static ucontext_t whole, coroutine;

static void left_by_a_jump(void)
{
	fail_inside();
	all_right &= sums_are_right(other);
}

static void after_it(void)
{
	all_right &= numbers_go_round(other);
}

static void run_on(char *stack, size_t bytes, void (*run)(void))
{
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = bytes;
	coroutine.uc_link = &whole;
	makecontext(&coroutine, run, 0);
	swapcontext(&whole, &coroutine);
}

/* The stack on which a handler jumped is no memory any more, after another call on it or none. */
static void handler_in_coroutine(void)
{
	enum { STACK = 1 << 18 };

	prepare("an error handler that jumps in a coroutine");
	for (int i = 0; i < 2; i++) {
		char *stacks = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		open_innermost();
		run_on(stacks + STACK, STACK, i ? fail_inside : left_by_a_jump);
		munmap(stacks + STACK, STACK);
		run_on(stacks, STACK, after_it);
		munmap(stacks, STACK);
		MPI_Comm_free(&innermost);
	}
	finish();
}

enum { LEVELS = 20 };
static int level;

static void fail_deeper(MPI_Comm *comm, int *error, ...)
{
	int number;

	(void)error;
	num_errors++;
	all_right &= sums_are_right(other);
	if (++level < LEVELS)
		MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, *comm, MPI_STATUS_IGNORE);
	all_right &= all_is_right(other);
}

/* Each in the one before. */
static void handlers_in_handlers(void)
{
	int number;

	prepare("error handlers in each other");
	set_handler(failing, fail_deeper);
	for (int i = 0; i < LEVELS; i++)
		send_too_much();
	MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 1, failing, MPI_STATUS_IGNORE);
	all_right &= num_errors == LEVELS;
	finish();
}

/* The attribute: a communicator of the same ranks, of which a copy gets a copy of its own. */
static int copy_inner(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
	MPI_Comm *inner = malloc(sizeof(*inner));

	(void)keyval;
	(void)extra;
	all_right &= all_is_right(comm);
	MPI_Comm_dup(*(MPI_Comm *)value, inner);
	all_right &= all_is_right(*inner);
	*(void **)copy = inner;
	*flag = 1;
	return MPI_SUCCESS;
}

static int delete_inner(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm;
	(void)keyval;
	(void)extra;
	all_right &= all_is_right(*(MPI_Comm *)value);
	MPI_Comm_free(value);
	free(value);
	return MPI_SUCCESS;
}

static MPI_Comm copy_by(int way)
{
	MPI_Request request;
	MPI_Comm copy;

	if (way == 0) {
		MPI_Comm_dup(other, &copy);
	} else if (way == 1) {
		MPI_Comm_dup_with_info(other, MPI_INFO_NULL, &copy);
	} else {
		MPI_Comm_idup(other, &copy, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	return copy;
}

static void copy_function(void)
{
	MPI_Comm *inner = malloc(sizeof(*inner)), copy;
	int keyval;

	prepare("collectives in the copy function of an attribute");
	MPI_Comm_create_keyval(copy_inner, delete_inner, &keyval, NULL);
	MPI_Comm_dup(MPI_COMM_WORLD, inner);
	MPI_Comm_set_attr(other, keyval, inner);
	for (int way = 0; way < 3; way++) {
		copy = copy_by(way);
		all_right &= all_is_right(copy);
		all_right &= all_is_right(other);
		MPI_Comm_free(&copy);
	}
	MPI_Comm_free_keyval(&keyval);
	finish();
}

static bool refuses;
static MPI_Comm made;

static int refuse_once(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
	(void)comm;
	(void)keyval;
	(void)extra;
	*(void **)copy = value;
	*flag = 1;
	return refuses ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void make_anew(MPI_Comm *comm, int *error, ...)
{
	(void)error;
	refuses = false;
	if (test_rank == 0)
		MPI_Comm_dup(*comm, &made);
}

/* The handler of the constructor makes it anew, or the program after that. */
static void copy_again(void)
{
	MPI_Comm copy;
	int keyval;

	prepare("a communicator is copied in the handler of its copying");
	MPI_Comm_create_keyval(refuse_once, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
	MPI_Comm_set_attr(failing, keyval, &keyval);
	set_handler(failing, make_anew);
	refuses = true;
	all_right &= MPI_Comm_dup(failing, &copy) != MPI_SUCCESS && !refuses;
	if (test_rank)
		MPI_Comm_dup(failing, &made);
	all_right &= all_is_right(made);
	MPI_Comm_free(&made);
	MPI_Comm_free_keyval(&keyval);
	finish();
}

static MPI_Comm twin; /* what the copy function has made */
static bool makes_twin;

static int copy_once(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
	(void)keyval;
	(void)extra;
	if (makes_twin) {
		makes_twin = false;
		PMPI_Comm_dup(comm, &twin);
	}
	*(void **)copy = value;
	*flag = 1;
	return MPI_SUCCESS;
}

/* As a tool would, of which there is none. */
static void copy_by_other_name(void)
{
	MPI_Comm copy;
	int keyval;

	prepare("a copy function copies by the other name");
	MPI_Comm_create_keyval(copy_once, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
	MPI_Comm_set_attr(failing, keyval, &keyval);
	makes_twin = true;
	MPI_Comm_dup(failing, &copy);
	all_right &= all_is_right(twin);
	all_right &= all_is_right(copy);
	MPI_Comm_free(&twin);
	MPI_Comm_free(&copy);
	MPI_Comm_free_keyval(&keyval);
	finish();
}

static const struct test_case cases[] = {
	{"handler", handler},
	{"handler_of_some", handler_of_some},
	{"handler_of_collective", handler_of_collective},
	{"handler_jumps", handler_jumps},
	{"handler_in_handler", handler_in_handler},
	{"handlers_in_handlers", handlers_in_handlers},
	{"handler_of_refused", handler_of_refused},
	{"handler_in_coroutine", handler_in_coroutine},
	{"copy_function", copy_function},
	{"copy_again", copy_again},
	{"copy_by_other_name", copy_by_other_name},
};

int main(int argc, char **argv)
{
	/* With threads a jump out of MPICH leaves its lock behind. */
	MPI_Init(&argc, &argv);
	test_start();
	return test_run_case(argv[1], cases, sizeof(cases) / sizeof(cases[0]));
}
