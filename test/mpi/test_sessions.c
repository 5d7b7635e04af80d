/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of MPI sessions: communicators from groups, collectives on device memory, against sums
 * that are known. MPI_Init is called by one of them only.
 */
#include "test.h"

#include "gpucoll/gpucoll.h" /* after mpi.h */

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#pragma weak gpucoll_last_path

#if defined(OPEN_MPI) ? OMPI_MAJOR_VERSION >= 5 : MPI_VERSION >= 4
enum { COUNT = 10007 };
static bool is_fast; /* calls are to be accelerated; else staged */

static MPI_Session open_session(const char *level)
{
	MPI_Session session;
	MPI_Info info;

	MPI_Info_create(&info);
	MPI_Info_set(info, "thread_level", level);
	MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Info_free(&info);
	return session;
}

/*
 * Of all ranks, or of those of its parity, which have a tag of their own: MPICH 5.0 waits for ever
 * now and then where two groups have one at a time.
 */
static MPI_Comm make(MPI_Session session, bool half, bool backwards, const char *tag)
{
	MPI_Group world, group;
	MPI_Comm comm;
	int size, rank, chosen[64], num = 0;

	MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
	MPI_Group_size(world, &size);
	MPI_Group_rank(world, &rank);
	for (int i = 0; i < size; i++) {
		int one = backwards ? size - 1 - i : i;

		if (!half || one % 2 == rank % 2)
			chosen[num++] = one;
	}
	MPI_Group_incl(world, num, chosen, &group);
	MPI_Comm_create_from_group(group, half && rank % 2 ? "odd" : tag, MPI_INFO_NULL,
				   MPI_ERRORS_ARE_FATAL, &comm);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	return comm;
}

/* Any thread. */
static void check(bool ok, const char *what)
{
	static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&counting);
	test_passed += ok;
	test_failed += !ok;
	pthread_mutex_unlock(&counting);
	if (!ok)
		printf("FAIL rank %d: %s\n", test_rank, what);
}

/* Sums, blocking and not, and a broadcast from the last rank. */
static void call_on(MPI_Comm comm, const char *what)
{
	struct buffer in = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)),
		      out = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	int *mine = malloc(COUNT * sizeof(int)), *sums = malloc(COUNT * sizeof(int));
	enum gpucoll_path path = is_fast ? GPUCOLL_PATH_ACCEL : GPUCOLL_PATH_STAGE;
	MPI_Request request;
	int rank, size;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	for (int i = 0; i < COUNT; i++) {
		mine[i] = i + 3 * rank;
		sums[i] = size * i + 3 * size * (size - 1) / 2;
	}
	snprintf(test_name, sizeof(test_name), "%s", what);
	buffer_put(&in, mine, COUNT * sizeof(int));
	MPI_Allreduce(in.data, out.data, COUNT, MPI_INT, MPI_SUM, comm);
	check(!gpucoll_last_path || size == 1 || gpucoll_last_path() == path, what);
	check(buffer_equals(&out, sums, "MPI_Allreduce"), what);
	MPI_Bcast(out.data, COUNT, MPI_INT, size - 1, comm);
	MPI_Iallreduce(MPI_IN_PLACE, out.data, COUNT, MPI_INT, MPI_MAX, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check(buffer_equals(&out, sums, "MPI_Iallreduce"), what);
	buffer_free(&in);
	buffer_free(&out);
	free(mine);
	free(sums);
}

static pthread_barrier_t together;

/*
 * What is called without a communicator, with a type that is used for the first time. `threads`: in
 * several threads at once.
 */
