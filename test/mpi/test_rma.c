/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided calls whose origin and result buffers are in device memory: each call, under each way
 * to complete it, compared with arithmetic; and windows on device memory, which are refused.
 *
 *     test_rma calls | windows | threads
 */
#include "test.h"

#include <pthread.h>

enum sync {
	FENCE,
	START_COMPLETE,
	LOCK,
	LOCK_ALL,
	FLUSH,
	FLUSH_ALL,
	FLUSH_LOCAL,
	FLUSH_LOCAL_ALL,
	REQUEST,   /* completed by MPI_Wait */
	FORGOTTEN, /* a request that is completed after the epoch */
	NUM_SYNCS
};

enum operation {
	PUT,
	GET,
	ACCUMULATE,
	GET_ACCUMULATE,
	GET_ACCUMULATE_NO_OP,
	FETCH_AND_OP,
	COMPARE_AND_SWAP,
	NUM_OPERATIONS
};

static const char *const sync_names[NUM_SYNCS] = {"fence",       "start and complete",
						  "lock",        "lock all",
						  "flush",       "flush all",
						  "flush local", "flush local all",
						  "request",     "request after the epoch"};
static const char *const operation_names[NUM_OPERATIONS] = {"put",
							    "get",
							    "accumulate",
							    "get_accumulate",
							    "get_accumulate of nothing",
							    "fetch_and_op",
							    "compare_and_swap"};

enum { ROOM = 4000, HERE = 7 }; /* ints of a window, and at which of them calls begin */

static MPI_Win win;
static int *window;
static int target, origin; /* whom this rank calls, and who calls it */
static MPI_Group target_group, origin_group;

static int old_value(int rank, int i)
{
	return rank * 100000 + i;
}

static int given_value(int rank, int i)
{
	return rank * 1000 + 3 * i + 1;
}

/* ---- epochs ---- */

static void begin(enum sync sync)
{
	switch (sync) {
	case FENCE:
		MPI_Win_fence(0, win);
		break;
	case START_COMPLETE:
		MPI_Win_post(origin_group, 0, win);
		MPI_Win_start(target_group, 0, win);
		break;
	case LOCK:
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		break;
	default:
		MPI_Win_lock_all(0, win);
	}
}

/* After which the call's buffers are the program's again. */
static void complete(enum sync sync, MPI_Request *request)
{
	switch (sync) {
	case FENCE:
		MPI_Win_fence(0, win);
		break;
	case START_COMPLETE:
		MPI_Win_complete(win);
		break;
	case LOCK:
		MPI_Win_unlock(target, win);
		break;
	case LOCK_ALL:
	case FORGOTTEN:
		MPI_Win_unlock_all(win);
		break;
	case FLUSH:
		MPI_Win_flush(target, win);
		break;
	case FLUSH_ALL:
		MPI_Win_flush_all(win);
		break;
	case FLUSH_LOCAL:
		MPI_Win_flush_local(target, win);
		break;
	case FLUSH_LOCAL_ALL:
		MPI_Win_flush_local_all(win);
		break;
	default:
		MPI_Wait(request, MPI_STATUS_IGNORE);
	}
}

