/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs in which nonblocking collectives that are not decided, or that run, are in the way of
 * other calls: each is right by MPI's rules, and hangs if a rank waits for what only another of its
 * calls could do. One rank does things in another order than the others, or late.
 *
 *     test_queue CASE
 */
#include "test.h"

#include <assert.h>
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COUNT = 3000, ROUNDS = 12 };

/* A nonblocking sum of all ranks' words, in place. */
struct sum {
	struct buffer buffer;
	MPI_Request request;
	unsigned number, words[COUNT];
};

static unsigned value(unsigned number, int rank, int i)
{
	return number * 2654435761u + (unsigned)rank * 40503u + (unsigned)i * 2246822519u;
}

/* In its buffer. */
static void put_words(struct sum *sum, int number)
{
	sum->number = (unsigned)number;
	for (int i = 0; i < COUNT; i++)
		sum->words[i] = value(sum->number, test_rank, i);
	buffer_put(&sum->buffer, sum->words, sizeof(sum->words));
}

static void begin_again(struct sum *sum, MPI_Comm comm, int number)
{
	put_words(sum, number);
	MPI_Iallreduce(MPI_IN_PLACE, sum->buffer.data, COUNT, MPI_UNSIGNED, MPI_SUM, comm,
		       &sum->request);
}

static void begin_at(struct sum *sum, MPI_Comm comm, enum place place, int number)
{
	sum->buffer = buffer_new(place, sizeof(sum->words));
	begin_again(sum, comm, number);
}

/* Of the first so many ranks. */
static bool is_sum_of(struct sum *sum, int ranks)
{
	for (int i = 0; i < COUNT; i++) {
		sum->words[i] = 0;
		for (int rank = 0; rank < ranks; rank++)
			sum->words[i] += value(sum->number, rank, i);
	}
	return buffer_equals(&sum->buffer, sum->words, "sum");
}

static bool is_right(struct sum *sum)
{
	return is_sum_of(sum, test_size);
}

static bool check(struct sum *sum)
{
	bool ok = is_right(sum);

	buffer_free(&sum->buffer);
	return ok;
}

static bool end(struct sum *sum)
{
	MPI_Wait(&sum->request, MPI_STATUS_IGNORE);
	return check(sum);
}

/* Every third round one rank has its words in host memory. */
static enum place place_of(int round)
{
	return round % 3 == 2 && test_rank == round % test_size ? PLACE_HOST : PLACE_DEVICE;
}

static bool is_odd_one(int round)
{
	return test_rank == (round / 2) % test_size;
}

static void be_late(int round)
{
	if (is_odd_one(round) && round % 2)
		usleep(2000);
}

/* One rank waits for the sum before a host collective, the others after it. */
static void case_before_host(void)
{
	struct sum sum;

	for (int round = 0; round < ROUNDS; round++) {
		int mine = test_rank + round, all, want = test_size * (test_size - 1) / 2;
		bool ok;

		snprintf(test_name, sizeof(test_name), "before a host collective, %d", round);
		be_late(round);
		begin_at(&sum, MPI_COMM_WORLD, place_of(round), round);
		if (is_odd_one(round))
			MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
		ok = end(&sum);
		test_result(ok && all == want + test_size * round);
	}
}

/* How a rank waits for a message without MPI_Wait. */
static void receive(int way, int from, int *number)
{
	MPI_Request request;
	MPI_Status status;
	int there = 0;

	switch (way % 5) {
	case 0:
		break;
	case 1:
		MPI_Probe(from, 7, MPI_COMM_WORLD, &status);
		break;
	case 2:
		while (!there)
			MPI_Iprobe(from, 7, MPI_COMM_WORLD, &there, &status);
		break;
	case 3:
		MPI_Irecv(number, 1, MPI_INT, from, 7, MPI_COMM_WORLD, &request);
		while (!there)
			MPI_Test(&request, &there, &status);
		return;
	default:
		MPI_Irecv(number, 1, MPI_INT, from, 7, MPI_COMM_WORLD, &request);
		while (!there)
			MPI_Request_get_status(request, &there, &status);
		MPI_Wait(&request, &status);
		return;
	}
	MPI_Recv(number, 1, MPI_INT, from, 7, MPI_COMM_WORLD, &status);
}

/* One rank sends when it has the sum, for which the others wait after they have received. */
static void case_before_message(void)
{
	struct sum sum;

	for (int round = 0; round < 5 * ROUNDS; round++) {
		int odd = (round / 2) % test_size, number = round;
		bool ok;

		snprintf(test_name, sizeof(test_name), "before a message, %d", round);
		be_late(round);
		begin_at(&sum, MPI_COMM_WORLD, place_of(round), round);
		if (test_rank != odd) {
			number = -1;
			receive(round, odd, &number);
			ok = end(&sum);
		} else {
			ok = end(&sum);
			for (int to = 0; to < test_size; to++) {
				if (to != odd)
					MPI_Send(&number, 1, MPI_INT, to, 7, MPI_COMM_WORLD);
			}
		}
		test_result(ok && number == round);
	}
	/* One that nothing is in the way of. */
	snprintf(test_name, sizeof(test_name), "after all messages");
	begin_at(&sum, MPI_COMM_WORLD, PLACE_DEVICE, 0);
	test_result(end(&sum));
}

