/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucoll-sim: how long collectives take on clusters that nobody has at hand. The library's
 * schedules on its model of a node, and between nodes SimGrid.
 */
#include "algos/algo_choose.h"
#include "core/choose/core_model.h"
#include "core/wire/core_arena_layout.h"
#include "gpu/kernels/gpu_program.h"
#include "sim-bound.h"
#include "sim-net.h"
#include "util/util_config.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const shapes[SIM_NUM_SHAPES] = {"rails", "fat-tree", "dragonfly"};

enum {
	MOST_RANKS = 65536,
	MOST_LIST = 32,
	MOST_CHANNELS = 64,
	CHOSEN_AMONG = 64,
	MEASURED_AMONG = 512,
	LEAST_NODES = 8 /* of the largest sample, which is halved twice */
};

/*
 * us, of a link: two of them and what hosts do are about the 4 us that the library's model takes
 * for a message between nodes.
 */
static const double hop = 0.8;

/* Steps of a schedule that can be made in the memory of a workstation. */
static const double most_steps = 2e7;

/* And of one from which others are extrapolated, which all together have a part of a row's time. */
static const double most_sample_steps = 5e5, sample_share = 0.1;

static struct {
	struct topo_machine *machine;
	enum sim_shape shape;
	enum sched_coll colls[SCHED_NUM_COLLS];
	int num_colls, num_sizes, num_ranks;
	double limit; /* s, of a row */
	int channels; /* 0: any number */
	bool best;    /* nothing to compare with */
	uint64_t sizes[MOST_LIST];
	int ranks[MOST_LIST];
	struct algo_wish wishes[SCHED_NUM_COLLS];
	FILE *out;
} options;

/* ---- a cluster ---- */

struct cluster {
	struct sched_request request;
	struct sched_fabric fabric;
	struct sim_network network;
	int gpus;
	int *nodes, *node_of_site, *nic_of_site;
};

static int num_gpus(void)
{
	int num = 0;

	while (topo_machine_nth(options.machine, TOPO_GPU, num) >= 0)
		num++;
	return num;
}

static void no_memory(void)
{
	fputs("gpucoll-sim: there is not enough memory\n", stderr);
	exit(1);
}

static void *allocate(int num, size_t bytes)
{
	void *memory = calloc((size_t)num + 1, bytes);

	if (!memory)
		no_memory();
	return memory;
}

/* NICs by the order in which a node's GPUs first use them. */
static void number_nics(struct cluster *c)
{
	int *ways = allocate(c->gpus, sizeof(*ways));

	for (int site = 0; site < c->fabric.num_sites; site++) {
		const struct sched_home *home = &c->fabric.homes[site];
		int nic = 0;

		if (!home->number)
			c->network.nics = 0;
		while (nic < c->network.nics && ways[nic] != home->out)
			nic++;
		if (nic == c->network.nics)
			ways[c->network.nics++] = home->out;
		c->node_of_site[site] = home->node;
		c->nic_of_site[site] = nic;
	}
	c->network.rate = c->fabric.rates[c->fabric.homes[0].out];
	free(ways);
}