/* After which the window's data are there, too. */
static void end(enum sync sync, MPI_Request *request)
{
	if (sync == START_COMPLETE)
		MPI_Win_wait(win);
	if (sync >= FLUSH && sync != FORGOTTEN)
		MPI_Win_unlock_all(win);
	if (*request != MPI_REQUEST_NULL)
		MPI_Wait(request, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- calls ---- */

struct test {
	enum operation operation;
	enum sync sync;
	int count;          /* elements */
	int stride;         /* ints from one to the next in the local buffers */
	MPI_Datatype local; /* of them */
};

static void call(const struct test *t, const void *from, const void *with, void *to,
		 MPI_Request *request)
{
	int n = t->count;
	MPI_Datatype local = t->local;
	bool requests = t->sync >= REQUEST;

	switch (t->operation) {
	case PUT:
		if (requests)
			MPI_Rput(from, 1, local, target, HERE, n, MPI_INT, win, request);
		else
			MPI_Put(from, 1, local, target, HERE, n, MPI_INT, win);
		break;
	case GET:
		if (requests)
			MPI_Rget(to, 1, local, target, HERE, n, MPI_INT, win, request);
		else
			MPI_Get(to, 1, local, target, HERE, n, MPI_INT, win);
		break;
	case ACCUMULATE:
		if (requests)
			MPI_Raccumulate(from, 1, local, target, HERE, n, MPI_INT, MPI_SUM, win,
					request);
		else
			MPI_Accumulate(from, 1, local, target, HERE, n, MPI_INT, MPI_SUM, win);
		break;
	case GET_ACCUMULATE:
		if (requests)
			MPI_Rget_accumulate(from, 1, local, to, 1, local, target, HERE, n, MPI_INT,
					    MPI_SUM, win, request);
		else
			MPI_Get_accumulate(from, 1, local, to, 1, local, target, HERE, n, MPI_INT,
					   MPI_SUM, win);
		break;
	case GET_ACCUMULATE_NO_OP:
		MPI_Get_accumulate(NULL, 0, MPI_INT, to, 1, local, target, HERE, n, MPI_INT,
				   MPI_NO_OP, win);
		break;
	case FETCH_AND_OP:
		MPI_Fetch_and_op(from, to, MPI_INT, target, HERE, MPI_SUM, win);
		break;
	default:
		MPI_Compare_and_swap(from, with, to, MPI_INT, target, HERE, win);
	}
}

static bool writes(enum operation operation)
{
	return operation != GET && operation != GET_ACCUMULATE_NO_OP;
}

static bool reads(enum operation operation)
{
	return operation != PUT && operation != ACCUMULATE;
}

static bool check_window(const struct test *t)
{
	for (int i = 0; i < ROOM; i++) {
		int at = i - HERE, want = old_value(test_rank, i);
		bool replaced = t->operation == PUT || t->operation == COMPARE_AND_SWAP;

		if (writes(t->operation) && at >= 0 && at < t->count)
			want = given_value(origin, at) + (replaced ? 0 : want);
		if (window[i] == want)
			continue;
		fprintf(stderr, "rank %d: %s: window's int %d is %d, expected %d\n", test_rank,
			test_name, i, window[i], want);
		return false;
	}
	return true;
}

static void run(const struct test *t, enum place from_place, enum place to_place)
{
	size_t ints = (size_t)t->count * (size_t)t->stride + 1, bytes = ints * sizeof(int);
	struct buffer from = buffer_new(from_place, bytes), to = buffer_new(to_place, bytes),
		      with = buffer_new(from_place, sizeof(int));
	int *words = malloc(bytes), compare = old_value(target, HERE);
	MPI_Request request = MPI_REQUEST_NULL;
	bool ok;

	snprintf(test_name, sizeof(test_name), "%s, %s, %d elements, stride %d",
		 operation_names[t->operation], sync_names[t->sync], t->count, t->stride);
	for (int i = 0; i < ROOM; i++)
		window[i] = old_value(test_rank, i);
	MPI_Win_fence(0, win);
	memset(words, POISON, bytes);
	for (int i = 0; i < t->count; i++)
		words[i * t->stride] = given_value(test_rank, i);
	buffer_put(&from, words, bytes);
	buffer_put(&with, &compare, sizeof(int));
	begin(t->sync);
	call(t, from.data, with.data, to.data, &request);
	complete(t->sync, &request);
	if (t->sync == FORGOTTEN && request != MPI_REQUEST_NULL)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	ok = buffer_equals(&from, words, "origin");
	memset(words, POISON, bytes);
	for (int i = 0; reads(t->operation) && i < t->count; i++)
		words[i * t->stride] = old_value(target, HERE + i);
	ok &= buffer_equals(&to, words, "result");
	end(t->sync, &request);
	ok &= check_window(t);
	test_result(ok);
	MPI_Win_fence(0, win);
	buffer_free(&from);
	buffer_free(&to);
	buffer_free(&with);
	free(words);
}

/* Of the operations that have one element. */
static bool is_single(enum operation operation)
{
	return operation == FETCH_AND_OP || operation == COMPARE_AND_SWAP;
}

/* MPICH 4.0 completes MPI_Rget into many parts before they are there, on host buffers too. */
static bool has_request(enum operation operation, int stride)
{
#ifdef MPICH
	if (operation == GET && stride > 1)
		return false;
#endif
	(void)stride;
	return operation <= GET_ACCUMULATE;
}

static void run_operation(enum operation operation, enum sync sync)
{
	static const int counts[] = {1, 2, 3001};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		for (int stride = 1; stride < 4; stride += 2) {
			struct test t = {operation, sync, counts[i], stride, MPI_DATATYPE_NULL};

			if ((is_single(operation) && (t.count > 1 || stride > 1)) ||
			    (sync >= REQUEST && !has_request(operation, stride)))
				continue;
			MPI_Type_vector(t.count, 1, stride, MPI_INT, &t.local);
			MPI_Type_commit(&t.local);
			run(&t, PLACE_DEVICE, PLACE_DEVICE);
			run(&t, PLACE_HOST, PLACE_DEVICE);
			run(&t, PLACE_MANAGED, PLACE_HOST);
			MPI_Type_free(&t.local);
		}
	}
}

static void find_groups(void)
{
	MPI_Group world;

	target = (test_rank + 1) % test_size;
	origin = (test_rank + test_size - 1) % test_size;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &target, &target_group);
	MPI_Group_incl(world, 1, &origin, &origin_group);
	MPI_Group_free(&world);
}

