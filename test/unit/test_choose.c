/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time of schedules: by hand where that can be done, never less than what the bytes take that
 * must move, and close to it where an algorithm is known to be. Choices: on recorded machines never
 * worse than the best, and the same for all.
 *
 * test_choose FILE.machine...
 */
#include "algos/sched_verify.h"
#include "core/choose/core_samples.h"
#include "core/wire/core_arena_layout.h"
#include "gpu/kernels/gpu_program.h"
#include "sched_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 512, MOST_NODES = 64, ARENA = 4 << 20, MIB = 1 << 20 };

static const struct algo_wish anything;
static char **files;
static int num_files;

/* ---- machines and fabrics ---- */

/* GPUs in a row, each with its own two ways, of 10 GB/s as data go. */
static void make_plain(int ranks, int nodes, struct sched_fabric *fabric)
{
	static const struct topo_machine *const machines[MOST_RANKS];
	struct core_seat seats[MOST_RANKS] = {0};

	for (int i = 0; i < ranks; i++)
		seats[i] = (struct core_seat){i * nodes / ranks, -1, (uint64_t)i};
	assert_true(core_model_make(ranks, seats, nodes, machines, false, fabric));
	for (int i = 0; i < fabric->num_ways; i++)
		fabric->rates[i] = i < ranks ? 1e9 : 1e4;
	fabric->net_latency = 2;
	for (size_t i = 0; i < fabric->num_routes; i++)
		fabric->routes[i].latency = fabric->routes[i].num ? 2 : 0;
	fabric->costs = (struct sched_costs){.call = 1,
					     .launch = 10,
					     .meet = 3,
					     .tell = 0.5,
					     .post = 0.5,
					     .step = 0.25,
					     .fence = 1,
					     .line = 0.5,
					     .block_rate = 1e9,
					     .blocks = 64};
}

/* GDR: stepped, and the network reaches device memory. */
enum way { STEPPED, FUSED, GDR };

static double time_on(const char *name, const struct sched_request *request,
		      const struct sched_fabric *fabric, uint64_t bytes, enum way way,
		      enum sched_proto proto, const struct sched_net *net)
{
	const struct algo *algo = algo_find(name, request->coll);
	struct sched *sched = algo_make(algo, request);
	struct sched_terms terms = {.fused = way == FUSED,
				    .gdr = way == GDR,
				    .proto = proto,
				    .blocks = 64,
				    .bytes = bytes,
				    .most = INFINITY,
				    .whole = net != NULL,
				    .net = net};
	struct sched_room room = core_arena_layout_for(ARENA, false, false);
	double time;

	assert_non_null(sched);
	assert_true(sched_slots_fit(sched, sched_most_links(sched), (uint32_t)algo->slots, &room,
				    proto, &terms.slots));
	time = sched_time(sched, fabric, &terms);
	sched_free(sched);
	return time;
}

static double time_of(const char *name, const struct sched_request *request,
		      const struct sched_fabric *fabric, uint64_t bytes, enum way way,
		      enum sched_proto proto)
{
	return time_on(name, request, fabric, bytes, way, proto, NULL);
}

static struct sched_request request_of(enum sched_coll coll, int ranks)
{
	return (struct sched_request){.coll = coll, .ranks = ranks, .channels = 1};
}

static void is_near(double a, double b, double part)
{
	if (fabs(a - b) > part * b)
		fail_msg("%g is not near %g", a, b);
}

/* ---- times by hand ---- */

static const double LOADED = 1.25; /* what a byte costs that is loaded over PCI Express */

/* One reads 1 MiB from the other over 10 GB/s, which has to be asked first. */
static void direct_by_hand(void **state)
{
	struct sched_request request = request_of(SCHED_BCAST, 2);
	struct sched_fabric fabric;

	(void)state;
	make_plain(2, 1, &fabric);
	is_near(time_of("direct", &request, &fabric, MIB, FUSED, SCHED_SIMPLE),
		1 + 10 + 0.25 + 2 * 2 + LOADED * MIB / 1e4 + 3, 1e-9);
	sched_fabric_free(&fabric);
}

/*
 * A chain of three: each hop is a step, the bytes, and the counter that follows them; with LL twice
 * the bytes, with LL128 8 more for each 120. Where hosts wait, each hop is a launch.
 */