/* Two communicators, in opposite order, nonblocking and then with a blocking call in the other. */
static void case_opposite(void)
{
	MPI_Comm a, b;
	struct sum first, second;

	MPI_Comm_dup(MPI_COMM_WORLD, &a);
	MPI_Comm_dup(MPI_COMM_WORLD, &b);
	for (int round = 0; round < ROUNDS; round++) {
		bool odd = is_odd_one(round), ok;

		snprintf(test_name, sizeof(test_name), "two communicators, %d", round);
		if (odd)
			begin_at(&second, b, PLACE_DEVICE, -round);
		begin_at(&first, a, place_of(round), round);
		if (!odd)
			begin_at(&second, b, PLACE_DEVICE, -round);
		if (odd) {
			ok = end(&first);
			ok = end(&second) && ok;
		} else {
			ok = end(&second);
			ok = end(&first) && ok;
		}
		test_result(ok);
	}
	MPI_Comm_free(&a);
	MPI_Comm_free(&b);
}

/* A rank is in a blocking accelerated call while its part of another one is still to be issued. */
static void case_in_blocking(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(int));
	MPI_Comm other;
	struct sum sum;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	for (int round = 0; round < ROUNDS; round++) {
		int word = test_rank, want = test_size * (test_size - 1) / 2;
		bool odd = is_odd_one(round), ok;

		snprintf(test_name, sizeof(test_name), "in a blocking call, %d", round);
		buffer_put(&buffer, &word, sizeof(word));
		be_late(round);
		begin_at(&sum, MPI_COMM_WORLD, odd && round % 4 < 2 ? PLACE_HOST : PLACE_DEVICE,
			 round);
		if (odd)
			MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
		MPI_Allreduce(MPI_IN_PLACE, buffer.data, 1, MPI_INT, MPI_SUM, other);
		ok = buffer_equals(&buffer, &want, "blocking");
		test_result(end(&sum) && ok);
	}
	MPI_Comm_free(&other);
	buffer_free(&buffer);
}

/* A word that all ranks, which are on one host, see. */
static atomic_int *share_word(void)
{
	char path[64];
	int file;
	void *map;

	snprintf(path, sizeof(path), "/dev/shm/gpucoll-test-queue-%d", (int)getpid());
	MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
	file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, sizeof(atomic_int)))
		MPI_Abort(MPI_COMM_WORLD, 3);
	map = mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	MPI_Barrier(MPI_COMM_WORLD);
	unlink(path);
	return map;
}

/* A rank makes no call of MPI until the others have the sums. */
static void case_alone(void)
{
	enum { MANY = 4 };
	static struct sum sums[MANY];
	atomic_int *word = share_word();

	for (int round = 0; round < ROUNDS; round++) {
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "alone, %d", round);
		for (int k = 0; k < MANY; k++)
			begin_at(&sums[k], MPI_COMM_WORLD, PLACE_DEVICE, MANY * round + k);
		while (is_odd_one(round) && atomic_load(word) < (round + 1) * (test_size - 1))
			usleep(100);
		for (int k = 0; k < MANY; k++)
			ok = end(&sums[k]) && ok;
		if (!is_odd_one(round))
			atomic_fetch_add(word, 1);
		test_result(ok);
	}
	munmap(word, sizeof(*word));
}

static atomic_bool released;

static void CUDA_CB wait_for_release(void *data)
{
	(void)data;
	while (!atomic_load(&released))
		usleep(100);
}

/*
 * What the program puts on the legacy stream after the calls ends after they have. The buffers are
 * known by then: to map new ones the driver may wait for all that is on the device.
 */
static void case_later_work(void)
{
	enum { MANY = 4, WARM = 2 };
	static struct sum sums[2][MANY]; /* in host memory, on the device */

	for (int k = 0; k < 2 * MANY; k++)
		sums[k % 2][k / 2].buffer =
			buffer_new(k % 2 ? PLACE_DEVICE : PLACE_HOST, COUNT * sizeof(unsigned));
	for (int round = 0; round < WARM + ROUNDS; round++) {
		struct sum *these = sums[round < WARM || place_of(round) == PLACE_DEVICE];
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "later work, %d", round);
		atomic_store(&released, round < WARM);
		be_late(round);
		for (int k = 0; k < MANY; k++)
			begin_again(&these[k], MPI_COMM_WORLD, MANY * round + k);
		if (cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_release, NULL) != CUDA_SUCCESS)
			MPI_Abort(MPI_COMM_WORLD, 3);
		for (int k = 0; k < MANY; k++)
			MPI_Wait(&these[k].request, MPI_STATUS_IGNORE);
		atomic_store(&released, true);
		/* Before the next round takes that back. */
		cuda_check(cudaStreamSynchronize(0), "cudaStreamSynchronize");
		for (int k = 0; k < MANY; k++)
			ok = is_right(&these[k]) && ok;
		test_result(ok);
	}
	for (int k = 0; k < 2 * MANY; k++)
		buffer_free(&sums[k % 2][k / 2].buffer);
}

/* What the arguments refer to is gone when the call has returned. One rank is late, and may stage.
 */
