/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement on paths under stress: every rank chooses for itself, call by call, where its
 * buffers are and how long it takes.
 *
 *     test_agree mixed [CALLS [FILE]]  all collectives, on several communicators; the file is
 *                                  made when all ranks are through MPI_Init
 *     test_agree habit CALLS KIND  so many calls of which only rank 0's buffers are on the device;
 *                                  then so many of which all are; only broadcasts, of which the
 *                                  root is early, or "several" kinds; or, for "root", first all
 *                                  but the root's are
 *     test_agree ahead             a root with host buffers runs thousands of calls ahead
 *     test_agree threads [CALLS]   as mixed, on a communicator for each of three threads
 *     test_agree opposite          two threads use two communicators in opposite order on two ranks
 *     test_agree fresh [CALLS]     every call on memory that was just allocated
 *     test_agree warm              the emulated driver refuses what a warm call must not need
 *     test_agree windows [CALLS]   as mixed, on device and managed memory only, and longer
 *     test_agree fuzz CALLS SEED   all collectives, sizes from nothing to many, on communicators
 *                                  drawn at random, mostly of device memory
 *     test_agree window_fault      a copy fails beside a kernel, which nobody hears of afterwards
 *     test_agree fault             a rank loses its device: an error, or the right result
 *     test_agree fault_after       so it does, while another copies what came in the call before
 *     test_agree killed RANK MS    the rank is killed: all others get an error; with TEST_PENDING
 *                                  so many calls are pending, with TEST_PERSISTENT persistent
 *                                  ones
 *     test_agree missed RANK LATE  so it is with those who are in the call, before another comes
 *     test_agree orphaned RANK LATE  the same of a rank that is no member, but answers for its node
 *     test_agree behind RANK       so it is when somebody is calls ahead of it, and waits for it
 *     test_agree stuck RANK        so it is when the next one was stopped before
 *     test_agree cut               somebody else takes a link down: all get an error
 *     test_agree late SECONDS      the last rank comes to a call so late
 *     test_agree leave [CALLS]     a root waits in the real MPI for those to whom it has sent
 */
#include "test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { MAX_COUNT = 300, LARGE_COUNT = 40000, MAX_RANKS = 64, MOST_PENDING = 4 };

/* A thread's state: what all ranks draw alike, and what each draws for itself. */
struct stress {
	MPI_Comm comm;
	int rank, size;
	uint64_t common, own;
	long wrong;
	struct buffer buffers[2][PLACE_NUM];
	int max_count;
	bool fresh, no_host;
};

static void stress_init(struct stress *s, MPI_Comm comm, uint64_t seed, int max_count)
{
	*s = (struct stress){.comm = comm, .common = seed, .max_count = max_count};
	MPI_Comm_rank(comm, &s->rank);
	MPI_Comm_size(comm, &s->size);
	s->own = seed * 1000 + (uint64_t)s->rank;
	for (int i = 0; i < 2; i++) {
		for (int place = 0; place < PLACE_NUM; place++)
			s->buffers[i][place] = buffer_new(
				(enum place)place, (size_t)(max_count * s->size) * sizeof(int));
	}
}

static void stress_free(struct stress *s)
{
	for (int i = 0; i < 2; i++) {
		for (int place = 0; place < PLACE_NUM; place++)
			buffer_free(&s->buffers[i][place]);
	}
}

static struct buffer *choose(struct stress *s, int which)
{
	/* Mostly device, so that all agree now and then. */
	static const enum place places[] = {PLACE_DEVICE, PLACE_DEVICE, PLACE_DEVICE,
					    PLACE_DEVICE, PLACE_DEVICE, PLACE_DEVICE,
					    PLACE_HOST,   PLACE_MANAGED};
	uint64_t number = draw(&s->own) % (8 * (uint64_t)s->size);
	enum place place = number < 8 ? places[number] : PLACE_DEVICE;

	if (s->no_host)
		place = draw(&s->own) % 3 ? PLACE_DEVICE : PLACE_MANAGED;
	struct buffer *buffer = &s->buffers[which][place];

	if (s->fresh && place == PLACE_DEVICE) {
		size_t bytes = buffer->bytes;

		buffer_free(buffer);
		*buffer = buffer_new(place, bytes + (draw(&s->own) % 3) * (1 << 20));
		buffer->bytes = bytes; /* the guard behind is not looked at here */
	}
	return buffer;
}

static void dawdle(struct stress *s)
{
	struct timespec time = {0, (long)(draw(&s->own) % 300) * 1000};

	if (draw(&s->own) % 10 == 0)
		nanosleep(&time, NULL);
}

static int input(int rank, int at, int salt)
{
	return rank * 1000 + at * 7 + salt;
}