static void receive_without(MPI_Comm comm, MPI_Datatype type, int first, int second, bool threads)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 8 * sizeof(int));
	int sent[2] = {3, 4}, want[8], rank;
	MPI_Request sending, request;
	MPI_Message message;

	memset(want, POISON, sizeof(want));
	want[first] = 3;
	want[second] = 4;
	MPI_Comm_rank(comm, &rank);
	MPI_Type_commit(&type);
	MPI_Isend(sent, 2, MPI_INT, rank, 5, comm, &sending);
	MPI_Mprobe(rank, 5, comm, &message, MPI_STATUS_IGNORE);
	if (threads)
		pthread_barrier_wait(&together);
	MPI_Imrecv(buffer.data, 1, type, &message, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Wait(&sending, MPI_STATUS_IGNORE);
	check(buffer_equals(&buffer, want, "MPI_Imrecv"), "a call without a communicator");
	MPI_Type_free(&type);
	buffer_free(&buffer);
}

/* A type with gaps, one whose bytes do not rise, and one that only the real MPI can take apart. */
static void call_without(MPI_Comm comm)
{
	const int length = 8, places[] = {5, 2}, distribution = MPI_DISTRIBUTE_CYCLIC,
		  block = MPI_DISTRIBUTE_DFLT_DARG, processes = 4;
	MPI_Datatype type;

	MPI_Type_vector(2, 1, 5, MPI_INT, &type);
	receive_without(comm, type, 0, 5, false);
	MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &type);
	receive_without(comm, type, 5, 2, false);
	MPI_Type_create_darray(4, 1, 1, &length, &distribution, &block, &processes, MPI_ORDER_C,
			       MPI_INT, &type);
	receive_without(comm, type, 1, 5, false);
}

/* The first of the ranks says how it went for all. */
static void finish(MPI_Comm comm)
{
	long mine[2] = {test_passed, test_failed}, all[2];

	MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, comm);
	test_passed = all[0];
	test_failed = all[1];
}

static bool is_initialized(void)
{
	int flag = -1;

	MPI_Initialized(&flag);
	return flag == 1;
}

static void run_session(const char *level, const char *what)
{
	MPI_Session session = open_session(level);
	MPI_Comm half = make(session, true, false, "half"),
		 all = make(session, false, true, "backwards"), copy;

	call_without(all); /* first, as the library remembers calls' communicators */
	call_on(all, what);
	call_on(half, what);
	MPI_Comm_dup(all, &copy);
	call_on(copy, what);
	MPI_Comm_free(&half);
	MPI_Comm_free(&all);
	finish(copy);
	MPI_Comm_free(&copy);
	MPI_Session_finalize(&session);
}

/* Sessions that overlap: the second one's communicators outlive the first. */
static void overlap(void)
{
	MPI_Session first = open_session("MPI_THREAD_SINGLE"),
		    second = open_session("MPI_THREAD_MULTIPLE");
	MPI_Comm one = make(first, false, false, "one"), two = make(second, false, false, "two");

	call_on(one, "the first of two");
	MPI_Comm_free(&one);
	MPI_Session_finalize(&first);
	call_on(two, "the second of two");
	finish(two);
	MPI_Comm_free(&two);
	MPI_Session_finalize(&second);
}

/* MPI is not initialised twice, which is said. */
static void again(void)
{
	MPI_Session session;

	run_session("MPI_THREAD_SINGLE", "a session");
	session = open_session("MPI_THREAD_SINGLE");
	MPI_Session_finalize(&session);
}

/* The program has MPI_COMM_WORLD, too, and ends it before its session or after. */
static void init_later(void)
{
	MPI_Session session = open_session("MPI_THREAD_SINGLE");
	bool is_last = getenv("FINALIZE_LAST") != NULL;
	int level = -1, asked = -1;
	MPI_Comm comm;

	check(!is_initialized(), "MPI is not initialised yet, for the program");
	if (is_last)
		MPI_Init(NULL, NULL);
	else
		MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &level);
	check(is_initialized(), "MPI is initialised");
	MPI_Query_thread(&asked);
	check(is_last || level == asked, "the level");
	check(!is_fast || asked == MPI_THREAD_MULTIPLE, "the level serves all sessions");
	comm = make(session, false, false, "later");
	is_fast = true;
	call_on(MPI_COMM_WORLD, "MPI_COMM_WORLD");
	call_on(comm, "beside MPI_COMM_WORLD");
	finish(comm);
	MPI_Comm_free(&comm);
	if (is_last)
		MPI_Session_finalize(&session);
	call_on(MPI_COMM_WORLD, "MPI_COMM_WORLD at the end");
	MPI_Finalize();
	if (!is_last)
		MPI_Session_finalize(&session);
}

