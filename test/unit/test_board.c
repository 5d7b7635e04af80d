/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node's board, with processes made by fork for ranks: the functions of core_mpi.h that it
 * needs are played by pipes through shared memory here.
 */
#include "core/comm/core_board.h"
#include "core/job/core_mpi_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, ROUNDS = 300 };

struct core_mpi_job core_mpi_job;

static struct shared {
	pthread_barrier_t barrier;
	char text[256];
	bool refused;
} * shared;

enum util_status core_mpi_node_bcast(void *data, int bytes)
{
	if (core_mpi_job.local_rank == 0)
		memcpy(shared->text, data, (size_t)bytes);
	pthread_barrier_wait(&shared->barrier);
	memcpy(data, shared->text, (size_t)bytes);
	pthread_barrier_wait(&shared->barrier);
	return UTIL_OK;
}

static void sync_ranks(void)
{
	pthread_barrier_wait(&shared->barrier);
}

bool core_mpi_node_all(bool yes)
{
	if (!yes)
		shared->refused = true;
	pthread_barrier_wait(&shared->barrier);
	return !shared->refused;
}

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "rank %d: not so: %s\n", core_mpi_job.local_rank,          \
				#condition);                                                       \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Run `body` in RANKS processes with a board; all must end well. */
static void on_all_ranks(void (*body)(void))
{
	pthread_barrierattr_t attributes;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attributes, RANKS);
	for (int rank = 0; rank < RANKS; rank++) {
		if (fork())
			continue;
		core_mpi_job.local_rank = core_mpi_job.rank = rank;
		core_mpi_job.local_size = core_mpi_job.size = RANKS;
		MUST(core_board_start(256, 128) == UTIL_OK);
		body();
		_exit(0);
	}
	for (int rank = 0; rank < RANKS; rank++) {
		int status;

		wait(&status);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	munmap(shared, sizeof(*shared));
}

/* What one publishes the others read in time, and communicators do not mix. */
static void publish_body(void)
{
	struct core_board_slot *a = core_board_join(11, RANKS, 256),
			       *b = core_board_join(22, RANKS, 256);

	MUST(a && b && a != b);
	sync_ranks();
	MUST(core_board_used() == 2);
	core_board_publish(a, 100 + (uint64_t)core_mpi_job.local_rank);
	core_board_publish(b, 200 + (uint64_t)core_mpi_job.local_rank);
	sync_ranks();
	for (int rank = 0; rank < RANKS; rank++) {
		MUST(core_board_passed(a, rank) == 100 + (uint64_t)rank);
		MUST(core_board_passed(b, rank) == 200 + (uint64_t)rank);
	}
	sync_ranks();
	core_board_leave(a, NULL);
	core_board_leave(b, NULL);
	sync_ranks();
	MUST(core_board_used() == 0);
}

static void published_counts_are_read(void **state)
{
	(void)state;
	on_all_ranks(publish_body);
}

/*
 * Communicators made and freed by all ranks, at their own pace: some leave one before others have
 * joined it, and a slot that is taken again starts from zero.
 */
static void churn_body(void)
{
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		struct core_board_slot *slot = core_board_join(round, RANKS, 256);

		MUST(slot);
		MUST(core_board_passed(slot, core_mpi_job.local_rank) == 0);
		core_board_publish(slot, round);
		MUST(core_board_passed(slot, core_mpi_job.local_rank) == round);
		core_board_leave(slot, NULL);
	}
	sync_ranks();
	MUST(core_board_used() == 0);
}

static void slots_are_reused(void **state)
{
	(void)state;
	on_all_ranks(churn_body);
}

/* What is remembered of communicators of several nodes outlives many others. */
static void graves_body(void)
{
	enum { COMMS = 10000 };
	uint64_t ready[CORE_BOARD_REMEMBERED];

	MUST(!core_board_find_left(1, ready));
	for (uint64_t id = 1; id <= COMMS; id++) {
		const uint64_t mine[CORE_BOARD_REMEMBERED] = {id, id + 1};

		core_board_leave(core_board_join(id, RANKS, 256), mine);
		if (id % (CORE_BOARD_SLOTS / 2) ==
		    0) /* else the board may be full of those to come */
			sync_ranks();
	}
	sync_ranks();
	for (uint64_t id = 1; id <= COMMS; id += 37) {
		MUST(core_board_find_left(id, ready));
		MUST(ready[0] == id && ready[1] == id + 1);
	}
	MUST(!core_board_find_left(COMMS + 1, ready));
}

static void graves_stay(void **state)
{
	(void)state;
	on_all_ranks(graves_body);
}

static void full_body(void)
{
	for (uint64_t id = 1; id <= CORE_BOARD_SLOTS; id++)
		MUST(core_board_join(id, RANKS, 256));
	sync_ranks();
	MUST(!core_board_join(CORE_BOARD_SLOTS + 1, RANKS, 256));
}

static void full_board_says_so(void **state)
{
	(void)state;
	on_all_ranks(full_body);
}

/* Who is where is known little by little; counts are never too low. */
static void gpus_body(void)
{
	int rank = core_mpi_job.local_rank;

	MUST(core_board_share_gpu(7, false) == 0);
	if (rank == 0)
		MUST(core_board_share_gpu(7, true) == RANKS);
	sync_ranks();
	if (rank == 1)
		MUST(core_board_share_gpu(7, true) == RANKS);
	sync_ranks();
	if (rank == 2)
		MUST(core_board_share_gpu(9, true) == 2);
	sync_ranks();
	if (rank == 3)
		MUST(core_board_share_gpu(9, true) == 2);
	sync_ranks();
	MUST(core_board_share_gpu(rank < 2 ? 7 : 9, true) == 2);
	MUST(core_board_share_gpu(rank < 2 ? 9 : 7, true) == 0);
	MUST(core_board_share_gpu(rank < 2 ? 7 : 9, false) == 2);
}

static void gpus_are_counted(void **state)
{
	(void)state;
	on_all_ranks(gpus_body);
}

static void killed_body(void)
{
	if (core_mpi_job.local_rank == 2)
		core_board_join(5, RANKS, 256);
}

static int count_names(void)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	int count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		count += !strncmp(entry->d_name, "gpucoll-", 8);
	closedir(dir);
	return count;
}

/* A process that ends, in whatever way, leaves no file behind; what others left is theirs. */
static void nothing_is_left(void **state)
{
	int before = count_names();

	(void)state;
	on_all_ranks(killed_body);
	assert_int_equal(count_names(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(published_counts_are_read),
					   cmocka_unit_test(slots_are_reused),
					   cmocka_unit_test(graves_stay),
					   cmocka_unit_test(full_board_says_so),
					   cmocka_unit_test(gpus_are_counted),
					   cmocka_unit_test(nothing_is_left)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
