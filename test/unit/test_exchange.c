/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The twin of the kernel of groups of messages, with the ranks' blocks as threads of this process:
 * groups that are drawn, for 2 to 5 ranks that wait for nobody but in their kernels, with FIFOs
 * that are shorter than messages, fewer blocks than ends, and messages to oneself, against
 * arithmetic; and what is given up. No driver and no MPI, so it also runs under ThreadSanitizer
 * (test_exchange_tsan), which sees whether the words order what they should.
 */
#include "../draw.h"
#include "../emu/emu_alone.h"
#include "gpu/kernels/gpu_exchange.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { MAX_RANKS = 5, MAX_GROUPS = 12, MAX_MESSAGES = 40, MAX_BLOCKS = 8, GUARD = 32 };

#ifdef __SANITIZE_THREAD__
enum { NUM_CASES = 20 };
#else
enum { NUM_CASES = 60 };
#endif

void gpu_exchange(const struct gpu_exchange_args *args);

/* ---- a job ---- */

struct message {
	int from, to;
	size_t bytes, wanted; /* as the sender has it, and the receiver */
	unsigned char *sent, *got;
	size_t shift[2]; /* of the two from an address of 16 bytes */
};

struct group {
	struct message messages[MAX_MESSAGES];
	int num;
	uint64_t id[MAX_RANKS];
};

struct job {
	int ranks, num_groups;
	unsigned blocks, places; /* so many blocks run at a time */
	uint32_t lanes;
	uint64_t fifo_bytes, words, shm[MAX_RANKS];
	bool by_table;
	struct group groups[MAX_GROUPS];
	char *arenas[MAX_RANKS][GPU_NUM_SHARED];
	struct gpu_enqueued enqueued[MAX_RANKS];
	int ended; /* ranks; atomic */
};

struct rank {
	struct job *job;
	int rank;
	struct gpu_exchange_args args;
	struct gpu_exchange_route routes[2 * MAX_RANKS];
	struct gpu_exchange_buffer buffers[2 * MAX_MESSAGES];
};

static unsigned char byte_of(int group, int message, size_t i)
{
	return (unsigned char)(group * 89 + message * 31 + (int)(i ^ (i >> 8) ^ (i >> 16)));
}

static unsigned char *buffer_new(size_t bytes, size_t shift, unsigned char **base)
{
	unsigned char *memory = aligned_alloc(16, (bytes + 2 * GUARD + 31) / 16 * 16);

	memset(memory, 0xa5, bytes + 2 * GUARD + 16);
	*base = memory + GUARD + shift;
	return memory;
}

static void open_messages(struct job *job)
{
	for (int g = 0; g < job->num_groups; g++) {
		for (int m = 0; m < job->groups[g].num; m++) {
			struct message *message = &job->groups[g].messages[m];
			unsigned char *base;

			message->sent = buffer_new(message->bytes, message->shift[0], &base);
			for (size_t i = 0; i < message->bytes; i++)
				base[i] = byte_of(g, m, i);
			message->got = buffer_new(message->wanted, message->shift[1], &base);
		}
	}
}

static uint64_t count_lanes(const struct job *job)
{
	return (uint64_t)(job->ranks - 1) * job->lanes;
}

static void open_arenas(struct job *job)
{
	size_t bytes = job->words + gpu_exchange_words(count_lanes(job)) +
		       count_lanes(job) * job->fifo_bytes;

	for (int i = 0; i < job->ranks; i++) {
		for (int j = 0; j < GPU_NUM_SHARED; j++) {
			job->arenas[i][j] = aligned_alloc(128, (bytes + 127) / 128 * 128);
			memset(job->arenas[i][j], 0xee, bytes);
			memset(job->arenas[i][j] + job->words, 0,
			       gpu_exchange_words(count_lanes(job)));
		}
	}
}