static int sum_of(int ranks, int at, int salt)
{
	int total = 0;

	for (int i = 0; i < ranks; i++)
		total += input(i, at, salt);
	return total;
}

static void fetch(const struct buffer *buffer, int *to, int count)
{
	if (buffer->place == PLACE_HOST)
		memcpy(to, buffer->data, (size_t)count * sizeof(int));
	else
		cuda_check(cudaMemcpy(to, buffer->data, (size_t)count * sizeof(int),
				      cudaMemcpyDefault),
			   "cudaMemcpy");
}

static void expect(struct stress *s, const char *what, int at, int got, int want)
{
	if (got == want)
		return;
	if (s->wrong++ < 5)
		fprintf(stderr, "rank %d: %s: element %d is %d, expected %d\n", test_rank, what, at,
			got, want);
}

enum kind {
	ALLREDUCE,
	BCAST,
	ALLGATHER,
	ALLTOALL,
	REDUCE,
	REDUCE_SCATTER,
	GATHERV,
	SCATTER,
	SCAN,
	NUM_KINDS
};

static bool is_in_place(enum kind kind, int salt)
{
	return salt % 2 && kind != BCAST && kind != REDUCE && kind != GATHERV;
}

static void call(struct stress *s, enum kind kind, int count, int root, int salt,
		 struct buffer *send, struct buffer *recv)
{
	const void *from = is_in_place(kind, salt) ? MPI_IN_PLACE : send->data;
	bool leaves = is_in_place(kind, salt) && s->rank == root;
	int counts[MAX_RANKS], displs[MAX_RANKS];

	for (int i = 0; i < s->size; i++) {
		counts[i] = (i + salt) % 3 ? count : 0;
		displs[i] = i * count;
	}
	switch (kind) {
	case ALLREDUCE:
		MPI_Allreduce(from, recv->data, count, MPI_INT, MPI_SUM, s->comm);
		break;
	case BCAST:
		MPI_Bcast(s->rank == root ? send->data : recv->data, count, MPI_INT, root, s->comm);
		break;
	case ALLGATHER:
		MPI_Allgather(from, count, MPI_INT, recv->data, count, MPI_INT, s->comm);
		break;
	case ALLTOALL:
		MPI_Alltoall(from, count, MPI_INT, recv->data, count, MPI_INT, s->comm);
		break;
	case REDUCE:
		MPI_Reduce(send->data, recv->data, count, MPI_INT, MPI_SUM, root, s->comm);
		break;
	case REDUCE_SCATTER:
		MPI_Reduce_scatter_block(from, recv->data, count, MPI_INT, MPI_SUM, s->comm);
		break;
	case SCATTER:
		MPI_Scatter(send->data, count, MPI_INT, leaves ? MPI_IN_PLACE : recv->data, count,
			    MPI_INT, root, s->comm);
		break;
	case SCAN:
		MPI_Scan(from, recv->data, count, MPI_INT, MPI_SUM, s->comm);
		break;
	default:
		MPI_Gatherv(counts[s->rank] ? send->data : NULL, counts[s->rank], MPI_INT,
			    recv->data, counts, displs, MPI_INT, root, s->comm);
		break;
	}
}

static void verify(struct stress *s, enum kind kind, int count, int root, int salt, const int *got)
{
	bool in_place = is_in_place(kind, salt);

	for (int at = 0; at < count; at++) {
		if (kind == ALLREDUCE || (kind == REDUCE && s->rank == root))
			expect(s, "reduced", at, got[at], sum_of(s->size, at, salt));
		if (kind == BCAST && s->rank != root)
			expect(s, "broadcast", at, got[at], input(root, at, salt));
		if (kind == REDUCE_SCATTER)
			expect(s, "reduce_scatter", at, got[at],
			       sum_of(s->size, s->rank * count + at, salt));
		if (kind == SCATTER && !(in_place && s->rank == root))
			expect(s, "scatter", at, got[at], input(root, s->rank * count + at, salt));
		if (kind == SCAN)
			expect(s, "scan", at, got[at], sum_of(s->rank + 1, at, salt));
	}
	for (int i = 0; i < s->size; i++) {
		for (int at = 0; at < count; at++) {
			if (kind == ALLGATHER)
				expect(s, "allgather", at, got[i * count + at],
				       input(i, in_place ? i * count + at : at, salt));
			if (kind == ALLTOALL)
				expect(s, "alltoall", at, got[i * count + at],
				       input(i, s->rank * count + at, salt));
			if (kind == GATHERV && s->rank == root && (i + salt) % 3)
				expect(s, "gatherv", at, got[i * count + at], input(i, at, salt));
		}
	}
}

static void stress_call_on(struct stress *s, enum kind kind, int count, int root, int salt,
			   struct buffer *send, struct buffer *recv)
{
	int total = count * s->size;
	int *values = malloc((size_t)(total + 1) * sizeof(int));