/* To nobody, and of nothing. */
static void run_nothing(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	unsigned char want[64];

	snprintf(test_name, sizeof(test_name), "nobody and nothing");
	MPI_Win_fence(0, win);
	MPI_Put(buffer.data, 16, MPI_INT, MPI_PROC_NULL, 0, 16, MPI_INT, win);
	MPI_Get(buffer.data, 16, MPI_INT, MPI_PROC_NULL, 0, 16, MPI_INT, win);
	MPI_Put(buffer.data, 0, MPI_INT, target, 0, 0, MPI_INT, win);
	MPI_Get(buffer.data, 0, MPI_INT, target, 0, 0, MPI_INT, win);
	MPI_Win_fence(0, win);
	memset(want, POISON, sizeof(want));
	test_result(buffer_equals(&buffer, want, "buffer"));
	buffer_free(&buffer);
}

#ifndef MPICH
/*
 * The rest of a buffer that has more room than what is fetched into it is the program's. MPICH
 * fetches as much as there is room for, or crashes, on host buffers too.
 */
static void run_less(int fetched, int stride)
{
	enum { ROOM_HERE = 100 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, ROOM_HERE * sizeof(int));
	int words[ROOM_HERE];
	MPI_Datatype local;
	MPI_Request request;

	snprintf(test_name, sizeof(test_name), "%d elements, stride %d, with room for more",
		 fetched, stride);
	MPI_Type_vector(ROOM_HERE / stride, 1, stride, MPI_INT, &local);
	MPI_Type_commit(&local);
	for (int i = 0; i < ROOM; i++)
		window[i] = old_value(test_rank, i);
	memset(words, POISON, sizeof(words));
	/* Of what comes here no part may be left. */
	buffer_put(&buffer, window, sizeof(words));
	MPI_Win_fence(0, win);
	MPI_Put(buffer.data, ROOM_HERE, MPI_INT, target, ROOM - ROOM_HERE, ROOM_HERE, MPI_INT, win);
	MPI_Win_fence(0, win);
	for (int way = 0; way < 2; way++) {
		buffer_put(&buffer, words, sizeof(words));
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		if (way == 0) {
			MPI_Get(buffer.data, 1, local, target, HERE, fetched, MPI_INT, win);
		} else {
			MPI_Rget(buffer.data, 1, local, target, HERE, fetched, MPI_INT, win,
				 &request);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		}
		MPI_Win_unlock(target, win);
		for (int i = 0; i < fetched; i++)
			words[i * stride] = old_value(target, HERE + i);
		test_result(buffer_equals(&buffer, words, "result"));
		memset(words, POISON, sizeof(words));
	}
	MPI_Type_free(&local);
	buffer_free(&buffer);
}
#endif

