/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor's twin, with the ranks' blocks as threads of this process: every algorithm for 1 to
 * 8 ranks, in all protocols, over both kinds of arena, also with messages that a host passes on
 * between nodes, in several rounds, against arithmetic. No driver and no MPI, so it also runs under
 * ThreadSanitizer (test_execute_tsan), which sees whether the words in the arenas order what they
 * should.
 *
 * Arenas are never cleared between cases, as between calls.
 */
#include "../emu/emu_alone.h"
#include "core/exec/core_program.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { MAX_RANKS = 8, ARENA = 15 << 20, LL = 3 << 20, GUARD = 64, MAX_BLOCKS_OF_A_RANK = 64 };

#ifdef __SANITIZE_THREAD__
enum { UNDER_TSAN = 1, REPEATS = 1 };
#else
enum { UNDER_TSAN = 0, REPEATS = 6 };
#endif

void gpu_execute(const struct gpu_execute_args *args);
void gpu_execute_int32_sum(const struct gpu_execute_args *args);

/* ---- a case ---- */

struct buffer {
	char *memory, *base; /* base: the first byte that is the program's */
	size_t bytes;
};

struct rank {
	struct core_program *program;
	struct buffer in, out, hold;
	struct gpu_execute_args args;
	struct gpu_place table[GPU_FEW_PLACES];
	struct gpu_work work[GPU_MAX_LANES];
	uint64_t done[GPU_MAX_LANES * GPU_MAX_PARTS];
	struct gpu_times rings[GPU_MAX_RINGS];
};

struct a_case {
	const struct algo *algo;
	struct sched_request request;
	struct sched *sched;
	size_t sizes[MAX_RANKS]; /* bytes of each block */
	size_t misaligned;       /* bytes */
	uint32_t protocol, parts, slots;
	uint64_t piece_bytes, shm[MAX_RANKS]; /* shm: as in the arguments */
	bool spread, hot, table, timed;
	bool spans; /* messages between the request's nodes go through hosts */
	struct rank ranks[MAX_RANKS];
};

/* For what goes to other nodes a rank has one more, behind the one for what comes from there. */
enum { OUTBOX = GPU_TRANSPORT_NUM, NUM_ARENAS };
static char *arenas[MAX_RANKS][NUM_ARENAS];
static uint64_t epoch;
static uint32_t flag;
static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

static int32_t value(int rank, int b, size_t i)
{
	return (int32_t)((uint32_t)rank * 1000003 + (uint32_t)b * 7919 + (uint32_t)i * 31);
}

static int num_blocks(const struct a_case *c)
{
	return sched_num_blocks(&c->request);
}

static bool has(const struct a_case *c, int rank, enum sched_buffer buffer, int b)
{
	return sched_has_block(&c->request, rank, buffer, b);
}

/* Where a block is in a rank's buffer: behind those with smaller numbers that are in it. */
static size_t offset_of(const struct a_case *c, int rank, enum sched_buffer buffer, int b)
{
	size_t at = 0;

	for (int i = 0; i < b; i++)
		at += has(c, rank, buffer, i) ? c->sizes[i] : 0;
	return at;
}

static struct buffer buffer_new(const struct a_case *c, int rank, enum sched_buffer buffer)
{
	struct buffer new;

	new.bytes = offset_of(c, rank, buffer, num_blocks(c));
	new.memory = aligned_alloc(16, (new.bytes + 3 * GUARD + 15) / 16 * 16);
	new.base = new.memory + GUARD + c->misaligned;
	memset(new.memory, 0xa5, new.bytes + 3 * GUARD);
	return new;
}

/*
 * In place the two buffers are one. As in MPI: a rank's block of input is where its output goes,
 * but in a reduce_scatter, whose result goes to the beginning.
 */
static bool is_shared(const struct a_case *c, int rank)
{
	return sched_is_in_place(&c->request, rank);
}

static char *place_of(const struct a_case *c, int rank, enum sched_buffer buffer, int b)
{
	const struct rank *r = &c->ranks[rank];

	if (!is_shared(c, rank))
		return (buffer == SCHED_IN ? r->in.base : r->out.base) +
		       offset_of(c, rank, buffer, b);
	/* The larger of the two buffers is the one there is. */
	if (r->in.bytes > r->out.bytes)
		return r->in.base + (c->request.coll == SCHED_REDUCE_SCATTER && buffer == SCHED_OUT
					     ? 0
					     : offset_of(c, rank, SCHED_IN, b));
	return r->out.base + offset_of(c, rank, SCHED_OUT, b);
}