/* A rank on each GPU of nodes that are filled one after the other. */
static void make_cluster(struct cluster *c, enum sched_coll coll, int ranks)
{
	struct core_seat *seats = allocate(ranks, sizeof(*seats));
	const struct topo_machine **machines;
	int nodes;

	*c = (struct cluster){.gpus = num_gpus()};
	nodes = (ranks + c->gpus - 1) / c->gpus;
	machines = allocate(nodes, sizeof(*machines));
	c->nodes = allocate(ranks, sizeof(*c->nodes));
	c->node_of_site = allocate(ranks, sizeof(*c->node_of_site));
	c->nic_of_site = allocate(ranks, sizeof(*c->nic_of_site));
	for (int i = 0; i < nodes; i++)
		machines[i] = options.machine;
	for (int rank = 0; rank < ranks; rank++) {
		c->nodes[rank] = rank / c->gpus;
		seats[rank] = (struct core_seat){
			c->nodes[rank], topo_machine_nth(options.machine, TOPO_GPU, rank % c->gpus),
			0};
	}
	if (!core_model_make(ranks, seats, nodes, machines, false, &c->fabric))
		no_memory();
	c->request = (struct sched_request){.coll = coll,
					    .ranks = ranks,
					    .channels = 1,
					    .num_nodes = nodes > 1 ? nodes : 0,
					    .nodes = c->nodes};
	c->network = (struct sim_network){.shape = options.shape,
					  .nodes = nodes,
					  .hop = hop,
					  .node_of_site = c->node_of_site,
					  .nic_of_site = c->nic_of_site};
	number_nics(c);
	free(seats);
	free(machines);
}

static void free_cluster(struct cluster *c)
{
	sched_fabric_free(&c->fabric);
	free(c->nodes);
	free(c->node_of_site);
	free(c->nic_of_site);
}

static double bound_of(const struct cluster *c, double bytes)
{
	struct sim_bound bound = {.fabric = &c->fabric,
				  .ranks = c->request.ranks,
				  .nodes = c->network.nodes,
				  .nics = c->network.nics,
				  .hop = hop,
				  .bisection = sim_net_bisection(&c->network),
				  .nic_rate = c->network.rate};

	bound.num_levels = sim_net_levels(&c->network, bound.levels);
	return sim_bound_time(&bound, c->request.coll, bytes);
}

/* ---- one simulation ---- */

static struct sched_room room(void)
{
	return core_arena_layout_for(core_arena_layout_bytes(util_config.scratch, 1), false, false);
}

/* What a simulation needs and gives. */
struct simulation {
	const struct sched *sched;
	const struct sched_fabric *fabric;
	struct sched_terms terms;
	double time;
};

static void simulate(const struct sched_net *net, void *argument)
{
	struct simulation *s = argument;

	s->terms.net = net;
	s->time = sched_time(s->sched, s->fabric, &s->terms);
}

/* What to simulate: the schedule of a way, as if a rank had so many links. */
struct subject {
	const struct algo_choice *way;
	uint64_t bytes;
	uint32_t links;
	double deadline; /* s, of now() */
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* us; negative: it can't be. */
static double time_of(struct cluster *c, const struct subject *subject)
{
	const struct algo_choice *way = subject->way;
	struct sched_request request = c->request;
	struct sched_room memory = room();
	struct simulation s = {.fabric = &c->fabric,
			       .time = -1,
			       .terms = {.fused = true,
					 .proto = way->proto,
					 .blocks = c->fabric.costs.blocks,
					 .bytes = subject->bytes,
					 .most = INFINITY,
					 .whole = true}};
	struct sched *sched;

	request.channels = way->channels;
	sched = algo_make(way->algo, &request);
	if (!sched)
		return -1;
	s.sched = sched;
	if (!sched->num_connections ||
	    sched_slots_fit(sched, subject->links, (uint32_t)way->algo->slots, &memory, way->proto,
			    &s.terms.slots)) {
		if (c->network.nodes > 1)
			sim_net_run(&c->network, simulate, &s);
		else
			simulate(NULL, &s);
	}
	sched_free(sched);
	return s.time;
}

/*
 * In a process of its own, as SimGrid runs once in one. us; negative: it can't be, or takes too
 * long.
 */
static double time_in_child(struct cluster *c, const struct subject *subject)
{
	double time = -1, left = subject->deadline - now();
	struct pollfd wait;
	int ends[2];
	pid_t child;

	if (left <= 0 || pipe(ends))
		return -1;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		time = time_of(c, subject);
		_exit(write(ends[1], &time, sizeof(time)) != sizeof(time));
	}
	close(ends[1]);
	wait = (struct pollfd){.fd = ends[0], .events = POLLIN};
	if (child > 0 && poll(&wait, 1, (int)(1000 * left)) == 1 &&
	    read(ends[0], &time, sizeof(time)) != sizeof(time))
		time = -1;
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	close(ends[0]);
	return time;
}

