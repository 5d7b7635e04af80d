/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucoll-tune: measures, under the library, every way to do each collective on this machine, and
 * writes the times into the file by which the library then chooses (src/core/choose/core_tuning.h).
 *
 * What is clearly slower than the best is measured roughly, and at every second size only once it
 * has been so for some; more channels are not tried where twice as many brought nothing. The others
 * are measured in many turns, one after the other, so that what disturbs the machine for a while
 * disturbs them alike.
 */
#include "core/choose/core_tuning.h"
#include "gpucoll/gpucoll.h"
#include "util/util_config.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAY = 160, FACTOR = 4, TURNS = 15 };

/* A way to do a collective, and how it did. */
struct way {
	const struct algo *algo;
	enum sched_proto proto;
	int channels;
	double time;         /* us, at this size; 0: not measured */
	double turns[TURNS]; /* it is their median, if it is not clearly slower than the best */
	int behind;          /* sizes in a row at which it was clearly slower than the best */
	char words[WAY];     /* of the file's line, at this size */
};

/* So many times slower than the best. */
static const double clearly = 2;

static struct {
	const char *colls, *file;
	size_t least, most;
	double limit; /* s */
	bool quiet;
} options = {.colls = "allreduce,bcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter",
	     .least = 8,
	     .most = 64 << 20,
	     .limit = 300};

static int rank, size;
static char *send_buffer, *recv_buffer;
static double started;
static FILE *lines; /* of rank 0: what was measured */

static void fail(const char *format, const char *value)
{
	if (rank == 0) {
		fputs("gpucoll-tune: ", stderr);
		fprintf(stderr, format, value);
		fputc('\n', stderr);
	}
	MPI_Finalize();
	exit(2);
}

static void cuda_check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "gpucoll-tune: rank %d: %s: %s\n", rank, what, cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 3);
}

/* ---- options ---- */

static void usage(void)
{
	if (rank)
		return;
	fputs("usage: gpucoll-exec mpirun -n N gpucoll-tune [OPTION...]\n"
	      "  -c, --collectives=LIST  what to measure (default "
	      "allreduce,bcast,reduce,allgather,\n"
	      "                          reduce_scatter,alltoall,gather,scatter)\n"
	      "  -b, --minbytes=SIZE     smallest size of a buffer, or of one block where there is "
	      "one for each\n"
	      "                          rank (default 8)\n"
	      "  -e, --maxbytes=SIZE     largest size of a rank's buffer (default 64M)\n"
	      "  -t, --time=SECONDS      stop after so long, with what there is then (default "
	      "300)\n"
	      "  -o, --output=FILE       where the times go, instead of GPUCOLL_TUNING_FILE or\n"
	      "                          ~/.config/gpucoll/tuning\n"
	      "  -q, --quiet             no progress\n"
	      "  -h, --help              this text\n",
	      stdout);
}

static size_t parse_size(const char *text)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*end && (unit = strchr(units, *end & ~0x20))) {
		value <<= 10 * (unit - units + 1);
		end++;
	}
	if (end == text || *end || *text == '-' || value < 4 || value > (size_t)4 << 30)
		fail("'%s' is no size; say, for example, 1024, 64K or 32M", text);
	return value;
}

static void parse_option(int option, const char *text)
{
	char *end;

	switch (option) {
	case 'c':
		options.colls = text;
		break;
	case 'b':
		options.least = parse_size(text);
		break;
	case 'e':
		options.most = parse_size(text);
		break;
	case 't':
		options.limit = strtod(text, &end);
		if (end == text || *end || !(options.limit > 0))
			fail("'%s' is no number of seconds", text);
		break;
	case 'o':
		options.file = text;
		break;
	case 'q':
		options.quiet = true;
		break;
	case 'h':
		usage();
		MPI_Finalize();
		exit(0);
	default:
		fail("%s", "try gpucoll-tune --help");
	}
}