static void case_calls(void)
{
	find_groups();
	MPI_Win_allocate(ROOM * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window,
			 &win);
	MPI_Win_fence(0, win);
	for (int operation = 0; operation < NUM_OPERATIONS; operation++) {
		for (int sync = 0; sync < NUM_SYNCS; sync++)
			run_operation((enum operation)operation, (enum sync)sync);
	}
	run_nothing();
#ifndef MPICH
	run_less(50, 1);
	run_less(0, 1);
	run_less(30, 2);
#endif
	MPI_Win_free(&win);
	MPI_Group_free(&target_group);
	MPI_Group_free(&origin_group);
}

/* One rank's device memory makes it an error on all, and host memory is well afterwards. */
static void case_windows(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 4096);
	int host[16] = {0};
	bool ok = true;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int who = 0; who <= test_size; who++) {
		bool mine = who == test_rank || who == test_size;
		int error;

		snprintf(test_name, sizeof(test_name), "a window on device memory, rank %d's", who);
		error = MPI_Win_create(mine ? buffer.data : host, sizeof(host), 1, MPI_INFO_NULL,
				       MPI_COMM_WORLD, &win);
		test_result(error == MPI_ERR_BUFFER);
	}
	snprintf(test_name, sizeof(test_name), "a window on host memory");
	ok &= MPI_Win_create(host, sizeof(host), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win) == 0;
	ok &= MPI_Win_free(&win) == 0;
	ok &= MPI_Win_create(buffer.data, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win) == 0;
	ok &= MPI_Win_free(&win) == 0;
	test_result(ok);
	snprintf(test_name, sizeof(test_name), "device memory attached to a window");
	ok = MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win) == 0;
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	ok &= MPI_Win_attach(win, buffer.data, 64) == MPI_ERR_RMA_ATTACH;
	ok &= MPI_Win_attach(win, host, sizeof(host)) == 0;
	ok &= MPI_Win_detach(win, host) == 0;
	ok &= MPI_Win_free(&win) == 0;
	test_result(ok);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	buffer_free(&buffer);
}

/* Threads whose synchronisations complete each other's calls. */
enum { THREADS = 4, ROUNDS = 200, PART = ROOM / THREADS };

struct thread {
	pthread_t thread;
	int number;
	long wrong;
};

static void *get_and_flush(void *argument)
{
	struct thread *thread = argument;
	int first = thread->number * PART, words[PART], devices = 0;
	struct buffer buffer;

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
	buffer = buffer_new(PLACE_DEVICE, sizeof(words));
	for (int round = 0; round < ROUNDS; round++) {
		int begin = round % 50, num = PART - begin;

		memset(words, POISON, sizeof(words));
		buffer_put(&buffer, words, sizeof(words));
		MPI_Get(buffer.data, num, MPI_INT, target, first + begin, num, MPI_INT, win);
		if (round % 2)
			MPI_Win_flush(target, win);
		else
			MPI_Win_flush_local_all(win);
		for (int i = 0; i < num; i++)
			words[i] = old_value(target, first + begin + i);
		thread->wrong += !buffer_equals(&buffer, words, "result");
	}
	buffer_free(&buffer);
	return NULL;
}