	for (int at = 0; at < total; at++)
		values[at] = input(s->rank, at, salt);
	buffer_put(send, values, (size_t)total * sizeof(int));
	if (!is_in_place(kind, salt))
		memset(values, POISON, (size_t)total * sizeof(int));
	buffer_put(recv, values, (size_t)total * sizeof(int));
	dawdle(s);
	call(s, kind, count, root, salt, send, recv);
	fetch(recv, values, total);
	verify(s, kind, count, root, salt, values);
	fetch(send, values, total);
	for (int at = 0; at < total; at++)
		expect(s, "input", at, values[at], input(s->rank, at, salt));
	free(values);
}

static void stress_call(struct stress *s)
{
	enum kind kind = (enum kind)(draw(&s->common) % NUM_KINDS);
	int count = (int)(draw(&s->common) % (uint64_t)s->max_count);
	int salt = (int)(draw(&s->common) % 1000);
	int root = (int)(draw(&s->common) % (uint64_t)s->size);
	struct buffer *send = choose(s, 0), *recv = choose(s, 1);

	stress_call_on(s, kind, count, root, salt, send, recv);
}

static void test_mixed(int calls, bool fresh)
{
	struct stress world, copy, half;
	MPI_Comm dup, split;

	snprintf(test_name, sizeof(test_name), "mixed residency, %d calls", calls);
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Comm_split(MPI_COMM_WORLD, test_rank % 2, -test_rank, &split);
	stress_init(&world, MPI_COMM_WORLD, 1, MAX_COUNT);
	stress_init(&copy, dup, 2, MAX_COUNT);
	stress_init(&half, split, 3, MAX_COUNT);
	world.fresh = copy.fresh = half.fresh = fresh;
	for (int i = 0; i < calls; i++) {
		stress_call(&world);
		if (i % 3 == 0)
			stress_call(&copy);
		if (i % 5 == 0)
			stress_call(&half);
	}
	test_result(world.wrong + copy.wrong + half.wrong == 0);
	stress_free(&world);
	stress_free(&copy);
	stress_free(&half);
	MPI_Comm_free(&dup);
	MPI_Comm_free(&split);
}

static void test_habit(int calls, const char *kind)
{
	bool several = !strcmp(kind, "several"), all_but_root = !strcmp(kind, "root");
	static const struct timespec moment = {.tv_nsec = 100000};
	struct stress s;

	snprintf(test_name, sizeof(test_name), "others' choice in %d calls, and no more", calls);
	stress_init(&s, MPI_COMM_WORLD, 1, MAX_COUNT);
	for (int i = 0; i < 2 * calls; i++) {
		bool host = i < calls && (all_but_root ? test_rank == 0 : test_rank != 0);
		enum place place = host ? PLACE_HOST : PLACE_DEVICE;

		if (!several && test_rank)
			nanosleep(&moment, NULL);
		stress_call_on(&s, several && i % 3 == 0 ? ALLREDUCE : BCAST, 16, 0, i,
			       &s.buffers[0][place], &s.buffers[1][place]);
	}
	test_result(s.wrong == 0);
	stress_free(&s);
}

/* Nothing, a little, or more than goes through a link at a time. */
static int draw_size(uint64_t *random)
{
	static const int most[] = {2, 40, 3000, LARGE_COUNT};

	return most[draw(random) % 4];
}

/* On a part of the processes, in any order; some may be left alone. */
static void fuzz_communicator(uint64_t *common, uint64_t seed, int calls)
{
	int colour = (int)(draw(common) >> (test_rank % 8)) & 1;
	int key = (int)(draw(common) >> (3 * test_rank % 24)) & 7;
	bool apart = draw(common) % 3 == 0;
	struct stress s;
	MPI_Comm comm;

	MPI_Comm_split(MPI_COMM_WORLD, apart ? colour : 0, key, &comm);
	stress_init(&s, comm, seed, LARGE_COUNT);
	for (int i = 0; i < calls; i++) {
		s.max_count = draw_size(&s.common);
		stress_call(&s);
	}
	test_result(s.wrong == 0);
	stress_free(&s);
	MPI_Comm_free(&comm);
}

/*
 * One rank is killed, in or between calls; all others are to leave the call in which they miss it,
 * with an error, though the launcher leaves them alone. Each says so, and ends without
 * MPI_Finalize, which could not succeed. With no victim (-1) it is the link that somebody takes
 * down, once rank 0 has said that calls are under way.
 */
struct end {
	int ms, signal;
};

static void *end_soon(void *argument)
{
	const struct end *end = argument;
	struct timespec delay = {0, 1000000L * end->ms};

	nanosleep(&delay, NULL);
	kill(getpid(), end->signal);
	return NULL;
}