/* The first of the ranks alone has one, of itself, when MPI_COMM_WORLD ends. */
static void one_outlives(void)
{
	bool has = test_rank == 0;
	MPI_Session session;
	MPI_Group group;
	MPI_Comm comm;

	MPI_Init(NULL, NULL);
	is_fast = true;
	call_on(MPI_COMM_WORLD, "MPI_COMM_WORLD");
	finish(MPI_COMM_WORLD);
	if (has) {
		session = open_session("MPI_THREAD_SINGLE");
		MPI_Group_from_session_pset(session, "mpi://SELF", &group);
		MPI_Comm_create_from_group(group, "one", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL,
					   &comm);
		MPI_Group_free(&group);
	}
	MPI_Finalize();
	if (!has)
		return;
	call_on(comm, "itself");
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
}

static atomic_bool is_ending;

static int tell_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm;
	(void)keyval;
	(void)value;
	(void)extra;
	atomic_store(&is_ending, true);
	usleep(200000); /* the other thread goes on meanwhile, or waits for this one */
	return MPI_SUCCESS;
}

static void *begin_in_the_end(void *argument)
{
	MPI_Session session;

	while (!atomic_load(&is_ending))
		usleep(1000);
	session = open_session("MPI_THREAD_MULTIPLE");
	MPI_Session_finalize(&session);
	return argument;
}

/* A thread begins a session while MPI_Finalize calls back. */
static void begin_while_ending(void)
{
	int keyval, level;
	pthread_t thread;

	MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	is_fast = true;
	call_on(MPI_COMM_WORLD, "MPI_COMM_WORLD");
	finish(MPI_COMM_WORLD);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tell_end, &keyval, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
	pthread_create(&thread, NULL, begin_in_the_end, NULL);
	MPI_Finalize();
	pthread_join(thread, NULL);
}

/* What is under way, persistent or not, on a session's communicator when MPI_COMM_WORLD ends. */
static void outlive(void)
{
	MPI_Session session = open_session("MPI_THREAD_SINGLE");
	enum { PERSISTENT, STARTED, COLLECTIVE, RECEIVE, NUM };
	struct buffer in = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)), out[NUM];
	int *mine = malloc(COUNT * sizeof(int)), *sums = malloc(COUNT * sizeof(int)), rank, size;
	MPI_Request requests[NUM];
	MPI_Status statuses[NUM];
	MPI_Comm comm;

	MPI_Init(NULL, NULL);
	comm = make(session, false, false, "outlives");
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	for (int i = 0; i < COUNT; i++) {
		mine[i] = i + rank;
		sums[i] = size * i + size * (size - 1) / 2;
	}
	buffer_put(&in, mine, COUNT * sizeof(int));
	for (int i = 0; i < NUM; i++)
		out[i] = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	for (int i = 0; i < COLLECTIVE; i++)
		MPI_Allreduce_init(in.data, out[i].data, COUNT, MPI_INT, MPI_SUM, comm,
				   MPI_INFO_NULL, &requests[i]);
	MPI_Start(&requests[STARTED]);
	MPI_Iallreduce(in.data, out[COLLECTIVE].data, COUNT, MPI_INT, MPI_SUM, comm,
		       &requests[COLLECTIVE]);
	MPI_Irecv(out[RECEIVE].data, COUNT, MPI_INT, (rank + 1) % size, 3, comm,
		  &requests[RECEIVE]);
	MPI_Finalize();

	snprintf(test_name, sizeof(test_name), "what outlives MPI_COMM_WORLD");