static void case_gone_arguments(void)
{
	struct buffer send, recv;
	int words[64], want[64];

	for (int round = 0; round < ROUNDS; round++) {
		int *counts = malloc((size_t)test_size * sizeof(int)),
		    *displs = malloc((size_t)test_size * sizeof(int));
		MPI_Datatype pair, *types = malloc((size_t)test_size * sizeof(MPI_Datatype));
		MPI_Request request;
		bool ok;

		snprintf(test_name, sizeof(test_name), "arguments that go, %d", round);
		MPI_Type_contiguous(2, MPI_INT, &pair);
		MPI_Type_commit(&pair);
		for (int r = 0; r < test_size; r++) {
			counts[r] = 1;
			displs[r] = 2 * (int)sizeof(int) * r;
			types[r] = pair;
			words[2 * r] = words[2 * r + 1] = test_rank * 100 + r;
			want[2 * r] = want[2 * r + 1] = r * 100 + test_rank;
		}
		send = buffer_new(place_of(round), 2 * (size_t)test_size * sizeof(int));
		recv = buffer_new(place_of(round), 2 * (size_t)test_size * sizeof(int));
		buffer_put(&send, words, 2 * (size_t)test_size * sizeof(int));
		be_late(round);
		if (round % 2)
			MPI_Ialltoallw(send.data, counts, displs, types, recv.data, counts, displs,
				       types, MPI_COMM_WORLD, &request);
		else
			MPI_Ialltoall(send.data, 1, pair, recv.data, 1, pair, MPI_COMM_WORLD,
				      &request);
		MPI_Type_free(&pair);
		memset(counts, 0x55, (size_t)test_size * sizeof(int));
		memset(displs, 0x55, (size_t)test_size * sizeof(int));
		memset(types, 0x55, (size_t)test_size * sizeof(MPI_Datatype));
		free(counts);
		free(displs);
		free(types);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		ok = buffer_equals(&recv, want, "received");
		test_result(ok);
		buffer_free(&send);
		buffer_free(&recv);
	}
}

/* Communicators that are freed with calls pending. Open MPI 4.1 can't do that with a reduction. */
static void case_freed_comm(void)
{
	enum { MANY = 3 };

	for (int round = 0; round < ROUNDS; round++) {
		struct buffer buffers[MANY];
		MPI_Request requests[MANY];
		MPI_Status statuses[MANY];
		int root = round % test_size, word;
		bool ok = true;
		MPI_Comm comm;

		snprintf(test_name, sizeof(test_name), "freed communicator, %d", round);
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		be_late(round);
		for (int k = 0; k < MANY; k++) {
			word = test_rank == root ? round * 10 + k : -1;
			buffers[k] = buffer_new(place_of(round), sizeof(int));
			buffer_put(&buffers[k], &word, sizeof(word));
			MPI_Ibcast(buffers[k].data, 1, MPI_INT, root, comm, &requests[k]);
		}
		MPI_Comm_free(&comm);
		MPI_Waitall(MANY, requests, statuses);
		for (int k = 0; k < MANY; k++) {
			word = round * 10 + k;
			ok = buffer_equals(&buffers[k], &word, "word") && ok;
			buffer_free(&buffers[k]);
		}
		test_result(ok);
	}
}

static void check_late(MPI_Comm comm, bool ok)
{
	struct sum sum;

	/* Nothing was agreed on yet. */
	begin_at(&sum, comm, PLACE_DEVICE, 1);
	ok = end(&sum) && ok;
	for (int k = 0; k < 3; k++) {
		int word = test_rank == 1 ? 5 + k : -1;
		struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(word));

		buffer_put(&buffer, &word, sizeof(word));
		MPI_Bcast(buffer.data, 1, MPI_INT, 1, comm);
		word = 5 + k;
		ok = buffer_equals(&buffer, &word, "word") && ok;
		buffer_free(&buffer);
	}
	begin_at(&sum, comm, PLACE_DEVICE, 2);
	ok = end(&sum) && ok;
	test_result(ok);
}

/* Communicators that are made in other ways than by a call that waits for all of another's. */
static void case_late_comm(void)
{
	MPI_Comm comms[3];
	MPI_Request requests[3];
	MPI_Status statuses[3];
	MPI_Group group;
	struct sum sum;

	/* What is pending meanwhile has nothing to do with it. */
	begin_at(&sum, MPI_COMM_WORLD, PLACE_DEVICE, 7);
	for (int k = 0; k < 3; k++)
		MPI_Comm_idup(MPI_COMM_WORLD, &comms[k], &requests[k]);
	MPI_Waitall(3, requests, statuses);
	MPI_Comm_free(&comms[1]);
	snprintf(test_name, sizeof(test_name), "MPI_Comm_idup");
	check_late(comms[2], true);
	check_late(comms[0], end(&sum));
	/* A handle that is used again. */
	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	check_late(comms[1], true);
	for (int k = 0; k < 3; k++)
		MPI_Comm_free(&comms[k]);
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
	snprintf(test_name, sizeof(test_name), "MPI_Comm_create_from_group");
	MPI_Comm_group(MPI_COMM_WORLD, &group);
	MPI_Comm_create_from_group(group, "org.gpucoll.test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL,
				   &comms[0]);
	check_late(comms[0], true);
	MPI_Comm_free(&comms[0]);
	MPI_Group_free(&group);
#else
	(void)group;
#endif
}

/*
 * One rank is calls ahead, as those are on host buffers there. What it queues behind them waits for
 * the others.
 */