/* Those who are left are well among themselves, with memory that was the failed call's. */
static void call_others(MPI_Comm others)
{
	enum { CALLS = 30, COUNT = 50000 };
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer to = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int *values = calloc(COUNT, sizeof(int)), size, wrong = 0;

	MPI_Comm_size(others, &size);
	for (int i = 0; i < COUNT; i++)
		values[i] = i;
	buffer_put(&from, values, COUNT * sizeof(int));
	for (int i = 0; i < CALLS; i++)
		wrong += MPI_Allreduce(from.data, to.data, COUNT, MPI_INT, MPI_SUM, others) !=
			 MPI_SUCCESS;
	for (int i = 0; i < COUNT; i++)
		values[i] *= size;
	wrong += !buffer_equals(&to, values, "of the others");
	printf("rank %d and the others: %d wrong\n", test_rank, wrong);
	free(values);
	buffer_free(&from);
	buffer_free(&to);
}

/*
 * Who has failed in a call on a communicator that has lost a member fails in all later ones, soon,
 * whoever else makes them. Returns how many did not.
 */
static int call_lost(MPI_Comm comm)
{
	enum { CALLS = 5, COUNT = 100 };
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer to = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int wrong = 0;

	for (int i = 0; i < CALLS + test_rank; i++)
		wrong += MPI_Allreduce(from.data, to.data, COUNT, MPI_INT, MPI_SUM, comm) ==
			 MPI_SUCCESS;
	buffer_free(&from);
	buffer_free(&to);
	return wrong;
}

/* After the call that failed, on `lost`. */
static void survive(int error, MPI_Comm lost, MPI_Comm others)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length = 0, wrong = call_lost(lost);

	MPI_Error_string(error, text, &length);
	printf("rank %d survives: %s\n", test_rank, wrong ? "but not for good" : text);
	if (others == lost) /* all of whom live: they are well on another one */
		MPI_Comm_dup(lost, &others);
	if (others != MPI_COMM_NULL)
		call_others(others);
	fflush(stdout);
	sleep(1); /* Hydra ends the job when the first one leaves without MPI_Finalize */
	_exit(0);
}

/* A child that outlives its parent: of a program, or of a fork. */
static void start_child(const char *kind)
{
	if (!strcmp(kind, "program") && system("(sleep 10; echo the child ends) &"))
		MPI_Abort(MPI_COMM_WORLD, 3);
	if (strcmp(kind, "fork") || fork())
		return;
	sleep(10);
	printf("the child ends\n");
	fflush(stdout);
	_exit(0);
}

/*
 * Sums in so many pending calls, 0: in a blocking one; `prepared`: persistent ones, or NULL.
 * Returns the first error.
 */
static int sum_all(const struct buffer *from, struct buffer to[], int count, int pending,
		   MPI_Request prepared[])
{
	MPI_Request requests[MOST_PENDING];
	int error = MPI_SUCCESS, result;

	if (!pending)
		return MPI_Allreduce(from->data, to[0].data, count, MPI_INT, MPI_SUM,
				     MPI_COMM_WORLD);
	for (int i = 0; i < pending; i++) {
		if (prepared)
			result = MPI_Start(&prepared[i]);
		else
			result = MPI_Iallreduce(from->data, to[i].data, count, MPI_INT, MPI_SUM,
						MPI_COMM_WORLD, &requests[i]);
		if (prepared)
			requests[i] = prepared[i];
		if (result != MPI_SUCCESS)
			requests[i] = MPI_REQUEST_NULL;
		error = error ? error : result;
	}
	for (int i = 0; i < pending; i++) {
		result = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		error = error ? error : result;
	}
	return error;
}

static void test_killed(int victim, int ms)
{
	enum { CALLS = 10000000, COUNT = 100000 };
	int pending = getenv("TEST_PENDING") ? atoi(getenv("TEST_PENDING")) : 0;
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)), to[MOST_PENDING];
	int error = MPI_SUCCESS;
	double since = MPI_Wtime();
	bool told = false;
	struct end end = {ms, SIGKILL};
	pthread_t thread;
	bool persistent = getenv("TEST_PERSISTENT") != NULL;
	MPI_Request prepared[2][MOST_PENDING]; /* of short and of long ones */
	MPI_Comm others;

	for (int i = 0; i < MOST_PENDING; i++)
		to[i] = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	for (int i = 0; persistent && i < 2 * pending; i++)
		INIT(Allreduce)
	(from.data, to[i / 2].data, i % 2 ? COUNT : 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
	 MPI_INFO_NULL, &prepared[i % 2][i / 2]);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_split(MPI_COMM_WORLD, test_rank == victim, 0, &others);
	signal(SIGUSR1, SIG_IGN); /* by which Hydra tells of a death, and who knows not dies too */
	for (int i = 0; i < CALLS && !error; i++) {
		if (i == 20 && test_rank == victim) {
			if (getenv("TEST_CHILD"))
				start_child(getenv("TEST_CHILD"));
			pthread_create(&thread, NULL, end_soon, &end);
		}
		/* The connections that watch the link are made soon after the first calls. */
		if (victim < 0 && test_rank == 0 && !told && MPI_Wtime() - since > 1) {
			printf("calls are under way\n");
			fflush(stdout);
			told = true;
		}
		error = sum_all(&from, to, i % 3 ? COUNT : 1, pending,
				persistent ? prepared[i % 3 != 0] : NULL);
	}
	buffer_free(&from);
	for (int i = 0; i < MOST_PENDING; i++)
		buffer_free(&to[i]);
	survive(error, MPI_COMM_WORLD, victim >= 0 ? others : MPI_COMM_NULL);
}