/* ---- which algorithms ---- */

/* How many ranks a library has the memory for is of no interest here. */
static bool is_refused(const struct algo *algo, const struct sched_request *request)
{
	struct algo any = *algo;

	any.needs &= ~(unsigned)ALGO_NEEDS_FEW_RANKS;
	return algo_refuses(&any, request, false) != NULL;
}

/* What a way's schedule comes to. */
struct extent {
	double steps, links; /* INFINITY: there is none */
};

static struct extent measure(const struct algo_choice *way, enum sched_coll coll, int ranks)
{
	struct extent extent = {INFINITY, INFINITY};
	struct cluster c;
	struct sched *sched;

	make_cluster(&c, coll, ranks);
	c.request.channels = way->channels;
	sched = is_refused(way->algo, &c.request) ? NULL : algo_make(way->algo, &c.request);
	if (sched)
		extent = (struct extent){sched->num_steps, sched_most_links(sched)};
	sched_free(sched);
	free_cluster(&c);
	return extent;
}

/* If it is large, by what smaller ones come to. */
static struct extent extent_of(const struct algo_choice *way, enum sched_coll coll, int ranks)
{
	double doublings = log2((double)ranks / MEASURED_AMONG);
	double steps[ALGO_NUM_SAMPLES], links[ALGO_NUM_SAMPLES];

	if (ranks <= MEASURED_AMONG)
		return measure(way, coll, ranks);
	for (int i = 0; i < ALGO_NUM_SAMPLES; i++) {
		struct extent extent =
			measure(way, coll, MEASURED_AMONG >> (ALGO_NUM_SAMPLES - 1 - i));

		if (isinf(extent.steps))
			return extent;
		steps[i] = extent.steps;
		links[i] = extent.links;
	}
	return (struct extent){algo_go_on(steps, doublings), algo_go_on(links, doublings)};
}

/* The best that the library finds for as many ranks, or for the most for which it looks. */
static int list_best(enum sched_coll coll, int ranks, uint64_t bytes, struct algo_choice *ways,
		     int most)
{
	struct cluster c;
	struct algo_setting setting;
	struct algo_table *table;
	int num;

	make_cluster(&c, coll, ranks < CHOSEN_AMONG ? ranks : CHOSEN_AMONG);
	setting = (struct algo_setting){.fabric = &c.fabric,
					.room = room(),
					.most_links = GPU_MAX_LINKS,
					.most_lanes = GPU_MAX_LANES,
					.most_operands = GPU_MAX_OPERANDS,
					.most_places = UINT32_MAX,
					.mapped = c.network.nodes == 1,
					.nodes_mapped = true,
					.fused = true,
					.protos = 1 << SCHED_SIMPLE | 1 << SCHED_LL,
					.resident = c.fabric.costs.blocks,
					.channels = options.channels};
	table = algo_table_new(&c.request, &setting);
	num = table ? algo_table_rank(table, bytes, &options.wishes[coll], ways, most) : -1;
	if (num < 0)
		no_memory();
	algo_table_free(table);
	free_cluster(&c);
	return num < most ? num : most;
}

/* ---- rows ---- */

/* What a row says; of no time none is printed. */
struct result {
	double time; /* us; negative: it is not known */
	bool extrapolated;
};

static void print_row(const struct cluster *c, const struct algo_choice *way, uint64_t bytes,
		      struct result result)
{
	double bound = bound_of(c, (double)bytes);

	if (result.time < 0)
		return;
	fprintf(options.out, "%s,%" PRIu64 ",%d,%d,%s,%s,%s,%d,%.2f,%.2f,%.3f,%s\n",
		sched_coll_name(c->request.coll), bytes, c->request.ranks, c->network.nodes,
		shapes[options.shape], way->algo->name, sched_proto_name(way->proto), way->channels,
		result.time, bound, result.time / bound,
		result.extrapolated ? "extrapolated" : "simulated");
	fflush(options.out);
}