static void case_ahead(void)
{
	enum { AHEAD = 8 };
	struct sum sums[AHEAD + 1];

	for (int round = 0; round < ROUNDS; round++) {
		bool odd = test_rank == round % test_size, ok = true;

		snprintf(test_name, sizeof(test_name), "calls ahead, %d", round);
		if (!odd)
			usleep(2000);
		for (int i = 0; i <= AHEAD; i++)
			begin_at(&sums[i], MPI_COMM_WORLD,
				 odd && i < AHEAD ? PLACE_HOST : PLACE_DEVICE, round + i);
		for (int i = AHEAD; i >= 0; i--)
			ok = end(&sums[i]) && ok;
		test_result(ok);
	}
}

/* Many at a time, on several communicators; in the last round nothing is in their way. */
static void case_many(void)
{
	enum { COMMS = 5, EACH = 20, ALL = COMMS * EACH };
	struct sum *sums = malloc(ALL * sizeof(*sums));
	MPI_Request requests[ALL];
	MPI_Status statuses[ALL];
	MPI_Comm comms[COMMS];

	for (int c = 0; c < COMMS; c++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
	for (int round = 0; round < 4; round++) {
		int way = round % 3, open = ALL, index, some[ALL], num;
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "many, %d", round);
		for (int k = 0; k < ALL; k++) {
			begin_at(&sums[k], comms[k % COMMS], round < 3 ? place_of(k) : PLACE_DEVICE,
				 k);
			requests[k] = sums[k].request;
		}
		if (way == 0)
			MPI_Waitall(ALL, requests, statuses);
		for (; way == 1 && open; open--)
			MPI_Waitany(ALL, requests, &index, MPI_STATUS_IGNORE);
		for (; way == 2 && open; open -= num)
			MPI_Waitsome(ALL, requests, &num, some, statuses);
		for (int k = ALL - 1; k >= 0; k--)
			ok = check(&sums[k]) && ok;
		test_result(ok);
	}
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_free(&comms[c]);
	free(sums);
}