static void messages_by_hand(void **state)
{
	struct sched_request request = request_of(SCHED_BCAST, 3);
	struct sched_fabric fabric;
	double bytes = 1024 / 1e4;

	(void)state;
	make_plain(3, 1, &fabric);
	is_near(time_of("ring", &request, &fabric, 1024, FUSED, SCHED_SIMPLE),
		1 + 10 + 2 * (0.25 + bytes + 2 + 1) + 0.25 + 1024 / 1e9, 1e-6);
	is_near(time_of("ring", &request, &fabric, 1024, FUSED, SCHED_LL),
		1 + 10 + 2 * (0.25 + 2 * bytes + 2) + 0.25 + 2048 / 1e9, 1e-6);
	is_near(time_of("ring", &request, &fabric, 1024, FUSED, SCHED_LL128),
		1 + 10 + 2 * (0.25 + bytes / 0.9375 + 2 + 0.5) + 0.25 + 1024 / 0.9375 / 1e9, 1e-6);
	is_near(time_of("ring", &request, &fabric, 1024, STEPPED, SCHED_SIMPLE),
		1 + 3 * (10 + 0.25) + 2 * (bytes + 0.5) + 1024 / 1e9, 1e-6);
	sched_fabric_free(&fabric);
}

/* Between nodes: into host memory, over the wire, and out again. */
static void nodes_by_hand(void **state)
{
	static const int nodes[] = {0, 1};
	struct sched_request request = request_of(SCHED_BCAST, 2);
	struct sched_fabric fabric;
	double bytes = 4096 / 1e4;

	(void)state;
	request.num_nodes = 2;
	request.nodes = nodes;
	make_plain(2, 2, &fabric);
	is_near(time_of("ring", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 0.5 + 2 + 3 * bytes, 1e-6);
	/* Announced, and asked for. */
	fabric.costs.fetched = 4096;
	is_near(time_of("ring", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 0.5 + 3 * 2 + 3 * bytes, 1e-6);
	fabric.costs.fetched = 4097;
	is_near(time_of("ring", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 0.5 + 2 + 3 * bytes, 1e-6);
	sched_fabric_free(&fabric);
}

/*
 * Both hosts have to do with each message and its bytes, one after the other; three times where it
 * is announced and asked for.
 */
static void sockets_by_hand(void **state)
{
	static const int nodes[] = {0, 1};
	struct sched_request request = request_of(SCHED_BCAST, 2);
	double bytes = 4096 / 1e4, moved = 4096 * 1e-3;
	struct sched_fabric fabric;

	(void)state;
	request.num_nodes = 2;
	request.nodes = nodes;
	make_plain(2, 2, &fabric);
	fabric.costs.take = 4;
	fabric.costs.carry = 1e-3;
	is_near(time_of("ring", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 0.5 + 4 + 2 * moved + 2 + 3 * bytes, 1e-6);
	fabric.costs.fetched = 4096;
	is_near(time_of("ring", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 3 * (0.5 + 4) + 2 * moved + 3 * 2 + 3 * bytes, 1e-6);
	/* Of two messages the second waits for the first to be taken. */
	fabric.costs.take = 100;
	fabric.costs.carry = 0;
	request.channels = 2;
	is_near(time_of("ring", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 0.5 + 2 * 100 + 2 + 3 * bytes / 2, 1e-6);
	/* In an exchange each host has its own two to send, then the other's to take. */
	fabric.costs.post = 100;
	request.coll = SCHED_ALLTOALL;
	is_near(time_of("pairwise", &request, &fabric, 4096, STEPPED, SCHED_SIMPLE),
		1 + 2 * (10 + 0.25) + 2 * 100 + 2 * 100 + 2 * bytes / 2, 1e-6);
	sched_fabric_free(&fabric);
}

/*
 * Where the network reaches device memory all messages are fetched, and only what is added takes a
 * launch.
 */
static void gdr_by_hand(void **state)
{
	static const int nodes[] = {0, 1};
	struct sched_request request = request_of(SCHED_BCAST, 2);
	struct sched_fabric fabric;
	double hop = 0.5 + 3 * 2 + 8192 / 1e4, added = 10 + 0.25 + 2 * 8192 / 1e9;

	(void)state;
	request.num_nodes = 2;
	request.nodes = nodes;
	make_plain(2, 2, &fabric);
	is_near(time_of("ring", &request, &fabric, 8192, GDR, SCHED_SIMPLE), 1 + hop, 1e-6);
	request.coll = SCHED_ALLREDUCE;
	is_near(time_of("ring", &request, &fabric, 16384, GDR, SCHED_SIMPLE), 1 + 2 * hop + added,
		1e-4);
	/* In place it goes by way of a slot. */
	request.in_place = true;
	is_near(time_of("ring", &request, &fabric, 16384, GDR, SCHED_SIMPLE),
		1 + 2 * hop + added + 10 + 0.25 + 8192 / 1e9, 1e-4);
	sched_fabric_free(&fabric);
}

/* A network that does what the NICs' ways do. */
struct imitation {
	const struct sched_fabric *fabric;
	double free[4 * MOST_RANKS];
	struct {
		double at;
		int message;
	} underway[256];
	int num;
};

static double take(struct imitation *net, int way, double at, double bytes)
{
	net->free[way] = fmax(net->free[way], at) + bytes / net->fabric->rates[way];
	return net->free[way];
}

static void imitation_send(void *state, double at, int from, int to, double bytes, int message)
{
	struct imitation *net = state;
	double out = take(net, net->fabric->homes[from].out, at, bytes);
	double in = take(net, net->fabric->homes[to].in, at, bytes);

	assert_true(net->num < 256);
	net->underway[net->num].at = fmax(out, in) + net->fabric->net_latency;
	net->underway[net->num++].message = message;
}

static int imitation_wait(void *state, double until, double *at)
{
	struct imitation *net = state;
	int first = 0, message;

	assert_true(net->num > 0);
	for (int i = 1; i < net->num; i++)
		first = net->underway[i].at < net->underway[first].at ? i : first;
	if (net->underway[first].at > until)
		return SCHED_NO_MESSAGE;
	*at = net->underway[first].at;
	message = net->underway[first].message;
	net->underway[first] = net->underway[--net->num];
	return message;
}

/*
 * With a network that is simulated elsewhere times are the same, if it is the same network; all
 * rounds or some.
 */
static void network_may_be_elsewhere(void **state)
{
	static const char *const names[] = {"ring", "hier-tree", "tree", "doubling"};
	static const int nodes[] = {0, 1, 2, 3, 4, 5};
	struct sched_request request = request_of(SCHED_ALLREDUCE, 6);

	(void)state;
	request.num_nodes = 6;
	request.nodes = nodes;
	for (int i = 0; i < 8; i++) {
		struct imitation net = {0};
		struct sched_net calls = {&net, imitation_send, imitation_wait};
		struct sched_fabric fabric;
		double here, there;

		make_plain(6, 6, &fabric);
		assert_true(fabric.num_ways <= 4 * MOST_RANKS);
		net.fabric = &fabric;
		here = time_of(names[i / 2], &request, &fabric, i % 2 ? 64 * MIB : 64 << 10, FUSED,
			       SCHED_SIMPLE);
		there = time_on(names[i / 2], &request, &fabric, i % 2 ? 64 * MIB : 64 << 10, FUSED,
				SCHED_SIMPLE, &calls);
		is_near(there, here, 0.001);
		assert_int_equal(net.num, 0);
		sched_fabric_free(&fabric);
	}
}

/* ---- limits ---- */

/*
 * Two-shot and ring move 2 (n - 1) / n of the bytes into each rank, in a pipeline, and have nothing
 * else to do that takes long. Two-shot loads one half of them, and stores the other.
 */
static void large_calls_reach_the_limit(void **state)
{
	struct sched_request request = request_of(SCHED_ALLREDUCE, 8);
	struct sched_fabric fabric;
	double least = 2 * 7 / 8.0 * 256 * MIB / 1e4;

	(void)state;
	make_plain(8, 1, &fabric);
	request.channels = 2; /* both ways round */
	is_near(time_of("ring", &request, &fabric, 256 * MIB, FUSED, SCHED_SIMPLE), least, 0.03);
	is_near(time_of("twoshot", &request, &fabric, 256 * MIB, FUSED, SCHED_SIMPLE),
		least / 2 * (LOADED + 1), 0.03);
	request.coll = SCHED_ALLGATHER;
	is_near(time_of("ring", &request, &fabric, 32 * MIB, FUSED, SCHED_SIMPLE), least / 2, 0.03);
	request.coll = SCHED_BCAST;
	is_near(time_of("ring", &request, &fabric, 256 * MIB, FUSED, SCHED_SIMPLE), 256 * MIB / 1e4,
		0.03);
	sched_fabric_free(&fabric);
}

/* What must come into the rank that has most, in blocks of the call. */
static double least_in(enum sched_coll coll, double n)
{
	switch (coll) {
	case SCHED_ALLREDUCE:
		return 2 * (n - 1) / n;
	case SCHED_BCAST:
	case SCHED_REDUCE:
	case SCHED_SCAN:
	case SCHED_EXSCAN:
	case SCHED_SCATTER:
		return 1;
	default:
		return n - 1;
	}
}

static void check_limit(const struct algo *algo, const struct sched_request *request,
			const struct sched_fabric *fabric)
{
	const uint64_t bytes = 256 * MIB;
	double least = least_in(request->coll, request->ranks) * (double)bytes / 1e4;
	double time = time_of(algo->name, request, fabric, bytes, FUSED, false);

	if (time < least)
		fail_msg("%s %s, %d ranks, %d channels: %g us, and %g is the least", algo->name,
			 sched_coll_name(request->coll), request->ranks, request->channels, time,
			 least);
}

/* No algorithm is faster than its bytes, also where most rounds are not looked at. */
static void nobody_is_too_fast(void **state)
{
	(void)state;
	for (int i = 0; i < SCHED_NUM_COLLS * 6; i++) {
		struct sched_request request =
			request_of((enum sched_coll)(i / 6), (int[]){2, 5, 8}[i % 3]);
		struct sched_fabric fabric;

		request.channels = i % 6 < 3 ? 1 : 8;
		make_plain(request.ranks, 1, &fabric);
		for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
			bool linked = !(algo->needs & ALGO_NEEDS_MAPPED);

			if (!algo_refuses(algo, &request, false) &&
			    (linked || request.channels == 1))
				check_limit(algo, &request, &fabric);
		}
		sched_fabric_free(&fabric);
	}
}

/* Ranks that share a way take twice as long, and those that share a GPU its memory. */
static void ways_are_shared(void **state)
{
	struct sched_request request = request_of(SCHED_ALLGATHER, 4);
	struct core_seat seats[4] = {{0, -1, 7}, {0, -1, 7}, {0, -1, 7}, {0, -1, 7}};
	static const struct topo_machine *const nothing[1];
	struct sched_fabric fabric;
	double alone, together;

	(void)state;
	assert_true(core_model_make(4, seats, 1, nothing, false, &fabric));
	assert_int_equal(fabric.num_sites, 1);
	fabric.rates[0] = 1e5;
	/* Each block is read four times and written four times. */
	is_near(time_of("direct", &request, &fabric, 64 * MIB, FUSED, SCHED_SIMPLE),
		4 * 8 * 64.0 * MIB / 1e5, 0.01);
	sched_fabric_free(&fabric);

	make_plain(4, 1, &fabric);
	alone = time_of("direct", &request, &fabric, 64 * MIB, FUSED, SCHED_SIMPLE);
	for (int i = 0; i < 16; i++) {
		for (int j = 0; j < fabric.routes[i].num; j++)
			fabric.routes[i].legs[j].way = 4;
	}
	together = time_of("direct", &request, &fabric, 64 * MIB, FUSED, SCHED_SIMPLE);
	is_near(together, 8 * alone, 0.01); /* 12 blocks twice over one way, not 3 over each */
	sched_fabric_free(&fabric);
}

/* ---- rings ---- */

static void prove(const struct algo *algo, const struct sched_request *request)
{
	struct sched *sched = algo_make(algo, request);
	char why[256];

	assert_non_null(sched);
	if (!sched_verify(sched, algo->slots, why, sizeof(why)))
		fail_msg("%s %s, %d ranks: %s", algo->name, sched_coll_name(request->coll),
			 request->ranks, why);
	sched_free(sched);
}

/* Whatever the orders of the ranks are, schedules are right. */
static void any_order_is_right(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int i = 0; i < 16 * SCHED_NUM_COLLS; i++) {
		int rings[3 * 16], ranks = 1 + i / SCHED_NUM_COLLS;
		struct sched_request request =
			request_of((enum sched_coll)(i % SCHED_NUM_COLLS), ranks);

		for (int j = 0; j < 3 * ranks; j++) {
			int at = (int)(oracle_draw(&seed) % (uint32_t)(j % ranks + 1));

			rings[j] = rings[j - j % ranks + at];
			rings[j - j % ranks + at] = j % ranks;
		}
		request.num_rings = 3;
		request.rings = rings;
		request.channels = 4;
		if (sched_coll_has_root(request.coll))
			request.root = (int)(oracle_draw(&seed) % (uint32_t)ranks);
		for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
			if (!algo_refuses(algo, &request, false))
				prove(algo, &request);
		}
	}
}

/* ---- choices on recorded machines ---- */

struct place {
	struct topo_machine *machine;
	struct core_samples cluster;
	const struct sched_fabric *fabric; /* of all of it */
	struct sched_request request;
	struct algo_setting setting;
};

static const char *file_named(const char *name)
{
	for (int i = 0; i < num_files; i++) {
		if (strstr(files[i], name))
			return files[i];
	}
	fail_msg("no machine %s", name);
	return NULL;
}

static void open_place(struct place *p, const char *file, enum sched_coll coll, int ranks,
		       int nodes, bool mapped)
{
	const struct topo_machine *machines[MOST_NODES];
	struct core_seat seats[MOST_RANKS] = {0};
	FILE *in = fopen(file, "r");
	char error[256] = "can't be opened";
	int gpus = 0;

	*p = (struct place){.machine =
				    in ? topo_machine_read(in, file, error, sizeof(error)) : NULL};
	if (!p->machine)
		fail_msg("%s: %s", file, error);
	fclose(in);
	while (topo_machine_nth(p->machine, TOPO_GPU, gpus) >= 0)
		gpus++;
	for (int i = 0; i < ranks; i++)
		seats[i] = (struct core_seat){i / (ranks / nodes),
					      topo_machine_nth(p->machine, TOPO_GPU, i % gpus), 0};
	for (int i = 0; i < nodes; i++)
		machines[i] = p->machine;
	p->request = request_of(coll, ranks);
	assert_true(core_samples_make(ranks, seats, nodes, machines, false, &p->cluster));
	p->fabric = p->cluster.parts[0].fabric;
	p->request.num_nodes = nodes > 1 ? nodes : 0;
	p->request.nodes = p->cluster.parts[0].nodes;
	p->request.num_rings = p->cluster.parts[0].num_rings;
	p->request.rings = p->cluster.parts[0].rings;
	p->setting = (struct algo_setting){.fabric = p->fabric,
					   .room = core_arena_layout_for(ARENA, false, false),
					   .most_links = GPU_MAX_LINKS,
					   .most_lanes = GPU_MAX_LANES,
					   .most_operands = GPU_MAX_OPERANDS,
					   .most_places = GPU_MAX_PLACES,
					   .mapped = mapped,
					   .fused = true,
					   .protos = (1 << SCHED_NUM_PROTOS) - 1,
					   .resident = p->fabric->costs.blocks,
					   .lines = SCHED_LINES_WHOLE};
}

static void close_place(struct place *p)
{
	core_samples_free(&p->cluster);
	topo_machine_free(p->machine);
}

/* What the choice takes, not as the table has it; of more than `most`, something above that. */
static double time_of_choice(const struct place *p, const struct algo_choice *choice,
			     uint64_t bytes, double most)
{
	struct sched_terms terms = {.fused = true,
				    .proto = choice->proto,
				    .blocks = p->setting.resident,
				    .bytes = bytes,
				    .most = most};
	struct sched_request request = p->request;
	struct sched *sched;
	double time;

	request.channels = choice->channels;
	sched = algo_make(choice->algo, &request);
	assert_non_null(sched);
	if (choice->proto == SCHED_LL128 && sched_fabric_lines(p->fabric, sched) < p->setting.lines)
		time = INFINITY;
	else if (sched->num_connections &&
		 (sched_most_links(sched) > p->setting.most_links ||
		  sched_most_lanes(sched) > (uint32_t)p->setting.resident ||
		  !sched_slots_fit(sched, sched_most_links(sched), (uint32_t)choice->algo->slots,
				   &p->setting.room, choice->proto, &terms.slots)))
		time = INFINITY;
	else
		time = sched_time(sched, p->fabric, &terms);
	sched_free(sched);
	return time;
}

/*
 * Look at all there are, also those that the table has not looked at, for one that takes less than
 * `least`. Returns the least time.
 */
static double find_faster(const struct place *p, uint64_t bytes, double least,
			  struct algo_choice *best)
{
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		bool mapped = algo->needs & ALGO_NEEDS_MAPPED;

		if (algo_refuses(algo, &p->request, false) || algo->needs & ALGO_NEEDS_ALL_MAPPED ||
		    (mapped && !p->setting.mapped))
			continue;
		for (int i = 0; i < (mapped ? 1 : SCHED_NUM_PROTOS * 5); i++) {
			struct algo_choice choice = {algo, 1 << i / SCHED_NUM_PROTOS,
						     i % SCHED_NUM_PROTOS, 0};

			choice.time = time_of_choice(p, &choice, bytes, least);
			if (choice.time < least)
				*best = choice;
			least = fmin(least, choice.time);
		}
	}
	return least;
}

/* The first choice takes no longer than any other, but for the part. Returns its time. */
static double check_choice(const struct place *p, struct algo_table *table, uint64_t bytes,
			   double part)
{
	struct algo_choice first, best = {0};
	double time, least;

	assert_int_equal(algo_table_rank(table, bytes, &anything, &first, 1), 1);
	time = time_of_choice(p, &first, bytes, INFINITY);
	least = find_faster(p, bytes, time, &best);
	if (time > (1 + part) * least)
		fail_msg("%s, %d ranks, %s, %llu bytes: %s x%d %s takes %g us, and %s x%d %s %g",
			 p->machine->name, p->request.ranks, sched_coll_name(p->request.coll),
			 (unsigned long long)bytes, first.algo->name, first.channels,
			 sched_proto_name(first.proto), time, best.algo->name, best.channels,
			 sched_proto_name(best.proto), least);
	return time;
}

/* Where the choice at a size needs a round more it may not be the best any longer. */
static void check_edge(const struct place *p, struct algo_table *table, uint64_t bytes)
{
	const uint64_t few = 8;
	struct algo_choice choice;
	struct sched_request request = p->request;
	struct sched_slots slots;
	struct sched *sched;
	uint64_t rounds = 0;

	assert_int_equal(algo_table_rank(table, bytes, &anything, &choice, 1), 1);
	request.channels = choice.channels;
	sched = algo_make(choice.algo, &request);
	assert_non_null(sched);
	if (sched->num_connections) {
		assert_true(sched_slots_fit(sched, sched_most_links(sched),
					    (uint32_t)choice.algo->slots, &p->setting.room,
					    choice.proto, &slots));
		rounds = (bytes + slots.width - 1) / slots.width;
	}
	sched_free(sched);
	if (rounds > 0 && rounds < few)
		check_choice(p, table, rounds * slots.width + 1, 0.1);
}

static bool is_same(const struct algo_choice *a, const struct algo_choice *b)
{
	return a->algo == b->algo && a->channels == b->channels && a->proto == b->proto &&
	       a->time == b->time;
}

static void check_place(const char *file, enum sched_coll coll, int ranks, bool mapped,
			uint64_t *seed)
{
	struct algo_table *table, *other;
	struct place p;
	double last = 0;

	open_place(&p, file, coll, ranks, 1, mapped);
	table = algo_table_new(&p.request, &p.setting);
	other = algo_table_new(&p.request, &p.setting);
	assert_true(table && other);
	for (uint64_t bytes = 8; bytes <= UINT64_C(1) << 29; bytes *= 8) {
		uint64_t some = bytes + oracle_draw(seed) % bytes;
		struct algo_choice a, b;
		double time = check_choice(&p, table, bytes, 0.02);

		/* Between sizes that the table knows pieces may become longer by a unit. */
		check_choice(&p, table, some, 0.1);
		check_edge(&p, table, bytes);
		/* More bytes take no less time, but for what pieces' units make of it. */
		assert_true(time > 0.9 * last);
		last = time;
		/* Who asks for other sizes first gets the same. */
		assert_true(algo_table_rank(table, bytes, &anything, &a, 1) > 0);
		assert_true(algo_table_rank(other, bytes, &anything, &b, 1) > 0);
		assert_true(is_same(&a, &b));
	}
	algo_table_free(table);
	algo_table_free(other);
	close_place(&p);
}

/* What a table has been asked before does not matter. */
static void check_history(const struct place *p)
{
	enum { MOST = 256 };

	for (uint64_t bytes = 64; bytes <= 64 * MIB; bytes *= 4) {
		struct algo_table *fresh = algo_table_new(&p->request, &p->setting);
		struct algo_table *used = algo_table_new(&p->request, &p->setting);
		struct algo_choice a[MOST], b[MOST];
		int num;

		assert_true(algo_table_rank(used, 4 * bytes, &anything, a, 1) > 0);
		num = algo_table_rank(fresh, bytes + bytes / 3, &anything, a, MOST);
		assert_int_equal(algo_table_rank(used, bytes + bytes / 3, &anything, b, MOST), num);
		for (int i = 0; i < num; i++)
			assert_true(is_same(&a[i], &b[i]));
		algo_table_free(fresh);
		algo_table_free(used);
	}
}

static void history_does_not_matter(void **state)
{
	struct place p;

	(void)state;
	for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
		open_place(&p, file_named("dgx-a100"), (enum sched_coll)coll, 32, 4, false);
		p.setting.nodes_mapped = true;
		p.setting.protos = 1 << SCHED_SIMPLE;
		check_history(&p);
		close_place(&p);
	}
}

/*
 * Whether the alltoall goes pairwise though Bruck's is faster. It never goes by Bruck's, through
 * scratch, where pairwise is slower by less than the model knows.
 */
static bool is_modest(struct algo_table *table, uint64_t bytes)
{
	enum { MOST = 64 };
	struct algo_choice choices[MOST];
	int num = algo_table_rank(table, bytes, &anything, choices, MOST);
	bool modest = false;

	assert_true(num > 1);
	for (int i = 1; i < num; i++) {
		if (!strcmp(choices[i].algo->name, "pairwise"))
			assert_true(strcmp(choices[0].algo->name, "bruck") ||
				    choices[i].time > 1.02 * choices[0].time);
		else
			modest |= !strcmp(choices[0].algo->name, "pairwise") &&
				  choices[i].time < choices[0].time;
	}
	return modest;
}

static void what_is_alike_is_modest(void **state)
{
	int modest = 0;

	(void)state;
	for (int i = 0; i < num_files; i++) {
		struct algo_table *table;
		struct place p;

		open_place(&p, files[i], SCHED_ALLTOALL, 2, 2, false);
		p.setting.protos = 1 << SCHED_SIMPLE;
		table = algo_table_new(&p.request, &p.setting);
		assert_non_null(table);
		for (uint64_t bytes = 1024; bytes <= 512 * MIB; bytes *= 2)
			modest += is_modest(table, bytes);
		algo_table_free(table);
		close_place(&p);
	}
	assert_true(modest > 0);
}

static double time_of_fastest(const struct algo_choice *choices, int num)
{
	double least = choices[0].time;

	for (int i = 1; i < num; i++)
		least = fmin(least, choices[i].time);
	return least;
}

/*
 * What has several channels is faster by that than with fewer, by more than the model is sure of;
 * also where only one is asked for.
 */
static void channels_are_worth_it(void **state)
{
	enum { MOST = 256 };

	(void)state;
	for (int i = 0; i < num_files; i++) {
		struct algo_choice choices[MOST];
		struct algo_table *table;
		struct place p;

		open_place(&p, files[i], SCHED_ALLTOALL, 2, 2, false);
		table = algo_table_new(&p.request, &p.setting);
		assert_non_null(table);
		for (uint64_t bytes = 8; bytes <= 512 * MIB; bytes *= 2) {
			struct algo_choice one;
			int num = algo_table_rank(table, bytes, &anything, choices, MOST);
			double least = time_of_fastest(choices, num);

			for (int j = 1; j < num; j++) {
				if (choices[j].algo == choices[0].algo &&
				    choices[j].proto == choices[0].proto &&
				    choices[j].channels < choices[0].channels)
					assert_true(choices[j].time > 1.02 * least);
			}
			assert_int_equal(algo_table_rank(table, bytes, &anything, &one, 1), 1);
			assert_memory_equal(&one, &choices[0], sizeof(one));
		}
		algo_table_free(table);
		close_place(&p);
	}
}

static double expect(struct place *p, bool gdr, uint64_t bytes)
{
	struct algo_table *table;
	double time;

	p->setting.gdr = gdr;
	p->setting.fused = !gdr;
	p->setting.protos = gdr ? 1 << SCHED_SIMPLE : 1 << SCHED_SIMPLE | 1 << SCHED_LL;
	p->setting.nodes_mapped = true;
	table = algo_table_new(&p->request, &p->setting);
	assert_non_null(table);
	time = algo_table_expect(table, bytes, &anything);
	algo_table_free(table);
	return time;
}

/* GPUDirect takes the launches that kernels that wait do not, and spares the host's memory. */
static void gdr_is_for_long_calls(void **state)
{
	int faster = 0;

	(void)state;
	for (int i = 0; i < num_files; i++) {
		struct place p;

		open_place(&p, files[i], SCHED_ALLREDUCE, 8, 2, false);
		assert_true(expect(&p, false, 1024) < expect(&p, true, 1024));
		close_place(&p);
		open_place(&p, files[i], SCHED_ALLTOALL, 8, 2, false);
		faster += expect(&p, true, 64 * MIB) < expect(&p, false, 64 * MIB);
		close_place(&p);
	}
	assert_true(2 * faster > num_files);
}

static void choices_are_best(void **state)
{
	static const enum sched_coll colls[] = {SCHED_ALLREDUCE, SCHED_BCAST, SCHED_ALLGATHER,
						SCHED_ALLTOALL};
	uint64_t seed = 1;

	(void)state;
	assert_true(num_files > 0);
	for (int i = 0; i < num_files; i++) {
		for (size_t j = 0; j < sizeof(colls) / sizeof(colls[0]); j++)
			check_place(files[i], colls[j], 8, i % 2 == 0, &seed);
		check_place(files[i], SCHED_ALLREDUCE, 3, true, &seed);
		check_place(files[i], SCHED_ALLREDUCE, 16, false, &seed);
		check_place(files[i], SCHED_ALLGATHER, 16, false, &seed);
	}
}

/*
 * By samples of a half, a quarter and an eighth of the job: what they say a way takes, it takes,
 * and it is as good as the best.
 */
static void check_samples(const struct place *p, uint64_t bytes)
{
	struct algo_setting setting = p->setting;
	struct algo_table *whole = algo_table_new(&p->request, &setting), *samples;
	struct algo_choice best, chosen;
	double time;

	core_samples_set(&p->cluster, &setting);
	samples = algo_table_new(&p->request, &setting);
	assert_true(whole && samples);
	assert_int_equal(algo_table_rank(whole, bytes, &anything, &best, 1), 1);
	assert_int_equal(algo_table_rank(samples, bytes, &anything, &chosen, 1), 1);
	time = time_of_choice(p, &chosen, bytes, INFINITY);
	if (fabs(chosen.time - time) > 0.1 * time || time > 1.05 * best.time)
		fail_msg("%s, %llu bytes: %s x%d takes %g us, not %g; and %s x%d %g",
			 sched_coll_name(p->request.coll), (unsigned long long)bytes,
			 chosen.algo->name, chosen.channels, time, chosen.time, best.algo->name,
			 best.channels, best.time);
	algo_table_free(whole);
	algo_table_free(samples);
}

static void samples_are_like_the_whole(void **state)
{
	struct place p;

	(void)state;
	for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
		open_place(&p, file_named("dgx-a100"), (enum sched_coll)coll, 128, 16, false);
		p.setting.nodes_mapped = true;
		p.setting.protos = 1 << SCHED_SIMPLE;
		assert_int_equal(p.cluster.num_parts, 1 + ALGO_NUM_SAMPLES);
		for (uint64_t bytes = 1 << 10; bytes <= 32 * MIB; bytes <<= 15)
			check_samples(&p, bytes);
		close_place(&p);
	}
}