/* us; negative: it can't be simulated. */
static double simulate_way(struct cluster *c, const struct algo_choice *way, uint64_t bytes,
			   double deadline)
{
	struct subject subject = {.way = way, .bytes = bytes, .deadline = deadline};
	struct extent extent;

	if (is_refused(way->algo, &c->request))
		return -1;
	extent = extent_of(way, c->request.coll, c->request.ranks);
	if (extent.steps > most_steps)
		return -1;
	subject.links = (uint32_t)lround(extent.links);
	return time_in_child(c, &subject);
}

/* By samples of which the last has so many nodes. us; negative: there is one that can't be. */
static double extrapolate_from(const struct cluster *c, int nodes, struct subject *subject)
{
	double times[ALGO_NUM_SAMPLES];

	for (int i = 0; i < ALGO_NUM_SAMPLES; i++) {
		int ranks = (nodes >> (ALGO_NUM_SAMPLES - 1 - i)) * c->gpus;
		struct cluster sample;

		make_cluster(&sample, c->request.coll, ranks);
		times[i] = is_refused(subject->way->algo, &sample.request)
				   ? -1
				   : time_in_child(&sample, subject);
		free_cluster(&sample);
		if (times[i] < 0)
			return -1;
	}
	return algo_go_on(times, log2((double)c->network.nodes / nodes));
}

/*
 * By the largest samples that can be simulated; of a grid they tell nothing, as its divisors
 * count. us; negative: there are none.
 */
static double extrapolate(const struct cluster *c, const struct algo_choice *way, uint64_t bytes)
{
	struct subject subject = {.way = way, .bytes = bytes};
	double links, time = -1;

	if (is_refused(way->algo, &c->request) || way->algo->needs & ALGO_NEEDS_GRID)
		return -1;
	links = extent_of(way, c->request.coll, c->request.ranks).links;
	subject.links = (uint32_t)fmin(links, UINT32_MAX);
	for (int nodes = c->network.nodes / 2; nodes >= LEAST_NODES && time < 0; nodes /= 2) {
		int whole = nodes / 4 * 4;

		if (extent_of(way, c->request.coll, whole * c->gpus).steps > most_sample_steps)
			continue;
		subject.deadline = now() + sample_share * options.limit;
		time = extrapolate_from(c, whole, &subject);
	}
	return time;
}

/*
 * The best that can be simulated of those that are close, where the library looks, and of the
 * others the first, or that which can be extrapolated. Returns its algorithm; NULL: there is none.
 */
static const struct algo *add_best(struct cluster *c, uint64_t bytes)
{
	enum { MOST_WAYS = 24 };
	const double close = 1.2;
	struct algo_choice ways[MOST_WAYS], best = {.algo = NULL, .time = INFINITY};
	int num = list_best(c->request.coll, c->request.ranks, bytes, ways, MOST_WAYS);
	double deadline = now() + options.limit;
	struct result result = {.time = -1};

	for (int i = 0; i < num && (!best.algo || ways[i].time < close * ways[0].time); i++) {
		double time = simulate_way(c, &ways[i], bytes, deadline);

		if (time < 0 || time >= best.time)
			continue;
		best = ways[i];
		best.time = result.time = time;
	}
	for (int i = 0; i < num && result.time < 0; i++) {
		best = ways[i];
		result = (struct result){extrapolate(c, &best, bytes), true};
	}
	print_row(c, &best, bytes, result);
	return result.time < 0 ? NULL : best.algo;
}