/* A request of a file's, which some MPIs go on with in some of their calls only. */
static void case_file(void)
{
	char path[80], byte = 'x';
	struct sum sum;
	MPI_File file;

	snprintf(path, sizeof(path), "%s/gpucoll-test-queue-%d",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
	MPI_File_open(MPI_COMM_SELF, path,
		      MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
		      &file);
	for (int round = 0; round < ROUNDS; round++) {
		int odd = (round / 2) % test_size, number = round;
		MPI_Request request;
		bool ok;

		snprintf(test_name, sizeof(test_name), "a file's request, %d", round);
		if (test_rank != odd)
			MPI_Recv(&number, 1, MPI_INT, odd, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		begin_at(&sum, MPI_COMM_WORLD, place_of(round), round);
		if (test_rank == odd) {
			MPI_File_iwrite_at(file, round, &byte, 1, MPI_BYTE, &request);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			for (int to = 0; to < test_size; to++) {
				if (to != odd)
					MPI_Send(&number, 1, MPI_INT, to, 7, MPI_COMM_WORLD);
			}
		}
		ok = end(&sum);
		test_result(ok);
	}
	MPI_File_close(&file);
}

/* One rank goes on to a collective call without buffers, the others wait for the sum before. */
static void case_set_info(void)
{
	MPI_Info info;
	struct sum sum;
	MPI_Win window;
	int word;

	MPI_Win_create(&word, sizeof(word), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Info_create(&info);
	for (int round = 0; round < ROUNDS; round++) {
		bool odd = is_odd_one(round), ok;

		snprintf(test_name, sizeof(test_name), "before a window's info, %d", round);
		if (!odd)
			usleep(1000);
		begin_at(&sum, MPI_COMM_WORLD, odd ? PLACE_DEVICE : PLACE_HOST, round);
		if (!odd)
			MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
		MPI_Win_set_info(window, info);
		ok = end(&sum);
		test_result(ok);
	}
	MPI_Info_free(&info);
	MPI_Win_free(&window);
}

/* What was begun goes on when the library is switched off. */
static void case_switched_off(void)
{
	int (*enable)(int) = NULL;
	struct sum sum;

	*(void **)&enable = dlsym(RTLD_DEFAULT, "gpucoll_enable");
	for (int round = 0; enable && round < ROUNDS; round++) {
		int odd = (round / 2) % test_size, number = round;
		bool ok;

		snprintf(test_name, sizeof(test_name), "switched off, %d", round);
		if (test_rank != odd)
			usleep(1000);
		begin_at(&sum, MPI_COMM_WORLD, test_rank == odd ? PLACE_DEVICE : PLACE_HOST, round);
		if (test_rank == odd) {
			enable(0);
			MPI_Recv(&number, 1, MPI_INT, (odd + 1) % test_size, 7, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			enable(1);
		}
		ok = end(&sum);
		if (test_rank == (odd + 1) % test_size)
			MPI_Send(&number, 1, MPI_INT, odd, 7, MPI_COMM_WORLD);
		test_result(ok && number == round);
	}
}

static int handled;

static void count_errors(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	handled++;
}

static bool tells_of_truncation(int result)
{
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 50000000
	/* The error handler is told, and the wait is a success. */
	return result == MPI_SUCCESS;
#else
	return result != MPI_SUCCESS;
#endif
}

/*
 * More comes than there is room for, which MPICH finds when the call completes: an error of its
 * own, once. Others are well.
 */
static void case_truncated(void)
{
	enum { ROOM = 200, MORE = 800 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, MORE);
	MPI_Errhandler handler;
	struct sum sum;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_create_errhandler(count_errors, &handler);
	MPI_Comm_set_errhandler(comm, handler);
	for (int round = 0; round < 4; round++) {
		int result;
		MPI_Request request;
		bool ok;

		snprintf(test_name, sizeof(test_name), "truncated, %d", round);
		handled = 0;
		MPI_Ibcast(buffer.data, test_rank ? ROOM : MORE, MPI_BYTE, 0, comm, &request);
		begin_at(&sum, MPI_COMM_WORLD, PLACE_DEVICE, round);
		result = MPI_Wait(&request, MPI_STATUS_IGNORE);
		ok = end(&sum);
		test_result(ok &&
			    (test_rank ? tells_of_truncation(result) && handled == 1 : !result));
	}
	MPI_Errhandler_free(&handler);
	MPI_Comm_free(&comm);
	buffer_free(&buffer);
}

/* One rank comes so late that the others say for whom they wait. */
static void case_late(void)
{
	struct sum sum;

	snprintf(test_name, sizeof(test_name), "late");
	if (test_rank == 0)
		sleep(3);
	begin_at(&sum, MPI_COMM_WORLD, PLACE_DEVICE, 1);
	test_result(end(&sum));
}

static MPI_Comm freed_by_handler;

static void free_comm(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	handled++;
	if (freed_by_handler != MPI_COMM_NULL)
		MPI_Comm_free(&freed_by_handler);
}

/*
 * All have come. By nonblocking messages, as calls of other kinds, MPI_Ibarrier too, have what
 * waits for others staged (core_queue_yield).
 */
static void meet_quietly(void)
{
	enum { TAG = 77, MOST = 64 };
	MPI_Request requests[2 * MOST];
	MPI_Status statuses[2 * MOST]; /* gcc takes MPICH's name for none amiss */

	assert(test_size <= MOST);
	for (int rank = 0; rank < test_size; rank++) {
		MPI_Irecv(NULL, 0, MPI_INT, rank, TAG, MPI_COMM_WORLD, &requests[2 * rank]);
		MPI_Isend(NULL, 0, MPI_INT, rank, TAG, MPI_COMM_WORLD, &requests[2 * rank + 1]);
	}
	MPI_Waitall(2 * test_size, requests, statuses);
}

/*
 * A tool below the library has the first call fail on all ranks but one, and its error handler
 * frees the communicator, on which others wait for that call.
 */
static void case_freed_in_handler(void)
{
	enum { MANY = 3 };
	int mine = test_rank ? MANY : 1;
	static struct sum sums[MANY];
	MPI_Errhandler handler;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "freed in an error handler");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_dup(MPI_COMM_WORLD, &freed_by_handler);
	MPI_Comm_create_errhandler(free_comm, &handler);
	MPI_Comm_set_errhandler(freed_by_handler, handler);
	if (!test_rank) /* after the others, so that all of theirs wait */
		meet_quietly();
	for (int k = 0; k < mine; k++)
		begin_at(&sums[k], freed_by_handler, test_rank ? PLACE_DEVICE : PLACE_HOST, k);
	if (test_rank)
		meet_quietly();
	for (int k = 0; k < mine; k++) {
		if (test_rank)
			ok &= MPI_Wait(&sums[k].request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
	}
	test_result(ok && handled == (test_rank != 0) &&
		    (freed_by_handler == MPI_COMM_NULL) == (test_rank != 0));
	MPI_Errhandler_free(&handler);
}

/* The same of blocking calls that the real MPI gets, of host buffers and staged. */
static void case_freed_in_blocking(void)
{
	enum { REFUSED = 4321 };
	MPI_Errhandler handler;

	MPI_Comm_create_errhandler(free_comm, &handler);
	for (int place = PLACE_HOST; place <= PLACE_DEVICE; place++) {
		size_t bytes = REFUSED * sizeof(long double);
		struct buffer buffer = buffer_new((enum place)place, bytes);
		int result;

		snprintf(test_name, sizeof(test_name), "freed in a blocking call's handler, %s",
			 place == PLACE_HOST ? "host" : "device");
		handled = 0;
		MPI_Comm_dup(MPI_COMM_WORLD, &freed_by_handler);
		MPI_Comm_set_errhandler(freed_by_handler, handler);
		result = MPI_Allreduce(MPI_IN_PLACE, buffer.data, REFUSED, MPI_LONG_DOUBLE, MPI_SUM,
				       freed_by_handler);
		test_result(result && handled == 1 && freed_by_handler == MPI_COMM_NULL);
		buffer_free(&buffer);
	}
	MPI_Errhandler_free(&handler);
}

/* ---- persistent ones ---- */

static void prepare(struct sum *sum, MPI_Comm comm, enum place place)
{
	sum->buffer = buffer_new(place, sizeof(sum->words));
	INIT(Allreduce)
	(MPI_IN_PLACE, sum->buffer.data, COUNT, MPI_UNSIGNED, MPI_SUM, comm, MPI_INFO_NULL,
	 &sum->request);
}

static void start(struct sum *sum, int number)
{
	put_words(sum, number);
	MPI_Start(&sum->request);
}

static bool wait_for(struct sum *sum)
{
	MPI_Wait(&sum->request, MPI_STATUS_IGNORE);
	return is_right(sum);
}

static void give_back(struct sum *sum)
{
	MPI_Request_free(&sum->request);
	buffer_free(&sum->buffer);
}

/*
 * MPICH, 5.0 too, can't ask about several requests if one is a persistent collective of its own, as
 * on a rank with host buffers.
 */
static bool asks_of_several(void)
{
#ifdef OPEN_MPI
	return true;
#else
	return false;
#endif
}

/* Each rank starts them in another order, and has its own way to see them complete. */
static void case_persistent_orders(void)
{
	enum { COMMS = 2, ALL = 12 };
	struct sum *sums = malloc(ALL * sizeof(*sums));
	MPI_Request requests[ALL];
	MPI_Status statuses[ALL];
	MPI_Comm comms[COMMS];

	for (int c = 0; c < COMMS; c++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
	for (int k = 0; k < ALL; k++)
		prepare(&sums[k], comms[k % COMMS], asks_of_several() ? place_of(k) : PLACE_DEVICE);
#ifdef MPICH /* Open MPI 4.1 does not start them any more, then */
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_free(&comms[c]);
#endif
	for (int round = 0; round < ROUNDS; round++) {
		int way = (round + test_rank) % 5, open = ALL, index, num, some[ALL], there = 0;
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "persistent, in any order, %d", round);
		for (int k = 0; k < ALL; k++) {
			put_words(&sums[k], round * ALL + k);
			requests[k] = sums[k].request;
		}
		be_late(round);
		/* 5 and 7 have no divisor in common with 12. */
		for (int k = 0; way != 3 && k < ALL; k++)
			MPI_Start(
				&requests[(k * (test_rank % 2 ? 5 : 7) + round + test_rank) % ALL]);
		if (way == 3)
			MPI_Startall(ALL, requests);
		if (way == 0)
			MPI_Waitall(ALL, requests, statuses);
		for (; way == 1 && open; open--) {
			MPI_Waitany(ALL, requests, &index, MPI_STATUS_IGNORE);
			ok = is_right(&sums[index]) && ok;
		}
		for (; way == 2 && open; open -= num > 0 ? num : 0) {
			MPI_Testsome(ALL, requests, &num, some, statuses);
			for (int i = 0; i < num; i++)
				ok = is_right(&sums[some[i]]) && ok;
		}
		while (way == 3 && !there)
			MPI_Testall(ALL, requests, &there, statuses);
		for (int k = 0; way == 4 && k < ALL; k++, there = 0) {
			while (!there)
				MPI_Request_get_status(requests[k], &there, MPI_STATUS_IGNORE);
			ok = is_right(&sums[k]) && ok;
			MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
		}
		for (int k = 0; k < ALL; k++) {
			sums[k].request = requests[k];
			ok = is_right(&sums[k]) && ok;
		}
		test_result(ok);
	}
	/* The last one is left to MPI_Finalize. */
	for (int k = 0; k + 1 < ALL; k++)
		give_back(&sums[k]);
	buffer_free(&sums[ALL - 1].buffer);
	for (int c = 0; c < COMMS; c++) {
		if (comms[c] != MPI_COMM_NULL)
			MPI_Comm_free(&comms[c]);
	}
	free(sums);
}

/* A rank that goes on to other calls of MPI has not been waited for. */
static void case_persistent_before(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(int));
	struct sum sums[3], *sum;

	for (int k = 0; k < 3; k++)
		prepare(&sums[k], MPI_COMM_WORLD, place_of(k));
	for (int round = 0; round < 5 * ROUNDS; round++) {
		int odd = (round / 2) % test_size, number = round, word = test_rank;
		int want = test_size * (test_size - 1) / 2, all = want;
		bool ok, before = test_rank == odd;

		snprintf(test_name, sizeof(test_name), "persistent, before other calls, %d", round);
		sum = &sums[round % 7 % 3];
		buffer_put(&buffer, &word, sizeof(word));
		be_late(round);
		start(sum, round);
		if (before)
			MPI_Wait(&sum->request, MPI_STATUS_IGNORE);
		if (round % 4 == 1) {
			MPI_Allreduce(&word, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		} else if (round % 4 == 2) {
			MPI_Allreduce(MPI_IN_PLACE, buffer.data, 1, MPI_INT, MPI_SUM,
				      MPI_COMM_WORLD);
		} else if (!before) {
			receive(round, odd, &number);
		}
		for (int to = 0; round % 4 % 3 == 0 && before && to < test_size; to++) {
			if (to != odd)
				MPI_Send(&number, 1, MPI_INT, to, 7, MPI_COMM_WORLD);
		}
		if (!before)
			MPI_Wait(&sum->request, MPI_STATUS_IGNORE);
		ok = is_right(sum) && all == want && number == round;
		if (round % 4 == 2)
			ok = buffer_equals(&buffer, &want, "blocking") && ok;
		test_result(ok);
	}
	for (int k = 0; k < 3; k++)
		give_back(&sums[k]);
	buffer_free(&buffer);
}

/* A rank makes no call of MPI until the others have the sums. */
static void case_persistent_alone(void)
{
	enum { MANY = 4 };
	static struct sum sums[MANY];
	MPI_Request requests[MANY];
	atomic_int *word = share_word();

	for (int k = 0; k < MANY; k++)
		prepare(&sums[k], MPI_COMM_WORLD, PLACE_DEVICE);
	for (int round = 0; round < ROUNDS; round++) {
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "persistent, alone, %d", round);
		for (int k = 0; k < MANY; k++) {
			int which = is_odd_one(round) ? MANY - 1 - k : k;

			put_words(&sums[which], MANY * round + which);
			requests[k] = sums[which].request;
		}
		/* Handles stay what they are. */
		if (round % 2)
			MPI_Startall(MANY, requests);
		for (int k = 0; k < MANY && round % 2 == 0; k++)
			MPI_Start(&requests[k]);
		while (is_odd_one(round) && atomic_load(word) < (round + 1) * (test_size - 1))
			usleep(100);
		for (int k = 0; k < MANY; k++)
			ok = wait_for(&sums[is_odd_one(round) ? MANY - 1 - k : k]) && ok;
		if (!is_odd_one(round))
			atomic_fetch_add(word, 1);
		test_result(ok);
	}
	for (int k = 0; k < MANY; k++)
		give_back(&sums[k]);
	munmap(word, sizeof(*word));
}

/* What the arguments referred to is gone. Some have no data, one is on the host now and then. */
static void case_persistent_arguments(void)
{
	enum { SETS = 4 };
	struct buffer send[SETS], recv[SETS];
	MPI_Request requests[SETS];
	int words[64], want[64], none = test_size - 1;
	size_t bytes = 2 * (size_t)test_size * sizeof(int);
	bool ok = true;

	for (int set = 0; set < SETS; set++) {
		int *counts = malloc((size_t)test_size * sizeof(int)),
		    *displs = malloc((size_t)test_size * sizeof(int));
		MPI_Datatype pair, *types = malloc((size_t)test_size * sizeof(MPI_Datatype));
		bool has = test_rank != none;

		MPI_Type_contiguous(2, MPI_INT, &pair);
		MPI_Type_commit(&pair);
		for (int r = 0; r < test_size; r++) {
			counts[r] = has && r != none;
			displs[r] = 2 * (int)sizeof(int) * r;
			types[r] = pair;
		}
		send[set] = buffer_new(place_of(set), bytes);
		recv[set] = buffer_new(place_of(set), bytes);
		INIT(Alltoallw)
		(has ? send[set].data : NULL, counts, displs, types, has ? recv[set].data : NULL,
		 counts, displs, types, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[set]);
		MPI_Type_free(&pair);
		memset(counts, 0x55, (size_t)test_size * sizeof(int));
		memset(displs, 0x55, (size_t)test_size * sizeof(int));
		memset(types, 0x55, (size_t)test_size * sizeof(MPI_Datatype));
		free(counts);
		free(displs);
		free(types);
	}
	for (int round = 0; round < ROUNDS; round++) {
		snprintf(test_name, sizeof(test_name), "persistent, arguments that go, %d", round);
		for (int set = 0; set < SETS; set++) {
			for (int r = 0; r < test_size; r++) {
				bool has = test_rank != none && r != none;

				words[2 * r] = words[2 * r + 1] = test_rank * 100 + r + round;
				want[2 * r] = want[2 * r + 1] =
					has ? r * 100 + test_rank + round : -7;
			}
			buffer_put(&send[set], words, bytes);
			for (int i = 0; i < 2 * test_size; i++)
				words[i] = -7;
			buffer_put(&recv[set], words, bytes);
			MPI_Start(&requests[set]);
		}
		ok = true;
		for (int set = SETS; set-- > 0;) {
			MPI_Wait(&requests[set], MPI_STATUS_IGNORE);
			ok = buffer_equals(&recv[set], want, "received") && ok;
		}
		test_result(ok);
	}
	for (int set = 0; set < SETS; set++) {
		MPI_Request_free(&requests[set]);
		buffer_free(&send[set]);
		buffer_free(&recv[set]);
	}
}

/* More than a node's board has room for. */
static void case_persistent_many(void)
{
	enum { MANY = 1100, ROUND = 3 };
	struct buffer *buffers = malloc(MANY * sizeof(*buffers));
	MPI_Request *requests = malloc(MANY * sizeof(MPI_Request));

	for (int again = 0; again < 2; again++) {
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "persistent, many, %d", again);
		for (int k = 0; k < MANY; k++) {
			buffers[k] = buffer_new(PLACE_DEVICE, sizeof(int));
			INIT(Bcast)
			(buffers[k].data, 1, MPI_INT, k % test_size, MPI_COMM_WORLD, MPI_INFO_NULL,
			 &requests[k]);
		}
		for (int round = 0; round < ROUND; round++) {
			int step = MANY / ROUND, word;

			for (int k = round; k < MANY; k += step) {
				word = test_rank == k % test_size ? 10 * k + round : -1;
				buffer_put(&buffers[k], &word, sizeof(word));
				MPI_Start(&requests[k]);
			}
			for (int k = round; k < MANY; k += step) {
				word = 10 * k + round;
				MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
				ok = buffer_equals(&buffers[k], &word, "word") && ok;
			}
		}
		test_result(ok);
		for (int k = 0; k < MANY; k++) {
			MPI_Request_free(&requests[k]);
			buffer_free(&buffers[k]);
		}
	}
	free(buffers);
	free(requests);
}

/* One rank's call is refused. Others may go on without it, and so can't; but nothing hangs. */
static void case_persistent_refused(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	struct sum sum;
	MPI_Comm comm;

	for (int round = 0; round < 4; round++) {
		int odd = round % test_size, result;
		MPI_Request request = MPI_REQUEST_NULL;
		bool ok;

		snprintf(test_name, sizeof(test_name), "persistent, refused, %d", round);
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
		result = INIT(Bcast)(buffer.data, test_rank == odd ? -1 : 4, MPI_INT, 0, comm,
				     MPI_INFO_NULL, &request);
		prepare(&sum, MPI_COMM_WORLD, PLACE_DEVICE);
		start(&sum, round);
		ok = wait_for(&sum);
		give_back(&sum);
		test_result(ok && (result != MPI_SUCCESS) == (test_rank == odd));
		if (request != MPI_REQUEST_NULL)
			MPI_Request_free(&request);
		MPI_Comm_free(&comm);
	}
	buffer_free(&buffer);
}

/*
 * A blocking call on device buffers that is staged at once, while another call is still to be
 * issued: one rank comes later, and waits for that first.
 */
static void case_before_staged(void)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, sizeof(long double));
	MPI_Comm other;
	struct sum sum;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	for (int round = 0; round < ROUNDS; round++) {
		long double word = test_rank, want = test_size * (test_size - 1) / 2;
		bool odd = is_odd_one(round);

		snprintf(test_name, sizeof(test_name), "before a staged call, %d", round);
		buffer_put(&buffer, &word, sizeof(word));
		if (odd)
			usleep(5000);
		begin_at(&sum, MPI_COMM_WORLD, odd ? PLACE_HOST : PLACE_DEVICE, round);
		if (odd)
			MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
		MPI_Allreduce(MPI_IN_PLACE, buffer.data, 1, MPI_LONG_DOUBLE, MPI_SUM, other);
		cuda_check(cudaMemcpy(&word, buffer.data, sizeof(word), cudaMemcpyDefault),
			   "cudaMemcpy");
		test_result(end(&sum) && word == want);
	}
	MPI_Comm_free(&other);
	buffer_free(&buffer);
}