static void parse_options(int argc, char **argv)
{
	static const struct option long_options[] = {{"collectives", required_argument, NULL, 'c'},
						     {"minbytes", required_argument, NULL, 'b'},
						     {"maxbytes", required_argument, NULL, 'e'},
						     {"time", required_argument, NULL, 't'},
						     {"output", required_argument, NULL, 'o'},
						     {"quiet", no_argument, NULL, 'q'},
						     {"help", no_argument, NULL, 'h'},
						     {NULL, 0, NULL, 0}};
	int option;

	opterr = rank == 0;
	while ((option = getopt_long(argc, argv, "c:b:e:t:o:qh", long_options, NULL)) != -1)
		parse_option(option, optarg);
	if (optind < argc)
		fail("unexpected argument '%s'", argv[optind]);
}

/* ---- calls ---- */

static bool has_blocks(enum sched_coll coll)
{
	return coll == SCHED_REDUCE_SCATTER || coll == SCHED_ALLGATHER || coll == SCHED_GATHER ||
	       coll == SCHED_SCATTER || coll == SCHED_ALLTOALL;
}

static void call(enum sched_coll coll, size_t bytes)
{
	int count = (int)(bytes / sizeof(float));
	MPI_Comm comm = MPI_COMM_WORLD;
	MPI_Datatype type = MPI_FLOAT;

	switch (coll) {
	case SCHED_ALLREDUCE:
		MPI_Allreduce(send_buffer, recv_buffer, count, type, MPI_SUM, comm);
		break;
	case SCHED_REDUCE:
		MPI_Reduce(send_buffer, recv_buffer, count, type, MPI_SUM, 0, comm);
		break;
	case SCHED_REDUCE_SCATTER:
		MPI_Reduce_scatter_block(send_buffer, recv_buffer, count, type, MPI_SUM, comm);
		break;
	case SCHED_SCAN:
		MPI_Scan(send_buffer, recv_buffer, count, type, MPI_SUM, comm);
		break;
	case SCHED_EXSCAN:
		MPI_Exscan(send_buffer, recv_buffer, count, type, MPI_SUM, comm);
		break;
	case SCHED_BCAST:
		MPI_Bcast(recv_buffer, count, type, 0, comm);
		break;
	case SCHED_ALLGATHER:
		MPI_Allgather(send_buffer, count, type, recv_buffer, count, type, comm);
		break;
	case SCHED_GATHER:
		MPI_Gather(send_buffer, count, type, recv_buffer, count, type, 0, comm);
		break;
	case SCHED_SCATTER:
		MPI_Scatter(send_buffer, count, type, recv_buffer, count, type, 0, comm);
		break;
	default:
		MPI_Alltoall(send_buffer, count, type, recv_buffer, count, type, comm);
		break;
	}
}

static double time_calls(enum sched_coll coll, size_t bytes, int number)
{
	double mine, slowest;

	MPI_Barrier(MPI_COMM_WORLD);
	mine = MPI_Wtime();
	for (int i = 0; i < number; i++)
		call(coll, bytes);
	mine = 1e6 * (MPI_Wtime() - mine) / number;
	MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest;
}

static bool is_late(void)
{
	int late = MPI_Wtime() - started > options.limit;

	MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return late;
}

/* ---- ways ---- */

/* NULL: no memory. The caller frees them. */
static struct way *list_ways(enum sched_coll coll, int *count)
{
	enum { OF_ONE = 5 * SCHED_NUM_PROTOS }; /* algorithm, at most: 1 to 16 channels */
	struct way *ways;
	size_t most = 0;
	int num = 0;

	while (algo_catalogue[most].name)
		most++;
	ways = calloc(most * OF_ONE, sizeof(*ways));
	if (!ways)
		return NULL;

	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		bool mapped = algo->needs & ALGO_NEEDS_MAPPED;

		if (!(algo->colls >> coll & 1))
			continue;
		for (int i = 0; i < (mapped ? 1 : SCHED_NUM_PROTOS); i++) {
			for (int channels = 1; channels <= (mapped ? 1 : ALGO_MOST_CHANNELS);
			     channels *= 2)
				ways[num++] = (struct way){.algo = algo,
							   .proto = (enum sched_proto)i,
							   .channels = channels};
		}
	}
	*count = num;
	return ways;
}