/* The best way by the samples; its algorithm. */
static const char *best_by_samples(struct place *p, const struct algo_wish *wish)
{
	struct algo_choice best;
	struct algo_table *table;
	int num;

	p->setting.nodes_mapped = true;
	core_samples_set(&p->cluster, &p->setting);
	table = algo_table_new(&p->request, &p->setting);
	assert_non_null(table);
	num = algo_table_rank(table, 64 * MIB, wish, &best, 1);
	algo_table_free(table);
	return num ? best.algo->name : "none";
}

/* Samples tell nothing of a grid that is too large to be looked at: it is for those who ask. */
static void large_grids_are_to_be_asked_for(void **state)
{
	struct algo_wish wishes[SCHED_NUM_COLLS] = {0};
	char error[80];
	struct place p;

	(void)state;
	assert_true(algo_wish_algos("allreduce:rail-torus", wishes, error, sizeof(error)));
	open_place(&p, file_named("dgx-a100"), SCHED_ALLREDUCE, 512, 64, false);
	assert_null(strstr(best_by_samples(&p, &anything), "torus"));
	assert_string_equal(best_by_samples(&p, &wishes[SCHED_ALLREDUCE]), "rail-torus");
	close_place(&p);
	open_place(&p, file_named("dgx-a100"), SCHED_ALLREDUCE, 17 * 8, 17, false);
	assert_string_equal(best_by_samples(&p, &wishes[SCHED_ALLREDUCE]), "none");
	close_place(&p);
}