#ifdef OPEN_MPI
	is_fast = false; /* MPICH ends with the last session only */
#else
	is_fast = true;
#endif
	MPI_Send(in.data, COUNT, MPI_INT, (rank + size - 1) % size, 3, comm);
	MPI_Start(&requests[PERSISTENT]);
	MPI_Waitall(NUM, requests, statuses);
	for (int i = 0; i < RECEIVE; i++)
		check(buffer_equals(&out[i], sums, "a sum"), test_name);
	for (int i = 0; i < COUNT; i++)
		mine[i] = i + (rank + 1) % size;
	check(buffer_equals(&out[RECEIVE], mine, "MPI_Irecv"), test_name);
	for (int i = 0; i < COLLECTIVE; i++)
		MPI_Request_free(&requests[i]);
	call_on(comm, "after MPI_COMM_WORLD");
	finish(comm);
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
	for (int i = 0; i < NUM; i++)
		buffer_free(&out[i]);
	buffer_free(&in);
	free(mine);
	free(sums);
}

static void *open_and_close(void *argument)
{
	MPI_Session *session = argument;

	pthread_barrier_wait(&together);
	*session = open_session("MPI_THREAD_MULTIPLE");
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	MPI_Session_finalize(session);
	return NULL;
}

/* Several at once, which end at once. */
static void threads(void)
{
	enum { NUM = 4 };
	MPI_Session sessions[NUM];
	pthread_t all[NUM];
	MPI_Comm comm;

	pthread_barrier_init(&together, NULL, NUM + 1);
	for (int i = 0; i < NUM; i++)
		pthread_create(&all[i], NULL, open_and_close, &sessions[i]);
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	comm = make(sessions[1], false, false, "threads");
	call_on(comm, "a session of a thread's");
	check(!is_initialized(), "MPI is not the program's");
	finish(comm);
	MPI_Comm_free(&comm);
	pthread_barrier_wait(&together);
	for (int i = 0; i < NUM; i++)
		pthread_join(all[i], NULL);
}

static MPI_Comm in_thread;

static void *call_in_thread(void *argument)
{
	const int places[] = {5, 2};
	MPI_Datatype type;

	(void)argument;
	for (int i = 0; i < 60; i++) {
		MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &type);
		receive_without(in_thread, type, 5, 2, true);
	}
	return NULL;
}

/* Without MPI_Init the library makes itself what it needs, in several threads at once. */
static void in_threads(void)
{
	enum { NUM = 3 };
	MPI_Session session = open_session("MPI_THREAD_MULTIPLE");
	pthread_t all[NUM];

	in_thread = make(session, false, false, "threads");
	pthread_barrier_init(&together, NULL, NUM);
	for (int i = 0; i < NUM; i++)
		pthread_create(&all[i], NULL, call_in_thread, NULL);
	for (int i = 0; i < NUM; i++)
		pthread_join(all[i], NULL);
	finish(in_thread);
	MPI_Comm_free(&in_thread);
	MPI_Session_finalize(&session);
}

static void alone(void)
{
	run_session("MPI_THREAD_SERIALIZED", "sessions only");
}

/* Ranks are those of the launcher, which tells them before MPI does. */
static int launcher_rank(void)
{
	const char *rank = getenv("PMI_RANK");

	rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
	return rank ? atoi(rank) : 0;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {{"alone", alone},
						 {"overlap", overlap},
						 {"again", again},
						 {"threads", threads},
						 {"init_later", init_later},
						 {"in_threads", in_threads},
						 {"outlive", outlive},
						 {"one_outlives", one_outlives},
						 {"begin_while_ending", begin_while_ending}};
	int devices = 0;

	test_rank = launcher_rank();
	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(test_rank % devices), "cudaSetDevice");
	is_fast = getenv("GPUCOLL_SESSIONS") != NULL;
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		cases[i].run();
		return test_finish();
	}
	return 2;
}
#else
int main(void)
{
	printf("this MPI has no sessions\n");
	return 2;
}
#endif