static void fill_inputs(struct a_case *c, int rank)
{
	for (int b = 0; b < num_blocks(c); b++) {
		char *at = place_of(c, rank, SCHED_IN, b);

		for (size_t i = 0; has(c, rank, SCHED_IN, b) && i < c->sizes[b] / 4; i++) {
			int32_t v = value(rank, b, i);

			memcpy(at + 4 * i, &v, 4);
		}
	}
}

static int32_t expected(const struct a_case *c, int rank, int b, size_t i)
{
	int first = 0, end = c->request.ranks;
	uint32_t sum = 0;

	switch (c->request.coll) {
	case SCHED_BCAST:
		return value(c->request.root, 0, i);
	case SCHED_SCATTER:
		return value(c->request.root, rank, i);
	case SCHED_ALLGATHER:
	case SCHED_GATHER:
		return value(b, b, i);
	case SCHED_ALLTOALL:
		return value(b, rank, i);
	case SCHED_SCAN:
		end = rank + 1;
		break;
	case SCHED_EXSCAN:
		end = rank;
		break;
	default:
		break;
	}
	for (int r = first; r < end; r++)
		sum += (uint32_t)value(r, b, i);
	return (int32_t)sum;
}

static void describe(const struct a_case *c, const char *what, int rank)
{
	print_error("%s: %s %s, %d ranks, root %d%s, rank %d: protocol %u, %u parts, %u slots of "
		    "%llu, block 0 of %zu\n",
		    what, c->algo->name, sched_coll_name(c->request.coll), c->request.ranks,
		    c->request.root, c->request.in_place ? ", in place" : "", rank, c->protocol,
		    c->parts, c->slots, (unsigned long long)c->piece_bytes, c->sizes[0]);
}

static void check_rank(const struct a_case *c, int rank)
{
	const struct rank *r = &c->ranks[rank];

	for (int b = 0; b < num_blocks(c); b++) {
		const char *at = place_of(c, rank, SCHED_OUT, b);

		for (size_t i = 0; has(c, rank, SCHED_OUT, b) && i < c->sizes[b] / 4; i++) {
			int32_t got;

			memcpy(&got, at + 4 * i, 4);
			if (got == expected(c, rank, b, i))
				continue;
			describe(c, "wrong", rank);
			fail();
		}
	}
	for (int i = 0; i < 2; i++) {
		const struct buffer *buffer = i ? &r->out : &r->in;

		for (const char *at = buffer->memory; at < buffer->base; at++)
			assert_int_equal((unsigned char)*at, 0xa5);
		for (const char *at = buffer->base + buffer->bytes;
		     at < buffer->memory + buffer->bytes + 3 * GUARD; at++)
			assert_int_equal((unsigned char)*at, 0xa5);
	}
}

/* ---- launches ---- */

/* Of a block, in a round. */
static uint64_t width_of(const struct a_case *c)
{
	return c->piece_bytes * (uint64_t)c->sched->pieces;
}

static struct gpu_place look_up(const struct a_case *c, int rank, const struct core_place *place)
{
	int b = num_blocks(c) > 1 ? place->block : 0;
	const char *address;

	if (place->buffer == SCHED_SCRATCH)
		address = arenas[rank][GPU_TRANSPORT_P2P] + ARENA / 2 +
			  (uint64_t)place->block * width_of(c);
	else if (place->buffer == SCHED_HOLD)
		address = c->ranks[rank].hold.base;
	else
		address = place_of(c, place->rank, place->buffer, b);
	return (struct gpu_place){(uint64_t)address, c->sizes[b]};
}

static uint64_t rounds_of(const struct a_case *c)
{
	uint64_t width = width_of(c), longest = 1;

	for (int b = 0; b < num_blocks(c); b++)
		longest = c->sizes[b] > longest ? c->sizes[b] : longest;
	return (longest + width - 1) / width;
}