/* What takes longer than the best by much is not looked at closely, but is never taken for less. */
static void bounds_are_kept(void **state)
{
	struct sched_request request = request_of(SCHED_ALLREDUCE, 8);
	struct sched *sched = algo_make(algo_find("ring", SCHED_ALLREDUCE), &request);
	struct sched_terms terms = {
		.fused = true, .blocks = 64, .bytes = 4 * MIB, .most = INFINITY};
	struct sched_room room = core_arena_layout_for(ARENA, false, false);
	struct sched_fabric fabric;
	double whole, part;

	(void)state;
	make_plain(8, 1, &fabric);
	assert_true(sched_slots_fit(sched, sched_most_links(sched), 2, &room, false, &terms.slots));
	whole = sched_time(sched, &fabric, &terms);
	for (terms.most = 1; terms.most < 2 * whole; terms.most *= 2) {
		part = sched_time(sched, &fabric, &terms);
		assert_true(part == whole || (part > terms.most && part < whole));
	}
	sched_free(sched);
	sched_fabric_free(&fabric);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(direct_by_hand),
		cmocka_unit_test(messages_by_hand),
		cmocka_unit_test(nodes_by_hand),
		cmocka_unit_test(sockets_by_hand),
		cmocka_unit_test(gdr_by_hand),
		cmocka_unit_test(network_may_be_elsewhere),
		cmocka_unit_test(large_calls_reach_the_limit),
		cmocka_unit_test(nobody_is_too_fast),
		cmocka_unit_test(ways_are_shared),
		cmocka_unit_test(any_order_is_right),
		cmocka_unit_test(bounds_are_kept),
		cmocka_unit_test(history_does_not_matter),
		cmocka_unit_test(what_is_alike_is_modest),
		cmocka_unit_test(channels_are_worth_it),
		cmocka_unit_test(gdr_is_for_long_calls),
		cmocka_unit_test(choices_are_best),
		cmocka_unit_test(samples_are_like_the_whole),
		cmocka_unit_test(large_grids_are_to_be_asked_for),
	};

	files = argv + 1;
	num_files = argc - 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