/* And, to compare, what takes no notice of nodes. */
static void add_flat(struct cluster *c, const struct algo *algo, uint64_t bytes)
{
	struct algo_choice way = {.algo = algo, .channels = 1, .proto = SCHED_SIMPLE};
	struct result result = {.time = simulate_way(c, &way, bytes, now() + options.limit)};

	if (result.time < 0)
		result = (struct result){extrapolate(c, &way, bytes), true};
	print_row(c, &way, bytes, result);
}

static void add_rows(enum sched_coll coll, uint64_t bytes, int ranks)
{
	static const char *const flat[] = {"ring", "tree"};
	const struct algo *best;
	struct cluster c;

	make_cluster(&c, coll, ranks);
	best = add_best(&c, bytes);
	for (size_t i = 0; !options.best && i < sizeof(flat) / sizeof(flat[0]); i++) {
		const struct algo *algo = algo_find(flat[i], coll);

		if (algo && algo != best)
			add_flat(&c, algo, bytes);
	}
	free_cluster(&c);
}

/* ---- options ---- */

static void usage(FILE *out)
{
	fputs("usage: gpucoll-sim --machine FILE [options]\n"
	      "  --machine FILE         what a node is: gpucoll-info -t writes such files\n"
	      "  -s, --shape NAME       of the network: rails (default), fat-tree, dragonfly\n"
	      "  -c, --collectives LIST (default allreduce)\n"
	      "  -b, --bytes LIST       of a buffer, or a block; K, M, G may follow (default "
	      "8,1G)\n"
	      "  -n, --ranks LIST       (default 8,64,512,4096)\n"
	      "  -a, --algo LIST        the best of these: as GPUCOLL_ALGO has them\n"
	      "  -C, --channels NUMBER  and so many channels\n"
	      "      --best             no rows of the flat ring and tree\n"
	      "  -t, --time SECONDS     of a row's simulation; what takes longer is extrapolated "
	      "(default 600)\n"
	      "  -o, --output FILE      the rows (default standard output)\n"
	      "  -h, --help             this text\n",
	      out);
}

static void refuse(const char *option, const char *value, const char *why)
{
	fprintf(stderr, "gpucoll-sim: %s %s: %s\n", option, value, why);
	exit(2);
}

static uint64_t number_of(const char *option, const char *text, uint64_t most)
{
	static const char units[] = "KMG";
	char *end;
	unsigned long long value;
	const char *unit;

	errno = 0;
	value = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (unit)
		value <<= 10 * (unit - units + 1);
	if (errno || end == text || *text == '-' || end[unit != NULL] || !value || value > most)
		refuse(option, text, "not a number that is possible");
	return value;
}

/* Call for each word of a list. */
static void for_each(const char *list, void (*take)(const char *word))
{
	char *copy = strdup(list), *rest = copy, *word;

	if (!copy)
		no_memory();
	while ((word = strsep(&rest, ",")))
		take(word);
	free(copy);
}

static void take_coll(const char *word)
{
	int coll = sched_coll_of(word);

	if (coll < 0)
		refuse("-c", word, "there is no such collective");
	if (options.num_colls == SCHED_NUM_COLLS)
		refuse("-c", word, "too many");
	options.colls[options.num_colls++] = (enum sched_coll)coll;
}

static void take_size(const char *word)
{
	if (options.num_sizes == MOST_LIST)
		refuse("-b", word, "too many");
	options.sizes[options.num_sizes++] = number_of("-b", word, UINT64_C(1) << 40);
}

static void take_ranks(const char *word)
{
	if (options.num_ranks == MOST_LIST)
		refuse("-n", word, "too many");
	options.ranks[options.num_ranks++] = (int)number_of("-n", word, MOST_RANKS);
}

static void take_algos(const char *list)
{
	char error[256];

	if (!algo_wish_algos(list, options.wishes, error, sizeof(error)))
		refuse("-a", list, error);
}

static void take_shape(const char *word)
{
	int shape = 0;

	while (shape < SIM_NUM_SHAPES && strcmp(shapes[shape], word))
		shape++;
	if (shape == SIM_NUM_SHAPES)
		refuse("-s", word, "rails, fat-tree or dragonfly");
	options.shape = (enum sim_shape)shape;
}