static void set_args(struct a_case *c, int rank, int phase)
{
	struct rank *r = &c->ranks[rank];
	struct gpu_execute_args *args = &r->args;
	bool linked = r->program->has_links && phase == 0;

	*args = (struct gpu_execute_args){
		.done = (uint64_t)r->done,
		.steps = (uint64_t)r->program->steps,
		.operands = (uint64_t)r->program->operands,
		.work = (uint64_t)r->work,
		.epoch = epoch,
		.width = linked ? width_of(c) : 0,
		.slot_bytes = c->piece_bytes * (uint64_t)c->sched->most_span,
		.piece_bytes = c->piece_bytes,
		.shm = c->shm[rank],
		.slots = {GPU_ARENA_SLOTS + 2 * LL, GPU_ARENA_SLOTS, GPU_ARENA_SLOTS + LL},
		.mine = {(uint64_t)arenas[rank][0], (uint64_t)arenas[rank][1],
			 (uint64_t)arenas[rank][2]},
		.type = GPU_TYPE_INT32,
		.op = GPU_OP_SUM,
		.protocol = linked ? c->protocol : GPU_PROTOCOL_SIMPLE,
		.flag = flag,
		.num_slots = c->slots,
		.parts = c->parts,
		.pieces = (uint32_t)c->sched->pieces,
		.unit = (uint32_t)sched_unit(c->sched),
		.waits = linked,
		.spread = c->spread && r->program->spreads[phase] &&
			  r->program->lanes[phase][0].num_steps <= c->parts,
	};
	for (int i = 0; i < c->request.ranks; i++)
		args->theirs[i] = (uint64_t)arenas[i][c->shm[rank] >> i & 1];
	args->theirs[GPU_PEER_FAR] = (uint64_t)arenas[rank][OUTBOX];
	/* What many places would need is right for few, too. */
	args->table = c->table ? (uint64_t)r->table : 0;
	for (int i = 0; i < r->program->num_places; i++)
		(c->table ? r->table : args->places)[i] = look_up(c, rank, &r->program->places[i]);
	for (uint32_t i = 0; i < r->program->num_lanes[phase]; i++) {
		r->work[i] = r->program->lanes[phase][i];
		r->work[i].num_rounds = linked ? (uint32_t)rounds_of(c) : 1;
	}
	memset(r->done, 0, sizeof(r->done));
	memset(r->rings, 0, sizeof(r->rings));
	args->times = c->timed ? (uint64_t)r->rings : 0;
	if (c->table)
		return;
	if (r->program->num_lanes[phase] <= GPU_FEW_LANES) {
		args->work = 0;
		memcpy(args->few_work, r->work, r->program->num_lanes[phase] * sizeof(r->work[0]));
	}
	if (core_program_is_short(r->program)) {
		args->steps = args->operands = 0;
		memcpy(args->few_steps, r->program->steps,
		       r->program->num_steps * sizeof(struct gpu_step));
		memcpy(args->few_operands, r->program->operands,
		       r->program->num_operands * sizeof(struct gpu_operand));
	}
}

struct job {
	const struct a_case *c;
	const struct rank *rank;
	unsigned index, num;
};

static void *run_block(void *argument)
{
	const struct job *job = argument;

	emu_alone_begin(job->index, job->num);
	if (job->c->hot)
		gpu_execute_int32_sum(&job->rank->args);
	else
		gpu_execute(&job->rank->args);
	return NULL;
}

/* ---- the hosts of nodes ---- */

static bool is_far(const struct a_case *c, int a, int b)
{
	return c->spans && c->request.nodes[a] != c->request.nodes[b];
}

static uint64_t *word_of(char *arena, size_t words, unsigned link)
{
	return (uint64_t *)(arena + words) + (size_t)link * GPU_MAX_PARTS;
}

/* Whether all parts of the kernel have come so far. */
static bool have_come(const struct a_case *c, const uint64_t *words, uint64_t count)
{
	for (uint32_t i = 0; i < c->parts; i++) {
		if (__atomic_load_n(&words[i], __ATOMIC_ACQUIRE) < epoch + count)
			return false;
	}
	return true;
}

static void tell(const struct a_case *c, uint64_t *words, uint64_t count)
{
	for (uint32_t i = 0; i < c->parts; i++)
		__atomic_store_n(&words[i], epoch + count, __ATOMIC_RELEASE);
}

/*
 * Take the next message from the sender's outbox to the receiver's inbox, if it is written and what
 * was in its slot there was read.
 */