/*
 * Prefix sums, each of which takes scratch memory, on more communicators than memory stays
 * allocated for, beside a long call: giving it back waits for kernels, which wait for others.
 */
static void case_many_comms(void)
{
	enum { COMMS = 24, LONG = 1 << 20 };
	struct sum *sums = malloc(COMMS * sizeof(*sums));
	struct buffer buffer = buffer_new(PLACE_DEVICE, LONG * sizeof(int));
	MPI_Request request;
	MPI_Comm comms[COMMS];

	for (int c = 0; c < COMMS; c++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
		sums[c].buffer = buffer_new(PLACE_DEVICE, sizeof(sums->words));
	}
	for (int round = 0; round < 2 * ROUNDS; round++) {
		bool ok = true;

		snprintf(test_name, sizeof(test_name), "many communicators, %d", round);
		for (int c = 0; c < COMMS; c++)
			put_words(&sums[c], c + round);
		be_late(round);
		MPI_Iallreduce(MPI_IN_PLACE, buffer.data, LONG, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
			       &request);
		for (int c = 0; c < COMMS; c++)
			MPI_Iscan(MPI_IN_PLACE, sums[c].buffer.data, COUNT, MPI_UNSIGNED, MPI_SUM,
				  comms[c], &sums[c].request);
		for (int c = 0; c < COMMS; c++) {
			MPI_Wait(&sums[c].request, MPI_STATUS_IGNORE);
			ok = is_sum_of(&sums[c], test_rank + 1) && ok;
		}
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		test_result(ok);
	}
	buffer_free(&buffer);
	for (int c = 0; c < COMMS; c++) {
		buffer_free(&sums[c].buffer);
		MPI_Comm_free(&comms[c]);
	}
	free(sums);
}