static void case_threads(void)
{
	struct thread threads[THREADS];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "threads");
	target = (test_rank + 1) % test_size;
	MPI_Win_allocate(ROOM * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window,
			 &win);
	for (int i = 0; i < ROOM; i++)
		window[i] = old_value(test_rank, i);
	MPI_Win_fence(0, win);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < THREADS; i++) {
		threads[i].number = i;
		threads[i].wrong = 0;
		pthread_create(&threads[i].thread, NULL, get_and_flush, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i].thread, NULL);
		ok &= !threads[i].wrong;
	}
	MPI_Win_unlock_all(win);
	test_result(ok);
	MPI_Win_free(&win);
}

/* A flush of nobody's calls, MPI_PROC_NULL's, completes none: not those to a rank that is late. */
static void case_nobody(void)
{
	static const struct timespec late = {.tv_nsec = 500000000};
	struct buffer buffer = buffer_new(PLACE_DEVICE, ROOM * sizeof(int));
	int words[ROOM];

	snprintf(test_name, sizeof(test_name), "a flush of nobody's calls");
	target = (test_rank + 1) % test_size;
	window = malloc(ROOM * sizeof(int));
	for (int i = 0; i < ROOM; i++) {
		window[i] = old_value(test_rank, i);
		words[i] = old_value(target, i);
	}
	MPI_Win_create(window, ROOM * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
		       &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN); /* an MPI may refuse it */
	if (test_rank) {
		nanosleep(&late, NULL);
	} else {
		MPI_Win_lock_all(0, win);
		MPI_Get(buffer.data, ROOM, MPI_INT, target, 0, ROOM, MPI_INT, win);
		MPI_Win_flush(MPI_PROC_NULL, win);
		MPI_Win_flush(target, win);
	}
	test_result(test_rank || buffer_equals(&buffer, words, "what was fetched"));
	if (!test_rank)
		MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	free(window);
	buffer_free(&buffer);
}

static int sum_at_the_end(MPI_Win freed, int keyval, void *value, void *extra)
{
	(void)freed;
	(void)keyval;
	(void)extra;
	return MPI_Allreduce(&test_rank, value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* What a window's attribute calls when it is freed counts on all ranks, or on none. */
static void case_attribute(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, ROOM * sizeof(int));
	int keyval, sum = -1, *words = calloc(ROOM, sizeof(int));
	MPI_Win other;

	snprintf(test_name, sizeof(test_name), "a collective while a window is freed");
	target = (test_rank + 1) % test_size;
	MPI_Win_allocate(ROOM * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window,
			 &win);
	MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &other);
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, sum_at_the_end, &keyval, NULL);
	MPI_Win_set_attr(other, keyval, &sum);
	if (!test_rank) { /* which has something open then */
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		MPI_Put(buffer.data, 1, MPI_INT, target, 0, 1, MPI_INT, win);
	}
	MPI_Win_free(&other);
	if (!test_rank)
		MPI_Win_unlock(target, win);
	test_result(sum == test_size * (test_size - 1) / 2);
	buffer_put(&buffer, words, ROOM * sizeof(int));
	for (int i = 0; i < 5; i++)
		MPI_Allreduce(MPI_IN_PLACE, buffer.data, ROOM, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	test_result(buffer_equals(&buffer, words, "sums behind it"));
	MPI_Win_free_keyval(&keyval);
	MPI_Win_free(&win);
	free(words);
	buffer_free(&buffer);
}

static const struct test_case cases[] = {{"calls", case_calls},
					 {"windows", case_windows},
					 {"threads", case_threads},
					 {"nobody", case_nobody},
					 {"attribute", case_attribute}};

int main(int argc, char **argv)
{
	bool threads = argc > 1 && !strcmp(argv[1], "threads");
	int level;

	MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
	test_start();
	return test_run_case(argc > 1 ? argv[1] : NULL, cases, sizeof(cases) / sizeof(cases[0]));
}