static bool carry_one(const struct a_case *c, int from, unsigned out, uint64_t message)
{
	const struct gpu_execute_args *args = &c->ranks[from].args;
	const struct core_link *link = &c->ranks[from].program->outgoing[out];
	uint64_t slot = message % c->slots, bytes = args->slot_bytes;
	size_t first = args->slots[GPU_PROTOCOL_SIMPLE];
	char *outbox = arenas[from][OUTBOX], *inbox = arenas[link->peer][GPU_TRANSPORT_NET];

	if (!have_come(c, word_of(outbox, GPU_ARENA_TAILS, out), message + 1) ||
	    (message >= c->slots &&
	     !have_come(c, word_of(arenas[link->peer][OUTBOX], GPU_ARENA_HEADS, link->theirs),
			message + 1 - c->slots)))
		return false;
	memcpy(inbox + first + (link->theirs * c->slots + slot) * bytes,
	       outbox + first + (out * c->slots + slot) * bytes, bytes);
	tell(c, word_of(inbox, GPU_ARENA_TAILS, link->theirs), message + 1);
	tell(c, word_of(arenas[from][GPU_TRANSPORT_NET], GPU_ARENA_HEADS, out), message + 1);
	return true;
}

/* All messages of the phase between nodes. */
static void *carry(void *argument)
{
	const struct a_case *c = argument;
	static uint64_t carried[MAX_RANKS][GPU_MAX_LINKS];
	bool left = true;

	memset(carried, 0, sizeof(carried));
	while (left) {
		left = false;
		for (int i = 0; i < c->request.ranks * GPU_MAX_LINKS; i++) {
			int from = i / GPU_MAX_LINKS;
			unsigned out = i % GPU_MAX_LINKS;
			const struct core_link *link = &c->ranks[from].program->outgoing[out];
			uint64_t total = link->per_round * rounds_of(c);

			if (!total || !is_far(c, from, link->peer))
				continue;
			while (carried[from][out] < total &&
			       carry_one(c, from, out, carried[from][out]))
				carried[from][out]++;
			left |= carried[from][out] < total;
		}
		sched_yield();
	}
	return NULL;
}

/* The part of a lane has told of all its steps, in order; of many, of the last ones. */
static void check_ring(const struct rank *r, const struct gpu_work *work, uint32_t part,
		       const struct gpu_times *ring)
{
	uint32_t steps = r->args.spread ? 1 : work->num_steps;
	uint64_t num = (uint64_t)work->num_rounds * steps, last = 0;

	assert_int_equal(ring->num, num);
	for (uint64_t k = num > GPU_MAX_TIMES ? num - GPU_MAX_TIMES : 0; k < num; k++) {
		const struct gpu_time *time = &ring->last[k % GPU_MAX_TIMES];
		uint32_t step = work->first_step + (r->args.spread ? part : (uint32_t)(k % steps));

		assert_int_equal(time->first, r->program->steps[step].first);
		assert_int_equal(time->round, k / steps);
		assert_true(last <= time->began && time->began <= time->ready &&
			    time->ready <= time->ended);
		last = time->ended;
	}
}

static void check_times(const struct rank *r, uint32_t lanes)
{
	for (uint32_t lane = 0; lane < lanes; lane++) {
		uint32_t parts = r->args.spread ? r->work[lane].num_steps : 1;

		for (uint32_t part = 0; part < parts; part++) {
			if (part * lanes + lane < GPU_MAX_RINGS)
				check_ring(r, &r->work[lane], part, &r->rings[part * lanes + lane]);
		}
	}
}

static void run_phase(struct a_case *c, int phase)
{
	static struct job jobs[MAX_RANKS * MAX_BLOCKS_OF_A_RANK];
	static pthread_t threads[MAX_RANKS * MAX_BLOCKS_OF_A_RANK];
	unsigned num = 0;
	pthread_t hosts;

	for (int rank = 0; rank < c->request.ranks; rank++) {
		struct rank *r = &c->ranks[rank];
		unsigned blocks = r->program->num_lanes[phase] * c->parts;

		assert_true(blocks <= MAX_BLOCKS_OF_A_RANK);
		set_args(c, rank, phase);
		for (unsigned i = 0; i < blocks; i++)
			jobs[num++] = (struct job){c, r, i, blocks};
	}
	for (unsigned i = 0; i < num; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_block, &jobs[i]), 0);
	if (phase == 0)
		assert_int_equal(pthread_create(&hosts, NULL, carry, c), 0);
	for (unsigned i = 0; i < num; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(jobs[i].rank->done[jobs[i].index], GPU_END_DONE);
	}
	if (phase == 0)
		pthread_join(hosts, NULL);
	for (int rank = 0; c->timed && rank < c->request.ranks; rank++)
		check_times(&c->ranks[rank], c->ranks[rank].program->num_lanes[phase]);
}