/*
 * One rank is killed between calls, and another comes to the next one when the first of those who
 * are left has left it: that one must not wait for it. `orphaned`: the calls are the others' alone,
 * and who comes late is of the victim's node.
 */
static void test_missed(int victim, int late, bool orphaned)
{
	enum { CALLS = 20, COUNT = 100000 };
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer to = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int error = MPI_SUCCESS, rank, word = 0;
	MPI_Comm others, comm;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_split(MPI_COMM_WORLD, test_rank == victim, test_rank == late, &others);
	MPI_Comm_rank(others, &rank);
	comm = orphaned ? others : MPI_COMM_WORLD;
	signal(SIGUSR1, SIG_IGN); /* as above */
	for (int i = 0; i <= CALLS && !error; i++) {
		if (i == CALLS && orphaned) /* in whose calls the victim is not */
			MPI_Barrier(MPI_COMM_WORLD);
		if (i == CALLS && test_rank == victim)
			raise(SIGKILL);
		if (i == CALLS && test_rank == late)
			MPI_Recv(&word, 1, MPI_INT, 0, 0, others, MPI_STATUS_IGNORE);
		error = MPI_Allreduce(from.data, to.data, COUNT, MPI_INT, MPI_SUM, comm);
	}
	if (rank == 0)
		MPI_Send(&word, 1, MPI_INT, test_size - 2, 0, others);
	buffer_free(&from);
	buffer_free(&to);
	survive(error, comm, others);
}

/*
 * Rank 0 is so many calls ahead, as those are on host buffers, that it has to wait until others are
 * past some of them. One is killed instead; nobody else has come to any call then.
 */
static void test_behind(int victim)
{
	enum { AHEAD = 8, COUNT = 100 };
	struct buffer device = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer host[AHEAD];
	MPI_Request request;
	MPI_Comm others;
	int error, size;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_split(MPI_COMM_WORLD, test_rank == victim, 0, &others);
	signal(SIGUSR1, SIG_IGN); /* as above */
	for (int i = 0; i < AHEAD && test_rank == 0; i++) {
		host[i] = buffer_new(PLACE_HOST, COUNT * sizeof(int));
		MPI_Iallreduce(MPI_IN_PLACE, host[i].data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
			       &request);
	}
	if (test_rank == victim) {
		usleep(300000);
		raise(SIGKILL);
	}
	if (test_rank)
		MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, others, MPI_STATUS_IGNORE);
	error = MPI_Iallreduce(MPI_IN_PLACE, device.data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
			       &request);
	if (error == MPI_SUCCESS)
		error = MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_size(others, &size);
	for (int i = 1; i < size && test_rank == 0; i++)
		MPI_Send(NULL, 0, MPI_BYTE, i, 0, others);
	survive(error, MPI_COMM_WORLD, others);
}

/*
 * A rank is stopped in the middle of a call, as by a debugger, and then the one after it is killed:
 * rank 0 gets an error though what it has sent to the first one is not taken, and has its memory.
 */