static void take_machine(const char *name)
{
	FILE *file = fopen(name, "r");
	char error[256];

	if (!file)
		refuse("--machine", name, strerror(errno));
	options.machine = topo_machine_read(file, name, error, sizeof(error));
	fclose(file);
	if (!options.machine)
		refuse("--machine", name, error);
}

static void take_options(int argc, char **argv)
{
	static const struct option names[] = {
		{"machine", required_argument, NULL, 'm'},
		{"shape", required_argument, NULL, 's'},
		{"collectives", required_argument, NULL, 'c'},
		{"bytes", required_argument, NULL, 'b'},
		{"ranks", required_argument, NULL, 'n'},
		{"algo", required_argument, NULL, 'a'},
		{"channels", required_argument, NULL, 'C'},
		{"best", no_argument, NULL, 'B'},
		{"time", required_argument, NULL, 't'},
		{"output", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	const char *colls = "allreduce", *bytes = "8,1G", *ranks = "8,64,512,4096";

	options.limit = 600;
	options.out = stdout;
	for (int c; (c = getopt_long(argc, argv, "s:c:b:n:a:C:t:o:h", names, NULL)) != -1;) {
		switch (c) {
		case 'm':
			take_machine(optarg);
			break;
		case 's':
			take_shape(optarg);
			break;
		case 'c':
			colls = optarg;
			break;
		case 'b':
			bytes = optarg;
			break;
		case 'n':
			ranks = optarg;
			break;
		case 'a':
			take_algos(optarg);
			break;
		case 'C':
			options.channels = (int)number_of("-C", optarg, MOST_CHANNELS);
			break;
		case 'B':
			options.best = true;
			break;
		case 't':
			options.limit = (double)number_of("-t", optarg, 1000000);
			break;
		case 'o':
			options.out = fopen(optarg, "w");
			if (!options.out)
				refuse("-o", optarg, strerror(errno));
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (optind < argc)
		refuse("argument", argv[optind], "there are none");
	if (!options.machine || !num_gpus()) {
		fputs("gpucoll-sim: --machine FILE is needed, with GPUs in it\n", stderr);
		exit(2);
	}
	for_each(colls, take_coll);
	for_each(bytes, take_size);
	for_each(ranks, take_ranks);
	for (int i = 0; i < options.num_ranks; i++) {
		if (options.ranks[i] > num_gpus() && options.ranks[i] % num_gpus()) {
			fprintf(stderr, "gpucoll-sim: -n %d: not a multiple of a node's %d GPUs\n",
				options.ranks[i], num_gpus());
			exit(2);
		}
	}
}

/* Before the first row, which may take minutes. */
static void check_sizes(void)
{
	int gpus = num_gpus(), most;
	struct cluster c;

	make_cluster(&c, SCHED_ALLREDUCE, 2 * gpus);
	most = sim_net_most_nics(options.shape) / c.network.nics;
	free_cluster(&c);
	for (int i = 0; i < options.num_ranks; i++) {
		if (options.ranks[i] / gpus <= most)
			continue;
		fprintf(stderr, "gpucoll-sim: -n %d: a %s of these nodes has %d GPUs at most\n",
			options.ranks[i], shapes[options.shape], most * gpus);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	util_config_load();
	take_options(argc, argv);
	check_sizes();
	fputs("collective,bytes,ranks,nodes,network,algorithm,protocol,channels,us,bound_us,"
	      "ratio,how\n",
	      options.out);
	for (int i = 0; i < options.num_colls; i++) {
		for (int j = 0; j < options.num_sizes; j++) {
			for (int k = 0; k < options.num_ranks; k++)
				add_rows(options.colls[i], options.sizes[j], options.ranks[k]);
		}
	}
	topo_machine_free(options.machine);
	return fclose(options.out) ? 1 : 0;
}