static void run_case(struct a_case *c)
{
	int n = c->request.ranks, peers[MAX_RANKS];
	enum core_reason why;

	c->sched = algo_make(c->algo, &c->request);
	assert_non_null(c->sched);
	for (int rank = 0; rank < n; rank++) {
		struct rank *r = &c->ranks[rank];

		for (int i = 0; i < n; i++)
			peers[i] = is_far(c, rank, i) ? (int)GPU_PEER_FAR : i;
		r->program = core_program_make(c->sched, rank, peers, &why);
		assert_non_null(r->program);
		r->in = buffer_new(c, rank, SCHED_IN);
		r->out = buffer_new(c, rank, SCHED_OUT);
		r->hold = buffer_new(c, rank, SCHED_OUT);
		fill_inputs(c, rank);
	}
	epoch += UINT64_C(1) << GPU_EPOCH_SHIFT;
	for (int phase = 0; phase < c->sched->phases; phase++)
		run_phase(c, phase);
	flag += (uint32_t)rounds_of(c) * (c->ranks[0].program->most_messages + 1);
	for (int rank = 0; rank < n; rank++) {
		struct rank *r = &c->ranks[rank];

		check_rank(c, rank);
		core_program_free(r->program);
		free(r->in.memory);
		free(r->out.memory);
		free(r->hold.memory);
	}
	sched_free(c->sched);
}

/* ---- cases ---- */

/*
 * Sizes from nothing to several rounds. Where they may differ they do; an alltoall would need one
 * for each pair.
 */
static void draw_sizes(struct a_case *c)
{
	static const uint32_t most[] = {1, 2, 40, 3000, 30000};
	uint32_t below = most[draw(5)];
	bool alike = c->algo->needs & ALGO_NEEDS_UNIFORM || c->request.coll == SCHED_ALLTOALL;

	for (int b = 0; b < num_blocks(c); b++) {
		c->sizes[b] = 4 * (size_t)draw(below);
		if (alike)
			c->sizes[b] = c->sizes[0];
	}
}

static void draw_transports(struct a_case *c)
{
	uint32_t kind = draw(3);

	for (int a = 0; a < c->request.ranks; a++) {
		for (int b = 0; b < a; b++) {
			uint64_t shm = kind == 2 ? draw(2) : kind;

			c->shm[a] |= shm << b;
			c->shm[b] |= shm << a;
		}
	}
}

static void draw_execution(struct a_case *c)
{
	bool reduces = sched_coll_reduces(c->request.coll);

	c->protocol = draw(GPU_PROTOCOL_NUM);
	/* Rails are between nodes, and flags are not. */
	c->spans = draw(2) || c->algo->needs & ALGO_NEEDS_NODES_MAPPED;
	/* Hierarchical ones have many lanes. */
	c->parts = c->algo->needs & ALGO_NEEDS_NODES ? 1 : 1U << draw(3);
	c->piece_bytes = (reduces ? 8192 : GPU_PART_UNIT * c->parts) * (1 + draw(reduces ? 2 : 16));
	c->slots = (uint32_t)c->algo->slots + draw(3);
	c->spread = draw(2);
	c->table = draw(2);
	c->hot = draw(2);
	c->timed = draw(2);
	c->misaligned = draw(2) ? 0 : 4 * draw(4);
	draw_transports(c);
}