static void wish_for(const struct way *way)
{
	char channels[16];

	snprintf(channels, sizeof(channels), "%d", way->channels);
	if (way->algo->needs & ALGO_NEEDS_MAPPED)
		gpucoll_set_algorithms(way->algo->name, NULL, NULL);
	else
		gpucoll_set_algorithms(way->algo->name, sched_proto_name(way->proto), channels);
}

/* Whether all ranks' last call went that way, which rank 0 notes. */
static bool went(struct way *way)
{
	char algo[32] = "", proto[16] = "";
	int channels = 0, mine, all;
	const char *words = way->words;

	*way->words = '\0';
	gpucoll_last_choice(way->words, sizeof(way->words));
	/* time MACHINE ranks= nodes= gpus= COLLECTIVE BYTES ALGO PROTO CHANNELS */
	for (int i = 0; i < 7 && words; i++) {
		words = strchr(words, ' ');
		words = words ? words + 1 : NULL;
	}
	if (words)
		sscanf(words, "%31s %15s %d", algo, proto, &channels);
	mine = !strcmp(algo, way->algo->name) && !strcmp(proto, sched_proto_name(way->proto)) &&
	       way->channels == channels;
	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return all;
}

/*
 * Roughly. The first call may bring memory, kernels, a look at how others' kernels run; and what is
 * slow may just have been disturbed.
 */