static void close_job(struct job *job)
{
	for (int g = 0; g < job->num_groups; g++) {
		for (int m = 0; m < job->groups[g].num; m++) {
			free(job->groups[g].messages[m].sent);
			free(job->groups[g].messages[m].got);
		}
	}
	for (int i = 0; i < job->ranks; i++) {
		for (int j = 0; j < GPU_NUM_SHARED; j++)
			free(job->arenas[i][j]);
	}
	free(job);
}

/* ---- a rank's launch ---- */

static void add_buffer(struct rank *r, uint32_t *num, const unsigned char *memory, size_t shift,
		       size_t bytes)
{
	r->buffers[(*num)++] =
		(struct gpu_exchange_buffer){(uint64_t)(memory + GUARD + shift), bytes};
}

static void add_route(struct rank *r, const struct group *group, enum gpu_exchange_kind kind,
		      int peer, uint32_t *num)
{
	uint32_t first = *num, lanes = 0, blocks = r->job->blocks, block;
	uint64_t most = 0;

	for (int m = 0; m < group->num; m++) {
		const struct message *message = &group->messages[m];
		bool sends = message->from == r->rank && message->to == peer;
		bool receives = message->to == r->rank && message->from == peer;

		if (kind == GPU_EXCHANGE_RECEIVE ? !receives || !message->wanted
						 : !sends || !message->bytes)
			continue;
		if (kind != GPU_EXCHANGE_RECEIVE)
			add_buffer(r, num, message->sent, message->shift[0], message->bytes);
		if (kind != GPU_EXCHANGE_SEND)
			add_buffer(r, num, message->got, message->shift[1], message->wanted);
		most = r->buffers[*num - 1].bytes > most ? r->buffers[*num - 1].bytes : most;
	}
	while (lanes < r->job->lanes && gpu_exchange_part(most, r->job->lanes, lanes).bytes)
		lanes++;
	if (!lanes)
		return;
	block = kind == GPU_EXCHANGE_COPY
			? 0
			: gpu_exchange_block((uint32_t)r->job->ranks, (uint32_t)r->rank,
					     (uint32_t)peer, blocks);
	r->routes[r->args.num_routes++] = (struct gpu_exchange_route){.kind = (uint16_t)kind,
								      .peer = (uint16_t)peer,
								      .lanes = (uint16_t)lanes,
								      .block = (uint16_t)block,
								      .first = first,
								      .num = *num - first};
	for (uint32_t i = 0; i < lanes; i++)
		r->args.used |= 1U << (block + i) % blocks;
}

static void set_args(struct rank *r, int g)
{
	struct job *job = r->job;
	const struct group *group = &job->groups[g];
	uint32_t num = 0;

	r->args = (struct gpu_exchange_args){
		.enqueued = (uint64_t)&job->enqueued[r->rank],
		.shm = job->shm[r->rank],
		.mine = {(uint64_t)job->arenas[r->rank][0], (uint64_t)job->arenas[r->rank][1]},
		.words = job->words,
		.fifo_bytes = job->fifo_bytes,
		.ticket = (uint64_t)g + 1,
		.id = group->id[r->rank],
		.ranks = (uint32_t)job->ranks,
		.rank = (uint32_t)r->rank,
		.lanes = job->lanes,
		.blocks = job->blocks};
	for (int i = 0; i < job->ranks; i++) {
		bool self = i == r->rank;

		r->args.theirs[i] = (uint64_t)job->arenas[i][job->shm[r->rank] >> i & 1];
		add_route(r, group, self ? GPU_EXCHANGE_COPY : GPU_EXCHANGE_SEND, i, &num);
		if (!self)
			add_route(r, group, GPU_EXCHANGE_RECEIVE, i, &num);
	}
	if (job->by_table) {
		r->args.routes = (uint64_t)r->routes;
		r->args.buffers = (uint64_t)r->buffers;
		return;
	}
	memcpy(r->args.few_routes, r->routes, sizeof(r->routes));
	memcpy(r->args.few_buffers, r->buffers, sizeof(r->buffers));
}