static void run_one(const struct algo *algo, enum sched_coll coll, int ranks, bool in_place)
{
	static const int nodes[MAX_RANKS] = {0, 1, 0, 0, 1, 0, 1, 1};
	static const int in_order[MAX_RANKS] = {0, 1, 1, 1, 1, 1, 1, 1};
	bool follows = algo->needs & ALGO_NEEDS_NODES_IN_ORDER;
	struct a_case c = {.algo = algo};

	c.request = (struct sched_request){.coll = coll,
					   .ranks = ranks,
					   .root = sched_coll_has_root(coll) ? (int)draw(ranks) : 0,
					   .in_place = in_place,
					   .ordered = algo->needs & ALGO_NEEDS_ORDERED,
					   .channels = 1 + (int)draw(2),
					   .num_nodes = ranks > 1 ? 2 : 0,
					   .nodes = follows ? in_order : nodes};
	if (algo_refuses(algo, &c.request, false))
		return;
	draw_sizes(&c);
	draw_execution(&c);
	/*
	 * One lane reads the input that another overwrites once the sum has come down, and with
	 * flags nothing orders that but the data: 16 bytes can't come down before they were read to
	 * be sent up. ThreadSanitizer does not know of such an order.
	 */
	if (UNDER_TSAN && in_place &&
	    (!strcmp(algo->name, "tree") || !strncmp(algo->name, "hier-", strlen("hier-")) ||
	     algo->needs & ALGO_NEEDS_ORDERED))
		c.protocol = GPU_PROTOCOL_SIMPLE;
	run_case(&c);
}

static void run_all(int ranks)
{
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
			if (!(algo->colls >> coll & 1))
				continue;
			run_one(algo, (enum sched_coll)coll, ranks, false);
			run_one(algo, (enum sched_coll)coll, ranks, true);
		}
	}
}

/*
 * Each algorithm for each number of ranks, with other sizes and so on each time; ThreadSanitizer
 * takes some twenty times as long, and sees in 3 ranks what it would in 5 or 7. REPEATS and SEED in
 * the environment: how often, and which.
 */
static void all_algorithms_are_carried_out(void **state)
{
	const char *repeats = getenv("REPEATS"), *seed = getenv("SEED");

	(void)state;
	if (seed)
		random_state = strtoull(seed, NULL, 10);
	print_message("SEED=%llu\n", (unsigned long long)random_state);
	for (int i = 0; i < (repeats ? atoi(repeats) : REPEATS); i++) {
		for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
			if (!UNDER_TSAN || (ranks != 5 && ranks != 7))
				run_all(ranks);
		}
	}
}

/* A word that says "leave" is obeyed wherever a block waits. */
static void blocks_give_up(void **state)
{
	struct a_case c = {.algo = algo_find("ring", SCHED_ALLREDUCE),
			   .request = {.coll = SCHED_ALLREDUCE, .ranks = 2, .channels = 1},
			   .sizes = {4096},
			   .parts = 1,
			   .slots = 2,
			   .piece_bytes = 8192};
	uint64_t abort = 1;
	enum core_reason why;

	(void)state;
	c.sched = algo_make(c.algo, &c.request);
	for (int i = 0; i < 2; i++) {
		c.ranks[i].program = core_program_make(c.sched, i, NULL, &why);
		c.ranks[i].in = buffer_new(&c, i, SCHED_IN);
		c.ranks[i].out = buffer_new(&c, i, SCHED_OUT);
	}
	for (c.protocol = 0; c.protocol < GPU_PROTOCOL_NUM; c.protocol++) {
		struct job job = {&c, &c.ranks[0], 0, 1};

		epoch += UINT64_C(1) << GPU_EPOCH_SHIFT;
		flag += 100;
		set_args(&c, 0, 0);
		c.ranks[0].args.abort = (uint64_t)&abort;
		run_block(&job);
		assert_int_equal(c.ranks[0].done[0], GPU_END_ABORTED);
	}
	for (int i = 0; i < 2; i++) {
		core_program_free(c.ranks[i].program);
		free(c.ranks[i].in.memory);
		free(c.ranks[i].out.memory);
	}
	sched_free(c.sched);
}

/* What core_program_make refuses it must refuse on all ranks alike, or on none. */
static void programs_of_all_sizes_can_be_made(void **state)
{
	static const int sizes[] = {2, 7, 16, 33, 64};
	int nodes[64]; /* of eight ranks each */

	(void)state;
	for (int i = 0; i < 64; i++)
		nodes[i] = i / 8;
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		for (int i = 0; i < (int)(sizeof(sizes) / sizeof(sizes[0])) * SCHED_NUM_COLLS * 2;
		     i++) {
			int ranks = sizes[i / 2 / SCHED_NUM_COLLS];
			struct sched_request request = {
				.coll = (enum sched_coll)(i / 2 % SCHED_NUM_COLLS),
				.ranks = ranks,
				.in_place = i % 2,
				.ordered = algo->needs & ALGO_NEEDS_ORDERED,
				.channels = 1,
				.num_nodes = (ranks + 7) / 8,
				.nodes = nodes};
			struct sched *sched;
			enum core_reason why;

			if (algo_refuses(algo, &request, false))
				continue;
			sched = algo_make(algo, &request);
			assert_non_null(sched);
			for (int rank = 0; rank < request.ranks; rank += 1 + request.ranks / 8) {
				struct core_program *program =
					core_program_make(sched, rank, NULL, &why);

				if (!program)
					print_error("%s %s %d: %s\n", algo->name,
						    sched_coll_name(request.coll), request.ranks,
						    core_reason_text(why));
				assert_non_null(program);
				core_program_free(program);
			}
			sched_free(sched);
		}
	}
}