static void test_stuck(int stopped)
{
	enum { COUNT = 16 << 20 };
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer to = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct end stop = {100, SIGSTOP}, end = {400, SIGKILL};
	bool ends = test_rank == stopped || test_rank == stopped + 1;
	int pids[MAX_RANKS], pid = getpid(), error = MPI_SUCCESS;
	MPI_Comm others;
	pthread_t thread;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	signal(SIGUSR1, SIG_IGN);
	MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
	MPI_Comm_split(MPI_COMM_WORLD, ends, test_rank, &others);
	MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN);
	for (int i = 0; !error; i++) {
		if (i == 1 && ends)
			pthread_create(&thread, NULL, end_soon,
				       test_rank == stopped ? &stop : &end);
		error = MPI_Allreduce(from.data, to.data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
	buffer_free(&from);
	buffer_free(&to);
	call_others(others);
	printf("rank %d survives: it has an error\n", test_rank);
	fflush(stdout);
	kill(pids[stopped], SIGKILL);
	_exit(0);
}

/*
 * Rank 0 has what it called for when its data are out of its hands, and then waits, outside of any
 * collective, for those who need them.
 */
static void test_leave(int calls)
{
	enum { COUNT = 28000 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int *values = malloc(COUNT * sizeof(int));
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "leave");
	for (int call = 0; call < calls; call++) {
		for (int i = 0; i < COUNT; i++)
			values[i] = test_rank == 0 ? call + i : -1;
		buffer_put(&buffer, values, COUNT * sizeof(int));
		MPI_Bcast(buffer.data, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
		for (int i = 1; test_rank == 0 && i < test_size; i++)
			MPI_Recv(NULL, 0, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (test_rank)
			MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD);
		fetch(&buffer, values, COUNT);
		for (int i = 0; i < COUNT; i++)
			ok &= values[i] == call + i;
	}
	test_result(ok);
	buffer_free(&buffer);
	free(values);
}

/* Meanwhile a message is awaited, too. */
static void test_late(int seconds)
{
	enum { COUNT = 1000, LAST_TAG = 9 };
	struct buffer message = buffer_new(PLACE_DEVICE, sizeof(int));
	MPI_Request request = MPI_REQUEST_NULL;
	struct buffer from = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	struct buffer to = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int values[COUNT];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "late by %d s", seconds);
	for (int i = 0; i < COUNT; i++)
		values[i] = i + test_rank;
	buffer_put(&from, values, sizeof(values));
	if (test_rank == 0)
		MPI_Irecv(message.data, 1, MPI_INT, test_size - 1, LAST_TAG, MPI_COMM_WORLD,
			  &request);
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank == test_size - 1)
		sleep((unsigned)seconds);
	MPI_Allreduce(from.data, to.data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	fetch(&to, values, COUNT);
	for (int i = 0; i < COUNT; i++)
		ok &= values[i] == test_size * i + test_size * (test_size - 1) / 2;
	if (test_rank == test_size - 1)
		MPI_Send(message.data, 1, MPI_INT, 0, LAST_TAG, MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	test_result(ok);
	buffer_free(&message);
	buffer_free(&from);
	buffer_free(&to);
}

static void test_fuzz(int calls, uint64_t seed)
{
	enum { CALLS_OF_ONE = 50 };
	uint64_t common = seed;

	for (int done = 0; done < calls; done += CALLS_OF_ONE) {
		snprintf(test_name, sizeof(test_name), "fuzz, seed %llu, from call %d on",
			 (unsigned long long)seed, done);
		fuzz_communicator(&common, seed + (uint64_t)done, CALLS_OF_ONE);
	}
}

static void test_windows(int calls)
{
	struct stress world;

	snprintf(test_name, sizeof(test_name), "windows, %d calls", calls);
	stress_init(&world, MPI_COMM_WORLD, 7, LARGE_COUNT);
	world.no_host = true;
	for (int i = 0; i < calls; i++)
		stress_call(&world);
	test_result(world.wrong == 0);
	stress_free(&world);
}

/* Before the emulated driver reads it: rank 1's device takes longer than the others'. */
static void slow_down_rank_1(const char *microseconds)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 1)
		setenv("CUEMU_DELAY_US", microseconds, 1);
}

/*
 * Rank 1's fifth copy, which goes beside its third kernel, is refused. The call fails on all ranks;
 * when it has come back, no kernel of it writes to anybody's buffers any more.
 */