struct grid {
	const struct rank *rank;
	unsigned next, num; /* blocks */
};

/* A place of the device: the next block when one has ended. */
static void *run_blocks(void *argument)
{
	struct grid *grid = argument;
	unsigned index;

	while ((index = __atomic_fetch_add(&grid->next, 1, __ATOMIC_RELAXED)) < grid->num) {
		emu_alone_begin(index, grid->num);
		gpu_exchange(&grid->rank->args);
	}
	return NULL;
}

/* What a stream does: one kernel after the other. */
static void launch(struct rank *r, int g)
{
	struct grid grid = {.rank = r};
	pthread_t threads[MAX_BLOCKS];

	set_args(r, g);
	grid.num = (unsigned)__builtin_popcount(r->args.used);
	for (unsigned i = 0; i < r->job->places; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_blocks, &grid), 0);
	for (unsigned i = 0; i < r->job->places; i++)
		pthread_join(threads[i], NULL);
}

static void *run_rank(void *argument)
{
	struct rank *r = argument;

	for (int g = 0; g < r->job->num_groups; g++)
		launch(r, g);
	__atomic_add_fetch(&r->job->ended, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void begin(struct job *job, struct rank *ranks, pthread_t *threads)
{
	open_messages(job);
	open_arenas(job);
	for (int i = 0; i < job->ranks; i++) {
		ranks[i] = (struct rank){.job = job, .rank = i};
		assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
	}
}

/* What the hosts do meanwhile: where one block has found something wrong the others don't know. */
static void watch(struct job *job)
{
	while (__atomic_load_n(&job->ended, __ATOMIC_RELAXED) < job->ranks) {
		for (int i = 0; i < job->ranks; i++) {
			struct gpu_enqueued *words = &job->enqueued[i];

			if (__atomic_load_n(&words->mismatched, __ATOMIC_ACQUIRE))
				__atomic_store_n(&words->abort, 1, __ATOMIC_RELAXED);
		}
		usleep(200);
	}
}

static void run_job(struct job *job)
{
	struct rank ranks[MAX_RANKS];
	pthread_t threads[MAX_RANKS];

	begin(job, ranks, threads);
	watch(job);
	for (int i = 0; i < job->ranks; i++)
		pthread_join(threads[i], NULL);
}

/* ---- what is to come of it ---- */

static void check_message(int g, int m, const struct message *message)
{
	size_t end = GUARD + message->shift[1] + message->wanted;

	for (size_t i = 0; i < message->wanted + 2 * GUARD; i++) {
		bool inside = i >= GUARD + message->shift[1] && i < end;
		unsigned char want = inside ? byte_of(g, m, i - GUARD - message->shift[1]) : 0xa5;

		if (message->got[i] != want)
			fail_msg("group %d, message %d of %zu bytes from %d to %d: byte %zd is "
				 "%#x, not %#x",
				 g, m, message->bytes, message->from, message->to,
				 (ssize_t)i - GUARD - (ssize_t)message->shift[1], message->got[i],
				 want);
	}
}

static bool has_part(const struct group *group, int rank)
{
	for (int m = 0; m < group->num; m++) {
		const struct message *message = &group->messages[m];

		if (message->bytes && (message->from == rank || message->to == rank))
			return true;
	}
	return false;
}

static void check_job(const struct job *job)
{
	for (int g = 0; g < job->num_groups; g++) {
		for (int m = 0; m < job->groups[g].num; m++)
			check_message(g, m, &job->groups[g].messages[m]);
	}
	for (int i = 0; i < job->ranks; i++) {
		uint64_t count = 0, last = 0;

		for (int g = 0; g < job->num_groups; g++) {
			if (!has_part(&job->groups[g], i))
				continue;
			count++;
			last = (uint64_t)g + 1;
		}
		assert_int_equal(job->enqueued[i].exchanges, count);
		assert_int_equal(job->enqueued[i].exchanges_begun, count);
		assert_int_equal(job->enqueued[i].ended, last);
		assert_int_equal(job->enqueued[i].failed, 0);
	}
}

/* ---- groups that are drawn ---- */

static uint64_t random_state = 1;

static unsigned below(unsigned most)
{
	return (unsigned)(draw(&random_state) % most);
}

/* Each chunk is a turn of threads, which take long where a machine does other things too. */
static size_t draw_bytes(const struct job *job)
{
	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return 1 + below(40);
	case 2:
		return GPU_EXCHANGE_LEAST - 2 + below(4);
	case 3:
		return below(30 * (unsigned)job->fifo_bytes < 300000
				     ? 30 * (unsigned)job->fifo_bytes
				     : 300000);
	default:
		return below(5000);
	}
}

static struct job *draw_job(void)
{
	struct job *job = calloc(1, sizeof(*job));

	job->ranks = 2 + (int)below(MAX_RANKS - 1);
	job->num_groups = 1 + (int)below(MAX_GROUPS);
	job->blocks = 1 + below(MAX_BLOCKS);
	job->places = below(2) ? job->blocks : 1 + below(job->blocks);
	job->lanes = 1 + below(job->blocks < 4 ? job->blocks : 4);
	job->fifo_bytes = (uint64_t)1024 << below(7);
	job->words = 128 * below(3);
	job->by_table = below(2);
	for (int i = 0; i < job->ranks; i++) {
		for (int j = 0; j < i; j++) {
			uint64_t shm = below(2);

			job->shm[i] |= shm << j;
			job->shm[j] |= shm << i;
		}
	}
	for (int g = 0; g < job->num_groups; g++) {
		struct group *group = &job->groups[g];

		group->num = (int)below(MAX_MESSAGES);
		for (int m = 0; m < group->num; m++) {
			struct message *message = &group->messages[m];

			message->from = (int)below((unsigned)job->ranks);
			message->to = (int)below((unsigned)job->ranks);
			message->bytes = message->wanted = draw_bytes(job);
			message->shift[0] = below(3) ? 0 : below(16);
			message->shift[1] = below(3) ? 0 : below(16);
		}
	}
	return job;
}

static void groups_that_are_drawn(void **state)
{
	(void)state;
	for (int i = 0; i < NUM_CASES; i++) {
		struct job *job = draw_job();

		run_job(job);
		check_job(job);
		close_job(job);
	}
}

/* ---- what is given up ---- */

/* Rank 0 sends in each of three groups; of the second one rank 1 has its own idea. */
static struct job *mismatched(size_t sent, size_t wanted, uint64_t id, unsigned places)
{
	struct job *job = calloc(1, sizeof(*job));

	*job = (struct job){.ranks = 2,
			    .num_groups = 3,
			    .blocks = 2,
			    .places = places,
			    .lanes = 2,
			    .fifo_bytes = 65536};
	for (int g = 0; g < 3; g++) {
		struct group *group = &job->groups[g];

		group->num = 1;
		group->messages[0] =
			(struct message){.from = 0, .to = 1, .bytes = 100, .wanted = 100};
		for (int i = 0; i < MAX_RANKS; i++)
			group->id[i] = (uint64_t)g + 1;
	}
	job->groups[1].messages[0].bytes = sent;
	job->groups[1].messages[0].wanted = wanted;
	job->groups[1].id[1] = id;
	return job;
}

static void check_mismatch_at(unsigned places, size_t sent, size_t wanted, uint64_t id,
			      size_t found, size_t expected)
{
	struct job *job = mismatched(sent, wanted, id, places);
	const struct gpu_enqueued *words = &job->enqueued[1];

	run_job(job);
	check_message(0, 0, &job->groups[0].messages[0]);
	assert_int_equal(words->mismatched, 1); /* rank 0, and one more */
	assert_int_equal(words->mismatched_sent, found);
	assert_int_equal(words->mismatched_wanted, expected);
	assert_int_not_equal(words->failed, 0);
	/* Nothing is taken for what it is not afterwards. */
	for (size_t i = 0; i < 100 + 2 * GUARD; i++)
		assert_int_equal(job->groups[2].messages[0].got[i], 0xa5);
	/* Each launch is counted, and the other side has no fault. */
	assert_int_equal(words->exchanges, wanted ? 3 : 2);
	assert_int_equal(job->enqueued[0].failed, 0);
	close_job(job);
}

static void check_mismatch(size_t sent, size_t wanted, uint64_t id, size_t found, size_t expected)
{
	for (unsigned places = 1; places <= 2; places++)
		check_mismatch_at(places, sent, wanted, id, found, expected);
}

static void other_sizes(void **state)
{
	(void)state;
	check_mismatch(200, 100, 2, 200, 100);
	check_mismatch(100, 40000, 2, 100, 40000);
	/* That of the next group. */
	check_mismatch(0, 100, 2, 100, 100);
	check_mismatch(0, 70, 2, 100, 70);
	check_mismatch(100, 0, 2, 100, 100);
}

static void other_calls(void **state)
{
	(void)state;
	check_mismatch(100, 100, 7, 100, 100);
}

/* Rank 1 waits for what nobody sends, in the middle of a message too, until its host says so. */
static void told_to_give_up(void **state)
{
	(void)state;
	for (int half = 0; half < 2; half++) {
		struct job *job = mismatched(100, 100, 2, 2);
		struct rank ranks[MAX_RANKS];
		pthread_t threads[MAX_RANKS];
		struct gpu_enqueued *words = &job->enqueued[1];

		job->ranks = 3;
		job->groups[1].messages[0].from = 2;
		if (half)
			job->groups[1].messages[0].bytes = job->groups[1].messages[0].wanted =
				300000;
		else
			job->groups[1].messages[0].bytes = 0;
		begin(job, ranks, threads);
		usleep(half ? 1000 : 20000);
		for (int i = 1; i < 3; i++)
			__atomic_store_n(&job->enqueued[i].abort, 1, __ATOMIC_RELAXED);
		for (int i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
		if (!half) {
			check_message(0, 0, &job->groups[0].messages[0]);
			assert_int_not_equal(words->failed, 0);
			for (size_t i = 0; i < 100 + 2 * GUARD; i++)
				assert_int_equal(job->groups[2].messages[0].got[i], 0xa5);
		}
		assert_int_equal(words->exchanges, 3);
		assert_int_equal(words->exchanges_begun, 3);
		close_job(job);
	}
}

/* ---- where lanes are ---- */

/* The same on both ranks, and of one rank's pairs as few as can be from the same block on. */
static void check_blocks(uint32_t ranks, uint32_t blocks)
{
	uint32_t turns = ranks % 2 ? ranks : ranks - 1, most = (turns + blocks - 1) / blocks;

	for (uint32_t one = 0; one < ranks; one++) {
		uint32_t pairs[GPU_EXCHANGE_MOST_BLOCKS] = {0};

		for (uint32_t other = 0; other < ranks; other++) {
			uint32_t block = gpu_exchange_block(ranks, one, other, blocks);

			if (other == one)
				continue;
			assert_in_range(block, 0, blocks - 1);
			assert_int_equal(block, gpu_exchange_block(ranks, other, one, blocks));
			assert_in_range(++pairs[block], 1, most);
		}
	}
}

static void blocks_of_pairs(void **state)
{
	(void)state;
	for (uint32_t ranks = 2; ranks <= GPU_MAX_PEERS; ranks++) {
		for (uint32_t blocks = 1; blocks <= GPU_EXCHANGE_MOST_BLOCKS; blocks++)
			check_blocks(ranks, blocks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_pairs), cmocka_unit_test(groups_that_are_drawn),
		cmocka_unit_test(other_sizes),     cmocka_unit_test(other_calls),
		cmocka_unit_test(told_to_give_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