static void measure(enum sched_coll coll, size_t bytes, struct way *way, double best)
{
	enum { WARM = 3, FEW = 3 };

	way->time = 0;
	wish_for(way);
	for (int i = 0; i < WARM; i++)
		call(coll, bytes);
	if (!went(way))
		return;
	way->time = time_calls(coll, bytes, FEW);
	if (best > 0 && way->time > clearly * best)
		way->time = fmin(way->time, time_calls(coll, bytes, FEW));
	way->behind = best > 0 && way->time > clearly * best ? way->behind + 1 : 0;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The median counts after the last turn. */
static void measure_again(enum sched_coll coll, size_t bytes, struct way *way, int turn)
{
	enum { FEW = 3, MOST = 20 };
	const double enough = 10e3; /* us */
	double number = fmax(FEW, fmin(enough / way->time, MOST));

	wish_for(way);
	call(coll, bytes);
	way->turns[turn] = time_calls(coll, bytes, (int)number);
	if (turn < TURNS - 1)
		return;
	qsort(way->turns, TURNS, sizeof(way->turns[0]), compare);
	way->time = way->turns[TURNS / 2];
}

static const struct way *narrower(const struct way *ways, int num, const struct way *way)
{
	for (int i = 0; i < num; i++) {
		if (ways[i].algo == way->algo && ways[i].proto == way->proto &&
		    2 * ways[i].channels == way->channels)
			return &ways[i];
	}
	return NULL;
}

/*
 * Whether twice the channels did not help, or it has been slow for long, and is let out for a size.
 */
static bool is_hopeless(const struct way *ways, int num, struct way *way)
{
	enum { PATIENCE = 3 };
	const struct way *half = narrower(ways, num, way);
	const struct way *quarter = half ? narrower(ways, num, half) : NULL;

	if (way->behind >= PATIENCE) {
		way->behind--;
		return true;
	}
	if (half && half->time == 0)
		return true;
	return quarter && half->time > quarter->time;
}

static void show(enum sched_coll coll, size_t bytes, int done, int all, const struct way *best)
{
	enum { WIDTH = 30 };
	char bar[WIDTH + 1];

	if (rank || options.quiet || !isatty(STDERR_FILENO))
		return;
	memset(bar, '.', WIDTH);
	memset(bar, '#', (size_t)(WIDTH * done / all));
	bar[WIDTH] = '\0';
	fprintf(stderr, "\r[%s] %-14s %10zu bytes  %-18s %9.1f us ", bar, sched_coll_name(coll),
		bytes, best ? best->algo->name : "", best ? best->time : 0);
}

static struct way *best_of(struct way *ways, int num)
{
	struct way *best = NULL;

	for (int i = 0; i < num; i++) {
		if (ways[i].time > 0 && (!best || ways[i].time < best->time))
			best = &ways[i];
	}
	return best;
}

/* All ways at one size. Returns the best; NULL: none is possible, or there is no time left. */
static const struct way *measure_size(enum sched_coll coll, size_t bytes, struct way *ways, int num)
{
	const struct way *best = NULL;
	double most;

	for (int i = 0; i < num; i++) {
		struct way *way = &ways[i];

		show(coll, bytes, i, num + TURNS, best);
		way->time = 0;
		if (is_hopeless(ways, num, way))
			continue;
		if (is_late())
			return NULL;
		measure(coll, bytes, way, best ? best->time : 0);
		best = best_of(ways, i + 1);
	}
	most = best ? clearly * best->time : 0;
	for (int turn = 0; turn < TURNS; turn++) {
		show(coll, bytes, num + turn, num + TURNS, best);
		if (is_late())
			return NULL;
		/* Times change in the last turn only, each after its way was looked at. */
		for (int i = 0; i < num; i++) {
			if (ways[i].time > 0 && ways[i].time <= most)
				measure_again(coll, bytes, &ways[i], turn);
		}
	}
	return best_of(ways, num);
}

static void report(enum sched_coll coll, size_t bytes, const struct way *best,
		   const struct way *ways, int num)
{
	if (rank)
		return;
	if (!options.quiet && isatty(STDERR_FILENO))
		fprintf(stderr, "\r%100s\r", "");
	printf("%-14s %10zu bytes  %-18s %-6s x%-2d %10.1f us\n", sched_coll_name(coll), bytes,
	       best->algo->name, sched_proto_name(best->proto), best->channels, best->time);
	fflush(stdout);
	for (int i = 0; i < num; i++) {
		if (ways[i].time > 0)
			fprintf(lines, "%s %.2f\n", ways[i].words, ways[i].time);
	}
}

/* False: there is no time left, or no memory. */
static bool tune(enum sched_coll coll)
{
	int num = 0;
	struct way *ways = list_ways(coll, &num);
	size_t blocks = has_blocks(coll) ? (size_t)size : 1;
	bool late = !ways;

	for (size_t bytes = options.least; bytes * blocks <= options.most && !late;
	     bytes *= FACTOR) {
		const struct way *best = measure_size(coll, bytes, ways, num);

		if (best)
			report(coll, bytes, best, ways, num);
		else
			late = is_late();
	}
	free(ways);
	return !late;
}

/* ---- the file ---- */

/* The words that say what was measured, up to the bytes, to compare lines by. */
static size_t subject(const char *line)
{
	const char *end = line;

	for (int i = 0; i < 7 && end; i++) {
		end = strchr(end, ' ');
		end = end ? end + 1 : NULL;
	}
	return end ? (size_t)(end - line) : 0;
}

static bool is_measured_again(const char *line, const char *measured)
{
	size_t length = subject(line);

	for (const char *new = measured; length &&*new; new = strchr(new, '\n') + 1) {
		if (subject(new) == length && !strncmp(line, new, length))
			return true;
	}
	return false;
}

/* Read a line, without its end. */
static bool next_line(FILE *in, char **line, size_t *room)
{
	if (getline(line, room, in) < 0)
		return false;
	(*line)[strcspn(*line, "\r\n")] = '\0';
	return true;
}

static bool is_comment(const char *line)
{
	line += strspn(line, " \t");
	return !*line || *line == '#';
}

/* Whether the file can take the times: it is not there yet, or is one of this version. */
static bool is_ours(const char *name)
{
	FILE *in = fopen(name, "r");
	char *line = NULL;
	size_t room = 0;
	bool read;

	if (!in)
		return errno == ENOENT || errno == ENOTDIR;
	while ((read = next_line(in, &line, &room)) && is_comment(line))
		;
	read = !read || !strcmp(line, CORE_TUNING_HEAD);
	free(line);
	fclose(in);
	return read;
}

/* Copy what is about other machines, other ranks and other calls. */
static void keep_others(FILE *out, const char *name, const char *measured)
{
	FILE *in = fopen(name, "r");
	char *line = NULL;
	size_t room = 0;

	while (in && next_line(in, &line, &room)) {
		if (strcmp(line, CORE_TUNING_HEAD) && !is_measured_again(line, measured))
			fprintf(out, "%s\n", line);
	}
	free(line);
	if (in)
		fclose(in);
}

/* Folders down to the file. */
static void make_folders(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", name);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0777);
		*slash = '/';
	}
}