static const struct test_case cases[] = {{"late", case_late},
					 {"freed_in_handler", case_freed_in_handler},
					 {"freed_in_blocking", case_freed_in_blocking},
					 {"persistent_orders", case_persistent_orders},
					 {"persistent_before", case_persistent_before},
					 {"persistent_alone", case_persistent_alone},
					 {"persistent_arguments", case_persistent_arguments},
					 {"persistent_many", case_persistent_many},
					 {"persistent_refused", case_persistent_refused},
					 {"file", case_file},
					 {"set_info", case_set_info},
					 {"switched_off", case_switched_off},
					 {"truncated", case_truncated},
					 {"before_host", case_before_host},
					 {"before_message", case_before_message},
					 {"opposite", case_opposite},
					 {"in_blocking", case_in_blocking},
					 {"alone", case_alone},
					 {"later_work", case_later_work},
					 {"gone_arguments", case_gone_arguments},
					 {"freed_comm", case_freed_comm},
					 {"late_comm", case_late_comm},
					 {"before_staged", case_before_staged},
					 {"many_comms", case_many_comms},
					 {"many", case_many},
					 {"ahead", case_ahead}};

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	test_start();
	return test_run_case(argc > 1 ? argv[1] : NULL, cases, sizeof(cases) / sizeof(cases[0]));
}