static void test_window_fault(void)
{
	enum { COUNT = 64 << 10, OWN = 0x55 };
	enum place place = test_rank ? PLACE_MANAGED : PLACE_DEVICE;
	struct buffer send = buffer_new(place, COUNT * sizeof(int));
	struct buffer recv = buffer_new(place, COUNT * sizeof(int));
	void *own = malloc(recv.bytes);
	struct timespec later = {1, 0};
	void (*add_faults)(const char *);
	int error;

	snprintf(test_name, sizeof(test_name), "a refused copy beside a kernel");
	memset(own, OWN, recv.bytes);
	buffer_put(&send, own, send.bytes);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	*(void **)&add_faults = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	if (test_rank == 1)
		add_faults("cuMemcpyAsync:5=1");
	error = MPI_Allreduce(send.data, recv.data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	buffer_put(&recv, own, recv.bytes);
	nanosleep(&later, NULL);
	test_result(error != MPI_SUCCESS && buffer_equals(&recv, own, "recv"));
	free(own);
	buffer_free(&send);
	buffer_free(&recv);
}

/*
 * Once every kind of call has been made on its buffers, nothing is allocated, opened or loaded
 * again: the emulated driver refuses it.
 */
static void test_warm(void)
{
	void (*add_faults)(const char *);
	struct stress world;
	struct buffer *send, *recv;

	snprintf(test_name, sizeof(test_name), "warm calls");
	*(void **)&add_faults = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	stress_init(&world, MPI_COMM_WORLD, 9, LARGE_COUNT);
	send = &world.buffers[0][PLACE_DEVICE];
	recv = &world.buffers[1][PLACE_DEVICE];
	for (int round = 0; round < 12; round++) {
		if (round == 8 && add_faults)
			add_faults("cuMemAlloc+,cuIpcOpenMemHandle+,cuIpcGetMemHandle+,"
				   "cuModuleLoadData+,cuMemHostRegister+,cuStreamCreate+,"
				   "cuEventCreate+");
		for (int kind = 0; kind < NUM_KINDS; kind++) {
			stress_call_on(&world, (enum kind)kind, 3000, 1, 100 + round, send, recv);
			stress_call_on(&world, (enum kind)kind, 30000, 0, 100 + round, send, recv);
		}
	}
	test_result(world.wrong == 0 && add_faults);
}

static void *run_thread(void *argument)
{
	struct stress *s = argument;
	int devices, calls = (int)(s->common >> 32);

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
	for (int i = 0; i < calls; i++)
		stress_call(s);
	return NULL;
}

static void test_threads(int calls)
{
	enum { THREADS = 3 };
	struct stress stresses[THREADS];
	pthread_t threads[THREADS];
	MPI_Comm comms[THREADS];
	long wrong = 0;

	snprintf(test_name, sizeof(test_name), "three threads, %d calls each", calls);
	for (int i = 0; i < THREADS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		stress_init(&stresses[i], comms[i], (uint64_t)calls << 32 | (uint64_t)(i + 10),
			    MAX_COUNT);
		stresses[i].fresh = i == 0;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run_thread, &stresses[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		wrong += stresses[i].wrong;
		stress_free(&stresses[i]);
		MPI_Comm_free(&comms[i]);
	}
	test_result(wrong == 0);
}

struct reduction {
	MPI_Comm comm;
	struct buffer buffer;
};

static void *reduce_many(void *argument)
{
	struct reduction *r = argument;
	int devices;

	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
	for (int i = 0; i < 20; i++)
		MPI_Allreduce(MPI_IN_PLACE, r->buffer.data, 1 << 18, MPI_INT, MPI_MAX, r->comm);
	return NULL;
}

/* Each thread begins where the other rank's second thread does. */
static void test_opposite(void)
{
	struct reduction r[2];
	pthread_t threads[2];
	bool ok = true;
	int *want = malloc(1 << 20);

	snprintf(test_name, sizeof(test_name), "two communicators in opposite order");
	for (int i = 0; i < 1 << 18; i++)
		want[i] = i + test_rank;
	for (int i = 0; i < 2; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &r[i].comm);
		r[i].buffer = buffer_new(PLACE_DEVICE, 1 << 20);
		buffer_put(&r[i].buffer, want, 1 << 20);
	}
	for (int i = 0; i < 2; i++) {
		struct timespec pause = {0, 2000000};

		pthread_create(&threads[i], NULL, reduce_many, &r[(i + test_rank) % 2]);
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 1 << 18; i++)
		want[i] = i + test_size - 1;
	for (int i = 0; i < 2; i++) {
		ok &= buffer_equals(&r[i].buffer, want, "maximum");
		buffer_free(&r[i].buffer);
		MPI_Comm_free(&r[i].comm);
	}
	free(want);
	test_result(ok);
}

/* The root never waits; the others, slow and on devices, must find each of its calls staged. */
static void test_ahead(void)
{
	enum { CALLS = 3000 };
	struct buffer device = buffer_new(PLACE_DEVICE, sizeof(int));
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a host root thousands of calls ahead");
	for (int i = 0; i < CALLS; i++) {
		int number = i;

		if (test_rank == 0) {
			MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
			continue;
		}
		MPI_Bcast(device.data, 1, MPI_INT, 0, MPI_COMM_WORLD);
		fetch(&device, &number, 1);
		ok &= number == i;
	}
	test_result(ok);
	/* And then they are together again. */
	buffer_put(&device, &test_rank, sizeof(int));
	MPI_Allreduce(MPI_IN_PLACE, device.data, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	int most;
	fetch(&device, &most, 1);
	test_result(most == test_size - 1);
	buffer_free(&device);
}

/*
 * All ranks leave the loop, with an error each, in the same call, or in the next one where they had
 * all that they needed of that; or never. Not even MPI_Finalize can be expected of the real MPI
 * afterwards.
 */
/*
 * `stop`: at the first error, which all have in that call or the next. Otherwise, as of a shortage
 * that passes: who has an error and who has not both go on.
 */
static void test_fault(bool stop)
{
	enum { COUNT = 50000 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int *values = malloc(COUNT * sizeof(int));
	int result = MPI_SUCCESS, call = 0, first, last;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a fault on one rank");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (; call < 30; call++) {
		for (int i = 0; i < COUNT; i++)
			values[i] = test_rank + i + call;
		buffer_put(&buffer, values, COUNT * sizeof(int));
		result = MPI_Allreduce(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_MAX,
				       MPI_COMM_WORLD);
		if (result != MPI_SUCCESS && stop)
			break;
		fetch(&buffer, values, COUNT);
		for (int i = 0; i < COUNT; i++)
			ok &= result != MPI_SUCCESS || values[i] == test_size - 1 + i + call;
	}
	MPI_Allreduce(&call, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&call, &last, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (test_rank == 0)
		printf("first error in call %d, last %d\n", first, last);
	test_result(ok && last - first <= 1);
	free(values);
}

/*
 * Rank 0's device fails before the third call, while rank 1's still copies what came for it in the
 * second one, in place: that call is right everywhere. A rank that still takes messages may fail in
 * it, so rank 2 says that it is done, and rank 0 gives rank 1 half of the time that its copy takes.
 */
static void test_fault_after(void)
{
	enum { COUNT = 100000, GOOD = 2 };
	size_t bytes = (size_t)test_size * COUNT * sizeof(int);
	struct buffer buffer = buffer_new(PLACE_DEVICE, bytes);
	int *values = malloc(bytes), error = MPI_SUCCESS;
	void (*add_faults)(const char *);
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a fault after a call");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	*(void **)&add_faults = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	for (int call = 0; call <= GOOD; call++) {
		for (int i = 0; i < test_size * COUNT; i++)
			values[i] = test_rank + i + call;
		buffer_put(&buffer, values, bytes);
		if (call == GOOD && test_rank == 2)
			MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD);
		if (call == GOOD && test_rank == 0) {
			MPI_Recv(NULL, 0, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			usleep(100000);
			add_faults("cuStreamQuery=700");
		}
		error = MPI_Reduce_scatter_block(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_MAX,
						 MPI_COMM_WORLD);
		if (error != MPI_SUCCESS || call == GOOD) {
			ok &= error != MPI_SUCCESS && call == GOOD;
			break;
		}
		fetch(&buffer, values, COUNT);
		for (int i = 0; i < COUNT; i++)
			ok &= values[i] == test_size - 1 + test_rank * COUNT + i + call;
	}
	test_result(ok);
	free(values);
}

/* Rank 0 tells who watches the job from outside that all ranks have come here. */
static void make_file(const char *path)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (test_rank == 0 && close(creat(path, 0600)))
		MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "mixed";
	int calls = argc > 2 ? atoi(argv[2]) : 500, provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	if (!strcmp(name, "window_fault"))
		slow_down_rank_1("300000");
	if (!strcmp(name, "fault_after"))
		slow_down_rank_1("200000");
	test_start();
	if (!strcmp(name, "mixed") && argc > 3)
		make_file(argv[3]);
	if (!strcmp(name, "killed"))
		test_killed(calls, argc > 3 ? atoi(argv[3]) : 0);
	else if (!strcmp(name, "missed"))
		test_missed(calls, argc > 3 ? atoi(argv[3]) : 0, false);
	else if (!strcmp(name, "orphaned"))
		test_missed(calls, argc > 3 ? atoi(argv[3]) : 0, true);
	else if (!strcmp(name, "cut"))
		test_killed(-1, 0);
	else if (!strcmp(name, "behind"))
		test_behind(calls);
	else if (!strcmp(name, "stuck"))
		test_stuck(calls);
	else if (!strcmp(name, "late"))
		test_late(calls);
	else if (!strcmp(name, "leave"))
		test_leave(calls);
	else if (!strcmp(name, "fuzz"))
		test_fuzz(calls, argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
	else if (!strcmp(name, "mixed"))
		test_mixed(calls, false);
	else if (!strcmp(name, "fresh"))
		test_mixed(calls, true);
	else if (!strcmp(name, "habit"))
		test_habit(calls, argc > 3 ? argv[3] : "one");
	else if (!strcmp(name, "warm"))
		test_warm();
	else if (!strcmp(name, "windows"))
		test_windows(calls);
	else if (!strcmp(name, "ahead"))
		test_ahead();
	else if (!strcmp(name, "threads"))
		test_threads(calls);
	else if (!strcmp(name, "opposite"))
		test_opposite();
	else if (!strcmp(name, "window_fault"))
		test_window_fault();
	else if (!strcmp(name, "fault_after"))
		test_fault_after();
	else if (!strcmp(name, "fault") || !strcmp(name, "shortage"))
		test_fault(!strcmp(name, "fault"));
	else
		fprintf(stderr, "no test '%s'\n", name);
	int status = test_finish();
	MPI_Finalize();
	return status;
}