/* The new file takes the old one's place when it is whole. Returns an exit status. */
static int write_file(const char *name, const char *measured)
{
	char other[PATH_MAX + 16];
	FILE *out = NULL;
	bool well = false;
	int file;

	make_folders(name);
	snprintf(other, sizeof(other), "%s.XXXXXX", name);
	file = mkstemp(other);
	if (file >= 0)
		out = fdopen(file, "w");
	if (out) {
		fputs(CORE_TUNING_HEAD "\n", out);
		keep_others(out, name, measured);
		fputs(measured, out);
		well = !ferror(out) && !fchmod(file, 0644);
		well = !fclose(out) && well;
	}
	if (!well || rename(other, name)) {
		fprintf(stderr, "gpucoll-tune: %s: %s\n", name, strerror(errno));
		unlink(other);
		return 1;
	}
	printf("# the times are in %s\n", name);
	return 0;
}

/* ---- all ---- */

static void prepare(void)
{
	size_t bytes = options.most + 16;
	int devices, local_rank;
	MPI_Comm node;

	/* The processes of a node on its GPUs in turn. */
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
	MPI_Comm_rank(node, &local_rank);
	MPI_Comm_free(&node);
	cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
	cuda_check(cudaSetDevice(local_rank % devices), "cudaSetDevice");
	cuda_check(cudaMalloc((void **)&send_buffer, bytes), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv_buffer, bytes), "cudaMalloc");
	cuda_check(cudaMemset(send_buffer, 0, bytes), "cudaMemset");
	cuda_check(cudaMemset(recv_buffer, 0, bytes), "cudaMemset");
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void tune_all(void)
{
	char *list = strdup(options.colls), *rest = list, *name;
	bool late = false;

	while (!late && (name = strsep(&rest, ","))) {
		int coll = sched_coll_of(name);

		if (coll < 0)
			fail("there is no collective '%s'", name);
		late = !tune((enum sched_coll)coll);
	}
	free(list);
	if (late && rank == 0)
		fprintf(stderr, "gpucoll-tune: stopped after %g s; --time allows for more\n",
			options.limit);
}

int main(int argc, char **argv)
{
	char file[PATH_MAX], *measured = NULL;
	size_t bytes;
	int result = 0;

	/* Much of what is tried is not possible, and said to be. */
	setenv("GPUCOLL_DEBUG", "none", 0);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	parse_options(argc, argv);
	util_config_load();
	util_config_tuning_path(file, sizeof(file));
	if (options.file)
		snprintf(file, sizeof(file), "%s", options.file);
	if (!*file)
		fail("%s", "there is no HOME for the file: name one with --output");
	if (rank == 0 && !is_ours(file)) {
		fprintf(stderr,
			"gpucoll-tune: %s is no tuning file of this version, or can't be read: "
			"name another with --output\n",
			file);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	prepare();
	started = MPI_Wtime();
	lines = open_memstream(&measured, &bytes);
	tune_all();
	fclose(lines);
	if (rank == 0 && !*measured) {
		fputs("gpucoll-tune: no call was accelerated; GPUCOLL_STATS=1 says why\n", stderr);
		result = 1;
	} else if (rank == 0) {
		result = write_file(file, measured);
	}
	free(measured);
	cudaFree(send_buffer);
	cudaFree(recv_buffer);
	MPI_Finalize();
	return result;
}