/* A carrier's step has all buffers of its node on both sides. */
static void large_nodes_have_rails(void **state)
{
	static const char *const names[] = {"rail-ring", "rail-tree", "rail-halving", "rail-torus"};
	enum { NODE = GPU_MAX_PEERS, MOST = 4 * NODE };
	int nodes[MOST];

	(void)state;
	for (int i = 0; i < MOST; i++)
		nodes[i] = i / NODE;
	for (int i = 0; i < 8; i++) {
		const struct algo *algo = algo_find(names[i % 4], SCHED_ALLREDUCE);
		struct sched_request request = {.coll = SCHED_ALLREDUCE,
						.ranks = i < 4 ? 2 * NODE : MOST,
						.channels = 1,
						.num_nodes = i < 4 ? 2 : 4,
						.nodes = nodes};
		struct sched *sched = algo_make(algo, &request);
		enum core_reason why;
		struct core_program *program = core_program_make(sched, 0, NULL, &why);

		if (!program)
			fail_msg("%s: %s", names[i % 4], core_reason_text(why));
		core_program_free(program);
		sched_free(sched);
	}
}

/* A large node among small ones: what is too much for one of its ranks is refused on all. */
static void ranks_refuse_alike(void **state)
{
	static const int sizes[][2] = {
		{24, 28}, {32, 24}, {16, 24}, {4, 60}}; /* then, single ranks */
	int refused = 0, made = 0;

	(void)state;
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		for (int i = 0; i < 4 * SCHED_NUM_COLLS; i++) {
			int first = sizes[i % 4][0], rest = sizes[i % 4][1], nodes[64] = {0},
			    num = 0;
			struct sched_request request = {.coll = (enum sched_coll)(i / 4),
							.ranks = first + rest,
							.ordered = algo->needs & ALGO_NEEDS_ORDERED,
							.channels = 1,
							.num_nodes = rest + 1,
							.nodes = nodes};
			struct sched *sched;
			enum core_reason why;

			for (int rank = first; rank < request.ranks; rank++)
				nodes[rank] = rank - first + 1;
			if (!(algo->needs & ALGO_NEEDS_NODES) ||
			    algo_refuses(algo, &request, false))
				continue;
			sched = algo_make(algo, &request);
			for (int rank = 0; rank < request.ranks; rank++) {
				struct core_program *program =
					core_program_make(sched, rank, NULL, &why);

				num += program != NULL;
				core_program_free(program);
			}
			if (num && num < request.ranks)
				fail_msg("%s %s: %d of %d ranks can", algo->name,
					 sched_coll_name(request.coll), num, request.ranks);
			refused += !num;
			made += num > 0;
			sched_free(sched);
		}
	}
	assert_true(refused > 0 && made > 0);
}

static int make_arenas(void **state)
{
	(void)state;
	for (int i = 0; i < MAX_RANKS; i++) {
		for (int j = 0; j < NUM_ARENAS; j++)
			arenas[i][j] = aligned_alloc(4096, ARENA);
		for (int j = 0; j < NUM_ARENAS; j++)
			memset(arenas[i][j], 0, ARENA);
	}
	return 0;
}

static int free_arenas(void **state)
{
	(void)state;
	for (int i = 0; i < MAX_RANKS; i++) {
		for (int j = 0; j < NUM_ARENAS; j++)
			free(arenas[i][j]);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_algorithms_are_carried_out),
		cmocka_unit_test(blocks_give_up),
		cmocka_unit_test(programs_of_all_sizes_can_be_made),
		cmocka_unit_test(large_nodes_have_rails),
		cmocka_unit_test(ranks_refuse_alike),
	};

	return cmocka_run_group_tests(tests, make_arenas, free_arenas);
}
